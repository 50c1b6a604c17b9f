/* recompute: the bytes that one rank holds of kept values, for the budget of `keep = auto`.

   The pass works on sizes of all ranks. A kept value has the placement that the plan's place rules
   give it (pass `place`), split further over the axes of `over` (place_kept.c). A stage of a
   pipeline has its own layers alone, and holds their kept values once for every micro-batch in
   flight, i.e. between its forward and backward pass: as many as the ring between the two has
   slots (pipeline_schedule.h). Rows may have padding between them (pass `order`): the largest
   possible padding is counted. Must not: know the kept values of other stacks of the plan. */
#include "recompute.h"
#include "ir/plan/module_settings.h"
#include "ir/plan/stage_class.h"
#include "ir/schedule/pipeline_schedule.h"
#include "ir/shape/placement.h"
#include "ir/support/num.h"
#include <math.h>
#include <string.h>

/* In the size that pass `pad` gives it if an axis requires that. */
static Type stored(const Module *m, Type t) {
  for (int i = 0; i < t.rank; i++)
    for (uint32_t k = 0; k < m->dims.n; k++) {
      const Dim *dim = &m->dims.at[k];
      if (dim->name == t.axis[i].dim && dim->size == t.axis[i].size && dim->stored > dim->size)
        t.axis[i].size = dim->stored;
    }
  return t;
}

static bool names_axis(Str over, Str axis) {
  for (const char *p = over; p && *p;) {
    size_t n = strcspn(p, ", ");
    if (n == strlen(axis) && !strncmp(p, axis, n)) return true;
    p += n, p += strspn(p, ", ");
  }
  return false;
}

static Type with_layers(const Pair *pair, const Type *t) {
  Type all = {.elem = t->elem, .tier = t->tier, .rank = t->rank + 1};
  all.axis[0] = pair->s1.axis;
  for (int i = 0; i < t->rank; i++) all.axis[i + 1] = t->axis[i];
  return all;
}

static double rows_padded(const Module *m, double bytes) {
  double row = (double)m->target.row, more = (double)m->target.pad;
  return row > 0 && bytes >= row ? bytes * (1 + more / row) : bytes;
}

double kept_by_rank(const Pair *pair, ValueId v, Str over) {
  const Module *m = pair->m;
  const Type *slice = value_type(pair->fwd, v);
  if (slice->rank >= MAX_RANK) return (double)type_dense_bytes(slice);
  Type all = stored(m, with_layers(pair, slice));
  Placement at = placement_by_rules(m, &all, NULL);
  double bytes = elem_bytes(slice->elem);
  for (int i = 1; i < all.rank; i++)
    bytes *= (double)ceil_div(all.axis[i].size, placement_ways(m, &at, all.axis[i].dim));
  for (uint32_t i = 0; slice->rank && i < m->mesh.n; i++)
    if (!at.on[i] && names_axis(over, m->mesh.at[i].name))
      bytes = ceil(bytes / (double)m->mesh.at[i].size);
  return rows_padded(m, bytes);
}

/* ---- stages ---- */

static int64_t stages_of(const Pair *pair) {
  Type layers = {.rank = 1};
  layers.axis[0] = pair->s1.axis;
  if (!dim_counts_layers(pair->m, pair->s1.axis.dim)) return 1;
  Placement at = placement_by_rules(pair->m, &layers, NULL);
  return placement_ways(pair->m, &at, pair->s1.axis.dim);
}

static int64_t parts_of(const Module *m) {
  int64_t micro = plan_micro(m), share = train_batch(m) / mesh_batch_ranks(m);
  return micro > 0 && share > micro ? share / micro : 1;
}

/* The most slots that rings of a chunk have on stages first .. last, all chunks together. */
static int64_t slots_on(const ScheduleTable *table, int64_t first, int64_t last) {
  int loops = schedule_loops(table);
  int64_t sum = 0;
  for (int c = 0; c < loops / 2 && first <= last; c++)
    sum += schedule_between(table, c, loops - 1 - c, first, last);
  return sum;
}

static double in_flight(const Module *m, int64_t stages) {
  int64_t parts = parts_of(m), chunks = plan_chunks(m), most = 0;
  if (stages < 2 || parts < 2 || !strcmp(plan_schedule(m), "sequential")) return 1;
  if (!plan_takes_turns(m)) return (double)parts;
  ScheduleTable table = chunks > 1 ? schedule_interleaved(m->arena, stages, parts, chunks)
                                   : schedule_one_f_one_b(m->arena, stages, parts);
  const int64_t ends[][2] = {{0, 0}, {1, stages - 2}, {stages - 1, stages - 1}};
  for (int i = 0; i < 3; i++) {
    int64_t n = slots_on(&table, ends[i][0], ends[i][1]);
    most = n > most ? n : most;
  }
  return (double)most / (double)chunks;
}

KeptShare kept_share(const Pair *pair) {
  int64_t stages = stages_of(pair);
  return (KeptShare){stages, in_flight(pair->m, stages)};
}
