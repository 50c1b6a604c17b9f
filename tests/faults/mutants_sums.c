/* Seeded faults in messages that pass `combine` makes of short sums.

     faults_sums MODEL.shard      plan `parts`, as ranks in the interpreter

   Of each message there is, each fault at each place where it can be: parts in another order,
   another axis, a part read from elsewhere or read before it is summed, a message of another
   size, a reader before the message, a part that was summed before. The verifier must refuse
   the module, or a rank must report, or numbers of some rank must differ from those of the
   sound module, which in turn are those before the pass, to the bit. */
#include "frontend/lower.h"
#include "ir/interp/interp_ranks.h"
#include "ir/shape/placement.h"
#include "passes/pass.h"
#include <stdio.h>
#include <string.h>

typedef struct Message { /* of some entry */
  Fn *f;
  OpId join, sum;
} Message;

typedef VEC(Message) Messages;

static Messages messages_of(Module *m) {
  Messages all = {0};
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      const Op *o = &m->fns.at[i]->ops.at[k], *join = NULL;
      if (o->code == OP_all_reduce) join = value_def(m->fns.at[i], o->in[0]);
      if (!join || join->code != OP_concat || strncmp(join->group[0].to[0], "sums'", 5)) continue;
      Message message = {m->fns.at[i], (OpId)(join - m->fns.at[i]->ops.at), k};
      vec_push(m->arena, all, message);
    }
  return all;
}

static Op *join_of(const Message *at) { return &at->f->ops.at[at->join]; }
static Op *sum_of(const Message *at) { return &at->f->ops.at[at->sum]; }

/* The n-th op that reads the message's sum; NULL: there are fewer. */
static Op *reader(const Message *at, uint32_t n) {
  for (OpId i = at->sum + 1; i < at->f->ops.n; i++) {
    Op *o = &at->f->ops.at[i];
    for (uint32_t k = 0; k < o->nin; k++)
      if (o->in[k] == sum_of(at)->out && !n--) return o;
  }
  return NULL;
}

/* ---- faults: the n-th of its kind; false: there are fewer ---- */

static bool other_order(Module *m, const Message *at, uint32_t n) {
  Op *o = join_of(at);
  (void)m;
  if (n + 1 >= o->nin) return false;
  ValueId v = o->in[n];
  Str dim = o->group[0].from[n];
  o->in[n] = o->in[n + 1], o->in[n + 1] = v;
  o->group[0].from[n] = o->group[0].from[n + 1], o->group[0].from[n + 1] = dim;
  return true;
}

static bool other_axis(Module *m, const Message *at, uint32_t n) {
  Op *o = sum_of(at);
  if (n >= m->mesh.n) return false;
  bool same = !strcmp(attr_str(&o->attrs, ATTR_axis, ""), m->mesh.at[n].name);
  attr_set_str(m, &o->attrs, ATTR_axis, m->mesh.at[same ? (n + 1) % m->mesh.n : n].name);
  return true;
}

/* The element before or after; for a gather, which takes the nearest existing one, around the
   ends. */
static bool other_place(Module *m, const Message *at, uint32_t n) {
  Op *o = reader(at, n / 2);
  int64_t by = n % 2 ? 1 : -1, size = value_type(at->f, sum_of(at)->out)->axis[0].size;
  if (!o) return false;
  if (o->code == OP_slice) {
    attr_set_int(m, &o->attrs, ATTR_at, attr_int(&o->attrs, ATTR_at, 0) + by);
    return true;
  }
  Op *index = &at->f->ops.at[at->f->values.at[o->in[1]].def];
  int64_t is = (int64_t)attr_float(&index->attrs, ATTR_value, 0);
  attr_set_float(m, &index->attrs, ATTR_value, (double)((is + by + size) % size));
  return true;
}

static bool before_the_sum(Module *m, const Message *at, uint32_t n) {
  Op *o = reader(at, n);
  (void)m;
  if (!o) return false;
  o->in[0] = join_of(at)->out;
  return true;
}

static bool other_size(Module *m, const Message *at, uint32_t n) {
  (void)m;
  if (n > 1) return false;
  at->f->values.at[join_of(at)->out].type.axis[0].size += n ? 1 : -1;
  at->f->values.at[sum_of(at)->out].type.axis[0].size += n ? 1 : -1;
  return true;
}

/* As if the message were made where the last part is, and one of its readers before that. */
static bool reader_first(Module *m, const Message *at, uint32_t n) {
  Op *o = reader(at, n), *sum = sum_of(at), was = *sum;
  (void)m;
  if (!o) return false;
  *sum = *o, *o = was;
  at->f->values.at[sum->out].def = at->sum;
  at->f->values.at[was.out].def = (OpId)(o - at->f->ops.at);
  return true;
}

/* Twice nothing is nothing. */
static bool is_zero(const Fn *f, ValueId part) {
  const Op *o = value_def(f, value_def(f, part)->in[0]);
  return o && o->code == OP_const && attr_float(&o->attrs, ATTR_value, 1) == 0;
}

