/* Token files in the formats that executables read: heads, tokens, Megatron's index. A file has its
   name only when it is complete. A name under which it would be read as something else is refused.
   Must not: know where tokens come from. */
#include "data_shards.h"
#include "ir/support/refused.h"
#include <stdlib.h>
#include <unistd.h>

static const struct {
  const char *name;
  int narrow, wide; /* bytes of a token: the least that holds all; equal: no choice */
  int head;
  const char *ends; /* of file names, as this format; a blank between */
} formats[] = {[TO_BYTES] = {"bytes", 1, 1, 0, ".txt .bytes"},
               [TO_U16] = {"u16", 2, 2, 0, ".bin .u16"},
               [TO_U32] = {"u32", 4, 4, 0, ".u32"},
               [TO_LLMC] = {"llmc", 2, 4, 1024, ".bin"},
               [TO_NPY] = {"npy", 2, 4, 128, ".npy"},
               [TO_MEGATRON] = {"megatron", 2, 4, 0, ".bin"}};
enum { FORMATS = sizeof formats / sizeof *formats };

static bool failed(Shards *shards) {
  diag_refused(shards->o->c->diag, "E0002", CANNOT_WRITE, shards->name);
  return false;
}

/* ---- which format ---- */

static int find_format(const char *name) {
  for (int i = 0; i < FORMATS; i++)
    if (!strcmp(formats[i].name, name)) return i;
  return -1;
}

static const char *end_of(const char *path) {
  const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
  return dot && (!slash || dot > slash) ? dot : "";
}

static bool end_fits(int format, const char *end) {
  size_t n = strlen(end);
  for (const char *p = formats[format].ends; n && *p; p += strcspn(p, " "), p += *p == ' ')
    if (strcspn(p, " ") == n && !strncmp(p, end, n)) return true;
  return false;
}

/* By --to; without it by the name: .npy, .u16, .u32; llm.c's format otherwise. */
static int choose_format(const Cli *o, const char *output) {
  const char *to = o->value[OPT_TO], *end = end_of(output);
  if (to) return find_format(to);
  return !strcmp(end, ".npy")   ? TO_NPY
         : !strcmp(end, ".u16") ? TO_U16
         : !strcmp(end, ".u32") ? TO_U32
                                : TO_LLMC;
}

static Exit misnamed(int format, const char *output) {
  return cli_usage("`%s` would not be read as %s again: its name should end in one of %s", output,
                   formats[format].name, formats[format].ends);
}

static Exit too_large(Cli *o, int format, int64_t largest) {
  Report *r = diag_at(o->c->diag, "E1402", (Span){0}, "token %lld does not fit the format `%s`",
                      (long long)largest, formats[format].name);
  diag_help(r, "`--to llmc` takes 16 or 32 bits, as needed");
  return EXIT_INPUT;
}

Exit shards_open(Shards *shards, Cli *o, int64_t largest) {
  const char *output = o->value[OPT_OUTPUT];
  if (!output) return cli_usage("where to? --output FILE");
  int format = choose_format(o, output);
  if (format < 0)
    return cli_usage("`--to` is one of bytes, u16, u32, llmc, npy, megatron, not `%s`",
                     o->value[OPT_TO]);
  if (!end_fits(format, end_of(output))) return misnamed(format, output);
  *shards = (Shards){.o = o, .output = output, .format = (TokenFormat)format, .out.fd = -1};
  if (cli_whole(o, OPT_SHARD, 1, MOST_TOKENS, &shards->most) != EXIT_FINE) return EXIT_USAGE;
  shards->width =
      largest >> 8 * formats[format].narrow ? formats[format].wide : formats[format].narrow;
  if (largest >> 8 * shards->width) return too_large(o, format, largest);
  return can_write(o->c, output) ? EXIT_FINE : EXIT_ENVIRONMENT;
}

/* ---- files ---- */

static void put_le(uint8_t *at, uint64_t v, int bytes) {
  for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(v >> 8 * i);
}

static bool write_bytes(Shards *shards, FILE *file, const void *data, size_t n) {
  return fwrite(data, 1, n, file) == n || failed(shards);
}

static bool write_head(Shards *shards) {
  uint8_t head[1024] = {0};
  int n = formats[shards->format].head;
  if (shards->format == TO_LLMC) {
    put_le(head, shards->width == 2 ? 20240520 : 20240801, 4),
        put_le(head + 4, shards->width == 2 ? 1 : 7, 4);
    put_le(head + 8, (uint64_t)shards->n, 4);
  } else if (shards->format == TO_NPY) {
    memcpy(head, "\x93NUMPY\1\0\x76\0", 10);
    memset(head + 10, ' ', 117), head[127] = '\n';
    char text[100];
    int k =
        snprintf(text, sizeof text, "{'descr': '<u%d', 'fortran_order': False, 'shape': (%lld,), }",
                 shards->width, (long long)shards->n);
    memcpy(head + 10, text, (size_t)k);
  }
  return n == 0 || write_bytes(shards, shards->f, head, (size_t)n);
}

