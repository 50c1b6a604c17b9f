/* Which matrices a parameter is. A product `dot[K](x, w)` sums the dims K of w, and keeps the
   others; those that x has as well number the matrices (experts), and so do the rounds of a stack.
   A parameter has matrices if products alone read it, all with the same K. They are read from
   entry `eval`, which has neither gradients nor noise. Must not: guess; a parameter that something
   else reads is refused. */
#include "matrix.h"
#include "ir/plan/module_settings.h"
#include "ir/plan/optimizers.h"
#include <string.h>

typedef struct MatrixReaders {
  const Global *global;
  const Op *dot;   /* the first product that reads it */
  int at;          /* which of its operands */
  const Op *other; /* the first op that makes it no matrix */
} MatrixReaders;

static bool same_sums(const MatrixReaders *reading, const Op *dot) {
  const Group *sums = &reading->dot->group[0], *other = &dot->group[0];
  bool same = sums->nfrom == other->nfrom;
  for (int i = 0; i < sums->nfrom; i++) {
    bool found = false;
    for (int k = 0; k < other->nfrom; k++) found |= sums->from[i] == other->from[k];
    same &= found;
  }
  return same;
}

/* In the dims of the first product. */
static void read_dot(MatrixReaders *reading, const Fn *f, const Op *o, int at, UpdateMatrix *to) {
  const Type *own = value_type(f, o->in[at]), *other = value_type(f, o->in[!at]);
  if (o->in[0] == o->in[1] || (reading->dot && !same_sums(reading, o))) {
    reading->other = o;
    return;
  }
  if (reading->dot) return;
  reading->dot = o;
  to->fan_in = to->fan_out = 1;
  for (int i = 0; i < own->rank; i++) {
    Axis axis = own->axis[i];
    bool summed = false;
    for (int k = 0; k < o->group[0].nfrom; k++) summed |= o->group[0].from[k] == axis.dim;
    if (summed) to->in[to->nin++] = axis.dim, to->fan_in *= axis.size;
    else if (type_find(other, axis.dim) < 0)
      to->out[to->nout++] = axis.dim, to->fan_out *= axis.size;
  }
  if (!to->nin || !to->nout) reading->other = o;
}

static void read_uses(MatrixReaders *reading, const Fn *f, ValueId v, UpdateMatrix *to) {
  for (uint32_t i = 0; i < f->ops.n && !reading->other; i++) {
    const Op *o = &f->ops.at[i];
    for (uint32_t k = 0; k < o->nin && !reading->other; k++) {
      if (o->in[k] != v) continue;
      if (o->code == OP_loop) read_uses(reading, o->callee, o->callee->args.at[k + 1], to);
      else if (o->code == OP_wide || o->code == OP_cast) read_uses(reading, f, o->out, to);
      else if (o->code == OP_dot) read_dot(reading, f, o, (int)k, to);
      else reading->other = o;
    }
  }
}

static bool refuse(Module *m, const MatrixReaders *reading, int line) {
  const char *key = optimizer_key(m, line, line ? "train.optim.of" : "train.optim");
  Report *r = diag_at(m->ctx->diag, "E0602", module_written(m, key).word,
                      "`optim %s` updates matrices, and `%s` is none",
                      module_word(m, optimizer_key(m, line, "train.optim")), reading->global->name);
  diag_also(r, span_of(m, reading->global->loc), "the parameter");
  if (reading->other) diag_also(r, span_of(m, reading->other->loc), "read by this");
  diag_help(r, "a matrix is read by products alone, which sum the same dims of it; "
               "`adamw` updates any parameter");
  return false;
}

static MatrixReaders find_readers(Module *m, const Global *global, UpdateMatrix *to) {
  const Fn *f = entry_of(m, "eval");
  MatrixReaders reading = {.global = global};
  *to = (UpdateMatrix){0};
  for (uint32_t i = 0; f && i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_load && f->ops.at[i].global == global)
      read_uses(&reading, f, f->ops.at[i].out, to);
  return reading;
}

bool matrix_find(Module *m, const Global *global, UpdateMatrix *to) {
  MatrixReaders reading = find_readers(m, global, to);
  return reading.dot && !reading.other;
}

bool matrix_of(Module *m, const Global *global, int line, UpdateMatrix *to) {
  MatrixReaders reading = find_readers(m, global, to);
  return (reading.dot && !reading.other) || refuse(m, &reading, line);
}
