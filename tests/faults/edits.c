/* Single edits of dumps: a refused edit gives a diagnostic, an accepted one runs within its bytes.

     edits MODEL.shard PLAN COUNT [SEED]   COUNT edits of the dump after each pass, at random
     edits MODEL.shard PLAN every [STEP]   every STEPth number of the dump after `memory`, each
                                           replaced in several ways
     edits MODEL.shard PLAN cuts [STEP]    the same for numbers in the first lines of kernels
     edits MODEL.shard PLAN missing [STEP] every STEPth line of the module, attribute and place left
                                           out, after each pass
     edits MODEL.shard PLAN flights COUNT [SEED]   COUNT edits of starts, waits, messages and rings
                                           after `prefetch` and after `memory`; of 4 layers
     edits MODEL.shard PLAN PASS:SEED      shows that one (PASS+flights:SEED)

   PLAN may be empty, and may name a target: parts@sm_80. An edit changes the text in one place: a
   number, a word, a clause, a line. Then the module is read, verified, taken through the passes
   that are left, and its entries run in bytes (ir/interp/interp_placed.c; with a mesh by all ranks,
   as threads), the kernels that the edit has changed as machine code in guarded buffers
   (edit_machine.h); its host program is written as C. Each edit has a process of its own with a
   limit of processor time, and, where ranks or a GPU's threads could wait for each other, of time
   or of steps. A signal, an internal error, a hang, or a complaint of the interpreter or of a
   machine (bytes that are another value's, or outside of their memory) is a failure; so are other
   numbers where the edit was one of an address, a cut, or a message in flight. An edited program
   that runs is also tried together with the sound one, on other ranks: pass prove must refuse just
   those pairs that hang (`apart`). Elsewhere other numbers are another program, which a dump may
   be: they are counted by the kind of edit. */
#include "ir/made.h"
#include "codegen/codegen.h"
#include "edit_machine.h"
#include "edit_text.h"
#include "frontend/lower.h"
#include "ir/cost/count.h"
#include "ir/interp/interp_ranks.h"
#include "ir/shape/placement.h"
#include "made_up.h"
#include "passes/pass.h"
#include "passes/machine/prove.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 20, WAITING = 300, MOST_RANKS = 8, MOST_KEYS = 200 };
static const double MOST_FLOP = 2e7, CLOSE = 2e-3; /* of the largest number of a tensor */

typedef enum End { EQUAL = 10, APART, OTHER, REFUSED, UNTRIED, NO_EDIT, BLAMED, MISPLACED } End;

/* ---- running ---- */

/* All that the entries leave in the globals, one after the other. */
typedef struct Numbers {
  VEC(double) at;
  VEC(uint32_t) tensors; /* where each ends */
  bool rounded;          /* by kernels, not by the interpreter alone */
} Numbers;

typedef struct Runner { /* one rank, or many */
  Module *m;
  Interp *in;
  Ranks *ranks;
} Runner;

static bool is_small(Module *m) {
  double elements = 0, flop = 0, ranks = (double)mesh_ranks(m);
  if (ranks > MOST_RANKS) return false;
  for (uint32_t i = 0; i < m->globals.n; i++)
    elements += (double)type_count(&m->globals.at[i]->type);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *f = m->fns.at[i];
    IrCount c = ir_count(m, f);
    flop += c.flop + c.bytes;
    elements += (double)attr_int(&f->attrs, ATTR_frame, 0);
    for (ValueId v = 0; v < f->values.n; v++) elements += (double)type_count(value_type(f, v));
    for (OpId k = 0; k < f->ops.n; k++)
      flop += 1e3 * (double)attr_int(&f->ops.at[k].attrs, ATTR_trip, 0);
  }
  return ranks * elements < 4e6 && ranks * flop < MOST_FLOP;
}

