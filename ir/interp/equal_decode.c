/* Entry `decode` computes one position from its token and from cached keys and values (pass decode,
   runtime/kv_cache.c). Position after position its outputs must be the rows of the outputs that the
   model's `logits` has for the whole window, once with the rows that `decode` itself appended
   to the caches, and once with those that `logits` filled in. Positions that a cache does not hold
   yet are random numbers, on which nothing may depend. Must not: run `logits`. */
#include "equal_decode.h"
#include "field.h"
#include "ir/made.h"

static const char prefix[] = "decode.of.";

typedef struct Decoding {
  const Runner *model, *ranks;
  Module *m; /* of the ranks */
  uint64_t seed;
  int64_t position, positions;
  EqualReport *report;
} Decoding;

static Str named(const Decoding *decoding, const char *before, const char *rest) {
  return intern_printf(decoding->m->ctx->names, "%s%s", before, rest);
}

static bool differs(const Decoding *decoding, Str global, int64_t element, const char *why) {
  *decoding->report = (EqualReport){.why = why ? why : runner_error(decoding->ranks),
                                    .global = global,
                                    .entry = "decode",
                                    .element = element};
  decoding->report->spent = decoding->report->why == interp_spent;
  return false;
}

/* Number of the element of `whole` that is element i of its row at a position. */
static int64_t element_of(const Type *whole, const Type *row, int64_t position, int64_t i) {
  int64_t at = 0, stride = 1;
  for (int a = whole->rank - 1; a >= 0; i /= row->axis[a].size, a--) {
    bool cut = whole->axis[a].size != row->axis[a].size;
    at += stride * (cut ? position : i % row->axis[a].size);
    stride *= whole->axis[a].size;
  }
  return at;
}

/* ---- caches ---- */

typedef struct Cache {
  const Global *cache;
  Str row, fill;
  double *kept; /* with the rows of earlier positions */
} Cache;

static double *unfilled(const Decoding *decoding, const Global *cache) {
  int64_t n = type_count(&cache->type);
  double *data = ARENA_ARRAY(decoding->m->arena, double, n + 1);
  for (int64_t i = 0; i < n; i++) data[i] = field_random(decoding->seed, (uint64_t)i);
  return data;
}

/* One row from a tensor of rows, or of one, into the cache's numbers. */
static void copy_row(const Cache *cache, double *to, const Tensor *from, const Type *row,
                     int64_t position) {
  bool one = type_count(&from->type) == type_count(row);
  for (int64_t i = 0, n = type_count(row); i < n; i++) {
    int64_t at = element_of(&cache->cache->type, row, position, i);
    to[at] = from->at[one ? i : at];
  }
}

static bool set_cache(const Decoding *decoding, const Cache *cache, bool filled) {
  const Tensor *fill = runner_get(decoding->ranks, cache->fill),
               *row = runner_get(decoding->ranks, cache->row);
  if (!fill || !row) return differs(decoding, cache->fill, 0, NULL);
  double *data = filled ? unfilled(decoding, cache->cache) : cache->kept;
  for (int64_t p = 0; p < decoding->position && filled; p++)
    copy_row(cache, data, fill, &row->type, p);
  runner_set(decoding->ranks, cache->cache->name, data);
  return true;
}

static Cache cache_of(const Decoding *decoding, const Global *global, const char *number) {
  return (Cache){global, named(decoding, "decode.of.row.", number),
                 named(decoding, "decode.of.fill.", number), unfilled(decoding, global)};
}

/* ---- one position ---- */

static void set_token(Decoding *decoding, const Global *input) {
  const Tensor *window =
      runner_get(decoding->ranks, named(decoding, "logits.", made_rest(input->name, prefix)));
  if (!window) return;
  decoding->positions = type_count(&window->type);
  runner_set(decoding->ranks, input->name, &window->at[decoding->position]);
}

static void set_tokens(Decoding *decoding) {
  EACH_GLOBAL (decoding->m, global)
    if (global->kind == GLOBAL_INPUT && made_rest(global->name, prefix) &&
        !made_rest(global->name, MADE_CACHE))
      set_token(decoding, global);
  runner_set_all(decoding->ranks, "decode.of.position", (double)decoding->position);
}

/* An output of `decode` and the model's of the same name, of which it is a row. */
static bool compare_row(const Decoding *decoding, const Global *output) {
  Str of = named(decoding, "", made_rest(output->name, prefix));
  if (!runner_has(decoding->model, of)) return true; /* rows and fills of caches */
  const Tensor *model = runner_get(decoding->model, of),
               *row = runner_get(decoding->ranks, output->name);
  if (!model || !row) return differs(decoding, output->name, 0, NULL);
  for (int64_t i = 0, n = type_count(&row->type); i < n; i++)
    if (row->at[i] != model->at[element_of(&model->type, &row->type, decoding->position, i)])
      return differs(decoding, output->name, i, "another value");
  return true;
}

static bool run_position(Decoding *decoding, const Cache *caches, uint32_t n, bool filled) {
  set_tokens(decoding);
  for (uint32_t i = 0; i < n; i++)
    if (!set_cache(decoding, &caches[i], filled)) return false;
  if (!runner_run(decoding->ranks, "decode")) return differs(decoding, NULL, 0, NULL);
  EACH_GLOBAL (decoding->m, global)
    if (global->kind == GLOBAL_OUTPUT && made_rest(global->name, prefix) &&
        !compare_row(decoding, global))
      return false;
  return true;
}

static void keep_rows(const Decoding *decoding, const Cache *caches, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    const Tensor *row = runner_get(decoding->ranks, caches[i].row);
    copy_row(&caches[i], caches[i].kept, row, &row->type, decoding->position);
  }
}

bool decode_equal(const Runner *model, const Runner *ranks, int64_t seed, EqualReport *report) {
  if (!runner_has_entry(ranks, "decode") || !runner_has_entry(model, "logits")) return true;
  Module *m = ranks->side->programs[0];
  Decoding decoding = {.model = model, .ranks = ranks, .m = m, .positions = 1, .report = report};
  decoding.seed = (uint64_t)field_random((uint64_t)seed, sizeof prefix);
  VEC(Cache) caches = {0};
  EACH_GLOBAL (m, global) {
    const char *number = made_rest(global->name, MADE_CACHE);
    if (number) vec_push(m->arena, caches, cache_of(&decoding, global, number));
  }
  for (; decoding.position < decoding.positions; decoding.position++) {
    if (!run_position(&decoding, caches.at, caches.n, true)) return false;
    if (!run_position(&decoding, caches.at, caches.n, false)) return false;
    keep_rows(&decoding, caches.at, caches.n);
  }
  return true;
}
