/* Variants by name, and the key of tuning records: see variants.h.

   The key must not depend on names that a user chose: the same product in two models is one
   record (kernel_key.h). */
#include "variants.h"
#include "ir/kernel/kernel_key.h"
#include "tune.h"
#include <ctype.h>
#include <stdlib.h>

_Static_assert((int)CONTRACT_COUNT <= TILE_MOST && (int)GPU_CONTRACT_COUNT <= TILE_MOST &&
                   (int)ATTENTION_COUNT <= TILE_MOST && (int)GPU_ATTENTION_COUNT <= TILE_MOST,
               "a Cut holds the numbers of every family");

const Variants *variants_find(const char *family, DeviceKind device) {
  const Variants *v;
  for (int i = 0; (v = variants_row(i, device)); i++)
    if (!strcmp(v->family, family) || (v->alias && !strcmp(v->alias, family))) return v;
  return NULL;
}

KernelLimits machine_of(const Module *m) {
  const TargetFacts *t = &m->target;
  return (KernelLimits){.registers = t->vector_registers,
                        .l2 = t->l2,
                        .workers = t->workers,
                        .lanes = target_lanes(t),
                        .bf16_dot_fast = t->bf16_dot_fast,
                        .bf16_dot = t->bf16_dot,
                        .amx = t->amx};
}

/* ---- keys ---- */

Str variants_key(Module *m, const Variants *v, const Fn *k) {
  uint64_t h = 14695981039346656037u;
  for (const char *c = kernel_key(m, k, 0); *c; c++) h = (h ^ (unsigned char)*c) * 1099511628211u;
  return intern_printf(m->ctx->names, "%s-%016llx", v->shape(m, k), (unsigned long long)h);
}

const char *variants_setting(Module *m, const Variants *v, Str key) {
  return arena_printf(m->arena, "tune.%s.%s", v->family, key);
}

/* ---- cuts as text ---- */

Str variants_text(Module *m, const Variants *v, const Cut *c) {
  must(v->count <= TILE_MOST, "cuts of family %s are %d numbers", v->family, v->count);
  const char *text = "";
  for (int i = 0; i < v->count; i++)
    text = arena_printf(m->arena, "%s%s%lld", text, i ? " " : "", (long long)c->at[i]);
  return intern(m->ctx->names, text);
}

bool variants_read(const Variants *v, const char *text, Cut *c) {
  *c = (Cut){0};
  for (int i = 0; i < v->count; i++) {
    char *end;
    while (*text == ' ') text++;
    if (!isdigit((unsigned char)*text)) return false;
    long long n = strtoll(text, &end, 10);
    if (n > 1 << 30 || end - text > 10) return false;
    c->at[i] = n, text = end;
  }
  return !text[strspn(text, " ")];
}
