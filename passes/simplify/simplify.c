/* simplify: constants folded, exact identities, common subexpressions, dead code; loops without
   dead or repeated operands and results; equal bodies made one. `clean` is the same pass once
   more, after grad.

   Each function is rebuilt front to back: operands are mapped, rules are tried for an equal value
   (simplify_rules.c), an equal earlier op is looked up by content, else the op is copied. Dead ops
   are removed first, so rules see live code only. Then unused operands and results of loops are
   removed (simplify_loops.c). All of it repeats until nothing changes.

   It terminates: merging, folding and removing reduce the number of ops, operands or results; the
   other rules put an op before an `expand` (its operands then have fewer elements) or replace an
   op by one that no rule changes back (pow by mul, div by mul, neg moved into a constant). No rule
   adds what another rule removes; ROUNDS guards against a mistake in that. Must not: change
   rounding. Sums are not reordered, products of constants not gathered. */
#include "simplify_inside.h"
#include <string.h>

enum { ROUNDS = 100 };

/* ---- common subexpressions: an open table of ops, by content ---- */
typedef struct OpTable {
  OpId *slot; /* NO_OP: free */
  uint32_t cap;
} OpTable;

static uint32_t mix(uint32_t h, uint64_t x) {
  uint64_t y = (h ^ x) * 0x9e3779b97f4a7c15u; /* of Fibonacci hashing */
  return (uint32_t)(y >> 32 ^ y);
}

static uint32_t mix_text(uint32_t h, Str s) {
  for (; s && *s; s++) h = (h ^ (unsigned char)*s) * 16777619u;
  return h;
}

static uint32_t hash_op(const Op *o) {
  uint32_t h = mix(2166136261u, (uint64_t)o->code);
  for (uint32_t i = 0; i < o->nin; i++) h = mix(h, o->in[i]);
  for (int g = 0; g < o->ngroups; g++) {
    for (int i = 0; i < o->group[g].nfrom; i++) h = mix_text(h, o->group[g].from[i]);
    for (int i = 0; i < o->group[g].nto; i++) h = mix_text(h, o->group[g].to[i]);
  }
  for (uint32_t i = 0; i < o->attrs.n; i++) {
    uint64_t bits;
    memcpy(&bits, &o->attrs.at[i].f, sizeof bits);
    h = mix(mix(h, bits), (uint64_t)o->attrs.at[i].i);
  }
  return mix_text(h, o->global ? o->global->name : NULL);
}

bool simplify_same_names(int n, const Str *a, const Str *b) {
  for (int i = 0; i < n; i++)
    if (a[i] != b[i]) return false;
  return true;
}

static bool same_groups(const Op *a, const Op *b) {
  if (a->ngroups != b->ngroups) return false;
  for (int i = 0; i < a->ngroups; i++) {
    const Group *one = &a->group[i], *other = &b->group[i];
    if (one->nfrom != other->nfrom || one->nto != other->nto || one->arrow != other->arrow)
      return false;
    if (!simplify_same_names(one->nfrom, one->from, other->from) ||
        !simplify_same_names(one->nto, one->to, other->to))
      return false;
  }
  return true;
}

static bool same_attr(const Attr *a, const Attr *b) {
  if (a->key != b->key || a->i != b->i || memcmp(&a->f, &b->f, sizeof a->f) || a->s != b->s)
    return false;
  return !a->list || !a->i || !memcmp(a->list, b->list, sizeof *a->list * (size_t)a->i);
}

static bool same_attrs(const AttrList *a, const AttrList *b) {
  if (a->n != b->n) return false;
  for (uint32_t i = 0; i < a->n; i++)
    if (!same_attr(&a->at[i], &b->at[i])) return false;
  return true;
}

bool op_alike(const Op *a, const Op *b) {
  return a->code == b->code && a->callee == b->callee && a->global == b->global &&
         same_groups(a, b) && same_attrs(&a->attrs, &b->attrs);
}

