/* Single edits of dumps: what is refused is refused by a diagnostic, what is accepted runs within
   its bytes.

     edits MODEL.shard PLAN COUNT [SEED]   COUNT edits of the dump after each pass, at random
     edits MODEL.shard PLAN every [STEP]   every STEPth number of the dump after `memory`, each
                                           replaced in several ways
     edits MODEL.shard PLAN PASS:SEED      shows that one

   An edit changes the text in one place: a number, a word, a clause, a line. Then the module is
   read, verified, taken through the passes that are left, written as C, its changed kernels are
   compiled, and its entries run in bytes (ir/interp/interp_placed.c), each edit in a process of its
   own with a limit of processor time. A signal, an internal error, a hang, or a complaint of the
   interpreter (bytes that are another value's, or outside of their memory) is a failure; so are
   other numbers where the edit was one of an address or a cut. Elsewhere other numbers are another
   program, which a dump may be: they are counted by what was edited. */
#include "codegen/codegen.h"
#include "frontend/lower.h"
#include "ir/count.h"
#include "ir/interp/interp.h"
#include "passes/pass.h"
#include <ctype.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 20, MOST_KERNELS = 3, KEY = 24, MOST_KEYS = 200 };
static const double MOST_FLOP = 2e7;

typedef enum End { EQUAL = 10, OTHER, REFUSED, UNTRIED, NO_EDIT, BLAMED, MISPLACED } End;

typedef struct Text {
  char *at;
  size_t n;
} Text;

typedef struct Random {
  uint64_t state;
} Random;

static uint64_t below(Random *r, uint64_t n) {
  r->state = r->state * 6364136223846793005u + 1442695040888963407u;
  return n ? (r->state >> 33) % n : 0;
}

/* ---- edits of text ---- */

typedef struct Piece { /* of a text, and what it is called in the tally */
  size_t from, to;
  char key[KEY];
} Piece;

typedef VEC(Piece) Pieces;

static bool is_word(char c) { return isalnum((unsigned char)c) || strchr("_.*'", c); }

/* Sources are the user's text, which nothing but messages reads. */
static size_t begin_of(const char *text) {
  const char *at = strstr(text, "\ndim ");
  return at ? (size_t)(at - text) : 0;
}

/* The word in front of position `at`, over signs and numbers of a list. */
static void name_piece(const char *text, size_t at, char *key) {
  size_t end = at;
  while (end && !isalpha((unsigned char)text[end - 1]) && text[end - 1] != '\n') end--;
  size_t from = end;
  while (from && is_word(text[from - 1]) && end - from < KEY - 1) from--;
  memcpy(key, text + from, end - from), key[end - from] = 0;
}

static void find_pieces(Arena *a, const char *text, Pieces *numbers, Pieces *words) {
  for (size_t i = begin_of(text); text[i];) {
    size_t from = i;
    bool sign = text[i] == '-' && isdigit((unsigned char)text[i + 1]);
    if (!sign && !is_word(text[i])) {
      i++;
      continue;
    }
    for (i += sign; is_word(text[i]);) i++;
    Piece p = {from, i, ""};
    name_piece(text, from, p.key);
    bool number = sign || isdigit((unsigned char)text[from]);
    if (!strcmp(p.key, "loc") || !strcmp(p.key, "f")) continue; /* places in sources */
    if (number) vec_push(a, *numbers, p);
    else vec_push(a, *words, p);
  }
}

static Text replaced(Arena *a, const char *text, size_t from, size_t to, const char *with) {
  Text t;
  t.at = arena_printf(a, "%.*s%s%s", (int)from, text, with, text + to);
  t.n = strlen(t.at);
  return t;
}

