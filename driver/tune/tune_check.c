/* `shardc tune --rivals N`: checks how good the cut is that few measurements found. One product has
   tens of thousands of combinations of choices. N of them are drawn at random (always the same
   ones), each decision independently among all useful values, so that every combination can occur;
   a few rounds find the eight best, more rounds the best of these. Starting from it, every
   neighbour in each decision is tried until none is faster. The result is then measured against the
   cut in question, interleaved, until the difference is clear. The search must not depend on that
   cut. */
#include "tune_measure.h"
#include "passes/pass.h"

enum { ROUNDS = 3, BATCH = 24, FEW = 8, TRIES = 40, DESCENTS = 4 };

typedef struct Drawn {
  Cut cut;
  double share; /* of the time of the rule's cut */
} Drawn;

static uint32_t number_below(uint64_t *state, uint32_t n) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((*state >> 33) % n);
}

/* One choice per decision. */
static Cut draw(const TuneSearch *search, const Cut *rule, uint64_t *state) {
  Cut cut = *rule;
  for (int stage = 0; stage < TUNE_STAGES; stage++) {
    CutList wide = {0};
    search->t->v->vary(search->m, search->t->k, &cut, stage, true, &wide);
    uint32_t i = number_below(state, wide.n + 1);
    if (i < wide.n) cut = wide.at[i];
  }
  return cut;
}

/* n cuts that fit, in seen after the rule's */
static void draw_all(TuneSearch *search, uint32_t n) {
  uint64_t state = 1;
  for (uint32_t i = 0; i < TRIES * n && search->seen.n <= n; i++) {
    Cut cut = draw(search, &search->seen.at[0], &state);
    if (tune_is_new(search, &cut)) vec_push(search->m->arena, search->seen, cut);
  }
}

static void keep(Drawn *best, const Cut *cut, double share) { /* FEW of them, fastest first */
  int i = FEW;
  for (; i > 0 && share < best[i - 1].share; i--)
    if (i < FEW) best[i] = best[i - 1];
  if (i < FEW) best[i] = (Drawn){*cut, share};
}

/* The best of those drawn, after a few rounds, then after more. */
static bool best_drawn(TuneSearch *search) {
  Drawn best[FEW];
  Timing timing[BATCH + 1];
  for (int i = 0; i < FEW; i++) best[i] = (Drawn){search->best, 1e30};
  for (uint32_t from = 1; from < search->seen.n; from += BATCH) {
    CutList batch = {0};
    vec_push(search->m->arena, batch, search->seen.at[0]);
    for (uint32_t i = from; i < search->seen.n && i < from + BATCH; i++)
      vec_push(search->m->arena, batch, search->seen.at[i]);
    if (!tune_measure(search->m, search->t, &batch, (TuneEffort){ROUNDS, 0}, timing)) return false;
    for (uint32_t i = 1; i < batch.n; i++)
      if (timing[i].good) keep(best, &batch.at[i], timing[i].share);
  }
  CutList few = {0};
  for (int i = 0; i < FEW; i++) vec_push(search->m->arena, few, best[i].cut);
  return tune_contest(search, &few);
}

static bool descend(TuneSearch *search) {
  for (int turn = 0; turn < DESCENTS; turn++) {
    uint32_t before = search->seen.n;
    for (int stage = 0; stage < TUNE_STAGES; stage++) {
      CutList near = {0}, fresh = {0};
      search->t->v->vary(search->m, search->t->k, &search->best, stage, false, &near);
      for (uint32_t i = 0; i < near.n; i++) {
        if (!tune_is_new(search, &near.at[i])) continue;
        vec_push(search->m->arena, fresh, near.at[i]);
        vec_push(search->m->arena, search->seen, near.at[i]);
      }
      if (fresh.n && !tune_contest(search, &fresh)) return false;
    }
    if (search->seen.n == before) break;
  }
  return true;
}

bool tune_check(const TuneSearch *found, const Cut *pick, uint32_t n, TuneCheck *out) {
  TuneSearch search = *found;
  CutList both = {0};
  Timing timing[2];
  search.seen = (CutList){0}, search.best = search.t->v->rule(search.m, search.t->k);
  vec_push(search.m->arena, search.seen, search.best);
  draw_all(&search, n);
  if (!best_drawn(&search) || !descend(&search)) return false;
  vec_push(search.m->arena, both, *pick);
  vec_push(search.m->arena, both, search.best);
  if (!tune_measure(search.m, search.t, &both, tune_last_effort(&search), timing)) return false;
  *out = (TuneCheck){timing[0].ns,   timing[1].ns,  timing[1].share, timing[1].low,
                     timing[1].high, search.seen.n, search.best};
  return true;
}
