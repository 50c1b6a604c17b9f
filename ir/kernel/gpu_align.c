/* The known alignment of a kernel's buffers, wherever it is called: the values of attribute
   `align`. Arenas, frames and second buffers of carried values begin on 64 bytes (pass memory);
   less is known of views at an offset and of slices of stacked values. Callers are defined after
   their callees, so one walk from the last function to the first sees every caller before its
   callees. */
#include "ir/bytes.h"
#include "gpu_lanes.h"
#include "ir/loop.h"

enum { MOST = 16 }; /* what any access needs */

typedef struct KnownAlign { /* of a function that is called */
  int64_t *arg, *result;
} KnownAlign;

typedef struct Aligning {
  const Module *m;
  KnownAlign *of; /* by function */
  const Fn *f;
  ValueId *root;   /* by value of f: whose bytes it shares */
  int64_t *offset; /* from that base, in bytes */
  int64_t *align;  /* of roots */
} Aligning;

static int64_t power_in(int64_t bytes) { return bytes % MOST ? bytes & -bytes : MOST; }

static void lower(int64_t *to, int64_t align) {
  if (align < *to) *to = align;
}

static KnownAlign *known(Aligning *aligning, const Fn *f) {
  for (uint32_t i = 0; i < aligning->m->fns.n; i++)
    if (aligning->m->fns.at[i] == f) return &aligning->of[i];
  bug("a function outside of the module is called");
}

static void find_roots(Aligning *aligning) {
  const Fn *f = aligning->f;
  SharedBytes bytes = shared_bytes(aligning->m->arena, f);
  aligning->root = bytes.of, aligning->offset = bytes.at;
  for (ValueId v = 0; v < f->values.n; v++) aligning->align[v] = MOST;
  const KnownAlign *align = known(aligning, f);
  for (uint32_t i = 0; i < f->args.n; i++)
    lower(&aligning->align[aligning->root[f->args.at[i]]], align->arg[i]);
  for (uint32_t i = 0; i < f->results.n; i++)
    lower(&aligning->align[aligning->root[f->results.at[i]]], align->result[i]);
}

static int64_t align_of(const Aligning *aligning, ValueId v) {
  int64_t align = aligning->align[aligning->root[v]];
  lower(&align, power_in(aligning->offset[v]));
  return align;
}

/* Bytes from slice to slice along the loop's dim, as an alignment. */
static int64_t slices(const Aligning *aligning, const Op *loop, ValueId v) {
  const Value *value = &aligning->f->values.at[v];
  int at = type_find(&value->type, loop->group[0].from[0]);
  return at < 0 ? MOST : power_in(value->storage.stride[at] * elem_bytes(value->type.elem));
}

static void visit_loop(Aligning *aligning, const Op *o) {
  KnownAlign *align = known(aligning, o->callee);
  uint32_t carry = (uint32_t)attr_int(&o->attrs, ATTR_carry, 0), whole = loop_whole(o);
  for (uint32_t j = 0; j < o->nin; j++) { /* argument 0 is the counter */
    lower(&align->arg[j + 1], align_of(aligning, o->in[j]));
    if (j < carry) lower(&align->arg[j + 1], align_of(aligning, o->out + j));
    if (j >= whole) lower(&align->arg[j + 1], slices(aligning, o, o->in[j]));
  }
  for (uint32_t j = 0; j < o->nout; j++) {
    lower(&align->result[j], align_of(aligning, o->out + j));
    if (j >= carry) lower(&align->result[j], slices(aligning, o, o->out + j));
  }
}

static void visit_call(Aligning *aligning, const Op *o) {
  KnownAlign *align = known(aligning, o->callee);
  for (uint32_t j = 0; j < o->nin; j++) lower(&align->arg[j], align_of(aligning, o->in[j]));
  for (uint32_t j = 0; j < o->nout; j++) lower(&align->result[j], align_of(aligning, o->out + j));
}

static void visit(Aligning *aligning, const Fn *f) {
  aligning->f = f;
  if (f->kind == FN_KERNEL) return;
  aligning->align = ARENA_ARRAY(aligning->m->arena, int64_t, f->values.n + 1);
  find_roots(aligning);
  EACH_OP (f, o)
    if (o->code == OP_loop) visit_loop(aligning, o);
    else if (o->callee) visit_call(aligning, o);
}

int64_t *const *gpu_alignments(const Module *m) {
  Aligning aligning = {.m = m, .of = ARENA_ARRAY(m->arena, KnownAlign, m->fns.n + 1)};
  int64_t **list = ARENA_ARRAY(m->arena, int64_t *, m->fns.n + 1);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *f = m->fns.at[i];
    uint32_t n = f->args.n + f->results.n;
    list[i] = ARENA_ARRAY(m->arena, int64_t, n + 1);
    for (uint32_t j = 0; j < n; j++) list[i][j] = MOST;
    aligning.of[i] = (KnownAlign){list[i], list[i] + f->args.n};
  }
  for (uint32_t i = m->fns.n; i-- > 0;) visit(&aligning, m->fns.at[i]);
  for (uint32_t i = 0; i < m->fns.n; i++) { /* what takes a kernel's place is called as that one */
    const Fn *other = module_fn(m, attr_str(&m->fns.at[i]->attrs, ATTR_replaces, ""));
    if (other) list[i] = known(&aligning, other)->arg;
  }
  return list;
}