enum { NUMBER_EDITS = 20 };
static const char *other_number(Arena *a, const char *text, const Piece *p, uint64_t how) {
  static const char *const fixed[] = {"0",          "1",          "-1",
                                      "-64",        "2147483647", "2147483648",
                                      "4294967296", "4611686018427387904", "9223372036854775807",
                                      "1000000"};
  enum { FIXED = sizeof fixed / sizeof *fixed };
  long long n = strtoll(text + p->from, NULL, 10);
  const long long other[NUMBER_EDITS - FIXED] = {n + 1, n - 1, 2 * n, n / 2, -n,
                                                 n + 4, n + 16, n + 64, n - 64, n + 1048576};
  if (how < FIXED) return fixed[how];
  return arena_printf(a, "%lld", other[how - FIXED]);
}

static Text edit_number(Arena *a, const char *text, const Pieces *list, Random *r, Piece *p) {
  if (!list->n) return (Text){0};
  *p = list->at[below(r, list->n)];
  const Piece *q = &list->at[below(r, list->n)];
  uint64_t how = below(r, NUMBER_EDITS + 2);
  if (how < NUMBER_EDITS) return replaced(a, text, p->from, p->to, other_number(a, text, p, how));
  return replaced(a, text, p->from, p->to,
                  arena_strndup(a, text + q->from, q->to - q->from)); /* one that stands elsewhere */
}

static Text edit_word(Arena *a, const char *text, const Pieces *list, Random *r, Piece *p) {
  if (!list->n) return (Text){0};
  *p = list->at[below(r, list->n)];
  const Piece *q = &list->at[below(r, list->n)];
  for (int i = 0; i < 50 && strcmp(p->key, q->key); i++) q = &list->at[below(r, list->n)];
  return replaced(a, text, p->from, p->to, arena_strndup(a, text + q->from, q->to - q->from));
}

/* `at(..)`, `{..}`, `[..]` or `name = ..`: from an opening bracket, or a comma, to its end. */
static Text drop_clause(Arena *a, const char *text, Random *r, Piece *p) {
  size_t n = strlen(text), first = begin_of(text), from = first + below(r, n - first);
  while (from < n && !strchr("({[,", text[from])) from++;
  if (from == n) return (Text){0};
  char end = text[from] == '(' ? ')' : text[from] == '{' ? '}' : text[from] == '[' ? ']' : ',';
  size_t to = from + 1;
  while (to < n && text[to] != end && text[to] != '\n') to++;
  if (end != ',' && text[to] == end) to++;
  if (end == ')')
    while (from && is_word(text[from - 1])) from--;
  name_piece(text, to, p->key);
  return replaced(a, text, from, to, "");
}

static Text edit_line(Arena *a, const char *text, Random *r, Piece *p) {
  size_t n = strlen(text), first = begin_of(text), from = first + below(r, n - first);
  while (from && text[from - 1] != '\n') from--;
  size_t to = from + strcspn(text + from, "\n"), next = to + (text[to] == '\n');
  size_t end = next + strcspn(text + next, "\n");
  snprintf(p->key, KEY, "line");
  char *line = arena_strndup(a, text + from, to - from);
  switch (below(r, 3)) {
  case 0: return replaced(a, text, from, next, "");
  case 1: return replaced(a, text, from, from, arena_printf(a, "%s\n", line));
  default:
    return replaced(a, text, from, end,
                    arena_printf(a, "%.*s\n%s", (int)(end - next), text + next, line));
  }
}

static Text edited(Arena *a, const char *text, uint64_t seed, Piece *p) {
  Random r = {seed * 2862933555777941757u + 3037000493u};
  Pieces numbers = {0}, words = {0};
  find_pieces(a, text, &numbers, &words);
  switch (below(&r, 8)) {
  case 0: return edit_word(a, text, &words, &r, p);
  case 1: return drop_clause(a, text, &r, p);
  case 2: return edit_line(a, text, &r, p);
  default: return edit_number(a, text, &numbers, &r, p);
  }
}

/* ---- running ---- */

