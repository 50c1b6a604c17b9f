/* The interpreter after pass `memory`: executes entries and bodies in bytes, as the host program
   does, and kernels by their mathematics. It is the oracle of placement.

   Every byte remembers the mark of the value that wrote it last; each value of each call has a mark
   of its own (views share their base's, results of a loop's body are handed over to the loop's). A
   kernel first spoils its workspace and its results that are not in place, or of which attribute
   `apart` says that they share bytes with no operand, then reads its operands
   byte by byte with their marks, then writes: so whatever overlaps is found. A collective does the
   same with its two buffers, which it takes as dense, and exchanges blocks with the machines of its
   peers (interp_ranks.c): what it receives may come before all that it sends is sent.

   Loops are in interp_rounds.c, messages in flight in interp_flights.c, streams in
   interp_streams.c. */
#include "interp_rounds.h"
#include "ir/apart.h"
#include "ir/schedule/pipeline_schedule.h"

const char interp_alone[] = "the other ranks did not come to this collective";

/* ---- kernels ---- */

/* Memory that a kernel may write before it has read its operands. */
PlacedAddress placed_work(const PlacedCall *call, const Op *op) {
  Tier t = op->code == OP_kernel ? kernel_tier(op->callee) : TIER_device;
  return placed_offset(call->frame[t], attr_int(&op->attrs, tier_work(t), 0));
}

static void spoil_work(PlacedCall *call, const Op *op, int64_t workspace) {
  PlacedAddress work = placed_work(call, op);
  if (workspace && !placed_inside(work, workspace))
    placed_error(call, op, "has its workspace outside of the frame", NO_VALUE);
  placed_spoil(work, workspace, placed_new_mark(call));
}

static void spoil_outputs(PlacedCall *call, const Op *op) {
  spoil_work(call, op, attr_int(&op->callee->attrs, ATTR_workspace, 0));
  for (uint32_t i = 0; i < op->nout; i++) {
    call->mark[op->out + i] = placed_new_mark(call);
    bool inplace = call->f->values.at[op->out + i].storage.view == VIEW_INPLACE &&
                   !kernel_buffer_apart(op->callee, op->nin + i);
    if (!inplace && !placed_visit(call, op->out + i, NULL, SPOIL))
      placed_error(call, op, "writes outside of its memory:", op->out + i);
  }
}

static unsigned char *byte_of(const PlacedCall *call, ValueId v) {
  PlacedAddress a = placed_address(call, v);
  return a.memory->byte + a.at;
}

/* By the function that interp_set_kernels was given: it writes where marks allow it. False: the
   function does not have the kernel. */
static bool run_given_kernel(PlacedCall *call, const Op *op) {
  Interp *in = call->x->in;
  void **buffers = ARENA_ARRAY(call->x->arena, void *, op->nin + op->nout + 1);
  for (uint32_t i = 0; i < op->nin; i++) {
    buffers[i] = byte_of(call, op->in[i]);
    if (!placed_visit(call, op->in[i], NULL, READ))
      placed_error(call, op, "reads bytes that are another value's:", op->in[i]);
  }
  for (uint32_t i = 0; i < op->nout; i++) buffers[op->nin + i] = byte_of(call, op->out + i);
  PlacedAddress work = placed_work(call, op);
  buffers[op->nin + op->nout] = work.memory->byte + work.at;
  if (!call->x->error && !in->kernel(in->kernel_state, op->callee, buffers)) return false;
  for (uint32_t i = 0; i < op->nout && !call->x->error; i++)
    placed_visit(call, op->out + i, NULL, OWN);
  return true;
}

/* Operands and results are visited byte by byte. */
static bool spend_on(PlacedCall *call, const Op *op) {
  int64_t bytes = attr_int(&op->callee->attrs, ATTR_workspace, 0);
  for (uint32_t i = 0; i < op->nin; i++) bytes += value_dense_bytes(call->f, op->in[i]);
  for (uint32_t i = 0; i < op->nout; i++) bytes += value_dense_bytes(call->f, op->out + i);
  if (interp_spend(call->x->in, bytes)) return true;
  if (!call->x->error) call->x->error = interp_spent;
  return false;
}

static void run_placed_kernel(PlacedCall *call, const Op *op) {
  if (!spend_on(call, op)) return;
  spoil_outputs(call, op);
  if (call->x->in->kernel && run_given_kernel(call, op)) return;
  Arena *arena = arena_new();
  Tensor *args = ARENA_ARRAY(arena, Tensor, op->nin + 1),
         *results = ARENA_ARRAY(arena, Tensor, op->nout + 1);
  for (uint32_t i = 0; i < op->nin; i++) {
    args[i] = tensor_new(arena, *value_type(call->f, op->in[i]));
    if (!placed_visit(call, op->in[i], &args[i], READ))
      placed_error(call, op, "reads bytes that are another value's:", op->in[i]);
  }
  if (!call->x->error) interp_fn(call->x->in, op->callee, args, arena, results);
  for (uint32_t i = 0; i < op->nout && !call->x->error; i++) {
    Tensor tensor = tensor_in_order(arena, &results[i], value_type(call->f, op->out + i));
    placed_visit(call, op->out + i, &tensor, WRITE);
  }
  arena_free(arena);
}