static bool same_op(const Fn *f, const Op *a, const Fn *g, const Op *b) {
  if (a->nin != b->nin || a->nout != b->nout || !op_alike(a, b)) return false;
  for (uint32_t i = 0; i < a->nin; i++)
    if (a->in[i] != b->in[i]) return false;
  for (uint32_t i = 0; i < a->nout; i++) {
    const Type *p = value_type(f, a->out + i), *q = value_type(g, b->out + i);
    if (p->elem != q->elem || p->tier != q->tier || !type_same_dims(p, q)) return false;
  }
  return true;
}

static OpTable table_new(Module *m, uint32_t ops) {
  OpTable table = {.cap = 64};
  while (table.cap < 4 * ops) table.cap *= 2;
  table.slot = ARENA_ARRAY(m->arena, OpId, table.cap);
  for (uint32_t i = 0; i < table.cap; i++) table.slot[i] = NO_OP;
  return table;
}

/* The slot of an op of `to` that equals o of `from` (operands already in to's numbers), or a free
 * one. */
static OpId *table_find(OpTable *table, const Fn *to, const Fn *from, const Op *o) {
  uint32_t i = hash_op(o) & (table->cap - 1);
  while (table->slot[i] != NO_OP && !same_op(to, &to->ops.at[table->slot[i]], from, o))
    i = (i + 1) & (table->cap - 1);
  return &table->slot[i];
}

/* ---- dead code ---- */
bool op_acts(const Op *o) {
  for (OpId i = 0; o->code == OP_loop && i < o->callee->ops.n; i++)
    if (op_acts(&o->callee->ops.at[i])) return true;
  return (op_flags(o->code) & SIDE) || attr_get(&o->attrs, ATTR_keep_alive);
}

bool *live_values(Module *m, const Fn *f, const bool *results) {
  bool *live = ARENA_ARRAY(m->arena, bool, f->values.n + 1);
  for (uint32_t i = 0; i < f->results.n; i++)
    if (!results || results[i]) live[f->results.at[i]] = true;
  for (uint32_t n = f->ops.n; n-- > 0;) {
    const Op *o = &f->ops.at[n];
    bool used = op_acts(o);
    for (uint32_t i = 0; i < o->nout; i++) used |= live[o->out + i];
    for (uint32_t i = 0; used && i < o->nin; i++) live[o->in[i]] = true;
  }
  return live;
}

static bool is_live(const Op *o, const bool *live) {
  if (op_acts(o)) return true;
  for (uint32_t i = 0; i < o->nout; i++)
    if (live[o->out + i]) return true;
  return false;
}

/* ---- one function ---- */
static Op mapped(Module *m, const Op *o, const ValueId *map) {
  Op c = *o;
  c.in = ARENA_ARRAY(m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) c.in[i] = map[o->in[i]];
  return c;
}

/* unstack of a stack along the same dim: its operands */
static bool unstack_of_stack(Rebuild *rebuild, const Op *o, const Op *c) {
  const Op *def = o->code == OP_unstack ? value_def(rebuild->to, c->in[0]) : NULL;
  if (!def || def->code != OP_stack || def->group[0].from[0] != o->group[0].from[0]) return false;
  for (uint32_t i = 0; i < o->nout; i++) rebuild->map[o->out + i] = def->in[i];
  return true;
}

static void take(Rebuild *rebuild, const Op *o, ValueId first) {
  for (uint32_t i = 0; i < o->nout; i++) rebuild->map[o->out + i] = first + i;
}

