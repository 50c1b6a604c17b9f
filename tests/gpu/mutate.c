/* Is a wrong kernel noticed? Kernels as the compiler emits them for sm_80 and sm_90a; each
 * barrier, wait, fence, guard, comparison, selection and address term of their PTX is dropped or
 * altered, one at a time; the machine must report, or the result differ from the interpreter's.
 *
 *   gpu_mutate [-v | -p] [KERNEL]     -v lists what nobody noticed, -p prints the PTX instead
 *
 * Exit 1 when fewer than 97 % are noticed, comparisons shifted by one apart (README.md argues the
 * others), or of any kernel fewer than 98 % of those of synchronisation, or when a kernel in place
 * of an operand is not reported although its attribute `apart` denies it. */
#include "mutate.h"
#include "codegen/codegen.h"
#include "ir/codes.h"
#include "ir/interp/interp.h"
#include "ir/kernel/gemm_gpu.h"
#include "ir/support/numbers.h"
#include "passes/tune/tune.h"
#include "ptx.h"
#include "tests/common/kernel_params.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 20000, BUFFERS = 12, LONGER = 16, EVERY = -1 };
enum { BAR = 97, SYNC_BAR = 98 }; /* per cent */
enum { RUNS = 2, SYNC_RUNS = 6 }; /* of each mutant that nobody notices */