/* ---- collectives ---- */

static void run_placed_collective(PlacedCall *call, const Op *op) {
  Message message = message_of(call->f, op);
  ValueId sent = op->nin ? op->in[0] : op->out; /* without operand: nothing */
  const Type *in = value_type(call->f, sent), *out = value_type(call->f, op->out);
  int64_t size = elem_bytes(in->elem), sends = op->nin ? type_count(in) : 0,
          receives = type_count(out);
  PlacedAddress from = placed_address(call, sent), to = placed_address(call, op->out);
  Mark own = call->mark[sent], mark = call->mark[op->out] = placed_new_mark(call);
  if (!placed_inside(to, receives * size))
    placed_error(call, op, "receives outside of its memory:", op->out);
  if (call->f->values.at[op->out].storage.view != VIEW_INPLACE)
    placed_spoil(to, receives * size, mark);
  spoil_work(call, op, attr_int(&op->attrs, ATTR_workspace, 0));
  if (!placed_marked(from, sends * size, own))
    placed_error(call, op, "sends bytes that are another value's:", sent);
  if (call->x->error) return;
  Arena *arena = arena_new();
  double *send = ARENA_ARRAY(arena, double, sends + 1),
         *receive = ARENA_ARRAY(arena, double, receives);
  placed_read(from, in->elem, send, sends);
  if (!call->x->in->ranks || !ranks_exchange(call->x->in, call->f, op, &message, send, receive))
    call->x->error = interp_alone;
  placed_spoil(to, receives * size, mark);
  placed_write(to, out->elem, receive, receives);
  arena_free(arena);
}

/* ---- functions ---- */

static uint32_t slot_of(const PlacedMachine *machine, const Global *g) {
  uint32_t i = 0;
  while (machine->in->m->globals.at[i] != g) i++;
  return i;
}

static void run_placed_store(PlacedCall *call, const Op *op) {
  ValueId v = op->in[0];
  uint32_t slot = slot_of(call->x, op->global);
  PlacedAddress to = {&call->x->global[slot], 0}, from = placed_address(call, v);
  if (!placed_same(to, from)) placed_copy(call, op, to, v, placed_new_mark(call));
  call->x->old[slot] = placed_same(to, from) ? call->mark[v] : call->x->last;
}

static void run_placed_view(PlacedCall *call, const Op *op) {
  for (uint32_t i = 0; i < op->nout; i++) {
    const Storage *s = &call->f->values.at[op->out + i].storage;
    if (s->view == VIEW_OF) call->mark[op->out + i] = call->mark[s->base];
    else placed_error(call, op, "is no view:", op->out + i);
  }
}

/* Loops by the table of the rank's stage (ir/schedule/pipeline_schedule.h). */
static void run_placed_turns(PlacedCall *call, const ScheduleLoops *loops) {
  const Op *op = call->f->ops.at;
  int64_t stage = schedule_stage(call->x->in->m, &op[loops->loop[0]], call->x->in->rank);
  PlacedRounds rounds[TURN_LOOPS];
  for (OpId i = loops->loop[0]; i <= schedule_end(loops); i++) {
    int at = schedule_loop_number(loops, i);
    if (at < 0) run_placed_view(call, &op[i]);
    else rounds[at] = placed_begin_rounds(call, &op[i]);
  }
  for (ScheduleState state = {{0}}; !schedule_done(&loops->table, &state) && !call->x->error;) {
    int next = schedule_next(&loops->table, stage, &state);
    placed_round(call, &rounds[next], state.over[next]++);
  }
  for (int i = 0; i < loops->n; i++) placed_end_rounds(call, &rounds[i]);
}

/* Nothing runs: kernels have written the operands into the bytes of the result, if these bytes
   still hold them. A later reader of an operand finds the mark of another value. */
static void run_placed_concat(PlacedCall *call, const Op *op) {
  if (!op_lays(call->f, op)) placed_error(call, op, "is laid by nobody:", op->out);
  for (uint32_t k = 0; k < op->nin && !call->x->error; k++) {
    if (!placed_same(placed_address(call, op->in[k]),
                     placed_offset(placed_address(call, op->out), laid_at(call->f, op, k))))
      placed_error(call, op, "is not at its place in the result:", op->in[k]);
    if (!placed_visit(call, op->in[k], NULL, READ))
      placed_error(call, op, "not all bytes are its own any more of", op->in[k]);
  }
  call->mark[op->out] = placed_new_mark(call);
  if (!call->x->error && !placed_visit(call, op->out, NULL, OWN))
    placed_error(call, op, "is outside its memory:", op->out);
}

