/* place: what a forward loop keeps for its backward loop, split over more axes (Pa of ZeRO, section
   6.1; `recompute .. over X`, attribute `over` of the loop).

   A stacked result that nobody but other loops reads, slice by slice, is split over X along the
   first dim that X divides below the cuts that are there: so each rank keeps a piece of what it
   has, which sends nothing, and `collect` joins the pieces once in each round of the backward loop:
   one all-gather of the value per layer. The axis must cut finer than those that cut the dim
   already, else the piece would lie with another rank; then the next dim is tried. A value that is
   split over X already (`else Seq`) stays as it is; if that is so of all that a line keeps, a note
   says so (N0703). If X divides no dim of a value, E0711 has its dims. Must not: look at what the
   rounds compute. */
#include "ir/placement.h"
#include "passes/internal.h"
#include "ir/module_settings.h"
#include <stdio.h>
#include <string.h>

typedef struct Kept { /* of one loop */
  Module *m;
  Fn *f;
  const Op *loop;
  int axis[MAX_MESH], naxes;     /* of the mesh, in the order of the rules */
  uint32_t values, split_before; /* of those that have a dim */
  bool failed;
} Kept;

/* ---- who reads ---- */

static bool reads_slices(const Op *o, uint32_t operand) {
  if (o->code != OP_loop || operand < loop_whole(o)) return false;
  for (uint32_t i = 0; i < o->nout; i++)
    if (loop_continues(o, i) == operand) return false;
  return true;
}

bool value_is_kept(const Fn *f, ValueId v) {
  bool any = false;
  for (uint32_t i = 0; i < f->results.n; i++)
    if (f->results.at[i] == v) return false;
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nin; k++) {
      if (f->ops.at[i].in[k] != v) continue;
      if (!reads_slices(&f->ops.at[i], k)) return false;
      any = true;
    }
  return any;
}

/* ---- the line of the plan ---- */

static bool names_axis(const char *over, Str axis) {
  size_t n = strlen(axis);
  for (const char *p = over; (p = strstr(p, axis)); p += n)
    if ((p == over || p[-1] == ' ') && (!p[n] || p[n] == ',')) return true;
  return false;
}

/* Where the line says `over`; file 0: nowhere. */
static Loc place_of_word(const Kept *k) {
  Loc at = {0};
  Str over = attr_str(&k->loop->attrs, ATTR_over, ""),
      path = attr_str(&k->loop->attrs, ATTR_path, "");
  const char *stack = arena_printf(k->m->arena, "%.*s", (int)strcspn(path, "["), path),
             *words = arena_printf(k->m->arena, " over %s loc(", over);
  for (uint32_t i = 0; i < k->m->settings.n; i++) {
    const Setting *s = &k->m->settings.at[i];
    const char *word = strstr(s->value, " over(f");
    if (plan_keeps(s) && word && strstr(s->value, stack) && strstr(s->value, words))
      sscanf(word, " over(f%u:%u:%u+%u)", &at.file, &at.line, &at.column, &at.length);
  }
  return at;
}

static Str stack_of(const Kept *k) { return attr_str(&k->loop->attrs, ATTR_path, "a loop"); }

/* Batch 16, 4 on a rank; Seq 9; Embed 15 */
static const char *dims_text(const Kept *k, const Type *t, const Placement *p) {
  const char *text = "";
  for (int i = 0; i < t->rank; i++) {
    int64_t ways = placement_ways(k->m, p, t->axis[i].dim), size = t->axis[i].size;
    text = arena_printf(k->m->arena, "%s%s`%s` %lld", text, i ? ", " : "", t->axis[i].dim,
                        (long long)size);
    if (ways > 1)
      text = arena_printf(k->m->arena, "%s (%lld on a rank)", text, (long long)(size / ways));
  }
  return text;
}

