/* fuse, before grouping: loop sinking. Element-wise consumers of a loop's stacked results are
   fused into its rounds (as epilogues of the products in the body), which saves writing the
   stacked gradients.

   The loop over the layers of a stack returns the gradients stacked. If a value is computed from
   one of them alone, element by element, with values that are known before the loop, then round i
   can compute it for slice i: known values with the loop's dim become stacked operands, others
   invariant operands. The contraction that makes the slice then computes the rest in its epilogue,
   in the operands' buffers (order_inplace.c), and the stacked gradient is never written. So
   micro-batches add to one set of gradients; and an update that does not wait for the norm of all
   gradients (no clipping, train.on_nan off) is the end of the product that makes its gradient.

   Work is moved only if that needs no more bytes: the results of the work that others read take no
   more room than the operands that nothing reads afterwards. A further condition is that a product
   makes the slice, or that a copy brings it to the host, whose kernels run concurrently with the
   loop's, or that the work is no more than a sum. Kernels of other families have no epilogue for
   it, and one more kernel per round costs more than one for all rounds. The numbers are the same
   bit by bit.

   If several loops write a stack, each one a range of it (attribute `continues`), every one of them
   does the work for its own slices: these loops are the links of a chain. Their results continue
   an operand of the work that nothing reads afterwards, or else the work stays where it is. So the
   chain fills the operand's buffer, and later links read the slices of it that earlier links did
   not write.

   Must not: touch a loop whose body another loop also runs. */
#include "loop_sinking.h"

/* ---- values that are known before a loop ---- */

static bool stored_before(const Fn *fn, OpId id) {
  for (OpId i = 0; i < id; i++)
    if (fn->ops.at[i].code == OP_store && fn->ops.at[i].global == fn->ops.at[id].global)
      return true;
  return false;
}

/* May an op after the loop move before it, if its operands do? Only ops that cost nothing. */
static bool may_rise(const Fn *fn, OpId id) {
  const Op *op = &fn->ops.at[id];
  if (op->code == OP_load) return !stored_before(fn, id);
  if (op->code == OP_move) return !value_type(fn, op->out)->rank;
  bool plain = op_family(op->code) == FAMILY_ELEM || op->code == OP_const;
  return plain && op->nout == 1 && !value_type(fn, op->out)->rank;
}

static void note_early(FuseRounds *rounds) {
  const Fn *fn = rounds->f;
  rounds->early = ARENA_ARRAY(rounds->m->arena, bool, fn->values.n + 1);
  for (uint32_t i = 0; i < fn->args.n; i++) rounds->early[fn->args.at[i]] = true;
  for (OpId i = 0; i < fn->ops.n; i++) {
    const Op *op = &fn->ops.at[i];
    bool early = i < rounds->work->first || (i > rounds->work->first && may_rise(fn, i));
    for (uint32_t k = 0; k < op->nin; k++) early &= rounds->early[op->in[k]];
    for (uint32_t k = 0; k < op->nout; k++) rounds->early[op->out + k] = early;
  }
}

/* ---- the work on one result ---- */

static bool alike(const Fn *fn, ValueId a, ValueId b) {
  Type type = type_with_elem(*value_type(fn, a), value_type(fn, b)->elem);
  return type_equal(&type, value_type(fn, b));
}

static bool in_rounds(const FuseRounds *rounds, ValueId value) { /* one slice for each round */
  return type_find(value_type(rounds->f, value), rounds->work->s.axis.dim) >= 0;
}

static bool admit(FuseRounds *x, OpId id, ValueId space);

/* Values with the loop's dim have a buffer, or are part of the work. */
static bool admit_operand(FuseRounds *rounds, ValueId value, ValueId space) {
  const Op *op = value_def(rounds->f, value);
  if (rounds->derived[value]) return true;
  if (!in_rounds(rounds, value)) return rounds->early[value];
  if (!alike(rounds->f, value, space)) return false;
  if (op && op_family(op->code) == FAMILY_ELEM)
    return admit(rounds, rounds->f->values.at[value].def, space);
  return rounds->early[value] && (!op || op->code == OP_load || op->code == OP_loop);
}