static double made_up(const Global *g, int64_t i, const Module *m) {
  uint64_t h = 1469598103934665603u;
  for (const char *c = g->name; *c; c++) h = (h ^ (unsigned char)*c) * 1099511628211u;
  h = (h + (uint64_t)i) * 6364136223846793005u, h ^= h >> 29, h *= 2862933555777941757u;
  double u = (double)(h >> 40) / 16777216.0;
  int64_t of = 2;
  for (uint32_t k = 0; g->of && k < m->dims.n; k++)
    if (m->dims.at[k].name == g->of) of = m->dims.at[k].size;
  if (elem_class(g->type.elem) != CLASS_FLOAT) return floor(u * (double)of);
  return g->kind == GLOBAL_STATE ? 1e-6 * (1 + 2 * u) : (float)(2 * u - 1);
}

static Interp *filled(Module *m) {
  Interp *in = interp_new(m, m->arena);
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    int64_t n = type_count(&g->type);
    double *x = ARENA_ARRAY(m->arena, double, n);
    for (int64_t k = 0; k < n; k++) x[k] = made_up(g, k, m);
    interp_set(in, g->name, x);
  }
  return in;
}

static bool is_small(Module *m) {
  double elements = 0, flop = 0;
  for (uint32_t i = 0; i < m->globals.n; i++) elements += (double)type_count(&m->globals.at[i]->type);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *f = m->fns.at[i];
    IrCount c = ir_count(m, f);
    flop += c.flop + c.bytes;
    elements += (double)attr_int(&f->attrs, ATTR_frame, 0);
    for (ValueId v = 0; v < f->values.n; v++) elements += (double)type_count(value_type(f, v));
    for (OpId k = 0; k < f->ops.n; k++) flop += 1e3 * (double)attr_int(&f->ops.at[k].attrs, ATTR_trip, 0);
  }
  return elements < 4e6 && flop < MOST_FLOP;
}

static bool has_ranks(const Module *m) { return m->mesh.n > 0; }

static double bits(double x) { return isnan(x) ? 0.5 : x; }

/* Of all numbers that the entries leave in the globals. */
static uint64_t hash_of(Module *m, const Interp *in) {
  uint64_t h = 1469598103934665603u;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Tensor *t = interp_get(in, m->globals.at[i]->name);
    for (int64_t k = 0; k < type_count(&t->type); k++) {
      double x = bits(t->at[k]);
      uint64_t u;
      memcpy(&u, &x, sizeof u);
      h = (h ^ u) * 1099511628211u;
    }
  }
  return h;
}

static End run_all(Module *m, uint64_t *hash) {
  static const char *const entries[] = {"init", "step", "eval", "logits"};
  *hash = 0;
  if (has_ranks(m) || !is_small(m)) return UNTRIED;
  for (int i = 0; i < 4; i++) {
    if (!module_fn(m, intern(m->ctx->names, entries[i]))) continue;
    Interp *in = filled(m);
    if (!interp_run_placed(in, entries[i])) {
      printf("  %s: %s\n", entries[i], interp_error(in));
      return MISPLACED;
    }
    *hash = *hash * 31 + hash_of(m, in);
  }
  return EQUAL;
}

/* ---- code ---- */

static bool same_kernel(Module *m, const Module *sound, const Fn *k) {
  for (uint32_t i = 0; i < sound->fns.n; i++) {
    Fn *f = sound->fns.at[i];
    if (!strcmp(f->name, k->name) && !strcmp(ir_print_fn((Module *)sound, f), ir_print_fn(m, k)))
      return true;
  }
  return false;
}

/* Kernels that the sound module has too were compiled often enough. */
static void compile_changed(Module *m, const Module *sound) {
  int n = 0;
  if (!module_setting(m, "target.name", NULL)) return;
  for (uint32_t i = 0; i < m->fns.n && n < MOST_KERNELS; i++) {
    const Fn *k = m->fns.at[i];
    if (k->kind != FN_KERNEL || !attr_get(&k->attrs, ATTR_tile) || same_kernel(m, sound, k)) continue;
    kernel_text(m, k, false), n++;
  }
  host_write(m);
}

