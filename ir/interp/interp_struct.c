/* Ops that move indexes. All but rope copy: over a space of dims, from one tensor to another, each
   with an offset and a step per axis of the space. split and merge walk the space of the finer
   side, where both steps are linear. */
#include "interp_inside.h"
#include "ir/rope.h"
#include <math.h>

typedef struct JoinedSide {
  double *at;
  Steps steps;
} JoinedSide;

static JoinedSide side_of(const Type *space, const Tensor *tensor) {
  return (JoinedSide){tensor->at, steps_in(space, &tensor->type)};
}

/* Steps of one axis of the space, where the tensor calls it otherwise. */
static void set_step(JoinedSide *s, const Type *space, Str dim, int64_t step) {
  s->steps.step[type_find(space, dim)] = step;
}

static void move(const Type *space, const JoinedSide *to, const JoinedSide *from) {
  int64_t index[MAX_RANK] = {0};
  do to->at[steps_at(space, &to->steps, index)] = from->at[steps_at(space, &from->steps, index)];
  while (walk_next(space, index));
}

static void fill_with(InterpRun *run, Tensor *tensor) {
  double fill = run_constant(run, tensor->type.elem, attr_float(&run->op->attrs, ATTR_fill, 0));
  for (int64_t i = 0, n = type_count(&tensor->type); i < n; i++) run_put(run, tensor, i, fill);
}

static void move_expand(InterpRun *run) {
  const Type *space = &run_out(run, 0)->type;
  JoinedSide to = side_of(space, run_out(run, 0)), from = side_of(space, run_in(run, 0));
  move(space, &to, &from);
}

static void move_rename(InterpRun *run) {
  const Tensor *tensor = run_in(run, 0);
  const Type *space = &run_out(run, 0)->type;
  JoinedSide to = side_of(space, run_out(run, 0)), from = side_of(space, tensor);
  for (int i = 0; i < run->op->ngroups; i++)
    for (int k = 0; k < run->op->group[i].nto; k++)
      set_step(&from, space, run->op->group[i].to[k],
               stride_of(&tensor->type, run->op->group[i].from[k]));
  move(space, &to, &from);
}

/* The fine dims of a coarse one: the last is the fastest. */
static void set_pieces(JoinedSide *s, const Type *space, int n, const Str *fine, int64_t stride) {
  for (int i = n; i-- > 0;) {
    set_step(s, space, fine[i], stride);
    stride *= type_size(space, fine[i]);
  }
}

static void move_split(InterpRun *run) {
  const Tensor *tensor = run_in(run, 0);
  const Type *space = &run_out(run, 0)->type;
  JoinedSide to = side_of(space, run_out(run, 0)), from = side_of(space, tensor);
  for (int i = 0; i < run->op->ngroups; i++) {
    const Group *group = &run->op->group[i];
    set_pieces(&from, space, group->nto, group->to, stride_of(&tensor->type, group->from[0]));
  }
  move(space, &to, &from);
}

static void move_merge(InterpRun *run) {
  const Type *space = &run_in(run, 0)->type;
  JoinedSide to = side_of(space, run_out(run, 0)), from = side_of(space, run_in(run, 0));
  for (int i = 0; i < run->op->ngroups; i++) {
    const Group *group = &run->op->group[i];
    set_pieces(&to, space, group->nfrom, group->from,
               stride_of(&run_out(run, 0)->type, group->to[0]));
  }
  move(space, &to, &from);
}

static void move_slice(InterpRun *run) {
  const Tensor *tensor = run_in(run, 0);
  Group group = run->op->group[0];
  const Type *space = &run_out(run, 0)->type;
  int64_t stride = stride_of(&tensor->type, group.from[0]);
  JoinedSide to = side_of(space, run_out(run, 0)), from = side_of(space, tensor);
  set_step(&from, space, group.to[0], stride);
  from.at += attr_int(&run->op->attrs, ATTR_at, 0) * stride;
  move(space, &to, &from);
}

/* Puts a whole into out, its dim `from` lying at `at` of out's dim `to`. */
static void put_part(const Tensor *tensor, Tensor *out, Str from_dim, Str to_dim, int64_t at) {
  const Type *space = &tensor->type;
  int64_t stride = stride_of(&out->type, to_dim);
  JoinedSide to = side_of(space, out), from = side_of(space, tensor);
  set_step(&to, space, from_dim, stride);
  to.at += at * stride;
  move(space, &to, &from);
}

static void move_pad(InterpRun *run) {
  Group group = run->op->group[0];
  fill_with(run, run_out(run, 0));
  put_part(run_in(run, 0), run_out(run, 0), group.from[0], group.to[0],
           attr_int(&run->op->attrs, ATTR_at, 0));
}

static void move_concat(InterpRun *run) {
  Group group = run->op->group[0];
  int64_t at = 0;
  for (uint32_t i = 0; i < run->op->nin; i++) {
    put_part(run_in(run, i), run_out(run, 0), group.from[i], group.to[0], at);
    at += type_size(&run_in(run, i)->type, group.from[i]);
  }
}