/* Adds op `id` and its dependences to the work on `space`. */
static bool admit(FuseRounds *rounds, OpId id, ValueId space) {
  const Op *op = &rounds->f->ops.at[id];
  must(in_rounds(rounds, space), "fuse: the work on %%%u of %s is not one of rounds", space,
       rounds->f->name);
  if (id < rounds->work->loop || op_family(op->code) != FAMILY_ELEM || rounds->moved[id])
    return false;
  if (op->ngroups || !alike(rounds->f, op->out, space)) return false;
  for (uint32_t k = 0; k < op->nin; k++)
    if (!admit_operand(rounds, op->in[k], space)) return false;
  return rounds->mine[id] = rounds->derived[op->out] = true;
}

/* Does any op after the loop, other than the work of its rounds, read v? */
bool rounds_read_later(const Fn *fn, OpId loop, const bool *work, ValueId value) {
  for (OpId i = loop + 1; i < fn->ops.n; i++)
    if (!work[i] && op_reads(&fn->ops.at[i], value)) return true;
  for (uint32_t i = 0; i < fn->results.n; i++)
    if (fn->results.at[i] == value) return true;
  return false;
}

/* Bytes of results of the work that other ops read, less those of operands that nothing reads
   afterwards. */
static int64_t bytes_more(const FuseRounds *rounds) {
  int64_t more = 0;
  bool *counted = ARENA_ARRAY(rounds->m->arena, bool, rounds->f->values.n + 1);
  for (OpId i = rounds->work->loop + 1; i < rounds->f->ops.n; i++) {
    const Op *op = &rounds->f->ops.at[i];
    if (!rounds->mine[i]) continue;
    if (rounds_read_later(rounds->f, rounds->work->loop, rounds->mine, op->out))
      more += value_dense_bytes(rounds->f, op->out);
    for (uint32_t k = 0; k < op->nin; k++) {
      ValueId value = op->in[k];
      if (counted[value] || rounds->derived[value] || !in_rounds(rounds, value)) continue;
      counted[value] = true;
      if (!rounds_read_later(rounds->f, rounds->work->loop, rounds->mine, value))
        more -= value_dense_bytes(rounds->f, value);
    }
  }
  return more;
}

/* On the host, where the result is a downloaded copy, the work may take its room: e.g. parameters
   that are uploaded in a narrower type. */
static bool has_room(const FuseRounds *rounds, ValueId result) {
  int64_t freed =
      value_type(rounds->f, result)->tier == TIER_host ? value_dense_bytes(rounds->f, result) : 0;
  return bytes_more(rounds) <= freed;
}

static bool only_sums(const FuseRounds *rounds) {
  for (OpId i = rounds->work->loop + 1; i < rounds->f->ops.n; i++)
    if (rounds->mine[i] && rounds->f->ops.at[i].code != OP_add &&
        rounds->f->ops.at[i].code != OP_cast)
      return false;
  return true;
}

/* Is v made by a contraction or a copy to the host, or from one by element-wise ops? */
static bool has_place(const Fn *body, ValueId value) {
  const Op *op = value_def(body, value);
  while (op && op_family(op->code) == FAMILY_ELEM) {
    const Op *next = NULL;
    for (uint32_t k = 0; k < op->nin && !next; k++)
      if (alike(body, op->in[k], value)) next = value_def(body, op->in[k]);
    op = next;
  }
  return op && (op_family(op->code) == FAMILY_CONTRACT ||
                (op->code == OP_move && value_type(body, op->out)->tier == TIER_host));
}

/* ---- chains ---- */

/* Does an op between or after the links, which is neither a link nor part of the work, read v? */
static bool read_beside(const FuseRounds *rounds, ValueId value) {
  const RoundWork *work = rounds->work;
  for (OpId i = work->first; i < rounds->f->ops.n; i++) {
    bool link = false;
    for (uint32_t k = 0; k < work->link.n; k++) link |= work->link.at[k]->loop == i;
    if (!link && !rounds->mine[i] && op_reads(&rounds->f->ops.at[i], value)) return true;
  }
  for (uint32_t i = 0; i < rounds->f->results.n; i++)
    if (rounds->f->results.at[i] == value) return true;
  return false;
}