static FILE *open_stream(const Shards *shards, Output *o, const char *name) {
  FILE *file = output_open(o, shards->o->c->arena, name, 0666) ? fdopen(dup(o->fd), "wb") : NULL;
  if (!file) output_close(o, false);
  return file;
}

static bool start_file(Shards *shards) {
  const char *end = end_of(shards->output);
  Arena *arena = shards->o->c->arena;
  shards->name = shards->output, shards->n = 0, shards->ends.n = 0;
  if (shards->most)
    shards->name = arena_printf(arena, "%.*s_%06d%s", (int)(end - shards->output), shards->output,
                                shards->files, end);
  shards->f = open_stream(shards, &shards->out, shards->name);
  shards->files++;
  return shards->f ? write_head(shards) : failed(shards);
}

/* Lengths and places of documents as sequences, each a document of its own. */
static bool write_tables(Shards *shards, FILE *file) {
  uint8_t v[8];
  uint32_t n = shards->ends.n;
  bool ok = true;
  for (uint32_t i = 0; ok && i < n; i++) {
    put_le(v, (uint64_t)(shards->ends.at[i] - (i ? shards->ends.at[i - 1] : 0)), 4);
    ok = write_bytes(shards, file, v, 4);
  }
  for (uint32_t i = 0; ok && i < n; i++) {
    put_le(v, (uint64_t)((i ? shards->ends.at[i - 1] : 0) * shards->width), 8);
    ok = write_bytes(shards, file, v, 8);
  }
  for (uint32_t i = 0; ok && i <= n; i++) put_le(v, i, 8), ok = write_bytes(shards, file, v, 8);
  return ok;
}

static bool write_index(Shards *shards) {
  size_t n = strlen(shards->name) - strlen(end_of(shards->name));
  const char *name = arena_printf(shards->o->c->arena, "%.*s.idx", (int)n, shards->name);
  uint8_t head[34] = "MMIDIDX\0\0";
  Output out;
  FILE *file = open_stream(shards, &out, name);
  if (!file) return failed(shards);
  put_le(head + 9, 1, 8), head[17] = shards->width == 2 ? 8 : 4;
  put_le(head + 18, shards->ends.n, 8), put_le(head + 26, shards->ends.n + 1, 8);
  bool ok = write_bytes(shards, file, head, sizeof head) && write_tables(shards, file);
  if (fclose(file) && ok) ok = failed(shards);
  return output_close(&out, ok) || (ok && failed(shards));
}

static bool end_file(Shards *shards) {
  bool megatron = shards->format == TO_MEGATRON;
  int64_t last = shards->ends.n ? shards->ends.at[shards->ends.n - 1] : 0;
  if (megatron && last < shards->n) vec_push(shards->o->c->arena, shards->ends, shards->n);
  bool ok = !formats[shards->format].head || !fseek(shards->f, 0, SEEK_SET) ? write_head(shards)
                                                                            : failed(shards);
  if (fclose(shards->f) && ok) ok = failed(shards);
  shards->f = NULL;
  ok = ok && (!megatron || write_index(shards));
  return output_close(&shards->out, ok) || (ok && failed(shards));
}

/* The number of tokens that still fit into this file. */
static int64_t room(const Shards *shards) {
  int64_t most = shards->most ? shards->most : INT64_MAX;
  bool counted = shards->format == TO_LLMC;
  if (counted && most > INT32_MAX) most = INT32_MAX;
  return most - shards->n;
}

static bool write_tokens(Shards *shards, const int32_t *ids, int64_t n) {
  uint8_t block[1 << 14];
  int64_t most = (int64_t)sizeof block / shards->width;
  for (int64_t k; n > 0; ids += k, n -= k) {
    k = n < most ? n : most;
    for (int64_t i = 0; i < k; i++)
      put_le(block + i * shards->width, (uint32_t)ids[i], shards->width);
    if (!write_bytes(shards, shards->f, block, (size_t)(k * shards->width))) return false;
  }
  return true;
}

static bool over_full(Shards *shards) {
  Report *r = diag_at(shards->o->c->diag, "E1402", (Span){0},
                      "`%s` holds no more than 2147483647 tokens as llm.c's format", shards->name);
  diag_help(r, "`--shard 1000000000` writes several files");
  return false;
}

bool shards_add(Shards *shards, const int32_t *ids, int64_t n) {
  for (int64_t k; n > 0; ids += k, n -= k) {
    if (shards->f && shards->most && room(shards) == 0 && !end_file(shards)) return false;
    if (!shards->f && !start_file(shards)) return false;
    k = n < room(shards) ? n : room(shards);
    if (k == 0) return over_full(shards);
    if (!write_tokens(shards, ids, k)) return false;
    shards->n += k, shards->total += k;
  }
  return true;
}

void shards_end_document(Shards *shards) {
  int64_t last = shards->ends.n ? shards->ends.at[shards->ends.n - 1] : 0;
  if (shards->f && shards->n > last) vec_push(shards->o->c->arena, shards->ends, shards->n);
}

bool shards_close(Shards *shards) { return (shards->f || start_file(shards)) && end_file(shards); }

void shards_remove(Shards *shards) {
  if (shards->f) fclose(shards->f);
  output_close(&shards->out, false);
}