static void move_shift(InterpRun *run) {
  Tensor *out = run_out(run, 0);
  const Tensor *tensor = run_in(run, 0);
  Str dim = run->op->group[0].from[0];
  int axis = type_find(&out->type, dim);
  int64_t by = attr_int(&run->op->attrs, ATTR_by, 0), n = out->type.axis[axis].size,
          index[MAX_RANK] = {0}, i = 0;
  Steps from = steps_in(&out->type, &tensor->type);
  fill_with(run, out);
  do {
    int64_t d = index[axis];
    bool inside = by <= 0 ? d < n + by : d >= by; /* 0 <= d - by < n */
    if (inside) out->at[i] = tensor->at[steps_at(&out->type, &from, index) - by * from.step[axis]];
    i++;
  } while (walk_next(&out->type, index));
}

static void move_unstack(InterpRun *run) {
  const Tensor *tensor = run_in(run, 0);
  for (uint32_t i = 0; i < run->op->nout; i++) {
    const Type *space = &run_out(run, i)->type;
    JoinedSide to = side_of(space, run_out(run, i)), from = side_of(space, tensor);
    from.at += i * stride_of(&tensor->type, run->op->group[0].from[0]);
    move(space, &to, &from);
  }
}

static void move_stack(InterpRun *run) {
  Tensor *out = run_out(run, 0);
  for (uint32_t i = 0; i < run->op->nin; i++) {
    const Type *space = &run_in(run, i)->type;
    JoinedSide to = side_of(space, out), from = side_of(space, run_in(run, i));
    to.at += i * stride_of(&out->type, run->op->group[0].from[0]);
    move(space, &to, &from);
  }
}

static double rotated(const InterpRun *run, double x, double y, double cosine, double sine) {
  if (!run->interp->field) return x * cosine + y * sine;
  return field_add(field_mul(x, field_of(cosine)), field_mul(y, field_of(sine)));
}

/* Pairs (d, d + half) turn by the angle position * rope_frequency. */
static void move_rope(InterpRun *run) {
  const Tensor *tensor = run_in(run, 0);
  Tensor *out = run_out(run, 0);
  Str seq = run->op->group[0].from[0], dim = run->op->group[1].from[0];
  int s = type_find(&out->type, seq), d = type_find(&out->type, dim);
  int64_t size = out->type.axis[d].size, half = size / 2, index[MAX_RANK] = {0}, i = 0;
  double sign = attr_int(&run->op->attrs, ATTR_inverse, 0) ? -1 : 1;
  Steps from = steps_in(&out->type, &tensor->type), at_pos = {{0}};
  if (run->op->nin > 1) at_pos = steps_in(&out->type, &run_in(run, 1)->type);
  do {
    double pos = run->op->nin > 1 ? run_in(run, 1)->at[steps_at(&out->type, &at_pos, index)]
                                  : (double)index[s];
    double angle = sign * pos * rope_frequency(run->op, index[d] % half, size);
    int64_t here = steps_at(&out->type, &from, index), far = half * from.step[d];
    double x = tensor->at[here], y = tensor->at[index[d] < half ? here + far : here - far];
    run_put(run, out, i++,
            rotated(run, x, y, cos(angle), index[d] < half ? -sin(angle) : sin(angle)));
  } while (walk_next(&out->type, index));
}

/* Bits of a byte follow each other along the dim that is listed, the first one is the lowest. */
static void move_bits(InterpRun *run) {
  const Tensor *tensor = run_in(run, 0);
  Tensor *out = run_out(run, 0);
  bool packs = run->op->code == OP_pack_bits;
  Str from_dim = run->op->group[0].from[0];
  int axis = type_find(&out->type, run->op->group[0].to[0]);
  int64_t step = stride_of(&tensor->type, from_dim), index[MAX_RANK] = {0}, i = 0;
  Steps from = steps_in(&out->type, &tensor->type);
  from.step[axis] = 0;
  do {
    const double *at = tensor->at + steps_at(&out->type, &from, index);
    int byte = 0;
    for (int k = 0; k < 8 && packs; k++) byte |= (at[(index[axis] * 8 + k) * step] != 0) << k;
    if (!packs) byte = (int)at[index[axis] / 8 * step] >> index[axis] % 8 & 1;
    run_put(run, out, i++, byte);
  } while (walk_next(&out->type, index));
}

static RunFamily *const moves[OP_COUNT] = {
    [OP_expand] = move_expand,    [OP_rename] = move_rename,   [OP_split] = move_split,
    [OP_merge] = move_merge,      [OP_slice] = move_slice,     [OP_pad] = move_pad,
    [OP_shift] = move_shift,      [OP_unstack] = move_unstack, [OP_stack] = move_stack,
    [OP_concat] = move_concat,    [OP_rope] = move_rope,       [OP_pack_bits] = move_bits,
    [OP_unpack_bits] = move_bits,
};

void run_struct(InterpRun *run) {
  if (!moves[run->op->code]) bug("the interpreter does not know op %s", op_name(run->op->code));
  moves[run->op->code](run);
}
