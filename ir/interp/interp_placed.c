/* The interpreter after pass `memory`: executes entries and bodies in bytes, as the host program
   does, and kernels by their mathematics. It is the oracle of placement.

   Every byte remembers the mark of the value that wrote it last; each value of each call has a mark
   of its own (views share their base's, results of a loop's body are handed over to the loop's). A
   kernel first spoils its workspace and its results that are not in place, then reads its operands
   byte by byte with their marks, then writes: so whatever overlaps is found. A collective does the
   same with its two buffers, which it takes as dense, and exchanges blocks with the machines of its
   peers (interp_ranks.c): what it receives may come before all that it sends is sent.

   Loops are in interp_rounds.c, messages in flight in interp_flights.c. */
#include "interp_rounds.h"
#include "ir/turns.h"

const char interp_alone[] = "the other ranks did not come to this collective";

/* ---- kernels ---- */

/* What a kernel may write before it has read its operands. */
PlacedAddress placed_work(const PlacedCall *c, const Op *op) {
  Tier t = op->code == OP_kernel ? kernel_tier(op->callee) : TIER_device;
  return placed_offset(c->frame[t], attr_int(&op->attrs, tier_work(t), 0));
}

static void spoil_work(PlacedCall *c, const Op *op, int64_t workspace) {
  PlacedAddress work = placed_work(c, op);
  if (workspace && !placed_inside(work, workspace))
    placed_error(c, op, "has its workspace outside of the frame", NO_VALUE);
  placed_spoil(work, workspace, placed_new_mark(c));
}

static void spoil_outputs(PlacedCall *c, const Op *op) {
  spoil_work(c, op, attr_int(&op->callee->attrs, ATTR_workspace, 0));
  for (uint32_t i = 0; i < op->nout; i++) {
    c->mark[op->out + i] = placed_new_mark(c);
    bool inplace = c->f->values.at[op->out + i].storage.view == VIEW_INPLACE;
    if (!inplace && !placed_visit(c, op->out + i, NULL, SPOIL))
      placed_error(c, op, "writes outside of its memory:", op->out + i);
  }
}

static unsigned char *byte_of(const PlacedCall *c, ValueId v) {
  PlacedAddress a = placed_address(c, v);
  return a.memory->byte + a.at;
}

/* By whoever else has the kernel: it writes where the marks say that it may. False: nobody has. */
static bool run_given_kernel(PlacedCall *c, const Op *op) {
  Interp *in = c->x->in;
  void **buffers = ARENA_ARRAY(c->x->arena, void *, op->nin + op->nout + 1);
  for (uint32_t i = 0; i < op->nin; i++) {
    buffers[i] = byte_of(c, op->in[i]);
    if (!placed_visit(c, op->in[i], NULL, READ))
      placed_error(c, op, "reads bytes that are another value's:", op->in[i]);
  }
  for (uint32_t i = 0; i < op->nout; i++) buffers[op->nin + i] = byte_of(c, op->out + i);
  PlacedAddress work = placed_work(c, op);
  buffers[op->nin + op->nout] = work.memory->byte + work.at;
  if (!c->x->error && !in->kernel(in->kernel_state, op->callee, buffers)) return false;
  for (uint32_t i = 0; i < op->nout && !c->x->error; i++) placed_visit(c, op->out + i, NULL, OWN);
  return true;
}

static void run_placed_kernel(PlacedCall *c, const Op *op) {
  spoil_outputs(c, op);
  if (c->x->in->kernel && run_given_kernel(c, op)) return;
  Arena *a = arena_new();
  Tensor *args = ARENA_ARRAY(a, Tensor, op->nin + 1),
         *results = ARENA_ARRAY(a, Tensor, op->nout + 1);
  for (uint32_t i = 0; i < op->nin; i++) {
    args[i] = tensor_new(a, *value_type(c->f, op->in[i]));
    if (!placed_visit(c, op->in[i], &args[i], READ))
      placed_error(c, op, "reads bytes that are another value's:", op->in[i]);
  }
  if (!c->x->error) interp_fn(c->x->in, op->callee, args, a, results);
  for (uint32_t i = 0; i < op->nout && !c->x->error; i++) {
    Tensor t = tensor_in_order(a, &results[i], value_type(c->f, op->out + i));
    placed_visit(c, op->out + i, &t, WRITE);
  }
  arena_free(a);
}