static void divides_none(Kept *k, int axis, const Type *t, const Placement *p) {
  const MeshAxis *a = &k->m->mesh.at[axis];
  Report *r = diag_at(k->m->ctx->diag, "E0711", span_of(k->m, place_of_word(k)),
                      "cannot split what `%s` keeps over mesh axis `%s` (%lld)", stack_of(k),
                      a->name, (long long)a->size);
  diag_fact(r, "a value has %s: %lld divides none", dims_text(k, t, p), (long long)a->size);
  diag_help(r, "another size of `%s` or of one of the dims, or leave out `over %s`", a->name,
            a->name);
  k->failed = true;
}

/* ---- where it is split ---- */

/* Do only coarser axes cut the dim? */
static bool is_finest(const Kept *k, int at, Str dim, const Placement *p) {
  for (int i = at + 1; i < k->naxes; i++)
    if (p->on[k->axis[i]] == dim) return false;
  return true;
}

/* Of a stack whose rounds are cut, too: a round's value as it lies on its stage. */
static Placement of_round(const Kept *k, const Type *t, const Placement *p) {
  Placement round = *p;
  for (uint32_t i = 0; i < k->m->mesh.n; i++)
    if (round.on[i] && type_find(t, round.on[i]) < 0) round.on[i] = NULL;
  return round;
}

static Str dim_to_split(const Kept *k, int at, const Type *t, const Placement *p) {
  for (int i = 0; i < t->rank; i++) {
    Placement with = of_round(k, t, p);
    with.on[k->axis[at]] = t->axis[i].dim;
    if (is_finest(k, at, t->axis[i].dim, p) && placement_fits(k->m, t, &with))
      return t->axis[i].dim;
  }
  return NULL;
}

static void split_value(Kept *k, ValueId v, const Type *slice) {
  Placement *p = &k->f->values.at[v].placed;
  Str over = attr_str(&k->loop->attrs, ATTR_over, "");
  k->values++;
  bool before = true;
  for (int i = 0; i < k->naxes && !k->failed; i++) {
    const MeshAxis *a = &k->m->mesh.at[k->axis[i]];
    if (a->size == 1 || p->on[k->axis[i]] || !names_axis(over, a->name)) continue;
    Str dim = dim_to_split(k, i, slice, p);
    before = false;
    if (dim) p->on[k->axis[i]] = dim;
    else divides_none(k, k->axis[i], slice, p);
  }
  k->split_before += before;
}

static void note_split_before(const Kept *k) {
  Loc at = place_of_word(k);
  Str over = attr_str(&k->loop->attrs, ATTR_over, "");
  if (diag_given(k->m->ctx->diag, "N0703")) return;
  Report *r = diag_at(k->m->ctx->diag, "N0703", span_of(k->m, at),
                      "what `%s` keeps is split over `%s` already", stack_of(k), over);
  diag_label(r, "changes nothing");
}

static void split_loop(Kept *k) {
  const Fn *body = k->loop->callee;
  uint32_t carry = (uint32_t)attr_int(&k->loop->attrs, ATTR_carry, 0);
  for (uint32_t i = carry; i < k->loop->nout && !k->failed; i++) {
    const Type *slice = value_type(body, body->results.at[i]);
    if (slice->rank && value_is_kept(k->f, k->loop->out + i))
      split_value(k, k->loop->out + i, slice);
  }
  if (k->values && k->split_before == k->values) note_split_before(k);
}

void place_kept(Module *m) {
  Kept k = {.m = m};
  k.naxes = mesh_order(m, k.axis);
  for (uint32_t i = 0; i < m->fns.n && !k.failed; i++)
    for (OpId o = 0; o < m->fns.at[i]->ops.n && !k.failed; o++) {
      k.f = m->fns.at[i], k.loop = &k.f->ops.at[o], k.values = k.split_before = 0;
      if (k.loop->code == OP_loop && attr_get(&k.loop->attrs, ATTR_over)) split_loop(&k);
    }
}