static const Global *stored_to(const Fn *f, ValueId v) {
  for (OpId i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_store && f->ops.at[i].in[0] == v) return f->ops.at[i].global;
  return NULL;
}

/* May v, made by the work, take over operand a of it in the end? */
static bool same_place(const Fn *fn, ValueId v, ValueId a) {
  const Op *op = value_def(fn, a);
  const Global *to = stored_to(fn, v);
  if (to || (op && op->code == OP_load)) return to && op && op->code == OP_load && op->global == to;
  for (uint32_t i = 0; !op && i < fn->results.n; i++)
    if (fn->results.at[i] == v) return fn->values.at[a].result == i + 1;
  return op && op->code == OP_loop;
}

static bool goes_on(const FuseRounds *rounds, ValueId value) {
  for (uint32_t k = 0; k < rounds->work->link.n; k++) {
    const Op *op = &rounds->f->ops.at[rounds->work->link.at[k]->loop];
    for (uint32_t i = 0; i < op->nout; i++)
      if (loop_continues(op, i) != NO_VALUE && op->in[loop_continues(op, i)] == value) return true;
  }
  return false;
}

/* The operand whose buffer v continues. */
static ValueId buffer_of(const FuseRounds *rounds, ValueId v) {
  const Fn *fn = rounds->f;
  for (OpId i = rounds->work->loop + 1; i < fn->ops.n; i++)
    for (uint32_t k = 0; rounds->mine[i] && k < fn->ops.at[i].nin; k++) {
      ValueId a = fn->ops.at[i].in[k];
      bool free = !rounds->derived[a] && rounds->early[a] && in_rounds(rounds, a) &&
                  !read_beside(rounds, a) && !goes_on(rounds, a);
      for (ValueId u = 0; free && u < fn->values.n; u++) free = rounds->work->buffer[u] != a;
      if (free && type_equal(value_type(fn, a), value_type(fn, v)) && same_place(fn, v, a))
        return a;
    }
  return NO_VALUE;
}

/* All that the work on one result gives finds a buffer. */
static bool find_buffers(FuseRounds *rounds) {
  const Fn *fn = rounds->f;
  if (rounds->work->link.n == 1) return true;
  for (OpId i = rounds->work->loop + 1; i < fn->ops.n; i++) {
    ValueId value = fn->ops.at[i].out;
    if (!rounds->mine[i] || !rounds_read_later(fn, rounds->work->loop, rounds->mine, value))
      continue;
    if ((rounds->work->buffer[value] = buffer_of(rounds, value)) == NO_VALUE) return false;
  }
  return true;
}

/* ---- work that the rounds take over ---- */

/* Is result i of the last link a value that the body of every link makes and that only the next
   link and the work read? With `must`, it has to be made by an op that can take the work in its
   epilogue. */
static bool comes_from_links(const FuseRounds *rounds, uint32_t i, bool must) {
  const RoundWork *work = rounds->work;
  for (uint32_t k = 0; k < work->link.n; k++) {
    const Op *op = &rounds->f->ops.at[work->link.at[k]->loop];
    uint32_t r = work->link.at[k]->same[i];
    if (r == op->nout) return false;
    ValueId slice = op->callee->results.at[r];
    if (!value_def(op->callee, slice) || (must && !has_place(op->callee, slice))) return false;
    if (read_beside(rounds, op->out + r)) return false;
  }
  return true;
}

