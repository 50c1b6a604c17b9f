/* Classes of values that share bytes (bytes.h). Views and in-place values follow their base, which
   is defined before them. The operands of a concat that copies nothing are defined before it, so
   their classes become the class of its result; the walk is from the last concat to the first,
   since a concat's result may itself be an operand of another one. Must not: check anything; the
   verifier does. */
#include "bytes.h"
#include "codes.h"

bool op_lays(const Fn *f, const Op *o) {
  return o->code == OP_concat && f->values.at[o->out].storage.view == VIEW_ASSEMBLED;
}

int64_t laid_at(const Fn *f, const Op *o, uint32_t k) {
  int64_t bytes = 0;
  for (uint32_t i = 0; i < k; i++) {
    const Type *t = value_type(f, o->in[i]);
    bytes += type_dense_bytes(t);
  }
  return bytes;
}

ValueId laid_for(const Fn *f, ValueId v) {
  while (f->values.at[v].storage.view == VIEW_OF) v = f->values.at[v].storage.base;
  const Storage *s = &f->values.at[v].storage;
  if (s->view != VIEW_INPLACE || f->values.at[s->base].storage.view != VIEW_OF) return NO_VALUE;
  const Op *shows = value_def(f, s->base);
  return shows && shows->code == OP_wait ? NO_VALUE : s->base; /* a wait shows all */
}

ValueId laid_over(const Fn *f, const Op *o) {
  ValueId over = NO_VALUE;
  for (uint32_t k = 0; k < o->nin; k++) {
    ValueId piece = laid_for(f, o->in[k]);
    if (piece == NO_VALUE) return NO_VALUE;
    const Value *x = &f->values.at[piece];
    if (k && x->storage.base != over) return NO_VALUE;
    over = x->storage.base;
    if (x->storage.offset * elem_bytes(x->type.elem) != laid_at(f, o, k)) return NO_VALUE;
  }
  const Value *whole = &f->values.at[over], *all = &f->values.at[o->out];
  bool fits = whole->storage.view != VIEW_OF && value_span_bytes(whole) == value_span_bytes(all);
  return fits ? over : NO_VALUE;
}

int64_t value_span_bytes(const Value *v) {
  int64_t last = 0;
  for (int i = 0; i < v->type.rank; i++) last += (v->type.axis[i].size - 1) * v->storage.stride[i];
  return (last + 1) * elem_bytes(v->type.elem);
}

int64_t value_room(const Fn *f, ValueId v) {
  Codes codes;
  return value_codes(f, v, &codes) ? codes_bytes(&codes) : value_span_bytes(&f->values.at[v]);
}

static void lay(const Fn *f, const Op *o, SharedBytes *bytes) {
  for (uint32_t k = 0; k < o->nin; k++) {
    ValueId was = bytes->of[o->in[k]], to = bytes->of[o->out];
    int64_t shift = bytes->at[o->out] + laid_at(f, o, k) - bytes->at[o->in[k]];
    for (ValueId v = 0; was != to && v < f->values.n; v++)
      if (bytes->of[v] == was) bytes->of[v] = to, bytes->at[v] += shift;
  }
}

SharedBytes shared_bytes(Arena *arena, const Fn *f) {
  SharedBytes bytes = {ARENA_ARRAY(arena, ValueId, f->values.n + 1),
                       ARENA_ARRAY(arena, int64_t, f->values.n + 1)};
  for (ValueId v = 0; v < f->values.n; v++) {
    const Value *x = &f->values.at[v];
    bool has_base = storage_has_base(&x->storage);
    bytes.of[v] = has_base ? bytes.of[x->storage.base] : v,
    bytes.at[v] = has_base ? bytes.at[x->storage.base] : 0;
    if (x->storage.view == VIEW_OF) bytes.at[v] += x->storage.offset * elem_bytes(x->type.elem);
  }
  for (OpId i = f->ops.n; i-- > 0;)
    if (op_lays(f, &f->ops.at[i])) lay(f, &f->ops.at[i], &bytes);
  return bytes;
}

bool op_touches(const Op *o, const ValueId *class, ValueId v) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (class[o->in[i]] == class[v]) return true;
  for (uint32_t i = 0; i < o->nout; i++)
    if (class[o->out + i] == class[v]) return true;
  return false;
}

int64_t op_work(const Op *o, Tier t) {
  if (o->code == OP_loop) return attr_int(&o->callee->attrs, tier_frame(t), 0);
  bool there = t == (o->code == OP_kernel ? kernel_tier(o->callee) : TIER_device);
  return there ? attr_int(o->callee ? &o->callee->attrs : &o->attrs, ATTR_workspace, 0) : 0;
}

/* ---- arenas ---- */

enum { SAMPLED = 8 }; /* bits from this one on: kinds of globals of the entries that sample */
#define KIND(kind) 1u << GLOBAL_##kind
#define SAMPLED(kind) 1u << (SAMPLED + GLOBAL_##kind)

static const struct {
  const char *word, *constant;
  Tier tier;
  unsigned globals; /* bits of kinds */
} arenas[] = {
#define ARENA(name, word, tier, globals) {#word, "RT_" #name, TIER_##tier, globals},
#include "arenas.def"
#undef ARENA
};

const char *arena_word(GlobalArena a) { return arenas[a].word; }
const char *arena_constant(GlobalArena a) { return arenas[a].constant; }

Tier arena_tier(GlobalArena a) { return arenas[a].tier; }

/* By the names that the front end and pass `decode` give: those of users have no dot in them. */
bool global_is_sampled(const Global *g) {
  static const char *const of[] = {"logits.", "out.", "decode."};
  bool is = false;
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) is |= !strncmp(g->name, of[i], strlen(of[i]));
  return is && (g->kind == GLOBAL_INPUT || g->kind == GLOBAL_SCALAR || g->kind == GLOBAL_OUTPUT);
}

static GlobalArena find_arena(const Global *g) {
  uint32_t bit = (uint32_t)g->kind + (global_is_sampled(g) ? SAMPLED : 0);
  GlobalArena a = 0;
  while (a < IN_ARENAS && !(arenas[a].tier == g->type.tier && arenas[a].globals >> bit & 1)) a++;
  return a;
}

bool global_has_arena(const Global *g) { return find_arena(g) < IN_ARENAS; }

GlobalArena global_arena(const Global *g) {
  must(global_has_arena(g), "@%s has no arena", g->name);
  return find_arena(g);
}

GlobalArena arena_of_frames(Tier t) {
  for (GlobalArena a = 0; a < IN_ARENAS; a++)
    if (arenas[a].tier == t && !arenas[a].globals) return a;
  bug("no arena of frames in the memory %s", tier_name(t));
}