/* ---- collectives ---- */

static void run_placed_collective(PlacedCall *c, const Op *op) {
  Message m = message_of(c->f, op);
  ValueId sent = op->nin ? op->in[0] : op->out; /* without operand: nothing */
  const Type *in = value_type(c->f, sent), *out = value_type(c->f, op->out);
  int64_t size = elem_bytes(in->elem), sends = op->nin ? type_count(in) : 0,
          receives = type_count(out);
  PlacedAddress from = placed_address(c, sent), to = placed_address(c, op->out);
  Mark own = c->mark[sent], mark = c->mark[op->out] = placed_new_mark(c);
  if (!placed_inside(to, receives * size))
    placed_error(c, op, "receives outside of its memory:", op->out);
  if (c->f->values.at[op->out].storage.view != VIEW_INPLACE)
    placed_spoil(to, receives * size, mark);
  spoil_work(c, op, attr_int(&op->attrs, ATTR_workspace, 0));
  if (!placed_marked(from, sends * size, own))
    placed_error(c, op, "sends bytes that are another value's:", sent);
  if (c->x->error) return;
  Arena *a = arena_new();
  double *send = ARENA_ARRAY(a, double, sends + 1), *receive = ARENA_ARRAY(a, double, receives);
  for (int64_t i = 0; i < sends; i++)
    send[i] = placed_decode(from.memory->byte + from.at + i * size, in->elem);
  if (!c->x->in->ranks || !ranks_exchange(c->x->in, op, &m, send, receive))
    c->x->error = interp_alone;
  placed_spoil(to, receives * size, mark);
  for (int64_t i = 0; i < receives; i++)
    placed_encode(to.memory->byte + to.at + i * size, out->elem, receive[i]);
  arena_free(a);
}

/* ---- functions ---- */

static uint32_t slot_of(const PlacedMachine *x, const Global *g) {
  uint32_t i = 0;
  while (x->in->m->globals.at[i] != g) i++;
  return i;
}

static void run_placed_store(PlacedCall *c, const Op *op) {
  ValueId v = op->in[0];
  uint32_t slot = slot_of(c->x, op->global);
  PlacedAddress to = {&c->x->global[slot], 0}, from = placed_address(c, v);
  if (!placed_same(to, from)) placed_copy(c, op, to, v, placed_new_mark(c));
  c->x->old[slot] = placed_same(to, from) ? c->mark[v] : c->x->last;
}

static void run_placed_view(PlacedCall *c, const Op *op) {
  for (uint32_t i = 0; i < op->nout; i++) {
    const Storage *s = &c->f->values.at[op->out + i].storage;
    if (s->view == VIEW_OF) c->mark[op->out + i] = c->mark[s->base];
    else placed_error(c, op, "is no view:", op->out + i);
  }
}

/* Loops by the table of the rank's stage (ir/turns.h). */
static void run_placed_turns(PlacedCall *c, const TurnLoops *t) {
  const Op *op = c->f->ops.at;
  int64_t stage = turns_stage(c->x->in->m, &op[t->loop[0]], c->x->in->rank);
  PlacedRounds rounds[TURN_LOOPS];
  for (OpId i = t->loop[0]; i <= turns_end(t); i++) {
    int at = turns_number(t, i);
    if (at < 0) run_placed_view(c, &op[i]);
    else rounds[at] = placed_begin_rounds(c, &op[i]);
  }
  for (TurnState x = {{0}}; !turns_over(&t->table, &x) && !c->x->error;) {
    int next = turn_next(&t->table, stage, &x);
    placed_round(c, &rounds[next], x.over[next]++);
  }
  for (int i = 0; i < t->n; i++) placed_end_rounds(c, &rounds[i]);
}

/* Nothing runs: what kernels have left at the places of the operands is the result, if it is still
   there. Who reads an operand later finds the mark of another value. */