static Runner runner_of(Module *m, Machines *machines) {
  Runner r = {.m = m};
  if (m->mesh.n) r.ranks = ranks_new(m, m->arena);
  else r.in = interp_new(m, m->arena);
  for (int64_t i = 0; machines && i < (r.ranks ? mesh_ranks(m) : 1); i++)
    interp_set_kernels(r.ranks ? ranks_rank(r.ranks, i) : r.in, machines_kernel, machines);
  return r;
}

/* For a whole tensor, as all ranks together hold it. */
static int64_t whole_count(const Module *m, const Global *g) {
  int64_t n = type_count(&g->type);
  for (int i = 0; i < g->type.rank; i++) n *= placement_ways(m, &g->placed, g->type.axis[i].dim);
  return n;
}

/* Parameters and states are what `init` makes. */
static void set_inputs(const Runner *r) {
  Module *m = r->m;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    bool given = g->kind == GLOBAL_INPUT || g->kind == GLOBAL_SCALAR;
    if (!given || made_is_coordinate(g) || made_rest(g->name, MADE_SETTING)) continue;
    int64_t n = whole_count(m, g);
    double *x = ARENA_ARRAY(m->arena, double, n);
    for (int64_t k = 0; k < n; k++) x[k] = g->kind == GLOBAL_SCALAR ? 3 : made_up(g, k, m);
    if (!r->ranks) interp_set(r->in, g->name, x);
    else if (g->kind == GLOBAL_SCALAR) ranks_set_all(r->ranks, g->name, x[0]);
    else ranks_set(r->ranks, g->name, x);
  }
}

static const char *error_of(const Runner *r) {
  return r->ranks ? ranks_error(r->ranks) : interp_error(r->in);
}

/* The coordinates of ranks differ, and what they hold of a flat global does: its members say it. */
static bool is_alike(const Module *m, const Global *g) {
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->within == g) return false;
  return !made_is_coordinate(g);
}

static bool keep_numbers(const Runner *r, Numbers *all) {
  Module *m = r->m;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const char *name = m->globals.at[i]->name;
    if (!is_alike(m, m->globals.at[i])) continue;
    const Tensor *t = r->ranks ? ranks_get(r->ranks, name) : interp_get(r->in, name);
    if (!t) return false;
    for (int64_t k = 0; k < type_count(&t->type); k++) vec_push(m->arena, all->at, t->at[k]);
    vec_push(m->arena, all->tensors, all->at.n);
  }
  return true;
}

static End run_all(Module *m, Machines *machines, Numbers *all) {
  static const char *const entries[] = {"init", "step", "eval", "logits", "decode"};
  if (!is_small(m)) return UNTRIED;
  Runner r = runner_of(m, machines);
  set_inputs(&r);
  for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
    if (!module_fn(m, intern(m->ctx->names, entries[i]))) continue;
    bool fine =
        r.ranks ? ranks_run_placed(r.ranks, entries[i]) : interp_run_placed(r.in, entries[i]);
    const char *wrong = machines ? machines_error(machines) : NULL;
    if (!wrong && (!fine || !keep_numbers(&r, all))) wrong = error_of(&r);
    if (!wrong) continue;
    printf("  %s: %s\n", entries[i], wrong);
    return MISPLACED;
  }
  all->rounded = machines && machines_ran(machines);
  return EQUAL;
}

/* The interpreter alone gives the same bits. */
static bool same_numbers(const Numbers *x, const Numbers *y) {
  bool same = x->at.n == y->at.n && x->tensors.n == y->tensors.n;
  for (uint32_t i = 0, from = 0; same && i < y->tensors.n; from = y->tensors.at[i++]) {
    double worst = 0, largest = 1e-3;
    for (uint32_t k = from; k < y->tensors.at[i]; k++) {
      double a = x->at.at[k], b = y->at.at[k];
      if (fabs(b) > largest) largest = fabs(b);
      if (a == b || (isnan(a) && isnan(b))) continue;
      worst = fmax(worst, isnan(a - b) ? INFINITY : fabs(a - b));
    }
    same = worst <= (x->rounded ? CLOSE * largest : 0);
  }
  return same;
}

