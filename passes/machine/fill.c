/* schedule, while messages travel: under `zero overlap` the kernels of a body are ordered so that a
   message begins as early as its operand allows, and that kernels which do not need its result run
   until it has arrived. So the all-to-alls of experts, and sums of tensor parallelism, travel while
   a shared expert is computed, or the gradients of weights, which only the update reads.

   1. Kernels that precede an all-to-all and do not lead to it run after its start.
   2. A walk in program order with two clocks, as in ir/cost/timeline.c: one of the kernels, one of
      the messages. Where the next op needs a message that is still on its way, the first later
      kernel that may run is taken instead; one that takes twice as long as is left of the message
      is not.

   Only kernels move, and none past an op whose bytes or results it concerns (`conflicts`), or past
   a loop, a store or a copy. Messages keep their order, which all ranks of a group share; the
   numbers stay the same in every bit, since no kernel is changed. Without the rates of a machine a
   message takes longer than all kernels. Pass `prefetch`, which runs next, then decides which of
   the messages are in flight. Must not: look at anything but the module. */
#include "fill.h"
#include "ir/bytes.h"
#include "ir/cost/kernel_time.h"
#include "ir/plan/module_settings.h"
#include "ir/plan/stage_class.h"
#include "ir/schedule/flight.h"
#include <string.h>

enum { FARTHEST = 256 }; /* ops that a kernel moves forward past */

typedef VEC(OpId) OpIds;

typedef struct GapFilling {
  Module *m;
  const Fn *f;
  const ValueId *class;
  OpIds *makers; /* by op: ops that make its operands, through loads and views */
  FilledOrder order;
  double *over;             /* by op: when its message has arrived */
  double *seconds;          /* by op: of its kernel or message */
  double kernels, messages; /* the clocks */
} GapFilling;

/* A load or a view: right before its first reader. */
static bool op_floats(const Op *o) {
  return o->code == OP_load || (op_flags(o->code) & VIEW && op_family(o->code) == FAMILY_STRUCT);
}

bool between_classes(const Module *m, const Op *o) {
  StageClass c = module_class(m);
  return *c.name && !strcmp(attr_str(&o->attrs, ATTR_axis, ""), m->mesh.at[c.axis].name);
}

static const Op *op_at(const GapFilling *fill, uint32_t at) {
  return &fill->f->ops.at[fill->order.at[at]];
}

/* ---- what may change places ---- */

static void add_makers(const GapFilling *fill, ValueId v, OpIds *list) {
  const Op *o = value_def(fill->f, v);
  if (!o) return;
  if (!op_floats(o)) vec_push(fill->m->arena, *list, (OpId)(o - fill->f->ops.at));
  else
    for (uint32_t i = 0; i < o->nin; i++) add_makers(fill, o->in[i], list);
}

/* Does it write in place over bytes that the other op touches? */
static bool writes_over(const GapFilling *fill, const Op *o, const Op *other) {
  for (uint32_t i = 0; i < o->nout; i++)
    if (fill->f->values.at[o->out + i].storage.view == VIEW_INPLACE &&
        op_touches(other, fill->class, o->out + i))
      return true;
  return false;
}

/* May op `b`, which is later, not run before op `a`? */
static bool conflicts(const GapFilling *fill, OpId a, OpId b) {
  const Op *first = &fill->f->ops.at[a], *second = &fill->f->ops.at[b];
  for (uint32_t i = 0; i < fill->makers[b].n; i++)
    if (fill->makers[b].at[i] == a) return true;
  return writes_over(fill, first, second) || writes_over(fill, second, first);
}

static bool may_move(const GapFilling *fill, const Op *o) {
  return o->code == OP_kernel && !kernel_on_host(fill->m, o->callee);
}

static bool is_passed(const GapFilling *fill, const Op *o) {
  return may_move(fill, o) || op_family(o->code) == FAMILY_COLLECTIVE;
}

static bool conflicts_any(const GapFilling *fill, uint32_t from, uint32_t to, uint32_t at) {
  for (uint32_t i = from; i < to; i++) {
    OpId a = fill->order.at[i], b = fill->order.at[at];
    if (i < at ? conflicts(fill, a, b) : conflicts(fill, b, a)) return true;
  }
  return false;
}

static void move_op(GapFilling *fill, uint32_t from, uint32_t to) {
  OpId op = fill->order.at[from];
  int step = from < to ? 1 : -1;
  for (uint32_t i = from; i != to; i += (uint32_t)step)
    fill->order.at[i] = fill->order.at[i + (uint32_t)step];
  fill->order.at[to] = op;
}

/* A message of a value that this function makes. */
static bool travels(const GapFilling *fill, OpId id) {
  const Op *o = &fill->f->ops.at[id];
  return op_can_fly(o) && !between_classes(fill->m, o) && fill->makers[id].n;
}

