/* Attribute `align` of kernels: what the first bytes of their buffers are surely multiples of,
   wherever the kernel is called. Arenas, frames and second buffers of carried values begin on 64
   bytes (pass memory); less is known of views at an offset and of slices of stacked values. Callers
   stand after their callees, so one walk from the last function to the first sees every caller
   before what it calls. */
#include "passes/gpu.h"
#include "passes/internal.h"

enum { MOST = 16 }; /* what any access needs */

typedef struct Known { /* of a function that is called */
  int64_t *arg, *result;
} Known;

typedef struct Aligning {
  Module *m;
  Known *of; /* by function */
  const Fn *f;
  ValueId *root;   /* by value of f: whose bytes it shares */
  int64_t *offset; /* from there, in bytes */
  int64_t *align;  /* of roots */
} Aligning;

static int64_t power_in(int64_t bytes) { return bytes % MOST ? bytes & -bytes : MOST; }

static void lower(int64_t *to, int64_t align) {
  if (align < *to) *to = align;
}

static Known *known(Aligning *x, const Fn *f) {
  for (uint32_t i = 0; i < x->m->fns.n; i++)
    if (x->m->fns.at[i] == f) return &x->of[i];
  bug("a function outside of the module is called");
}

static void find_roots(Aligning *x) {
  const Fn *f = x->f;
  for (ValueId v = 0; v < f->values.n; v++) {
    const Storage *s = &f->values.at[v].storage;
    x->root[v] = v, x->offset[v] = 0, x->align[v] = MOST;
    if (s->view == VIEW_NONE) continue;
    x->root[v] = x->root[s->base], x->offset[v] = x->offset[s->base];
    if (s->view == VIEW_OF) x->offset[v] += s->offset * elem_bytes(f->values.at[v].type.elem);
  }
  const Known *k = known(x, f);
  for (uint32_t i = 0; i < f->args.n; i++) lower(&x->align[x->root[f->args.at[i]]], k->arg[i]);
  for (uint32_t i = 0; i < f->results.n; i++)
    lower(&x->align[x->root[f->results.at[i]]], k->result[i]);
}

static int64_t align_of(const Aligning *x, ValueId v) {
  int64_t align = x->align[x->root[v]];
  lower(&align, power_in(x->offset[v]));
  return align;
}

/* Bytes from slice to slice along the loop's dim, as an alignment. */
static int64_t slices(const Aligning *x, const Op *loop, ValueId v) {
  const Value *value = &x->f->values.at[v];
  int at = type_find(&value->type, loop->group[0].from[0]);
  return at < 0 ? MOST : power_in(value->storage.stride[at] * elem_bytes(value->type.elem));
}

static void visit_loop(Aligning *x, const Op *o) {
  Known *k = known(x, o->callee);
  LoopShape s = loop_shape(o);
  for (uint32_t j = 0; j < o->nin; j++) { /* argument 0 is the counter */
    lower(&k->arg[j + 1], align_of(x, o->in[j]));
    if (j < s.carry) lower(&k->arg[j + 1], align_of(x, o->out + j));
    if (j >= s.carry + s.invariant) lower(&k->arg[j + 1], slices(x, o, o->in[j]));
  }
  for (uint32_t j = 0; j < o->nout; j++) {
    lower(&k->result[j], align_of(x, o->out + j));
    if (j >= s.carry) lower(&k->result[j], slices(x, o, o->out + j));
  }
}

static void visit_call(Aligning *x, const Op *o) {
  Known *k = known(x, o->callee);
  for (uint32_t j = 0; j < o->nin; j++) lower(&k->arg[j], align_of(x, o->in[j]));
  for (uint32_t j = 0; j < o->nout; j++) lower(&k->result[j], align_of(x, o->out + j));
}

static void write_kernel(Aligning *x, Fn *f) {
  const Known *k = known(x, f);
  int n = (int)(f->args.n + f->results.n), least = MOST;
  int64_t *list = ARENA_ARRAY(x->m->arena, int64_t, n + 1);
  for (int i = 0; i < n; i++) {
    list[i] = i < (int)f->args.n ? k->arg[i] : k->result[i - (int)f->args.n];
    if (list[i] < least) least = (int)list[i];
  }
  if (least < MOST) attr_set_ints(x->m, &f->attrs, ATTR_align, n, list);
}

static void visit(Aligning *x, Fn *f) {
  x->f = f;
  if (f->kind == FN_KERNEL) {
    write_kernel(x, f);
    return;
  }
  x->root = ARENA_ARRAY(x->m->arena, ValueId, f->values.n + 1);
  x->offset = ARENA_ARRAY(x->m->arena, int64_t, f->values.n + 1);
  x->align = ARENA_ARRAY(x->m->arena, int64_t, f->values.n + 1);
  find_roots(x);
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (o->code == OP_loop) visit_loop(x, o);
    else if (o->callee) visit_call(x, o);
  }
}

void gpu_align(Module *m) {
  Aligning x = {.m = m, .of = ARENA_ARRAY(m->arena, Known, m->fns.n + 1)};
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *f = m->fns.at[i];
    x.of[i].arg = ARENA_ARRAY(m->arena, int64_t, f->args.n + 1);
    x.of[i].result = ARENA_ARRAY(m->arena, int64_t, f->results.n + 1);
    for (uint32_t j = 0; j < f->args.n; j++) x.of[i].arg[j] = MOST;
    for (uint32_t j = 0; j < f->results.n; j++) x.of[i].result[j] = MOST;
  }
  for (uint32_t i = m->fns.n; i-- > 0;) visit(&x, m->fns.at[i]);
}