/* Does the work on result i move into the rounds? */
static bool takes_over(FuseRounds *rounds, uint32_t i) {
  const Fn *fn = rounds->f;
  ValueId value = fn->ops.at[rounds->work->loop].out + i;
  rounds->mine = ARENA_ARRAY(rounds->m->arena, bool, fn->ops.n + 1);
  rounds->derived = ARENA_ARRAY(rounds->m->arena, bool, fn->values.n + 1);
  rounds->derived[value] = true;
  bool any = false;
  for (OpId j = rounds->work->loop + 1; j < fn->ops.n; j++)
    if (fuse_reads(&fn->ops.at[j], rounds->derived))
      any |= rounds->mine[j] || admit(rounds, j, value);
  if (!any || rounds_read_later(fn, rounds->work->loop, rounds->mine, value)) return false;
  return comes_from_links(rounds, i, !only_sums(rounds)) && has_room(rounds, value) &&
         find_buffers(rounds);
}

/* Records an operand of the work that the loop does not receive yet. Constants are made where they
   are read. */
static void note_operand(const FuseRounds *rounds, RoundLink *link, ValueId value, bool *noted) {
  const Op *loop = &rounds->f->ops.at[link->loop], *o = value_def(rounds->f, value);
  uint32_t stacked = link->s.carry + link->s.invariant;
  bool inside = in_rounds(rounds, value);
  if (noted[value] || (o && o->code == OP_const)) return;
  noted[value] = true;
  for (uint32_t k = inside ? stacked : link->s.carry; k < (inside ? loop->nin : stacked); k++)
    if (loop->in[k] == value) return;
  if (inside) vec_push(rounds->m->arena, link->stacked, value);
  else vec_push(rounds->m->arena, link->invariant, value);
}

static void note_operands(const FuseRounds *rounds, RoundLink *link) {
  const RoundWork *work = rounds->work;
  const Op *loop = &rounds->f->ops.at[work->loop];
  bool *noted = ARENA_ARRAY(rounds->m->arena, bool, rounds->f->values.n + 1);
  for (uint32_t k = 0; k < loop->nout; k++) noted[loop->out + k] = true;
  for (OpId i = work->loop + 1; i < rounds->f->ops.n; i++) {
    const Op *op = &rounds->f->ops.at[i];
    if (!work->op[i]) continue;
    noted[op->out] = true; /* its readers come after it */
    for (uint32_t k = 0; k < op->nin; k++) note_operand(rounds, link, op->in[k], noted);
  }
}

static RoundLink *link_new(FuseRounds *rounds, OpId id, uint32_t results) {
  RoundLink *round_link = ARENA_NEW(rounds->m->arena, RoundLink);
  const Op *op = &rounds->f->ops.at[id];
  *round_link = (RoundLink){.work = rounds->work, .loop = id, .s = loop_shape(op)};
  round_link->same = ARENA_ARRAY(rounds->m->arena, uint32_t, results + 1);
  round_link->taken = ARENA_ARRAY(rounds->m->arena, bool, op->nout + 1);
  for (uint32_t i = 0; i < results; i++) round_link->same[i] = op->nout;
  return round_link;
}

/* The loop before link l: of the first of its results that continues one. */
static OpId link_before(const Fn *fn, const RoundLink *link) {
  const Op *op = &fn->ops.at[link->loop];
  for (uint32_t i = link->s.carry; i < op->nout; i++) {
    uint32_t on = loop_continues(op, i);
    const Op *def = on == NO_VALUE ? NULL : value_def(fn, op->in[on]);
    if (def && def->code == OP_loop) return (OpId)(def - fn->ops.at);
  }
  return NO_OP;
}

/* From the last link backwards; results whose chain is another one are none of it. */
static void find_links(FuseRounds *rounds, OpId id) {
  const Fn *fn = rounds->f;
  uint32_t n = fn->ops.at[id].nout;
  VEC(RoundLink *) back = {0};
  RoundLink *l = link_new(rounds, id, n);
  for (uint32_t i = l->s.carry; i < n; i++) l->same[i] = i;
  vec_push(rounds->m->arena, back, l);
  for (OpId at; (at = link_before(fn, l)) != NO_OP;) {
    const Op *op = &fn->ops.at[l->loop], *before = &fn->ops.at[at];
    RoundLink *b = link_new(rounds, at, n);
    for (uint32_t i = 0; i < n; i++) {
      uint32_t on = l->same[i] < op->nout ? loop_continues(op, l->same[i]) : NO_VALUE;
      uint32_t r = on == NO_VALUE ? before->nout : op->in[on] - before->out;
      if (r < before->nout && r >= b->s.carry) b->same[i] = r;
    }
    vec_push(rounds->m->arena, back, b);
    l = b;
  }
  for (uint32_t k = back.n; k-- > 0;) vec_push(rounds->m->arena, rounds->work->link, back.at[k]);
  rounds->work->first = rounds->work->link.at[0]->loop;
}

