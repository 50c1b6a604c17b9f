/* W0703: what stays whole on every rank though the plan's stage partitions it.

   Parameters that no group takes (zero_groups.c notes the first and why), and stacks whose layers
   are whole all at once, as the rewriting found. Must not: decide what is partitioned. */
#include "passes/zero.h"

/* The first of them is named, with its reason. */
static void warn_whole(Zero *z) {
  Module *m = z->m;
  if (!z->named.n) return;
  const Global *first = z->named.at[0];
  Report *r = diag_at(m->ctx->diag, "W0703", span_of(m, first->loc),
                      "`zero %d` does not partition parameter `%s`%s", z->stage, first->name,
                      z->named.n > 1 ? arena_printf(m->arena, " and %u more", z->named.n - 1) : "");
  diag_label(r, "%s", z->why);
  diag_help(
      r, "what is not partitioned stays whole on every rank, with its states, and is counted so");
}

static void warn_at_once(const Zero *z, const ZeroGroup *g, const char *what, const char *why) {
  Module *m = z->m;
  const Global *p = g->member.at[0].param;
  Report *r = diag_at(
      m->ctx->diag, "W0703", span_of(m, p->loc), "`zero %d` %s of `%s`%s at once", z->stage, what,
      p->name,
      g->member.n > 1 ? arena_printf(m->arena, " and %u more with it", g->member.n - 1) : "");
  diag_label(r, "%s", why);
  diag_help(r, "for that while a rank needs room for all of it, which is counted so");
}

void zero_warn(Zero *z) {
  warn_whole(z);
  for (uint32_t i = 0; i < z->group.n; i++) {
    const ZeroGroup *g = &z->group.at[i];
    if (g->gathers_all)
      warn_at_once(z, g, "gathers all layers", "others than the rounds of its stack read it");
    if (g->sums_all)
      warn_at_once(z, g, "makes the gradients of all layers",
                   "others than the rounds of its stack make a part of its gradient");
  }
}