static void run_placed_move(PlacedCall *call, const Op *op) {
  Mark mark = placed_new_mark(call);
  placed_copy(call, op, placed_address(call, op->out), op->in[0], mark);
  call->mark[op->out] = mark;
}

/* Kernels, copies between memories, collectives; where they run: see event_stream. */
static void run_operation(PlacedCall *call, const Op *op) {
  OpStream stream = STREAM_compute;
  if (op->code == OP_move)
    stream = value_type(call->f, op->out)->tier == TIER_device ? STREAM_up : STREAM_down;
  else if (op->code == OP_kernel && kernel_on_host(call->x->in->m, op->callee))
    stream = STREAM_host;
  placed_begin_operation(call, op, stream, call->round);
  if (op->code == OP_kernel) run_placed_kernel(call, op);
  else if (op->code == OP_move) run_placed_move(call, op);
  else run_placed_collective(call, op);
  placed_end_operation(call, op);
}

void placed_run(PlacedCall *call) {
  for (OpId i = 0; i < call->f->ops.n && !call->x->error; i++) {
    const Op *op = &call->f->ops.at[i];
    ScheduleLoops loops;
    if (schedule_find(call->f, i, &loops)) run_placed_turns(call, &loops), i = schedule_end(&loops);
    else if (op->code == OP_loop) placed_run_loop(call, op);
    else if (op->code == OP_store) run_placed_store(call, op);
    else if (op_flies(op)) placed_run_start(call, op);
    else if (op->code == OP_wait) placed_run_wait(call, op);
    else if (op->code == OP_kernel || op_between_buffers(op->code)) run_operation(call, op);
    else if (op->code == OP_concat) run_placed_concat(call, op);
    else if (op->code == OP_load) call->mark[op->out] = slot_of(call->x, op->global) + 1;
    else run_placed_view(call, op);
  }
}

/* Globals go in and come out in the declared order; their marks at the start are 1, 2, .. */
static void exchange_globals(PlacedMachine *machine, bool out) {
  for (uint32_t g = 0; g < machine->in->m->globals.n; g++) {
    Tensor *tensor = &machine->in->global[g];
    int64_t size = elem_bytes(tensor->type.elem), n = type_count(&tensor->type);
    if (!out) {
      machine->global[g] = placed_memory(machine, machine->in->m->globals.at[g]->name, n * size);
      machine->old[g] = ++machine->last;
      placed_spoil((PlacedAddress){&machine->global[g], 0}, n * size, machine->last);
      placed_share_global(machine, g);
    }
    PlacedAddress at = {&machine->global[g], 0};
    if (out) placed_read(at, tensor->type.elem, tensor->at, n);
    else placed_write(at, tensor->type.elem, tensor->at, n);
  }
}

static void check_globals(PlacedMachine *machine) {
  for (uint32_t g = 0; g < machine->in->m->globals.n && !machine->error; g++)
    if (!placed_marked((PlacedAddress){&machine->global[g], 0}, machine->global[g].n,
                       machine->old[g]))
      machine->error =
          arena_printf(machine->in->arena, "global @%s does not hold its value at the end",
                       machine->global[g].name);
}

bool interp_run_placed(Interp *in, const char *entry) {
  const Fn *f = interp_entry(in, entry);
  if (!f) return false;
  PlacedMachine machine = {.in = in, .arena = arena_new()};
  machine.global = ARENA_ARRAY(machine.arena, Memory, in->m->globals.n + 1);
  machine.old = ARENA_ARRAY(machine.arena, Mark, in->m->globals.n + 1);
  placed_begin_streams(&machine, f);
  exchange_globals(&machine, false);
  Memory frame[TIERS];
  PlacedCall call = {.x = &machine,
                     .f = f,
                     .round = NO_ROUND,
                     .mark = ARENA_ARRAY(machine.arena, Mark, f->values.n + 1)};
  for (Tier t = 0; t < TIERS; t++) {
    frame[t] = placed_memory(&machine, tier_name(t), attr_int(&f->attrs, tier_frame(t), 0));
    call.frame[t].memory = &frame[t];
    placed_share_frame(&machine, &frame[t], t);
  }
  placed_run(&call);
  if (machine.flying.n)
    placed_error(&call, machine.flying.at[0].op, "is started and never waited for", NO_VALUE);
  check_globals(&machine);
  if (!machine.error) exchange_globals(&machine, true);
  in->error = machine.error;
  arena_free(machine.arena);
  return !in->error;
}
