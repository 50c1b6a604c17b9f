/* Megatron's pair of files: tokens in .bin, and the offsets of sequences and documents in .idx:
     "MMIDIDX\0\0", u64 version 1, u8 number type,
     u64 sequences s, u64 entries d of the last table,
     s x i32 lengths,
     s x i64 places in bytes,
     d x i64 first sequence of each document, and their end
   Megatron's tools write contiguous sequences; a pair with gaps is refused, because windows cross
   sequences. Must not: allocate; believe a count that the file does not hold. */
#include "formats.h"
#include <string.h>

enum { HEAD = 34 };

static bool bad(Fault *f, const char *why, int64_t position) {
  rt_fault(f, 202, "damaged Megatron index: %s", why);
  return rt_at(f, "", "byte", position);
}

static bool number_type(int code, Array *array) {
  static const struct {
    int width;
    NumberKind kind;
  } types[] = {{0, 0},          {1, NUMBER_UINT}, {1, NUMBER_INT},   {2, NUMBER_INT},
               {4, NUMBER_INT}, {8, NUMBER_INT},  {8, NUMBER_FLOAT}, {4, NUMBER_FLOAT},
               {2, NUMBER_UINT}};
  if (code < 1 || code > 8) return false;
  return array->width = types[code].width, array->kind = types[code].kind, true;
}

/* The tables must fill the file; files of several modes have a byte per sequence after the
   tables. */
static bool tables_fit(Bytes index, uint64_t sequences, uint64_t entries) {
  uint64_t room = (uint64_t)index.n - HEAD;
  if (sequences > room / 12 || entries > (room - 12 * sequences) / 8) return false;
  uint64_t rest = room - 12 * sequences - 8 * entries;
  return rest == 0 || rest == sequences;
}

static bool check_sequences(Bytes index, int64_t n, int64_t bytes, const Array *array, Fault *f) {
  const uint8_t *length = index.at + HEAD, *place = length + 4 * n;
  int64_t at = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t count = (int32_t)rt_load_le(length + 4 * i, 4);
    if (count < 0 || count > (bytes - at) / array->width)
      return bad(f, "a sequence reaches beyond the tokens", HEAD + 4 * i);
    if ((int64_t)rt_load_le(place + 8 * i, 8) != at)
      return bad(f, "sequences are not contiguous", HEAD + 4 * n + 8 * i);
    at += count * array->width;
  }
  return at == bytes || bad(f, "the .bin file holds more than its sequences", -1);
}

static bool check_documents(const Array *array, Fault *f) {
  int64_t before = 0, n = array->documents;
  for (int64_t i = 0; i < n; i++) {
    int64_t v = (int64_t)rt_load_le(array->document + 8 * i, 8);
    if (v < before || v > array->sequences || (i == 0 && v != 0))
      return bad(f, "the table of documents is not in order", -1);
    before = v;
  }
  return n == 0 || before == array->sequences || bad(f, "the last document has no end", -1);
}

bool rt_megatron_is(Bytes index) { return index.n >= 9 && !memcmp(index.at, "MMIDIDX\0\0", 9); }

bool rt_megatron_open(Bytes index, Bytes tokens, Array *array, Fault *f) {
  *array = (Array){.format = "megatron", .at = tokens.at};
  if (index.n >= 6 && !memcmp(index.at, "TNTIDX", 6))
    return bad(f, "it is of the old kind (TNTIDX), which is not read", 0);
  if (!rt_megatron_is(index)) return bad(f, "wrong magic", 0);
  if (index.n < HEAD) return bad(f, "the file ends in its head", index.n);
  if (rt_load_le(index.at + 9, 8) != 1) return bad(f, "unknown version", 9);
  if (!number_type(index.at[17], array)) return bad(f, "unknown number type", 17);
  uint64_t sequences = rt_load_le(index.at + 18, 8), entries = rt_load_le(index.at + 26, 8);
  if (!tables_fit(index, sequences, entries))
    return bad(f, "it is not as long as its head says", 18);
  array->sequences = (int64_t)sequences, array->documents = (int64_t)entries;
  array->place = index.at + HEAD + 4 * sequences, array->document = array->place + 8 * sequences;
  array->count = tokens.n / array->width;
  return check_sequences(index, array->sequences, tokens.n, array, f) && check_documents(array, f);
}

int64_t rt_array_document(const Array *array, int64_t d) {
  int64_t sequence = (int64_t)rt_load_le(array->document + 8 * d, 8);
  if (sequence >= array->sequences) return array->count;
  return (int64_t)rt_load_le(array->place + 8 * sequence, 8) / array->width;
}

bool rt_array_ends(const Array *array, int64_t i) {
  int64_t low = 0, high = array->documents - 1; /* entries; the last one is the end of all */
  if (high < 1) return false;
  while (high - low > 1) { /* the document that holds i */
    int64_t middle = low + (high - low) / 2;
    if (rt_array_document(array, middle) <= i) low = middle;
    else high = middle;
  }
  return rt_array_document(array, high) == i + 1;
}
