/* Seeded faults in the storage of collectives: storage MODEL.shard COUNT [SEED]. A model on four
   ranks runs through all passes; in a copy the place, strides or view of what one collective sends
   or receives is changed. The run in bytes must stop or give other numbers on some rank; it is
   asked before the verifier. A fault that both accept may only be an equivalent place. Each fault
   is tried in a process of its own. */
#include "check.h"
#include "ir/shape/placement.h"
#include "tests/common/limit.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef enum Notice { STOPPED, NUMBERS, VERIFIER, AS_GOOD, NOBODY, NOTICES } Notice;

static uint64_t state;

static uint32_t draw(uint64_t n) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((state >> 33) % n);
}

/* ---- running ---- */

static double made_up(const Module *m, const Global *g, int64_t i, int64_t rank) {
  uint64_t h = 1469598103934665603u;
  for (const char *c = g->name; *c; c++) h = (h ^ (unsigned char)*c) * 1099511628211u;
  h = (h + (uint64_t)i + (uint64_t)rank * 131) * 6364136223846793005u, h ^= h >> 29;
  double u = (double)((h * 2862933555777941757u) >> 40) / 16777216.0;
  int64_t of = 2;
  for (uint32_t k = 0; g->of && k < m->dims.n; k++)
    if (m->dims.at[k].name == g->of) of = m->dims.at[k].size;
  if (elem_class(g->type.elem) != CLASS_FLOAT) return floor(u * (double)of);
  return g->kind == GLOBAL_STATE ? 1e-3 * (1 + 2 * u) : 2 * u - 1;
}

/* Every rank with numbers of its own, so that a block of the wrong one shows. NULL: it stopped. */
static Ranks *run(Module *m, const char **why) {
  Ranks *r = ranks_new(m, m->arena);
  for (int64_t k = 0; k < mesh_ranks(m); k++)
    for (uint32_t i = 0; i < m->globals.n; i++) {
      const Global *g = m->globals.at[i];
      int64_t n = type_count(&g->type);
      double *x = ARENA_ARRAY(m->arena, double, n);
      for (int64_t e = 0; e < n; e++) x[e] = made_up(m, g, e, k);
      if (g->kind != GLOBAL_SCALAR) interp_set(ranks_rank(r, k), g->name, x);
    }
  ranks_set_all(r, "step", 3);
  *why = NULL;
  if (ranks_run_placed(r, "step") && ranks_run_placed(r, "eval")) return r;
  *why = ranks_error(r);
  return NULL;
}

static bool differ(Module *m, const Ranks *a, const Ranks *b) {
  for (int64_t k = 0; k < mesh_ranks(m); k++)
    for (uint32_t i = 0; i < m->globals.n; i++) {
      const Tensor *x = interp_get(ranks_rank(a, k), m->globals.at[i]->name),
                   *y = interp_get(ranks_rank(b, k), m->globals.at[i]->name);
      for (int64_t e = 0, n = type_count(&x->type); e < n; e++)
        if (memcmp(&x->at[e], &y->at[e], sizeof(double)) && !(isnan(x->at[e]) && isnan(y->at[e])))
          return true;
    }
  return false;
}

/* ---- faults ---- */

typedef struct Fault {
  Module *m;
  Fn *f;
  Op *op;
  Value *v; /* sent or received */
} Fault;

static bool moved(Fault *x) {
  static const int64_t steps[] = {4, -4, 64, -64, 128};
  x->v->storage.at += steps[draw(5)];
  return true;
}

static bool elsewhere(Fault *x) {
  const Storage *o = &x->f->values.at[draw(x->f->values.n)].storage, was = x->v->storage;
  x->v->storage.place = o->place, x->v->storage.slot = o->slot, x->v->storage.at = o->at;
  return o->place != PLACE_NONE &&
         (o->place != was.place || o->slot != was.slot || o->at != was.at);
}

static bool strides(Fault *x) {
  Type *t = &x->v->type;
  int i = t->rank ? (int)draw((uint64_t)t->rank) : 0,
      k = t->rank ? (int)draw((uint64_t)t->rank) : 0;
  int64_t *s = x->v->storage.stride, was = t->rank ? s[i] : 0;
  if (!t->rank || t->axis[i].size == 1 || t->axis[k].size == 1) return false;
  if (i == k) s[i] += 1;
  else s[i] = s[k], s[k] = was;
  return i == k || was != s[i];
}

