/* Kernels of compiled modules through ptxas: gpu_spills SEEN DUMP.ir.. builds the kernels of
   dumps after `select` as `shardc compile` does, which fails where ptxas refuses one and warns
   where it keeps registers in memory. One kernel of each kind (the same ops, types, cut, and the
   same powers of two in their sizes) is built; file SEEN holds the hashes of built ones, so that
   a sweep over models and sizes meets each once. Exit 1 if a kernel fails. For kernels.py. */
#include "codegen/codegen.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 1 << 16, DIVISOR = 64 };

typedef struct Seen {
  uint64_t at[ROOM];
  int n;
  FILE *file;
} Seen;

static bool is_new(Seen *s, uint64_t hash) {
  for (int i = 0; i < s->n; i++)
    if (s->at[i] == hash) return false;
  if (s->n < ROOM) s->at[s->n++] = hash;
  fprintf(s->file, "%016llx\n", (unsigned long long)hash);
  return true;
}

static void read_seen(Seen *s) {
  unsigned long long hash;
  rewind(s->file);
  while (s->n < ROOM && fscanf(s->file, "%llx", &hash) == 1) s->at[s->n++] = hash;
  fseek(s->file, 0, SEEK_END);
}

/* ---- what makes kernels alike ---- */

static uint64_t mix(uint64_t h, uint64_t x) { return (h ^ x) * 1099511628211u; }

static uint64_t mix_text(uint64_t h, const char *text) {
  for (; *text; text++) h = mix(h, (unsigned char)*text);
  return mix(h, 256);
}

static uint64_t mix_list(uint64_t h, const Fn *k, AttrKey key) {
  const Attr *a = attr_get(&k->attrs, key);
  for (int64_t i = 0; a && i < a->i; i++) h = mix(h, (uint64_t)a->list[i]);
  return mix(h, 257);
}

static int64_t power_in(int64_t size) {
  int64_t power = size & -size;
  return size == 1 ? 0 : power < DIVISOR ? power : DIVISOR;
}

static uint64_t kind_of(const Module *m, const Fn *k) {
  uint64_t h = mix_text(14695981039346656037u, target_of(m)->name);
  h = mix_text(h, attr_str(&k->attrs, ATTR_family, ""));
  h = mix_text(h, attr_str(&k->attrs, ATTR_variant, ""));
  h = mix_list(mix_list(h, k, ATTR_tile), k, ATTR_threads);
  for (OpId i = 0; i < k->ops.n; i++) h = mix(h, (uint64_t)k->ops.at[i].code);
  for (ValueId v = 0; v < k->values.n; v++) {
    const Type *t = value_type(k, v);
    h = mix(h, 300 + (uint64_t)t->elem);
    for (int i = 0; i < t->rank; i++) h = mix(h, (uint64_t)power_in(t->axis[i].size));
  }
  return h;
}

/* ---- building ---- */

static bool builds(const Module *m, Fn *k) {
  Module one = *m;
  memset(&one.fns, 0, sizeof one.fns);
  module_add(&one, k);
  const char *folder = work_folder(m->ctx);
  bool ok = folder && kernels_build(&one, folder, 1);
  if (folder) remove_folder(m->arena, folder);
  return ok;
}

static int check(Seen *s, const char *path) {
  Ctx *c = ctx_new();
  Module *m = ir_read(c, path);
  int built = 0, failed = !m;
  for (uint32_t i = 0; m && i < m->fns.n; i++) {
    Fn *k = m->fns.at[i];
    if (k->kind != FN_KERNEL || !is_new(s, kind_of(m, k))) continue;
    built++, failed += !builds(m, k);
  }
  failed += diag_given(c->diag, "W1316");
  diag_print(c->diag, stderr, DIAG_HUMAN, false);
  printf("%s: %d kernels, %d wrong\n", path, built, failed);
  fflush(stdout), fflush(s->file);
  ctx_free(c);
  return failed;
}

int main(int argc, char **argv) {
  static Seen seen;
  int failed = 0;
  if (argc < 3 || !(seen.file = fopen(argv[1], "a+"))) {
    fprintf(stderr, "usage: gpu_spills SEEN DUMP.ir..\n");
    return 2;
  }
  read_seen(&seen);
  for (int i = 2; i < argc; i++) failed += check(&seen, argv[i]);
  fclose(seen.file);
  return failed != 0;
}