/* ---- one edit ---- */

typedef struct Stage {
  const char *pass;
  Text text;
  Module *sound; /* as it is after `memory` */
  uint64_t hash;
} Stage;

static End refused(Ctx *c) {
  diag_print(c->diag, stdout, DIAG_SHORT, false);
  return diag_given(c->diag, "E1204") ? BLAMED : REFUSED;
}

static End judge(const Stage *s, Text t) {
  Ctx *c = ctx_new();
  Module *m = ir_parse(c, "edited.ir", t.at, t.n);
  uint64_t hash;
  if (!m || !target_complete(m) || !ir_verify(m)) return refused(c);
  if (!pipeline_run(m, &(PipelineOptions){.verify = true})) return refused(c);
  End e = run_all(m, &hash);
  if (e == MISPLACED) return e;
  compile_changed(m, s->sound);
  return e == EQUAL && hash != s->hash ? OTHER : e;
}

/* Its status: an End, or -signal. Output goes to `file`. */
static int try_edit(const Stage *s, Text t, int file) {
  fflush(NULL);
  pid_t pid = fork();
  if (!pid) {
    setrlimit(RLIMIT_CPU, &(struct rlimit){SECONDS, SECONDS});
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

typedef struct Tally {
  uint32_t end[MISPLACED + 1], signals, total, failed;
  uint32_t keys, count[MOST_KEYS];
  char key[MOST_KEYS][KEY];
} Tally;

/* Edits of these must not change a number: they say where bytes are and how work is cut. */
static bool is_address(const char *key) {
  static const char *const list[] = {"frame", "result", "arg",     "slots",  "work_at", "chunks",
                                     "tile",  "scratch", "workspace", "variant", "live"};
  for (size_t i = 0; i < sizeof list / sizeof *list; i++)
    if (!strcmp(key, list[i])) return true;
  return false;
}

static void count_key(Tally *t, const char *key) {
  uint32_t i = 0;
  while (i < t->keys && strcmp(t->key[i], key)) i++;
  if (i == MOST_KEYS) return;
  if (i == t->keys) snprintf(t->key[t->keys++], KEY, "%s", key);
  t->count[i]++;
}

static void show_change(const char *a, const char *b) {
  size_t n = 0, k = 0;
  while (a[n] && a[n] == b[n]) n++;
  for (k = n; k && a[k - 1] != '\n';) k--;
  printf("  - %.*s\n  + %.*s\n", (int)strcspn(a + k, "\n"), a + k, (int)strcspn(b + k, "\n"), b + k);
}

static void show_output(int file) {
  char words[4000];
  lseek(file, 0, SEEK_SET);
  ssize_t n = read(file, words, sizeof words);
  if (n > 0) printf("%.*s", (int)n, words);
}

static void take(const Stage *s, const char *name, Text t, const Piece *p, Tally *tally, bool show) {
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
  if (end == OTHER) count_key(tally, p->key);
  if (failed || show) {
    printf("%s after %s, %s (%s): %s %d\n", failed ? "FAILED" : "shown", s->pass, name, p->key,
           end < 0 ? "signal" : "end", end < 0 ? -end : end);
    show_change(s->text.at, t.at);
    show_output(file);
  }
  close(file);
}

static void random_edits(const Stage *s, long count, uint64_t seed, Tally *tally, bool show) {
  for (long i = 0; i < count; i++) {
    Arena *a = arena_new();
    Piece p = {0};
    Text t = edited(a, s->text.at, seed + (uint64_t)i, &p);
    take(s, arena_printf(a, "%s:%llu", s->pass, (unsigned long long)seed + (uint64_t)i), t, &p,
         tally, show);
    arena_free(a);
  }
}

static void every_number(const Stage *s, long step, Tally *tally) {
  Arena *a = arena_new();
  Pieces numbers = {0}, words = {0};
  find_pieces(a, s->text.at, &numbers, &words);
  for (uint32_t i = 0; i < numbers.n; i += (uint32_t)step)
    for (uint64_t how = i / (uint64_t)step % 5; how < NUMBER_EDITS; how += 5) {
      Arena *one = arena_new();
      const Piece *p = &numbers.at[i];
      Text t = replaced(one, s->text.at, p->from, p->to, other_number(one, s->text.at, p, how));
      take(s, arena_printf(one, "number %u, %llu", i, (unsigned long long)how), t, p, tally, false);
      arena_free(one);
    }
  arena_free(a);
}

/* ---- the program ---- */

static Module *lowered(Ctx *c, const char *path, const char *plan) {
  LowerOptions options = {.path = path, .plan = plan};
  Module *m = lower_program(c, &options);
  if (m) target_describe(m, target_find("x86_64_v3"), 2);
  return m;
}

static Stage stage_of(Module *m, const char *pass) {
  Stage s = {.pass = pass};
  s.text.at = ir_print(m, &s.text.n);
  Ctx *c = ctx_new();
  s.sound = ir_parse(c, "sound.ir", s.text.at, s.text.n);
  pipeline_run(s.sound, &(PipelineOptions){.verify = true});
  End e = run_all(s.sound, &s.hash);
  if (e == MISPLACED || diag_errors(c->diag)) printf("the sound module after %s is not sound\n", pass);
  return s;
}

static void show_tally(const char *what, const Tally *t) {
  printf("%-10s %5u edits: %5u refused, %4u equal, %4u other numbers, %4u not run; %u blamed, %u "
         "misplaced, %u signals\n",
         what, t->total, t->end[REFUSED], t->end[EQUAL], t->end[OTHER], t->end[UNTRIED],
         t->end[BLAMED], t->end[MISPLACED], t->signals);
}

static void add_tally(Tally *all, const Tally *t) {
  all->total += t->total, all->signals += t->signals, all->failed += t->failed;
  for (int i = EQUAL; i <= MISPLACED; i++) all->end[i] += t->end[i];
  for (uint32_t i = 0; i < t->keys; i++)
    for (uint32_t k = 0; k < t->count[i]; k++) count_key(all, t->key[i]);
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  static Tally all;
  bool every = !strcmp(argv[3], "every");
  const char *colon = strchr(argv[3], ':');
  uint64_t seed = argc > 4 ? strtoull(argv[4], NULL, 10) : 1;
  uint32_t n;
  const Pass *passes = pass_table(&n);
  Ctx *c = ctx_new();
  Module *m = lowered(c, argv[1], *argv[2] ? argv[2] : NULL);
  for (uint32_t i = 0; m && i < n; i++) {
    const char *name = passes[i].name;
    if (!passes[i].run) continue;
    if (!pipeline_run(m, &(PipelineOptions){.until = name})) break;
    if (every && strcmp(name, "memory")) continue;
    if (colon && (strncmp(argv[3], name, (size_t)(colon - argv[3])) || name[colon - argv[3]])) continue;
    static Tally t;
    memset(&t, 0, sizeof t);
    Stage s = stage_of(m, name);
    if (every) every_number(&s, (long)seed, &t);
    else if (colon) random_edits(&s, 1, strtoull(colon + 1, NULL, 10), &t, true);
    else random_edits(&s, atol(argv[3]), seed + 100000 * i, &t, false);
    show_tally(name, &t);
    add_tally(&all, &t);
  }
  diag_print(c->diag, stderr, DIAG_HUMAN, false);
  show_tally("all", &all);
  for (uint32_t i = 0; i < all.keys; i++) printf("  other numbers: %s %u\n", all.key[i], all.count[i]);
  return !all.total || all.failed || diag_errors(c->diag);
}