/* ---- one edit ---- */

typedef struct Stage {
  const char *pass;
  Text text;
  Module *sound; /* as it is after `memory` */
  Numbers numbers;
  bool flights; /* edits are those of messages */
} Stage;

static End refused(Ctx *c) {
  diag_print(c->diag, stdout, DIAG_SHORT, false);
  return diag_given(c->diag, "E1204") ? BLAMED : REFUSED;
}

/* Do both send the same messages in the same order? */
static bool same_messages(const EventList *a, const EventList *b) {
  uint32_t i = 0, k = 0;
  for (;; i++, k++) {
    while (i < a->at.n && !event_sends(&a->at.at[i])) i++;
    while (k < b->at.n && !event_sends(&b->at.at[k])) k++;
    if (i == a->at.n || k == b->at.n) return i == a->at.n && k == b->at.n;
    const Event *x = &a->at.at[i], *y = &b->at.at[k];
    const Op *o = event_op(x), *p = event_op(y);
    const Type *t = value_type(x->f, o->in[0]), *u = value_type(y->f, p->in[0]);
    if (o->code != p->code || t->elem != u->elem || type_count(t) != type_count(u) ||
        strcmp(attr_str(&o->attrs, ATTR_axis, ""), attr_str(&p->attrs, ATTR_axis, "")))
      return false;
  }
}

/* Some ranks run the edited program, the others the sound one: pass prove must know whether they
   come to an end. */
static End beside(const Stage *s, Module *m) {
  bool fine = true, proved = true;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    Fn *sound = module_fn(s->sound, intern(s->sound->ctx->names, m->fns.at[i]->name));
    if (m->fns.at[i]->kind != FN_ENTRY || !sound) continue;
    EventList a = events_of(s->sound, sound), b = events_of(m, m->fns.at[i]);
    const RankClass both[] = {{.name = "the others", .events = &a},
                              {.name = "some ranks", .events = &b}};
    fine &= same_messages(&a, &b), proved &= prove_order(m, both, 2);
  }
  diag_print(m->ctx->diag, stdout, DIAG_SHORT, false);
  return fine != proved ? MISPLACED : fine ? EQUAL : APART;
}

static End judge(const Stage *s, Text t) {
  Ctx *c = ctx_new();
  Module *m = ir_parse(c, "edited.ir", t.at, t.n);
  Numbers all = {0};
  if (!m || !target_complete(m) || !ir_verify(m)) return refused(c);
  if (!pipeline_run(m, &(PipelineOptions){.verify = true})) return refused(c);
  Machines *machines = machines_new(m, s->sound);
  if (m->target.name) host_write(m);
  End e = run_all(m, machines, &all);
  if (e == EQUAL && !same_numbers(&all, &s->numbers)) return OTHER;
  return e == EQUAL && s->flights ? beside(s, m) : e;
}