/* True if something was gained. */
static bool simplify_op(Simplify *simplify, Rebuild *rebuild, OpTable *table, const Op *o) {
  Op c = mapped(simplify->m, o, rebuild->map);
  /* A value that is gathered twice was dropped in between on purpose. */
  bool kept = op_flags(o->code) & SIDE || op_family(o->code) == FAMILY_COLLECTIVE;
  if (kept) return rebuild_op(rebuild, o), false;
  if (unstack_of_stack(rebuild, o, &c)) return true;
  ValueId v =
      o->nout == 1 ? simplify_rule(simplify, &c, value_type(rebuild->from, o->out)) : NO_VALUE;
  if (v != NO_VALUE) return rebuild->map[o->out] = v, true;
  OpId *slot = table_find(table, rebuild->to, rebuild->from, &c);
  if (*slot != NO_OP) return take(rebuild, o, rebuild->to->ops.at[*slot].out), true;
  *slot = rebuild->to->ops.n;
  rebuild_op(rebuild, o);
  return false;
}

static bool simplify_fn(Module *m, Fn *f, bool after_grad) {
  const bool *live = live_values(m, f, NULL);
  Rebuild rebuild = rebuild_begin(m, f);
  Simplify simplify = {m, rebuild.to, after_grad};
  OpTable table = table_new(m, f->ops.n);
  bool changed = false;
  EACH_OP (f, o) changed |= is_live(o, live) ? simplify_op(&simplify, &rebuild, &table, o) : true;
  rebuild_results(&rebuild);
  if (changed) module_replace(m, f, rebuild.to);
  return changed;
}

/* ---- the module ---- */
static const char *body_text(Module *m, const Fn *f) { return strchr(ir_print_fn(m, f), '('); }

/* Bodies that differ only in name are merged into the first of them. Callees come first, so theirs
   are merged already. */
static bool merge_bodies(Module *m) {
  const char **text = ARENA_ARRAY(m->arena, const char *, m->fns.n + 1);
  bool *merged = ARENA_ARRAY(m->arena, bool, m->fns.n + 1), changed = false;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *f = m->fns.at[i];
    for (uint32_t j = 0; j < i && f->kind == FN_BODY && !merged[i]; j++) {
      Fn *with = m->fns.at[j];
      if (with->kind != FN_BODY || merged[j] || !fn_may_equal(f, with)) continue;
      if (!text[i]) text[i] = body_text(m, f);
      if (!text[j]) text[j] = body_text(m, with);
      if (strcmp(text[i], text[j]) != 0) continue;
      module_replace(m, f, with);
      merged[i] = changed = true;
    }
  }
  return changed;
}

/* Functions in which a round found nothing, in the order of these rounds. A change makes a new
   function, which is not in the list. */
typedef VEC(const Fn *) SettledFns;

static uint32_t place_in(const SettledFns *settled, const Fn *f) { /* from 1; 0: none */
  uint32_t n = settled->n;
  while (n && settled->at[n - 1] != f) n--;
  return n;
}

/* Nothing has changed since, neither in the function nor in those that it calls. */
static bool is_settled(const SettledFns *settled, const Fn *f) {
  uint32_t place = place_in(settled, f);
  for (OpId i = 0; place && i < f->ops.n; i++) {
    uint32_t callee = f->ops.at[i].callee ? place_in(settled, f->ops.at[i].callee) : 1;
    if (!callee || callee > place) return false;
  }
  return place > 0;
}

static bool round_of(Module *m, bool after_grad, SettledFns *settled) {
  bool changed = false;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    if (is_settled(settled, m->fns.at[i])) continue;
    if (simplify_fn(m, m->fns.at[i], after_grad)) changed = true;
    else vec_push(m->arena, *settled, m->fns.at[i]);
  }
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *n = simplify_loops(m, m->fns.at[i]);
    if (!n) continue;
    module_replace(m, m->fns.at[i], n);
    changed = true;
  }
  if (merge_bodies(m)) changed = true, settled->n = 0; /* callers call another body */
  module_collect(m);
  return changed;
}

void simplify_module(Module *m, bool after_grad) {
  SettledFns settled = {0};
  int rounds = 0;
  while (round_of(m, after_grad, &settled))
    if (++rounds == ROUNDS) bug("simplify finds no end");
}

void pass_simplify(Module *m) { simplify_module(m, false); }
void pass_clean(Module *m) { simplify_module(m, true); }
