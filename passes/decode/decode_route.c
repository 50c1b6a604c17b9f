/* Pass decode: tokens that are routed to experts (frontend/model/sema_route.c).

   Without drops, every expert has a place for each position, so what a token gets does not depend
   on the others: alone, it has the one place of each expert that it chose. The dim of places is
   restricted together with positions, to size 1. `route` scatters a token's number to the place
   that cumulative counts give it; of one position that is place 0 of the experts chosen, which is
   read off the choices themselves. Experts with fewer places may drop a token because of later
   ones: such a model has no entry for one position. */
#include "decode.h"

static bool is_places(const DecodeFrame *frame, Str dim) {
  Module *m = frame->d->m;
  return module_setting(m, arena_printf(m->arena, "made.places.%s", dim), NULL) != NULL;
}

static Str places_in(const DecodeFrame *frame, const DimSet *dims) {
  for (int i = 0; i < dims->n; i++)
    if (is_places(frame, dims->at[i])) return dims->at[i];
  return NULL;
}

/* Is the index chosen? Of where(is_k, count_k, .. where(is_1, count_1, 0)): any of the is. */
static ValueId any_chosen(DecodeFrame *frame, ValueId place, DimSet dims) {
  Module *m = frame->d->m;
  ValueId any = NO_VALUE;
  const Op *op = value_def(frame->from, place);
  for (; op && op->code == OP_where; op = value_def(frame->from, op->in[2])) {
    ValueId is = decode_get(frame, op->in[0], dims);
    if (is == NO_VALUE) return NO_VALUE;
    any = any == NO_VALUE ? is : ir_binary(m, frame->to, OP_or, any, is, op->loc);
  }
  bool ends = op && op->code == OP_const && attr_float(&op->attrs, ATTR_value, 1) == 0;
  if (ends && any != NO_VALUE) return any;
  return decode_fail(frame, op, "places of experts that are counted in another way");
}

static ValueId spread(DecodeFrame *frame, double number, Type t, Loc loc) {
  ValueId x = ir_const(frame->d->m, frame->to, t.elem, number, loc);
  return emit_spread(frame->d->m, frame->to, x, t, loc);
}

/* scatter[Seq -> Slot] number + 1, place - 1: of one token, number 0 at place 0 or outside. */
static bool number_places(DecodeFrame *frame, const Op *o, DimSet dims, Str slot) {
  Module *m = frame->d->m;
  Str seq = o->group[0].from[0];
  const Op *less = value_def(frame->from, o->in[1]);
  DimSet before = dims;
  dims_drop(&before, slot), dims_put(&before, seq);
  if (!less || less->code != OP_sub)
    return decode_fail(frame, o, "places of experts that are counted in another way"), false;
  ValueId any = any_chosen(frame, less->in[0], before);
  if (any == NO_VALUE) return false;
  Type number = dims_cut(*value_type(frame->from, o->in[0]), &before);
  Type index = type_with_elem(*value_type(frame->to, any), ELEM_i32);
  ValueId first = spread(frame, 0, index, o->loc), none = spread(frame, -1, index, o->loc);
  const ValueId in[] = {spread(frame, 1, number, o->loc),
                        ir_where(m, frame->to, any, first, none, o->loc)};
  return decode_copy(frame, o, dims, in);
}

/* Results of a token's experts are added up at its position. */
static bool add_places(DecodeFrame *frame, const Op *o, DimSet dims) {
  const Type *t = value_type(frame->from, o->in[1]);
  Str seq = o->group[0].to[0], slot = NULL;
  for (int i = 0; i < o->group[0].nfrom; i++)
    if (is_places(frame, o->group[0].from[i])) slot = o->group[0].from[i];
  if (!slot) return decode_fail(frame, o, "positions meet outside of attention"), false;
  if (type_size(t, slot) < type_size(value_type(frame->from, o->out), seq))
    return decode_fail(frame, o, "experts with fewer places than positions may drop tokens"), false;
  DimSet before = dims;
  dims_drop(&before, seq), dims_put(&before, slot);
  return decode_each(frame, o, dims, (const DimSet[]){before, before});
}

bool decode_scatter(DecodeFrame *frame, const Op *o, DimSet dims) {
  Str slot = places_in(frame, &dims);
  bool numbers = slot && o->ngroups && o->group[0].nto && o->group[0].to[0] == slot;
  if (numbers) return number_places(frame, o, dims, slot);
  bool adds = o->ngroups && o->group[0].nto && dims_hold(&dims, o->group[0].to[0]);
  if (adds) return add_places(frame, o, dims);
  return decode_each(frame, o, dims, (const DimSet[]){dims, dims});
}

bool decode_gather(DecodeFrame *frame, const Op *o, DimSet dims) {
  DimSet each[2] = {dims, dims};
  Str of = o->group[0].from[0], slot = places_in(frame, &dims);
  dims_drop(&each[0], of);
  if (slot && of == frame->d->dim) dims_drop(&each[0], slot), dims_put(&each[0], of);
  return decode_each(frame, o, dims, each);
}