static bool onto_operand(Fault *x) {
  Value *out = &x->f->values.at[x->op->out];
  const Storage *in = &x->f->values.at[x->op->in[0]].storage;
  if (x->op->code == OP_all_reduce) { /* which may overlap, but must say so */
    if (out->storage.view != VIEW_INPLACE) return false;
    out->storage.view = VIEW_NONE;
    return true;
  }
  out->storage.place = in->place, out->storage.slot = in->slot, out->storage.at = in->at;
  return true;
}

static const struct {
  const char *name;
  bool (*seed)(Fault *);
  bool may_be_good; /* bytes that nobody needs at that time serve as well */
} faults[] = {{"moved", moved, true},
              {"elsewhere", elsewhere, true},
              {"strides", strides, false},
              {"onto its operand", onto_operand, false}};

static uint32_t live_collectives(const Module *m, Fault *x, uint32_t at) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *f = m->fns.at[i];
    bool runs = f->kind == FN_BODY || !strcmp(f->name, "step") || !strcmp(f->name, "eval");
    for (OpId k = 0; runs && k < f->ops.n; k++)
      if (op_family(f->ops.at[k].code) == FAMILY_COLLECTIVE && n++ == at)
        x->f = f, x->op = &f->ops.at[k];
  }
  return n;
}

static Notice try_fault(Module *sound, const Ranks *want, const char *text, uint64_t seed) {
  Module *m = ir_parse(sound->ctx, "sound.ir", text, strlen(text));
  Fault x = {.m = m};
  uint32_t which, n = live_collectives(m, &x, UINT32_MAX);
  const char *why;
  state = seed * 2862933555777941757u + 3037000493u;
  do {
    live_collectives(m, &x, draw(n));
    x.v = &x.f->values.at[draw(2) ? x.op->out : x.op->in[0]];
    which = draw(sizeof faults / sizeof *faults);
  } while (!faults[which].seed(&x));
  Ranks *got = run(m, &why);
  Notice notice = !got ? STOPPED : differ(sound, want, got) ? NUMBERS : NOBODY;
  if (notice == NOBODY && !ir_verify(m)) notice = VERIFIER;
  if (notice == NOBODY && faults[which].may_be_good) notice = AS_GOOD;
  if (notice == NOBODY || getenv("SHOW"))
    printf("%llu: @%s, %s %%%u: %s: %s\n", (unsigned long long)seed, x.f->name, op_name(x.op->code),
           (unsigned)x.op->out, faults[which].name,
           why                ? why
           : notice == NOBODY ? "SURVIVOR"
                              : "noticed otherwise, or as good");
  return notice;
}

static Notice in_child(Module *sound, const Ranks *want, const char *text, uint64_t seed) {
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) {
    limit_processor_seconds(60);
    Notice n = try_fault(sound, want, text, seed);
    fflush(stdout);
    _exit((int)n);
  }
  int status;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? (Notice)WEXITSTATUS(status) : STOPPED; /* of its own accord, aloud */
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  Ctx *c = ctx_new();
  Trial t = {.file = argv[1], .placed = true};
  t.plan = (Plan){.mesh = "data = 2, tensor = 2",
                  .rules = "place Batch -> data\nplace Heads, Mlp, Vocab -> tensor else Seq\n",
                  .micro = 1,
                  .pad = 2,
                  .zero = 3,
                  .settings = "plan.zero.bucket=512"};
  Module *m = trial_module(c, &t, "memory");
  const char *why = "it does not compile";
  Ranks *want = m ? run(m, &why) : NULL;
  if (!want) {
    printf("the sound module: %s\n", why);
    diag_print(c->diag, stdout, DIAG_SHORT, false);
    return 1;
  }
  const char *text = ir_print(m, NULL);
  uint32_t by[NOTICES] = {0}, count = (uint32_t)atol(argv[2]);
  for (uint32_t i = 0; i < count; i++)
    by[in_child(m, want, text, (argc > 3 ? strtoull(argv[3], NULL, 10) : 1) + i)]++;
  printf(
      "%u faults: %u stopped, %u other numbers, %u refused by the verifier alone, %u as good, %u "
      "unnoticed\n",
      count, by[STOPPED], by[NUMBERS], by[VERIFIER], by[AS_GOOD], by[NOBODY]);
  return by[NOBODY] || by[STOPPED] + by[NUMBERS] < count / 2;
}
