/* spare: kernels that would fill a GPU leave multiprocessors to messages, where a step is then
   faster.

   A CTA of NCCL needs a multiprocessor of its own, and a kernel by wgmma stays on all of them until
   it ends. So a message that becomes ready during such a kernel waits for its end, and a message in
   flight makes the kernel take up to twice as long (timeline.c). A kernel with attribute `spare`
   has fewer CTAs: it takes longer, with and without messages. Pass `select` cuts it for that
   number.

   The clock of the forecast decides entry by entry, the step first. It compares two programs, in
   which all kernels or none leave multiprocessors; the better one is then changed kernel by kernel,
   as long as kernels compute and wait for fewer seconds. Settings made.spare hold the number of the
   step's kernels that leave multiprocessors, and the seconds as decided, with none and with all.

   Without a forecast for the machine, and without messages in flight, no kernel leaves any. The
   choice depends on the module alone, so all ranks of the program make the same one. Must not:
   change the order of kernels. */
#include "ir/communicator.h"
#include "ir/cost/count.h"
#include "ir/cost/forecast.h"
#include "ir/cost/timeline.h"
#include "ir/kernel/gpu_plan.h"
#include "ir/plan/stage_class.h"
#include "ir/schedule/flight.h"
#include "select.h"

typedef struct FillingKernel { /* a kernel that fills the GPU */
  Fn *kernel;
  AttrList full, spare; /* its attributes without and with it */
  bool spares;
} FillingKernel;

typedef struct Sparing {
  Module *m;
  Machine machine;
  EventList events; /* of the entry that is decided */
  VEC(FillingKernel) filling;
  uint32_t first; /* first kernel of this entry; earlier kernels are decided */
} Sparing;

static bool has_flights(const Fn *f) {
  bool found = false;
  EACH_OP (f, o) found |= op_flies(o) || (o->code == OP_loop && has_flights(o->callee));
  return found;
}

static AttrList attrs_without(Module *m, const AttrList *all, AttrKey key) {
  AttrList left = {0};
  for (uint32_t i = 0; i < all->n; i++)
    if (all->at[i].key != key) vec_push(m->arena, left, all->at[i]);
  return left;
}

static void add_kernel(Sparing *sparing, Fn *k) {
  Module *m = sparing->m;
  FillingKernel filling = {.kernel = k, .full = k->attrs};
  bool known = kernel_on_host(m, k) || !gpu_fills(m, k);
  for (uint32_t i = 0; i < sparing->filling.n; i++) known |= sparing->filling.at[i].kernel == k;
  if (known) return;
  k->attrs = attrs_without(m, &filling.full, ATTR_workspace);
  attr_set_int(m, &k->attrs, ATTR_spare, m->target.channels);
  bool cut = select_cut(m, k); /* false: reported */
  filling.spare = k->attrs, k->attrs = filling.full;
  if (cut) vec_push(m->arena, sparing->filling, filling);
}

static void add_kernels(Sparing *sparing, const Fn *f) {
  EACH_OP (f, o)
    if (o->code == OP_kernel) add_kernel(sparing, o->callee);
    else if (o->callee) add_kernels(sparing, o->callee);
}

static void put(FillingKernel *filling, bool spares) {
  filling->spares = spares;
  filling->kernel->attrs = spares ? filling->spare : filling->full;
}

static void put_all(Sparing *sparing, bool spares) {
  for (uint32_t i = sparing->first; i < sparing->filling.n; i++)
    put(&sparing->filling.at[i], spares);
}

/* The seconds in which kernels of the entry compute or wait for messages. */
static double seconds_of(Sparing *sparing) {
  const Module *m = sparing->m;
  sparing->machine.shapes = ARENA_NEW(m->arena, KernelShapes);
  Lanes lanes = lanes_of(m, &sparing->machine, &sparing->events);
  KernelTime kernels = kernels_time(m, &sparing->machine, sparing->events.entry);
  double sum = kernel_sum(&kernels) + lanes.slowed;
  for (uint32_t i = 0; i < m->mesh.n; i++) sum += lanes.exposed[i];
  return sum;
}

static bool is_less(double a, double b) {
  return a < b * (1 - 1e-9); /* a smaller difference is rounding */
}

/* Changes kernels one by one, as long as that is faster; returns the seconds. `best`: the seconds
   as kernels are now, where all of them or none leave multiprocessors. */
static double improve(Sparing *sparing, double best) {
  for (uint32_t i = sparing->first; i < sparing->filling.n; i++) {
    FillingKernel *filling = &sparing->filling.at[i];
    put(filling, !filling->spares);
    double seconds = seconds_of(sparing);
    if (is_less(seconds, best)) best = seconds;
    else put(filling, !filling->spares);
  }
  return best;
}

static void tell(const Sparing *sparing, double seconds, double none, double all) {
  Module *m = sparing->m;
  int spares = 0;
  for (uint32_t i = 0; i < sparing->filling.n; i++) spares += sparing->filling.at[i].spares;
  module_set(m, "made.spare", "%d of %u kernels leave %lld of %lld multiprocessors to messages",
             spares, sparing->filling.n, (long long)m->target.channels,
             (long long)m->target.multiprocessors);
  module_set(m, "made.spare.seconds", "%.6g", seconds);
  module_set(m, "made.spare.none", "%.6g", none), module_set(m, "made.spare.all", "%.6g", all);
}

static void decide(Sparing *sparing, const Fn *entry) {
  sparing->first = sparing->filling.n;
  if (!has_flights(entry)) return;
  add_kernels(sparing, entry);
  if (sparing->first == sparing->filling.n) return;
  sparing->events = events_in_order(sparing->m, entry);
  double none = seconds_of(sparing);
  put_all(sparing, true);
  double all = seconds_of(sparing);
  if (!is_less(all, none)) put_all(sparing, false);
  double best = improve(sparing, all < none ? all : none);
  if (entry == ir_main_entry(sparing->m)) tell(sparing, best, none, all);
}

void pass_spare(Module *m) {
  const Fn *step = ir_main_entry(m);
  if (module_setting(m, "made.compared", NULL)) { /* searches compare plans without these waits */
    m->target.channels = 0;
    return;
  }
  if (!module_on_gpu(m) || !module_communicator(m)->on_device) return;
  if (m->target.channels >= m->target.multiprocessors) return;
  Sparing sparing = {.m = m, .machine = forecast_machine(m, *module_class_name(m)).machine};
  if (!sparing.machine.reach) return;
  if (step) decide(&sparing, step);
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_ENTRY && m->fns.at[i] != step) decide(&sparing, m->fns.at[i]);
}