typedef struct Sample {
  const char *name, *target, *text;
  double tolerance;
  const char *cut; /* NULL: the rule's */
  int ctas;        /* of warpgroups, at most: they take several tiles */
  int phase;       /* the only one with mutants, or EVERY: other samples have the others */
} Sample;
static const Sample samples[] = {
#define SAMPLE(NAME, TARGET, TOLERANCE, TEXT) {#NAME, TARGET, TEXT, TOLERANCE, NULL, 1, EVERY},
#define CUT_SAMPLE(NAME, TARGET, TOLERANCE, CTAS, CUT, TEXT)                                       \
  {#NAME, TARGET, TEXT, TOLERANCE, CUT, CTAS, EVERY},
#define PHASE_SAMPLE(NAME, TARGET, TOLERANCE, CTAS, PHASE, CUT, TEXT)                              \
  {#NAME, TARGET, TEXT, TOLERANCE, CUT, CTAS, PHASE},
#include "mutate.def"
};

typedef struct Kernel {
  Ctx *ctx;
  Module *m;
  const Fn *k;
  char *text;
  int n, nargs;
  void *given[BUFFERS];
  int64_t bytes[BUFFERS];
  Tensor *want;
  double tolerance;
  int64_t budget; /* instructions of a launch */
  bool again;     /* it is launched twice */
  bool in_place;  /* the first result takes the bytes of the first operand */
} Kernel;

/* ---- the kernel and what it should give ---- */
static void put(void *at, int64_t i, Elem e, double x) {
  float f = (float)x;
  uint16_t half = e == ELEM_bf16 ? bf16_from_f32(f) : f16_from_f32(f);
  int32_t i32 = (int32_t)x;
  if (e == ELEM_f32) memcpy((char *)at + 4 * i, &f, 4);
  else if (elem_bytes(e) == 2) memcpy((char *)at + 2 * i, &half, 2);
  else if (e == ELEM_i32) memcpy((char *)at + 4 * i, &i32, 4);
  else *((char *)at + i) = x != 0;
}

static double get(const void *at, int64_t i, Elem e) {
  float f;
  uint16_t half;
  int32_t i32;
  if (e == ELEM_f32) return memcpy(&f, (const char *)at + 4 * i, 4), f;
  memcpy(&half, (const char *)at + elem_bytes(e) * i, elem_bytes(e) >= 2 ? 2 : 1);
  if (e == ELEM_bf16) return f32_from_bf16(half);
  if (e == ELEM_f16) return f32_from_f16(half);
  if (e == ELEM_i32) return memcpy(&i32, (const char *)at + 4 * i, 4), i32;
  return *((const char *)at + i) != 0;
}

/* Arguments come first, then results. */
static const Type *buffer_type(const Kernel *k, int i) {
  const Fn *f = k->k;
  int nargs = (int)f->args.n;
  return value_type(f, i < nargs ? f->args.at[i] : f->results.at[i - nargs]);
}

static uint64_t next(uint64_t *s) {
  *s ^= *s << 13, *s ^= *s >> 7, *s ^= *s << 17;
  return *s;
}

/* Element e of whole numbers: -1 .. 190, every other one of 0, 90 and, late, 180: rows that follow
 * each other have the same index often, and a frequent one begins after all elements of the first
 * lap. */
static double whole(int64_t e, double u) {
  if (u < 0.5) return floor(384 * u) - 1;
  return 90 * floor((e < 128 ? 2 : 3) * (2 * u - 1));
}

/* The place of the element of tile n that is not 0; a tile has one. Each of the tiles 0 to 31 tests
   one word that a thread loads in a step (eight loads of four words), for several threads. In all
   later tiles it is the last element. */
static int64_t only_element(int64_t n, int64_t rows, int64_t width) {
  static const int column[] = {0, 59, 20, 39}, row[] = {0, 13, 26, 7};
  if (n >= 32) return rows * width - 1;
  int64_t at = 32 * (n / 2 % 4) + row[n / 8];
  return (at < rows ? at : rows - 1) * width + 64 * (n % 2) + column[n / 8];
}

/* Element e of an operand of a product whose rows are places of experts. The first tile of rows is
 * full, every eighth empty, the others have one element that is not 0. One expert has no filled
 * place, and infinite weights: its results are NaN unless its tiles are skipped. */
static double placed(const Kernel *k, const Type *t, int64_t e, double x) {
  int64_t high = attr_get(&k->k->attrs, ATTR_tile)->list[GEMM_M], width = t->axis[2].size;
  int64_t all = t->axis[1].size, expert = e / (all * width);
  bool idle = expert == t->axis[0].size / 2;
  if (type_find(t, attr_str(&k->k->attrs, ATTR_skips, "")) < 0) return idle ? INFINITY : x;
  int64_t before = e / width % all / high, tile = expert * ceil_div(all, high) + before;
  if (idle || tile % 8 == 4) return 0;
  int64_t at = e - (expert * all + before * high) * width, rows = all - before * high;
  int64_t only = only_element(tile - (tile + 3) / 8 - 1, rows < high ? rows : high, width);
  return !tile || at == only ? x : 0;
}

/* Element e of rows that end in padding. The padding has the largest numbers, so that a kernel that
   reads it is noticed; the largest number before it is in the last block of the row. */
static double peaked(const Type *t, int64_t e, double x) {
  int64_t width = t->axis[t->rank - 1].size, at = e % width, row = e / width;
  return at >= width - 24 ? x + 16 : at == width - 40 + row % 8 ? x + 8 : x;
}

/* Element e of a value that a kernel rounds to 8 bits, made of x: neighbouring blocks have
   different scales, along each dim. A value of four dims has blocks of 128 rows, and the largest
   element of each is in another row than that of the block before. */
static double unlike(const Type *t, int64_t e, double x) {
  int64_t width = t->axis[t->rank - 1].size;
  if (t->rank == 4) {
    int64_t across = t->axis[2].size, row = e / width / across, block = e / width % across;
    int64_t number = row / EIGHTS_BLOCK * across + block, most = 16 * number + number % 16;
    bool first = row % EIGHTS_BLOCK == most % EIGHTS_BLOCK && e % width == number % 4;
    return ldexp(x + (first ? 16 : 0), (int)(3 * number % 5 - 2));
  }
  return ldexp(x, (int)(3 * (e % width) % 7 + e / width / 5 % 6 - 6));
}

static double float_of(const Kernel *k, const Type *t, int64_t e, double x) {
  if (codes_quantize(k->k, k->k->results.at[0])) return unlike(t, e, x);
  if (attr_get(&k->k->attrs, ATTR_skips)) return placed(k, t, e, x);
  bool padded = false, row = !strcmp(attr_str(&k->k->attrs, ATTR_family, ""), "row");
  EACH_OP (k->k, op) padded |= row && op->code == OP_iota;
  return padded ? peaked(t, e, x) : x;
}

/* Numbers become codes of 8 bits; scales of blocks that follow each other differ. */
static void put_codes(const Codes *codes, void *to, double *x) {
  for (int64_t first = 0; first < codes->count; first += EIGHTS_BLOCK) {
    double *block = x + first, most = 0;
    int power = (int)(first / EIGHTS_BLOCK % 5) - 2;
    for (int i = 0; i < EIGHTS_BLOCK; i++) block[i] = ldexp(block[i], power);
    for (int i = 0; i < EIGHTS_BLOCK; i++) most = fmax(most, fabs(block[i]));
    for (int i = 0; i < EIGHTS_BLOCK; i++) block[i] = eights_round(codes->format, block[i], most);
  }
  codes_write(codes, to, x);
}

static int64_t buffer_bytes(const Kernel *k, int i) {
  const Type *t = buffer_type(k, i);
  Codes codes;
  bool coded = kernel_codes(k->k, (uint32_t)i, &codes);
  return coded ? codes_bytes(&codes) : type_count(t) * elem_bytes(t->elem);
}

/* Arguments: floats of -2 .. 2, whole numbers. */
static Tensor make_argument(Kernel *k, int i, uint64_t *random) {
  const Type *t = buffer_type(k, i);
  int64_t n = type_count(t);
  Codes codes;
  Tensor x = {*t, ARENA_ARRAY(k->ctx->arena, double, n)};
  k->bytes[i] = buffer_bytes(k, i), k->given[i] = calloc(1, (size_t)k->bytes[i] + 8);
  bool coded = kernel_codes(k->k, (uint32_t)i, &codes);
  for (int64_t e = 0; e < n; e++) {
    double u = (double)(next(random) >> 11) * 0x1p-53;
    bool real = elem_class(t->elem) == CLASS_FLOAT;
    x.at[e] = real ? float_of(k, t, e, 4 * u - 2) : whole(e, u);
    if (coded) continue;
    put(k->given[i], e, t->elem, x.at[e]);
    x.at[e] = get(k->given[i], e, t->elem);
  }
  if (coded) put_codes(&codes, k->given[i], x.at);
  return x;
}

/* The interpreter skips nothing: what it multiplies by infinite weights should be 0. */
static void skip_idle(Kernel *k) {
  for (int i = 0; i < k->n - k->nargs; i++)
    for (int64_t e = 0, n = type_count(&k->want[i].type); e < n; e++)
      if (isnan(k->want[i].at[e])) k->want[i].at[e] = 0;
}

static void make_buffers(Kernel *k) {
  uint64_t random = 88172645463325252u;
  k->nargs = (int)k->k->args.n, k->n = k->nargs + (int)k->k->results.n;
  Tensor *args = ARENA_ARRAY(k->ctx->arena, Tensor, k->nargs + 1);
  for (int i = 0; i < k->nargs; i++) args[i] = make_argument(k, i, &random);
  k->want = ARENA_ARRAY(k->ctx->arena, Tensor, k->k->results.n + 1);
  for (int i = k->nargs; i < k->n; i++) k->bytes[i] = buffer_bytes(k, i);
  interp_call(interp_new(k->m, k->ctx->arena), k->k, args, k->want);
  if (attr_get(&k->k->attrs, ATTR_skips)) skip_idle(k);
}

static char *read_file(const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  char *text = calloc(1, 1 << 22);
  size_t n = fread(text, 1, (1 << 22) - 1, f);
  fclose(f);
  return n ? text : NULL;
}

static bool cut_kernel(Module *m, Fn *k, const char *text) {
  const Variants *v = text ? variants_find(attr_str(&k->attrs, ATTR_family, ""), DEVICE_GPU) : NULL;
  Cut cut;
  if (!text) return tune_by_rule(m, k);
  if (!v || !variants_read(v, text, &cut) || !v->fits(m, k, &cut)) return false;
  if (m->target.wgmma && m->target.channels)
    attr_set_int(m, &k->attrs, ATTR_spare, m->target.channels);
  v->apply(m, k, &cut);
  return true;
}

static bool compile(Kernel *k, const Sample *s) {
  k->ctx = ctx_new(), k->tolerance = s->tolerance, k->again = s->ctas > 1;
  char *text = arena_printf(k->ctx->arena, "shardc-ir 1\nmodel Test\nafter select\n%s", s->text);
  k->m = ir_parse(k->ctx, "mutate", text, strlen(text));
  bool ok = k->m;
  if (ok) target_describe(k->m, target_find(s->target), 1);
  if (ok && k->m->target.wgmma) k->m->target.multiprocessors = s->ctas;
  if (ok && s->cut) k->m->target.multiprocessors += k->m->target.channels; /* left to messages */
  for (uint32_t i = 0; ok && i < k->m->fns.n; i++)
    k->k = k->m->fns.at[i], ok = cut_kernel(k->m, k->m->fns.at[i], s->cut);
  ok = ok && ir_verify(k->m);
  const char *folder = ok ? work_folder(k->ctx) : NULL;
  ok = folder && kernels_build(k->m, folder, 1);
  if (ok)
    k->text =
        read_file(arena_printf(k->ctx->arena, "%s/%s.ptx", folder, kernel_symbol(k->m, k->k)));
  if (folder) remove_folder(k->ctx->arena, folder);
  if (ok && k->text) return make_buffers(k), true;
  diag_print(k->ctx->diag, stderr, DIAG_HUMAN, false);
  return false;
}

/* ---- one run ---- */
static bool launch(const Kernel *k, PtxModule *m, const uint64_t *params, int n, char *error,
                   int size) {
  const AttrList *l = &k->k->attrs;
  const Attr *chunks = attr_get(l, ATTR_chunks), *threads = attr_get(l, ATTR_threads),
             *shared = attr_get(l, ATTR_shared);
  for (int64_t p = 0; p < chunks->i; p++) {
    char entry[300];
    snprintf(entry, sizeof entry, "%s_p%d", kernel_symbol(k->m, k->k), (int)p);
    PtxLaunch go = {entry,
                    {(uint32_t)chunks->list[p], 1, 1},
                    {(uint32_t)threads->list[p], 1, 1},
                    (uint32_t)shared->list[p],
                    NULL,
                    0};
    go.params = kernel_params(k->m, k->k, params, n, &go.params_bytes);
    if (!ptx_launch(m, &go, error, size)) return false;
  }
  return true;
}

/* Errors of sums go with the size of their terms, not with that of one sum. A row of attention that
 * sees nothing has minus infinity. */
static double typical(const Tensor *x) {
  double sum = 0, n = 0;
  for (int64_t i = 0; i < type_count(&x->type); i++)
    if (isfinite(x->at[i])) sum += x->at[i] * x->at[i], n++;
  return sqrt(sum / fmax(n, 1));
}

static bool right(const Kernel *k, PtxDevice *d, const uint64_t *params, char *error, int size) {
  for (int i = k->nargs; i < k->n; i++) {
    const Tensor *w = &k->want[i - k->nargs];
    Elem e = buffer_type(k, i)->elem;
    Codes codes;
    bool coded = kernel_codes(k->k, (uint32_t)i, &codes);
    double ulp = coded ? 0 : e == ELEM_bf16 ? 0x1p-8 : e == ELEM_f16 ? 0x1p-10 : 0;
    double tolerance = k->tolerance + ulp;
    char *got = calloc(1, (size_t)k->bytes[i] + 8);
    bool ok =
        ptx_unwritten(d, params[i], k->bytes[i]) < 0 && ptx_read(d, got, params[i], k->bytes[i]);
    int64_t bad = 0;
    double usual = typical(w);
    for (int64_t j = 0, n = type_count(&w->type); ok && j < n; j++, bad = j) {
      double x = coded ? codes_read(&codes, (unsigned char *)got, j) : get(got, j, e);
      ok = x == w->at[j] || fabs(x - w->at[j]) <= tolerance * (usual + fabs(w->at[j])) ||
           (isnan(x) && isnan(w->at[j]));
    }
    free(got);
    if (!ok)
      return snprintf(error, (size_t)size, "result %d differs at element %lld", i - k->nargs,
                      (long long)bad),
             false;
  }
  return true;
}

/* Operands must come out as they went in. */
static bool kept(const Kernel *k, PtxDevice *d, const uint64_t *params, char *error, int size) {
  for (int i = k->in_place; i < k->nargs; i++) {
    char *now = calloc(1, (size_t)k->bytes[i] + 8);
    bool same =
        ptx_read(d, now, params[i], k->bytes[i]) && !memcmp(now, k->given[i], (size_t)k->bytes[i]);
    free(now);
    if (!same) return snprintf(error, (size_t)size, "operand %d was written", i), false;
  }
  return true;
}

/* False: noticed, error says how. `steps`: the most instructions so far. */
static bool run(const Kernel *k, const char *text, const PtxOptions *o, uint64_t *steps,
                char *error, int size) {
  PtxDevice *d = ptx_device_new(o);
  PtxModule *m = ptx_parse(d, text, error, size);
  uint64_t params[BUFFERS + 1] = {0};
  int n = k->n;
  for (int i = 0; i < k->n; i++) {
    params[i] = ptx_alloc(d, k->bytes[i]);
    if (i < k->nargs) ptx_write(d, params[i], k->given[i], k->bytes[i]);
  }
  if (k->in_place) params[k->nargs] = params[0];
  int64_t workspace = attr_int(&k->k->attrs, ATTR_workspace, 0);
  if (workspace) params[n++] = ptx_alloc(d, workspace);
  uint64_t warps, lanes;
  bool ok = m != NULL; /* a second time, with what the first launch left in the module */
  for (int i = 0; i < (k->again ? 2 : 1); i++) ok = ok && launch(k, m, params, n, error, size);
  ok = ok && right(k, d, params, error, size) && kept(k, d, params, error, size);
  ptx_counts(d, &warps, &lanes);
  *steps = warps > *steps ? warps : *steps;
  ptx_module_free(m), ptx_device_free(d);
  return ok;
}

/* Runs: late, in random order; those after them late and in random order. */
static bool unnoticed(const Kernel *k, const char *text, uint64_t runs, uint64_t *steps,
                      char *error, int size) {
  *steps = 0;
  for (uint64_t i = 0; i < runs; i++) {
    PtxOptions o = {.check = true,
                    .late = i != 1,
                    .seed = i,
                    .sm = (int)k->m->target.sm,
                    .shared_limit = k->m->target.shared,
                    .budget = k->budget,
                    .memory = INT64_C(256) << 20};
    if (!run(k, text, &o, steps, error, size)) return false;
  }
  return true;
}

/* Mutants may take some times as many instructions as the kernel: few loop for ever, and these
   took most of the time. */
static bool right_itself(Kernel *k, char *error, int size) {
  uint64_t steps;
  k->budget = INT64_C(20000000);
  if (!unnoticed(k, k->text, SYNC_RUNS, &steps, error, size)) return false;
  k->budget = LONGER * (int64_t)steps;
  return true;
}

/* ---- all mutants of a kernel ---- */
static void show(const Kernel *k, const Mutant *m) {
  const char *at = k->text;
  for (int i = 1; i < m->line && at; i++) at = strchr(at, '\n') + 1;
  at += strspn(at, " \t");
  printf("    line %d: %.*s  (%s)\n", m->line, (int)strcspn(at, "\n"), at, mutant_names[m->kind]);
}

typedef struct Counts {
  int total[MUTANT_KINDS], missed[MUTANT_KINDS];
} Counts;

/* Shifted comparisons apart. */
static int sum(const int of[MUTANT_KINDS], int kinds) {
  int n = 0;
  for (int i = 0; i < kinds; i++) n += i == SHIFT_COMPARE ? 0 : of[i];
  return n;
}

/* Whether a place of the text is in a phase of the kernel. */
static bool in_phase(const Kernel *k, size_t at, int phase) {
  const char *here = k->text + at, *entry = k->text;
  int n = EVERY;
  for (; (entry = strstr(entry, ".entry")) && entry < here; entry++) n++;
  return phase == EVERY || n == phase;
}

static int percent(int seen, int total) { return total ? 100 * seen / total : 100; }

/* True: enough mutants of synchronisation are noticed. */
static bool mutate(const Kernel *k, const Sample *sample, bool verbose, Counts *all) {
  static Mutant list[ROOM];
  Counts own = {0};
  int n = mutants_find(k->text, list, ROOM);
  char error[1000];
  uint64_t steps;
  for (int i = 0; i < n; i++) {
    if (!in_phase(k, list[i].from, sample->phase)) continue;
    char *text = mutant_apply(k->text, &list[i]);
    MutantKind kind = list[i].kind;
    uint64_t runs = kind < SYNC_KINDS ? SYNC_RUNS : kind == SHIFT_COMPARE ? 1 : RUNS;
    bool lost = unnoticed(k, text, runs, &steps, error, sizeof error);
    free(text);
    own.total[list[i].kind]++, own.missed[list[i].kind] += lost;
    if (lost && verbose) show(k, &list[i]);
  }
  for (int i = 0; i < MUTANT_KINDS; i++)
    all->total[i] += own.total[i], all->missed[i] += own.missed[i];
  int total = sum(own.total, MUTANT_KINDS), seen = total - sum(own.missed, MUTANT_KINDS);
  int sync = sum(own.total, SYNC_KINDS), sync_seen = sync - sum(own.missed, SYNC_KINDS);
  printf("%-16s %5d of %d noticed (%.1f %%), of synchronisation %d of %d\n", sample->name, seen,
         total, 100.0 * seen / (total ? total : 1), sync_seen, sync);
  return percent(sync_seen, sync) >= SYNC_BAR;
}

/* At least `bar` per cent of the first kinds are noticed. */
static bool enough(const Counts *all, const char *what, int kinds, int bar) {
  int total = sum(all->total, kinds), seen = total - sum(all->missed, kinds);
  printf("%d of %d mutants noticed%s (%.1f %%)\n", seen, total, what,
         100.0 * seen / (total ? total : 1));
  return percent(seen, total) >= bar;
}

static void free_kernel(Kernel *k) {
  for (int i = 0; i < k->nargs; i++) free(k->given[i]);
  free(k->text);
  ctx_free(k->ctx);
}

/* Kernels in place of an operand are right, and reported if `apart` denies it. */
static bool denial_noticed(void) {
#define IN_PLACE(attributes)                                                                       \
  "kernel @k(%0 : f32[A:48, B:64], %1 : f32[B:64]) {family = \"elem\"" attributes                  \
  "} {\n%2 = add %0, %1 : f32[A:48, B:64]\n%3 = tanh %2 : f32[A:48, B:64]\nreturn %3\n}\n"
  static const Sample told[] = {
      {"in place", "sm_80", IN_PLACE(""), 1e-5, NULL, 1, EVERY},
      {"denial", "sm_80", IN_PLACE(", apart = [0, 2]"), 1e-5, NULL, 1, EVERY}};
  bool as_wanted = true;
  for (int i = 0; i < 2; i++) {
    Kernel k = {.in_place = true};
    char error[1000] = "";
    if (!compile(&k, &told[i])) return printf("%s: does not compile\n", told[i].name), false;
    bool fine = right_itself(&k, error, sizeof error);
    bool wanted = i ? !fine && strstr(error, "ld.global.nc in this launch") : fine;
    if (!wanted) printf("%s: %s\n", told[i].name, fine ? "not noticed" : error);
    as_wanted &= wanted;
    free_kernel(&k);
  }
  return as_wanted;
}

int main(int argc, char **argv) {
  bool verbose = argc > 1 && !strcmp(argv[1], "-v"), print = argc > 1 && !strcmp(argv[1], "-p");
  const char *only = argc > 1 + verbose + print ? argv[1 + verbose + print] : NULL;
  const char *weak = NULL;
  Counts all = {0};
  char error[1000];
  for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
    Kernel k = {0};
    if (only && strcmp(only, samples[i].name)) continue;
    if (!compile(&k, &samples[i])) return printf("%s: does not compile\n", samples[i].name), 1;
    if (!right_itself(&k, error, sizeof error))
      return printf("%s: %s\n", samples[i].name, error), 1;
    if (print) fputs(k.text, stdout);
    else if (!mutate(&k, &samples[i], verbose, &all)) weak = samples[i].name;
    fflush(stdout);
    free_kernel(&k);
  }
  if (print) return 0;
  for (int j = 0; j < MUTANT_KINDS; j++)
    if (all.total[j])
      printf("  %-22s %5d, %d not noticed\n", mutant_names[j], all.total[j], all.missed[j]);
  enough(&all, " of synchronisation", SYNC_KINDS, SYNC_BAR);
  bool good = enough(&all, ", shifted comparisons apart", MUTANT_KINDS, BAR);
  if (weak) printf("%s: too few mutants of synchronisation are noticed\n", weak);
  return weak || !good || (!only && !denial_noticed());
}
