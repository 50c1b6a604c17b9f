/* Looks for numbers that are not finite; names the tensors that hold some and those without. */
#include "checkpoint.h"
#include "runtime/device/shard_piece.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Counts of short blocks, in 32 bits: the compiler makes vectors of them. */
static int64_t bad_f32(const float *data, int64_t n) {
  enum { BLOCK = 4096 };
  const uint32_t exponent = 0x7f800000;
  int64_t bad = 0;
  for (int64_t from = 0; from < n; from += BLOCK) {
    int64_t end = n - from < BLOCK ? n : from + BLOCK;
    int32_t some = 0;
    for (int64_t i = from; i < end; i++) {
      uint32_t word;
      memcpy(&word, &data[i], sizeof word);
      some += (word & exponent) == exponent;
    }
    bad += some;
  }
  return bad;
}

static int64_t bad_among(const rt_tensor *tensor, const void *data, int64_t n) {
  int64_t bad = 0;
  if (tensor->elem == RT_F32) bad = bad_f32(data, n);
  else if (tensor->elem == RT_BF16 || tensor->elem == RT_F16 || tensor->elem == RT_F64)
    for (int64_t i = 0; i < n; i++) bad += !isfinite(rt_elem_get(tensor->elem, data, i));
  return bad;
}

static int64_t bad_in(const Device *d, const rt_tensor *tensor) {
  PieceWalk walk = rt_pieces(d->program, tensor, rt_comm_rank(d->comm));
  int64_t bad = 0, bytes = rt_elem_bytes((int)tensor->elem);
  for (Piece piece, part; rt_piece_next(&walk, &piece);)
    while (rt_piece_cut(&piece, rt_span_most(d, piece.in) / bytes, &part)) {
      int64_t n = part.to - part.from;
      bad += bad_among(tensor, rt_span_read(d, part.in, part.at * bytes, n * bytes), n);
    }
  return bad;
}

/* Adds a name to a list; one that is full ends in "..". */
static void append(char *text, size_t n, const char *name, int64_t bad) {
  char piece[RT_NAME + 32];
  size_t k = strlen(text);
  if (k > 2 && text[k - 1] == '.') return;
  if (bad) snprintf(piece, sizeof piece, "%s%s (%lld)", k ? ", " : "", name, (long long)bad);
  else snprintf(piece, sizeof piece, "%s%s", k ? ", " : "", name);
  bool fits = k + strlen(piece) + 6 < n;
  snprintf(text + k, n - k, "%s", fits ? piece : k ? ", .." : "..");
}

static bool asked(const Device *d, unsigned kinds, int i) {
  const rt_tensor *tensor = &d->program->tensors[i];
  return kinds >> tensor->kind & 1 && rt_is_there(d, tensor);
}

int rt_check_finite(const Device *d, unsigned kinds, char *names, size_t nnames, char *clean,
                    size_t nclean) {
  int nonfinite = 0, n = d->program->ntensors;
  int64_t *bad = rt_alloc(sizeof *bad * (size_t)n);
  names[0] = clean[0] = 0;
  for (int i = 0; i < n; i++)
    if (asked(d, kinds, i)) bad[i] = bad_in(d, &d->program->tensors[i]);
  rt_comm_max_of(d->comm, "numbers that are not finite", bad, n);
  for (int i = 0; i < n; i++) {
    const rt_tensor *tensor = &d->program->tensors[i];
    if (!asked(d, kinds, i)) continue;
    nonfinite += bad[i] > 0;
    append(bad[i] ? names : clean, bad[i] ? nnames : nclean, tensor->name, bad[i]);
  }
  free(bad);
  return nonfinite;
}
