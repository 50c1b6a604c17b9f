/* When a kernel may read and write one buffer: see inplace.h. A kernel without a
   family (written by hand) is judged only by its ops. */
#include "inplace.h"
#include "ir/codes.h"
#include "family.h"
#include "ir/bytes.h"
#include "nest.h"

static bool moves(OpCode c) {
  OpFamily f = op_family(c);
  return (f == FAMILY_STRUCT && c != OP_expand) || f == FAMILY_GATHER || f == FAMILY_CONTRACT ||
         f == FAMILY_ATTENTION || f == FAMILY_SCATTER;
}

/* A row's bytes of bits are made where its last walk writes the elements, or before that. */
static bool packs_rows(const Fn *k, const Op *o) {
  const FamilyShape *f = o->code == OP_pack_bits ? family_shape(k) : NULL;
  if (!f || f->reduces != REDUCES_ROWS) return false;
  Reductions reductions = reductions_of(k);
  return reduction_packed(k, &reductions, o->out) != NO_VALUE;
}

/* Marks what is computed from argument a at the same point; false if a is read at another one. */
static bool reads_in_step(Arena *arena, const Fn *k, ValueId a) {
  bool *from = ARENA_ARRAY(arena, bool, k->values.n + 1);
  from[a] = true;
  EACH_OP (k, o) {
    bool any = false;
    for (uint32_t j = 0; j < o->nin; j++) any |= from[o->in[j]];
    if (any && moves(o->code) && !packs_rows(k, o)) return false;
    bool ends = op_family(o->code) == FAMILY_REDUCE || op_family(o->code) == FAMILY_SCAN;
    for (uint32_t j = 0; j < o->nout; j++) from[o->out + j] = any && !ends;
  }
  return true;
}

static uint32_t results_of_size(const Fn *k, int64_t count) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < k->results.n; i++)
    n += type_count(value_type(k, k->results.at[i])) >= count;
  return n;
}

static bool family_allows(const Fn *k, const Type *t) {
  const FamilyShape *f = family_shape(k);
  int most = f ? f->in_place : IN_PLACE_ANY;
  return most == IN_PLACE_ANY || (most && results_of_size(k, type_count(t)) == (uint32_t)most);
}

bool kernel_in_place(Arena *a, const Fn *k, uint32_t arg, uint32_t result) {
  const Type *t = value_type(k, k->results.at[result]);
  Codes codes; /* their places are others than those of numbers */
  if (kernel_codes(k, arg, &codes) || kernel_codes(k, k->args.n + result, &codes)) return false;
  return family_allows(k, t) && reads_in_step(a, k, k->args.at[arg]);
}

/* The value in whose bytes v is computed; NO_VALUE: in its own. */
static ValueId taken_over(const Fn *f, ValueId v) {
  const Storage *s = &f->values.at[v].storage;
  if (s->view == VIEW_INPLACE) return s->base;
  return s->view == VIEW_ASSEMBLED ? laid_over(f, value_def(f, v)) : NO_VALUE;
}

uint32_t body_stands_in(const Fn *body, uint32_t result) {
  ValueId v = body->results.at[result];
  for (ValueId base; (base = taken_over(body, v)) < v;) v = base;
  return body->values.at[v].def == NO_OP ? body->values.at[v].result : 0;
}

bool loop_in_place(const Op *loop, uint32_t operand, uint32_t result) {
  uint32_t carry = (uint32_t)attr_int(&loop->attrs, ATTR_carry, 0);
  uint32_t whole = loop_whole(loop);
  bool read = value_is_used(loop->callee, loop->callee->args.at[operand + 1]);
  if (loop_continues(loop, result) == operand && !read) return true;
  if (body_stands_in(loop->callee, result) != operand + 1) return false;
  return result < carry ? operand == result : operand >= whole;
}