static bool is_continued(const Fn *fn, const Op *loop) {
  for (OpId i = 0; i < fn->ops.n; i++)
    for (uint32_t k = 0; fn->ops.at[i].code == OP_loop && k < fn->ops.at[i].nout; k++) {
      uint32_t on = loop_continues(&fn->ops.at[i], k);
      if (on != NO_VALUE && value_def(fn, fn->ops.at[i].in[on]) == loop) return true;
    }
  return false;
}

static bool links_alone(const FuseRounds *rounds) {
  for (uint32_t k = 0; k < rounds->work->link.n; k++)
    if (module_calls(rounds->m, rounds->f->ops.at[rounds->work->link.at[k]->loop].callee) != 1)
      return false;
  return true;
}

/* The work that moves into the rounds of loop `id` and of the loops whose stacks it completes;
   NULL: none. */
static RoundWork *work_of(FuseRounds *rounds, OpId id) {
  const Op *op = &rounds->f->ops.at[id];
  Arena *arena = rounds->m->arena;
  RoundWork *work = rounds->work = ARENA_NEW(arena, RoundWork);
  *work = (RoundWork){
      .loop = id, .s = loop_shape(op), .op = ARENA_ARRAY(arena, bool, rounds->f->ops.n + 1)};
  work->buffer = value_map(rounds->m, rounds->f);
  find_links(rounds, id);
  if (is_continued(rounds->f, op) || !links_alone(rounds)) return NULL;
  note_early(rounds);
  bool any = false;
  for (uint32_t i = work->s.carry; i < op->nout; i++) {
    if (!takes_over(rounds, i)) continue;
    any = true;
    for (uint32_t k = 0; k < work->link.n; k++) {
      const RoundLink *link = work->link.at[k];
      link->taken[link->same[i]] = true;
    }
    for (OpId j = id + 1; j < rounds->f->ops.n; j++)
      work->op[j] |= rounds->mine[j], rounds->moved[j] |= rounds->mine[j];
  }
  for (uint32_t k = 0; any && k < work->link.n; k++) note_operands(rounds, work->link.at[k]);
  return any ? work : NULL;
}

static bool work_in_rounds(Module *module, Fn *fn) {
  FuseRounds rounds = {
      .m = module, .f = fn, .moved = ARENA_ARRAY(module->arena, bool, fn->ops.n + 1)};
  RoundLink **link = ARENA_ARRAY(module->arena, RoundLink *, fn->ops.n + 1);
  bool any = false;
  for (OpId i = 0; i < fn->ops.n; i++) {
    RoundWork *work = fn->ops.at[i].code == OP_loop ? work_of(&rounds, i) : NULL;
    for (uint32_t k = 0; work && k < work->link.n; k++) {
      RoundLink *round_link = link[work->link.at[k]->loop] = work->link.at[k];
      module_replace(module, fn->ops.at[round_link->loop].callee, rounds_body(&rounds, round_link));
      any = true;
    }
  }
  if (any) module_replace(module, fn, rounds_function(&rounds, link));
  return any;
}

/* Callers come after their bodies, so work may sink through several loops. A loop's results may
   have their dims in another order than before, and so may the values computed from them. */
void fuse_rounds(Module *module) {
  bool any = false;
  for (uint32_t i = module->fns.n; i-- > 0;)
    if (module->fns.at[i]->kind != FN_KERNEL) any |= work_in_rounds(module, module->fns.at[i]);
  if (any) module_collect(module);
}