/* A part that another message has summed over that axis, as if it had been joined twice. */
static bool summed_twice(Module *m, const Message *at, uint32_t n) {
  Op *o = join_of(at);
  for (uint32_t i = 0; i < o->nin && i <= n; i++) n += is_zero(at->f, o->in[i]);
  if (n >= o->nin) return false;
  Op *part = &at->f->ops.at[at->f->values.at[o->in[n]].def];
  Type t = *value_type(at->f, part->in[0]);
  ValueId in = part->in[0];
  OpId where = (OpId)(part - at->f->ops.at);
  Op again = *sum_of(at);
  again.in = ARENA_ARRAY(m->arena, ValueId, 1), again.in[0] = in, again.out = at->f->values.n;
  vec_push(m->arena, at->f->values, ((Value){.type = t, .def = where}));
  part->in[0] = again.out;
  vec_push(m->arena, at->f->ops, again);
  for (OpId i = at->f->ops.n - 1; i > where; i--) at->f->ops.at[i] = at->f->ops.at[i - 1];
  at->f->ops.at[where] = again;
  for (OpId i = 0; i < at->f->ops.n; i++)
    for (uint32_t k = 0; k < at->f->ops.at[i].nout; k++)
      at->f->values.at[at->f->ops.at[i].out + k].def = i;
  return true;
}

static const struct Kind {
  const char *name;
  bool (*seed)(Module *, const Message *, uint32_t);
} kinds[] = {{"parts in another order", other_order},
             {"another axis", other_axis},
             {"a part from elsewhere", other_place},
             {"a part before it is summed", before_the_sum},
             {"another size", other_size},
             {"a reader before the message", reader_first},
             {"a part summed twice", summed_twice}};
enum { KINDS = sizeof kinds / sizeof *kinds, NOBODY = 0, VERIFIER, RANK, NUMBERS, NOTICES };

/* ---- running ---- */

static void set_inputs(Ranks *r, const Module *whole) {
  for (uint32_t i = 0; i < whole->globals.n; i++) {
    const Global *g = whole->globals.at[i];
    if (g->kind != GLOBAL_INPUT) continue;
    int64_t n = type_count(&g->type);
    double *x = ARENA_ARRAY(whole->arena, double, n);
    for (int64_t k = 0; k < n; k++) x[k] = (double)((k * 7 + i * 3) % 11) / 4 - 1;
    ranks_set(r, g->name, x);
  }
}

/* Two steps and a look at the loss. NULL: a rank reported. */
static Ranks *run(Module *m, const Module *whole) {
  Ranks *r = ranks_new(m, m->arena);
  ranks_set_all(r, "seed", 11);
  if (!ranks_run(r, "init")) return NULL;
  for (int step = 1; step <= 2; step++) {
    set_inputs(r, whole), ranks_set_all(r, "step", step);
    if (!ranks_run(r, "step")) return NULL;
  }
  return ranks_run(r, "eval") ? r : NULL;
}

static bool differ(const Module *m, const Ranks *a, const Ranks *b) {
  for (int64_t rank = 0; rank < mesh_ranks(m); rank++)
    for (uint32_t i = 0; i < m->globals.n; i++) {
      const Tensor *x = interp_get(ranks_rank(a, rank), m->globals.at[i]->name),
                   *y = interp_get(ranks_rank(b, rank), m->globals.at[i]->name);
      if (!x || !y) return x != y;
      if (memcmp(x->at, y->at, sizeof *x->at * (size_t)type_count(&x->type)) != 0) return true;
    }
  return false;
}

/* Noticed by whom; -1: there is no such fault. */
static int try_fault(const char *text, const Ranks *want, const Module *whole, uint32_t message,
                     const struct Kind *kind, uint32_t n) {
  Ctx *c = ctx_new();
  Module *m = ir_parse(c, "sound.ir", text, strlen(text));
  Messages all = messages_of(m);
  int by = -1;
  if (kind->seed(m, &all.at[message], n)) {
    const Ranks *r = NULL;
    by = VERIFIER;
    if (ir_verify(m)) r = run(m, whole), by = r ? NUMBERS : RANK;
    if (r && !differ(m, want, r))
      by = NOBODY, printf("SURVIVOR: message %u, %s, %u\n", message, kind->name, n);
  }
  ctx_free(c);
  return by;
}

static bool try_kind(const char *text, const Ranks *want, const Module *whole, uint32_t messages,
                     const struct Kind *kind) {
  uint32_t count[NOTICES] = {0};
  for (uint32_t i = 0; i < messages; i++)
    for (uint32_t n = 0;; n++) {
      int by = try_fault(text, want, whole, i, kind, n);
      if (by < 0) break;
      count[by]++;
    }
  printf("%-28s %u refused, %u stopped, %u other numbers, %u unnoticed\n", kind->name,
         count[VERIFIER], count[RANK], count[NUMBERS], count[NOBODY]);
  return !count[NOBODY] && count[VERIFIER] + count[RANK] + count[NUMBERS];
}

static Module *made(Ctx *c, const char *path, const char *until) {
  Module *m = lower_program(c, &(LowerOptions){.path = path, .plan = "parts"});
  if (m) target_named(&m->target, intern(c->names, "x86_64_v3"));
  return m && (!until || pipeline_run(m, &(PipelineOptions){.verify = true, .until = until}))
             ? m
             : NULL;
}

int main(int argc, char **argv) {
  Ctx *c = ctx_new();
  if (argc < 2) return 2;
  Module *whole = made(c, argv[1], NULL), *before = made(c, argv[1], "wire"),
         *m = made(c, argv[1], "combine");
  bool fine = whole && before && m;
  const Ranks *apart = fine ? run(before, whole) : NULL, *want = fine ? run(m, whole) : NULL;
  uint32_t messages = fine ? messages_of(m).n : 0;
  if (!want || !apart || differ(m, apart, want)) fine = false, printf("the sound module fails\n");
  if (messages < 2) fine = false, printf("%u messages\n", messages);
  size_t n;
  const char *text = fine ? ir_print(m, &n) : "";
  for (int i = 0; fine && i < KINDS; i++) fine &= try_kind(text, want, whole, messages, &kinds[i]);
  diag_print(c->diag, stderr, DIAG_HUMAN, false);
  ctx_free(c);
  return !fine;
}