/* Its status: an End, or -signal. Output goes to `file`. */
static int try_edit(const Stage *s, Text t, int file) {
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) {
    setrlimit(RLIMIT_CPU, &(struct rlimit){SECONDS, SECONDS});
    alarm(WAITING); /* for ranks that wait for each other */
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    dup2(file, STDOUT_FILENO), dup2(file, STDERR_FILENO);
    End e = judge(s, t);
    fflush(NULL);
    _exit(e);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- the tally ---- */

typedef struct Counts {
  uint32_t n, count[MOST_KEYS];
  char key[MOST_KEYS][EDIT_KEY];
} Counts;

typedef struct Tally {
  uint32_t end[MISPLACED + 1], signals, total, failed;
  Counts other, refused; /* by what was edited; by constraint, or else by code */
  Counts tried, killed;  /* of messages: by what was edited; killed: refused, or apart */
} Tally;

/* Edits of these must not change a number: they say where bytes are and how work is cut. */
static bool is_address(const char *key) {
  static const char *const list[] = {
      "frame",   "result",  "arg",    "slots", "work_at", "chunks",  "tile", "scratch", "workspace",
      "variant", "threads", "shared", "align", "live",    "storage", "view", "inplace"};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    if (!strcmp(key, list[i])) return true;
  return strchr(key, ' ') != NULL; /* of edit_flight */
}

static void count_key(Counts *c, const char *key, uint32_t times) {
  uint32_t i = 0;
  while (i < c->n && strcmp(c->key[i], key)) i++;
  if (i == MOST_KEYS) return;
  if (i == c->n) snprintf(c->key[c->n++], EDIT_KEY, "%s", key);
  c->count[i] += times;
}

static void add_counts(Counts *all, const Counts *c) {
  for (uint32_t i = 0; i < c->n; i++) count_key(all, c->key[i], c->count[i]);
}

static void show_counts(const char *what, const Counts *c) {
  printf("%s:", what);
  for (uint32_t i = 0; i < c->n; i++) printf(" %s %u", c->key[i], c->count[i]);
  printf("\n");
}

/* `error[E1110]: [select-c2] ..`: select-c2, or E1003 where no constraint is named. */
static void count_refusal(Counts *c, const char *words) {
  const char *code = strstr(words, "error["), *label = code ? strstr(code, "]: [") : NULL;
  if (!code) return;
  size_t line = strcspn(code, "\n");
  code += strlen("error[");
  bool named = label && label < code + line;
  if (named) code = label + strlen("]: [");
  char key[EDIT_KEY];
  snprintf(key, sizeof key, "%.*s", (int)strcspn(code, "]"), code);
  count_key(c, key, 1);
}

static void show_change(const char *a, const char *b) {
  size_t n = 0, k = 0;
  while (a[n] && a[n] == b[n]) n++;
  for (k = n; k && a[k - 1] != '\n';) k--;
  printf("  - %.*s\n  + %.*s\n", (int)strcspn(a + k, "\n"), a + k, (int)strcspn(b + k, "\n"),
         b + k);
}

typedef struct Words {
  char at[4000];
} Words;

static Words output_of(int file) {
  Words w = {{0}};
  lseek(file, 0, SEEK_SET);
  if (read(file, w.at, sizeof w.at - 1) < 0) snprintf(w.at, sizeof w.at, "its output is lost\n");
  return w;
}

static void take(const Stage *s, const char *name, Text t, const Piece *p, Tally *tally,
                 bool show) {
  if (!t.at || !strcmp(t.at, s->text.at)) {
    tally->end[NO_EDIT]++;
    return;
  }
  char path[] = "/tmp/edits.XXXXXX";
  int file = mkstemp(path);
  unlink(path);
  int end = try_edit(s, t, file);
  bool known = end >= EQUAL && end <= MISPLACED;
  bool failed = !known || end == BLAMED || end == MISPLACED || (end == OTHER && is_address(p->key));
  tally->total++, tally->failed += failed;
  if (known) tally->end[end]++;
  else tally->signals++;
  Words w = output_of(file);
  if (end == OTHER) count_key(&tally->other, p->key, 1);
  if (end == REFUSED) count_refusal(&tally->refused, w.at);
  if (s->flights) count_key(&tally->tried, p->key, 1);
  if (s->flights) count_key(&tally->killed, p->key, end == REFUSED || end == APART);
  if (failed || show) {
    printf("%s after %s, %s (%s): %s %d\n", failed ? "FAILED" : "shown", s->pass, name, p->key,
           end < 0 ? "signal" : "end", end < 0 ? -end : end);
    show_change(s->text.at, t.at);
    printf("%s", w.at);
  }
  close(file);
}

typedef Text RandomEdit(Arena *a, const char *text, uint64_t seed, Piece *edited);

static void random_edits(const Stage *s, RandomEdit *edit, long count, uint64_t seed, Tally *tally,
                         bool show) {
  for (long i = 0; i < count; i++) {
    Arena *a = arena_new();
    Piece p = {0};
    Text t = edit(a, s->text.at, seed + (uint64_t)i, &p);
    take(s, arena_printf(a, "%s:%llu", s->pass, (unsigned long long)seed + (uint64_t)i), t, &p,
         tally, show);
    arena_free(a);
  }
}

static Pieces in_kernel_lines(Arena *a, const char *text, const Pieces *all) {
  Pieces list = {0};
  for (uint32_t i = 0; i < all->n; i++) {
    size_t line = all->at[i].from;
    while (line && text[line - 1] != '\n') line--;
    if (!strncmp(text + line, "kernel ", 7)) vec_push(a, list, all->at[i]);
  }
  return list;
}

static void every_number(const Stage *s, long step, bool cuts, Tally *tally) {
  Arena *a = arena_new();
  Pieces numbers = edit_numbers(a, s->text.at);
  if (cuts) numbers = in_kernel_lines(a, s->text.at, &numbers);
  for (uint32_t i = 0; i < numbers.n; i += (uint32_t)step)
    for (uint64_t how = i / (uint64_t)step % 5; how < NUMBER_EDITS; how += 5) {
      Arena *one = arena_new();
      const Piece *p = &numbers.at[i];
      Text t = edit_number_at(one, s->text.at, p, how);
      take(s, arena_printf(one, "number %u, %llu", i, (unsigned long long)how), t, p, tally, false);
      arena_free(one);
    }
  arena_free(a);
}

static void every_clause(const Stage *s, uint32_t step, uint32_t first, Tally *tally) {
  Arena *a = arena_new();
  Pieces clauses = edit_clauses(a, s->text.at);
  for (uint32_t i = first % step; i < clauses.n; i += step) {
    Arena *one = arena_new();
    const Piece *p = &clauses.at[i];
    const char *what = arena_strndup(one, s->text.at + p->from, p->to - p->from);
    take(s, arena_printf(one, "without `%s`", what), edit_without(one, s->text.at, p), p, tally,
         false);
    arena_free(one);
  }
  arena_free(a);
}

/* ---- the program ---- */

static Module *lowered(Ctx *c, const char *path, const char *plan, bool deep) {
  static const char *const layers[] = {"Layers=4"};
  const char *at = strchr(plan, '@');
  plan = arena_strndup(c->arena, plan, strcspn(plan, "@"));
  LowerOptions options = {.path = path, .plan = *plan ? plan : NULL, .dims = layers, .ndims = deep};
  Module *m = lower_program(c, &options);
  if (m) target_describe(m, target_find(at ? at + 1 : "x86_64_v3"), 2);
  return m;
}

static Stage stage_of(Module *m, const char *pass) {
  Stage s = {.pass = pass};
  s.text.at = ir_print(m, &s.text.n);
  Ctx *c = ctx_new();
  s.sound = ir_parse(c, "sound.ir", s.text.at, s.text.n);
  pipeline_run(s.sound, &(PipelineOptions){.verify = true});
  End e = run_all(s.sound, NULL, &s.numbers);
  if (e != EQUAL || diag_errors(c->diag)) {
    diag_print(c->diag, stdout, DIAG_SHORT, false);
    printf("the sound module after %s is not sound\n", pass);
    exit(1);
  }
  return s;
}

static void show_tally(const char *what, const Tally *t) {
  printf("%-10s %5u edits: %5u refused, %4u equal, %u apart, %4u other numbers, %4u not run; %u "
         "blamed, %u "
         "misplaced, %u signals\n",
         what, t->total, t->end[REFUSED], t->end[EQUAL], t->end[APART], t->end[OTHER],
         t->end[UNTRIED], t->end[BLAMED], t->end[MISPLACED], t->signals);
}

static void add_tally(Tally *all, const Tally *t) {
  all->total += t->total, all->signals += t->signals, all->failed += t->failed;
  for (int i = EQUAL; i <= MISPLACED; i++) all->end[i] += t->end[i];
  add_counts(&all->other, &t->other), add_counts(&all->refused, &t->refused);
  add_counts(&all->tried, &t->tried), add_counts(&all->killed, &t->killed);
}

/* The request of a call. */
typedef struct Asked {
  bool every, cuts, flights, missing;
  const char *pass; /* of the one edit that is shown; NULL: not one alone */
  long count;
  uint64_t seed;
} Asked;

static Asked asked_for(int argc, char **argv) {
  Asked x = {.cuts = !strcmp(argv[3], "cuts"), .seed = 1};
  const char *colon = strchr(argv[3], ':'), *flights = strstr(argv[3], "flights");
  x.every = x.cuts || !strcmp(argv[3], "every"), x.flights = flights;
  x.missing = !strcmp(argv[3], "missing");
  if (colon) {
    x.seed = strtoull(colon + 1, NULL, 10);
    x.pass = strtok(argv[3], "+:");
    return x;
  }
  int rest = flights ? 5 : 4;
  x.count = atol(argv[flights && argc > 4 ? 4 : 3]);
  if (argc > rest) x.seed = strtoull(argv[rest], NULL, 10);
  return x;
}

static bool is_asked(const Asked *x, const char *pass) {
  bool placed = !strcmp(pass, "memory");
  if (x->pass) return !strcmp(x->pass, pass);
  if (x->flights) return placed || !strcmp(pass, "prefetch");
  return strcmp(pass, "prove") && (placed || !x->every);
}

static Tally try_stage(const Stage *s, const Asked *x, uint32_t number) {
  Tally t = {0};
  RandomEdit *edit = x->flights ? edit_flight : edit_by_seed;
  if (x->missing) every_clause(s, (uint32_t)x->seed, number, &t);
  else if (x->every) every_number(s, (long)x->seed, x->cuts, &t);
  else if (x->pass) random_edits(s, edit, 1, x->seed, &t, true);
  else random_edits(s, edit, x->count, x->seed + 100000 * number, &t, false);
  show_tally(s->pass, &t);
  return t;
}

/* By kind of edit, how many were refused or kept from some ranks; false: none of a kind was. A
   moved op may be equally correct in its new place. */
static bool show_killed(const Tally *t) {
  bool each = true;
  for (uint32_t i = 0; i < t->tried.n; i++) {
    printf("%s%s %u of %u", i ? ", " : "noticed: ", t->tried.key[i], t->killed.count[i],
           t->tried.count[i]);
    each &= t->killed.count[i] > 0 || !strncmp(t->tried.key[i], "move", 4);
  }
  if (t->tried.n) printf("\n");
  return each;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  static Tally all, t;
  Asked x = asked_for(argc, argv);
  uint32_t n;
  const Pass *passes = pass_table(&n);
  Ctx *c = ctx_new();
  Module *m = lowered(c, argv[1], argv[2], x.flights);
  for (uint32_t i = 0; m && i < n; i++) {
    const char *name = passes[i].name;
    if (!passes[i].run) continue;
    if (!pipeline_run(m, &(PipelineOptions){.until = name})) break;
    if (!is_asked(&x, name)) continue;
    Stage s = stage_of(m, name);
    s.flights = x.flights;
    t = try_stage(&s, &x, i);
    add_tally(&all, &t);
  }
  diag_print(c->diag, stderr, DIAG_HUMAN, false);
  show_tally("all", &all);
  show_counts("refused", &all.refused), show_counts("other numbers", &all.other);
  bool each = show_killed(&all) || x.pass;
  return !all.total || all.failed || !each || diag_errors(c->diag);
}
