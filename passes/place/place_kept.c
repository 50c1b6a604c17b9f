/* place: values that a forward loop keeps for its backward loop, split over more axes (Pa of ZeRO,
   section 6.1; `recompute .. over X`, attribute `saved_axes` of the loop).

   A stacked result that only other loops read, slice by slice, is split over X along the first dim
   that X divides below the existing cuts: each rank keeps a shard of its own slice, which sends
   nothing, and `collect` joins the shards once in each round of the backward loop: one all-gather
   of the value per layer. The axis must cut finer than those that cut the dim already, else the
   shard would belong to another rank; then the next dim is tried.

   A value that is split over X already (`else Seq`) stays as it is; if that holds for all values
   that a line keeps, a note says so (N0703). If X divides no dim of a value, E0711 lists its dims.
   Must not: examine the ops of the rounds. */
#include "ir/shape/placement.h"
#include "place.h"
#include <string.h>

typedef struct Kept { /* of one loop */
  Module *m;
  Fn *f;
  const Op *loop;
  int axis[MAX_MESH], naxes;     /* of the mesh, in the order of the rules */
  uint32_t values, split_before; /* of those that have a dim */
  bool failed;
} Kept;

/* ---- the line of the plan ---- */

static bool names_axis(const char *over, Str axis) {
  size_t n = strlen(axis);
  for (const char *p = over; (p = strstr(p, axis)); p += n)
    if ((p == over || p[-1] == ' ') && (!p[n] || p[n] == ',')) return true;
  return false;
}

/* Where the line says `over`; file 0: nowhere. */
static Loc place_of_word(const Kept *kept) {
  Loc at = {0};
  Str over = attr_str(&kept->loop->attrs, ATTR_saved_axes, ""),
      path = attr_str(&kept->loop->attrs, ATTR_path, "");
  size_t n = strcspn(path, "[");
  for (uint32_t i = 0; i < kept->m->recompute.n; i++) {
    const RecomputeLine *line = &kept->m->recompute.at[i];
    for (uint32_t k = 0; line->over == over && k < line->stacks.n; k++)
      if (!strncmp(line->stacks.at[k].stack, path, n) && !line->stacks.at[k].stack[n])
        at = line->over_loc;
  }
  return at;
}

static Str stack_of(const Kept *kept) { return attr_str(&kept->loop->attrs, ATTR_path, "a loop"); }

/* Batch 16, 4 on a rank; Seq 9; Embed 15 */
static const char *dims_text(const Kept *kept, const Type *t, const Placement *placement) {
  const char *text = "";
  for (int i = 0; i < t->rank; i++) {
    int64_t ways = placement_ways(kept->m, placement, t->axis[i].dim), size = t->axis[i].size;
    text = arena_list(kept->m->arena, text, "`%s` %lld", t->axis[i].dim, (long long)size);
    if (ways > 1)
      text = arena_printf(kept->m->arena, "%s (%lld on a rank)", text, (long long)(size / ways));
  }
  return text;
}

static void divides_none(Kept *kept, int axis, const Type *t, const Placement *placement) {
  const MeshAxis *mesh_axis = &kept->m->mesh.at[axis];
  Report *r = diag_at(kept->m->ctx->diag, "E0711", span_of(kept->m, place_of_word(kept)),
                      "cannot split the values that `%s` keeps over mesh axis `%s` (%lld)",
                      stack_of(kept), mesh_axis->name, (long long)mesh_axis->size);
  diag_fact(r, "one value has dims %s: %lld divides none of them", dims_text(kept, t, placement),
            (long long)mesh_axis->size);
  diag_help(r, "choose another size of `%s` or of one of the dims, or leave out `over %s`",
            mesh_axis->name, mesh_axis->name);
  kept->failed = true;
}

/* ---- where it is split ---- */

/* Do only coarser axes cut the dim? */
static bool is_finest(const Kept *kept, int at, Str dim, const Placement *placement) {
  for (int i = at + 1; i < kept->naxes; i++)
    if (placement->on[kept->axis[i]] == dim) return false;
  return true;
}

/* For a stack whose rounds are cut as well: the placement of a round's value on its stage. */
static Placement of_round(const Kept *kept, const Type *t, const Placement *placement) {
  Placement round = *placement;
  for (uint32_t i = 0; i < kept->m->mesh.n; i++)
    if (round.on[i] && type_find(t, round.on[i]) < 0) round.on[i] = NULL;
  return round;
}

static Str dim_to_split(const Kept *kept, int at, const Type *t, const Placement *placement) {
  for (int i = 0; i < t->rank; i++) {
    Placement with = of_round(kept, t, placement);
    with.on[kept->axis[at]] = t->axis[i].dim;
    if (is_finest(kept, at, t->axis[i].dim, placement) && placement_fits(kept->m, t, &with))
      return t->axis[i].dim;
  }
  return NULL;
}

static void split_value(Kept *kept, ValueId v, const Type *slice) {
  Placement *placement = &kept->f->values.at[v].placed;
  Str over = attr_str(&kept->loop->attrs, ATTR_saved_axes, "");
  kept->values++;
  bool before = true;
  for (int i = 0; i < kept->naxes && !kept->failed; i++) {
    const MeshAxis *axis = &kept->m->mesh.at[kept->axis[i]];
    if (axis->size == 1 || placement->on[kept->axis[i]] || !names_axis(over, axis->name)) continue;
    Str dim = dim_to_split(kept, i, slice, placement);
    before = false;
    if (dim) placement->on[kept->axis[i]] = dim;
    else divides_none(kept, kept->axis[i], slice, placement);
  }
  kept->split_before += before;
}

static void note_split_before(const Kept *kept) {
  Loc at = place_of_word(kept);
  Str over = attr_str(&kept->loop->attrs, ATTR_saved_axes, "");
  if (diag_given(kept->m->ctx->diag, "N0703")) return;
  Report *r =
      diag_at(kept->m->ctx->diag, "N0703", span_of(kept->m, at),
              "the values that `%s` keeps are split over `%s` already", stack_of(kept), over);
  diag_label(r, "has no effect");
}

static void split_loop(Kept *kept) {
  const Fn *body = kept->loop->callee;
  uint32_t carry = (uint32_t)attr_int(&kept->loop->attrs, ATTR_carry, 0);
  for (uint32_t i = carry; i < kept->loop->nout && !kept->failed; i++) {
    const Type *slice = value_type(body, body->results.at[i]);
    if (slice->rank && value_is_kept(kept->f, kept->loop->out + i))
      split_value(kept, kept->loop->out + i, slice);
  }
  if (kept->values && kept->split_before == kept->values) note_split_before(kept);
}

void place_kept(Module *m) {
  Kept kept = {.m = m};
  kept.naxes = mesh_order(m, kept.axis);
  for (uint32_t i = 0; i < m->fns.n && !kept.failed; i++)
    for (OpId o = 0; o < m->fns.at[i]->ops.n && !kept.failed; o++) {
      kept.f = m->fns.at[i], kept.loop = &kept.f->ops.at[o], kept.values = kept.split_before = 0;
      if (kept.loop->code == OP_loop && attr_get(&kept.loop->attrs, ATTR_saved_axes))
        split_loop(&kept);
    }
}