/* ---- 1. all-to-alls early ---- */

static void start_early(GapFilling *fill, uint32_t at) {
  uint32_t message = at;
  for (uint32_t i = at; i-- > 0 && may_move(fill, op_at(fill, i));)
    if (!conflicts_any(fill, i + 1, message + 1, i)) move_op(fill, i, message--);
}

/* ---- 2. kernels while messages travel ---- */

/* When the messages that the op needs have arrived, of those before place `at`. */
static double arrival(const GapFilling *fill, uint32_t at, OpId id) {
  double last = 0;
  for (uint32_t i = 0; i < at; i++) {
    OpId other = fill->order.at[i];
    if (fill->over[other] > last && conflicts(fill, other, id)) last = fill->over[other];
  }
  return last;
}

/* The place of the first later kernel that may run now; n: there is none. */
static uint32_t filler(const GapFilling *fill, uint32_t at, double late) {
  uint32_t end = fill->order.n - at > FARTHEST ? at + FARTHEST : fill->order.n;
  for (uint32_t i = at + 1; i < end && is_passed(fill, op_at(fill, i - 1)); i++) {
    const Op *o = op_at(fill, i);
    if (may_move(fill, o) && fill->seconds[fill->order.at[i]] <= 2 * late &&
        arrival(fill, at, fill->order.at[i]) <= fill->kernels && !conflicts_any(fill, at, i, i))
      return i;
  }
  return fill->order.n;
}

static void run_op(GapFilling *fill, OpId id) {
  const Op *o = &fill->f->ops.at[id];
  if (op_family(o->code) == FAMILY_COLLECTIVE) {
    double from = fill->kernels > fill->messages ? fill->kernels : fill->messages;
    fill->messages = from + fill->seconds[id];
    if (travels(fill, id)) fill->over[id] = fill->messages;
    else fill->kernels = fill->messages;
  } else if (o->code == OP_loop) {
    if (fill->messages > fill->kernels) fill->kernels = fill->messages;
  } else {
    fill->kernels += fill->seconds[id];
  }
}

static void fill_gaps(GapFilling *fill) {
  for (uint32_t at = 0; at < fill->order.n; at++) {
    double over = arrival(fill, at, fill->order.at[at]);
    if (over > fill->kernels) {
      uint32_t other = filler(fill, at, over - fill->kernels);
      if (other < fill->order.n) move_op(fill, other, at);
      else fill->kernels = over;
    }
    run_op(fill, fill->order.at[at]);
  }
}

static bool has_messages(const GapFilling *fill) {
  for (uint32_t i = 0; i < fill->order.n; i++)
    if (travels(fill, fill->order.at[i])) return true;
  return false;
}

static double seconds_of(const GapFilling *fill, const Machine *machine, const Op *o) {
  bool known = machine_is_known(fill->m, machine);
  if (op_family(o->code) == FAMILY_COLLECTIVE)
    return known ? message_seconds(fill->m, machine, fill->f, o) : 1;
  if (!known || !may_move(fill, o)) return 0;
  KernelTime time = kernel_time(fill->m, machine, o->callee);
  return kernel_sum(&time);
}

static void find_facts(GapFilling *fill) {
  const Fn *f = fill->f;
  Machine machine = plan_machine(fill->m);
  fill->class = shared_bytes(fill->m->arena, f).of;
  fill->makers = ARENA_ARRAY(fill->m->arena, OpIds, f->ops.n + 1);
  fill->over = ARENA_ARRAY(fill->m->arena, double, f->ops.n + 1);
  fill->seconds = ARENA_ARRAY(fill->m->arena, double, f->ops.n + 1);
  for (OpId i = 0; i < f->ops.n; i++) {
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++)
      add_makers(fill, f->ops.at[i].in[k], &fill->makers[i]);
    fill->seconds[i] = seconds_of(fill, &machine, &f->ops.at[i]);
  }
}

FilledOrder fill_order(Module *m, const Fn *f) {
  GapFilling fill = {.m = m, .f = f};
  fill.order.at = ARENA_ARRAY(m->arena, OpId, f->ops.n + 1);
  for (OpId i = 0; i < f->ops.n; i++)
    if (!op_floats(&f->ops.at[i])) fill.order.at[fill.order.n++] = i;
  if (f->kind != FN_BODY || !plan_overlaps(m)) return fill.order;
  find_facts(&fill);
  if (!has_messages(&fill)) return fill.order;
  for (uint32_t i = 0; i < fill.order.n; i++)
    if (op_at(&fill, i)->code == OP_all_to_all && travels(&fill, fill.order.at[i]))
      start_early(&fill, i);
  fill_gaps(&fill);
  return fill.order;
}