static void run_placed_concat(PlacedCall *c, const Op *op) {
  if (!op_lays(c->f, op)) placed_error(c, op, "is laid by nobody:", op->out);
  for (uint32_t k = 0; k < op->nin && !c->x->error; k++) {
    if (!placed_same(placed_address(c, op->in[k]),
                     placed_offset(placed_address(c, op->out), laid_at(c->f, op, k))))
      placed_error(c, op, "lies elsewhere than in the result:", op->in[k]);
    if (!placed_visit(c, op->in[k], NULL, READ))
      placed_error(c, op, "not all bytes are its own any more of", op->in[k]);
  }
  c->mark[op->out] = placed_new_mark(c);
  if (!c->x->error && !placed_visit(c, op->out, NULL, OWN))
    placed_error(c, op, "lies outside of its memory:", op->out);
}

static void run_placed_move(PlacedCall *c, const Op *op) {
  Mark mark = placed_new_mark(c);
  placed_copy(c, op, placed_address(c, op->out), op->in[0], mark);
  c->mark[op->out] = mark;
}

void placed_run(PlacedCall *c) {
  for (OpId i = 0; i < c->f->ops.n && !c->x->error; i++) {
    const Op *op = &c->f->ops.at[i];
    TurnLoops t;
    if (turns_begin(c->f, i, &t)) run_placed_turns(c, &t), i = turns_end(&t);
    else if (op->code == OP_kernel) run_placed_kernel(c, op);
    else if (op->code == OP_loop) placed_run_loop(c, op);
    else if (op->code == OP_store) run_placed_store(c, op);
    else if (op_flies(op)) placed_run_start(c, op);
    else if (op->code == OP_wait) placed_run_wait(c, op);
    else if (op->code == OP_move) run_placed_move(c, op);
    else if (op_family(op->code) == FAMILY_COLLECTIVE) run_placed_collective(c, op);
    else if (op->code == OP_concat) run_placed_concat(c, op);
    else if (op->code == OP_load) c->mark[op->out] = slot_of(c->x, op->global) + 1;
    else run_placed_view(c, op);
  }
}

/* Globals go in and come out in the declared order; their marks at the start are 1, 2, .. */
static void exchange_globals(PlacedMachine *x, bool out) {
  for (uint32_t g = 0; g < x->in->m->globals.n; g++) {
    Tensor *t = &x->in->global[g];
    int64_t size = elem_bytes(t->type.elem), n = type_count(&t->type);
    if (!out) {
      x->global[g] = placed_memory(x, x->in->m->globals.at[g]->name, n * size);
      x->old[g] = ++x->last;
      placed_spoil((PlacedAddress){&x->global[g], 0}, n * size, x->last);
    }
    for (int64_t i = 0; i < n; i++) {
      if (out) t->at[i] = placed_decode(x->global[g].byte + i * size, t->type.elem);
      else placed_encode(x->global[g].byte + i * size, t->type.elem, t->at[i]);
    }
  }
}

static void check_globals(PlacedMachine *x) {
  for (uint32_t g = 0; g < x->in->m->globals.n && !x->error; g++)
    if (!placed_marked((PlacedAddress){&x->global[g], 0}, x->global[g].n, x->old[g]))
      x->error = arena_printf(x->in->arena, "global @%s does not hold its value at the end",
                              x->global[g].name);
}

bool interp_run_placed(Interp *in, const char *entry) {
  const Fn *f = interp_entry(in, entry);
  if (!f) return false;
  PlacedMachine x = {.in = in, .arena = arena_new()};
  x.global = ARENA_ARRAY(x.arena, Memory, in->m->globals.n + 1);
  x.old = ARENA_ARRAY(x.arena, Mark, in->m->globals.n + 1);
  exchange_globals(&x, false);
  Memory frame[TIERS];
  PlacedCall c = {.x = &x, .f = f, .mark = ARENA_ARRAY(x.arena, Mark, f->values.n + 1)};
  for (Tier t = 0; t < TIERS; t++) {
    frame[t] = placed_memory(&x, tier_name(t), attr_int(&f->attrs, tier_frame(t), 0));
    c.frame[t].memory = &frame[t];
  }
  placed_run(&c);
  if (x.flying.n) placed_error(&c, x.flying.at[0].op, "is started and never waited for", NO_VALUE);
  check_globals(&x);
  if (!x.error) exchange_globals(&x, true);
  in->error = x.error;
  arena_free(x.arena);
  return !in->error;
}
