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
  const Variants *variants;
  for (int i = 0; (variants = variants_row(i, device)); i++)
    if (!strcmp(variants->family, family) || (variants->alias && !strcmp(variants->alias, family)))
      return variants;
  return NULL;
}

KernelLimits machine_of(const Module *m) {
  const TargetFacts *facts = &m->target;
  return (KernelLimits){.filled = 1,
                        .registers = facts->vector_registers,
                        .l2 = facts->l2,
                        .workers = facts->workers,
                        .lanes = target_lanes(facts),
                        .bf16_dot_fast = facts->bf16_dot_fast,
                        .bf16_dot = facts->bf16_dot,
                        .amx = facts->amx};
}

/* ---- keys ---- */

Str variants_key(Module *m, const Variants *variants, const Fn *k) {
  uint64_t h = 14695981039346656037u;
  for (const char *c = kernel_key(m, k, 0); *c; c++) h = (h ^ (unsigned char)*c) * 1099511628211u;
  return intern_printf(m->ctx->names, "%s-%016llx", variants->shape(m, k), (unsigned long long)h);
}

const char *variants_setting(Module *m, const Variants *variants, Str key) {
  return arena_printf(m->arena, "tune.%s.%s", variants->family, key);
}

/* ---- cuts as text ---- */

Str variants_text(Module *m, const Variants *variants, const Cut *cut) {
  must(variants->count <= TILE_MOST, "cuts of family %s are %d numbers", variants->family,
       variants->count);
  const char *text = "";
  for (int i = 0; i < variants->count; i++)
    text = arena_printf(m->arena, "%s%s%lld", text, i ? " " : "", (long long)cut->at[i]);
  return intern(m->ctx->names, text);
}

bool variants_read(const Variants *variants, const char *text, Cut *cut) {
  *cut = (Cut){0};
  for (int i = 0; i < variants->count; i++) {
    char *end;
    while (*text == ' ') text++;
    if (!isdigit((unsigned char)*text)) return false;
    long long n = strtoll(text, &end, 10);
    if (n > 1 << 30 || end - text > 10) return false;
    cut->at[i] = n, text = end;
  }
  return !text[strspn(text, " ")];
}
