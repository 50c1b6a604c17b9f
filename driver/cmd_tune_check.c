/* `shardc tune --rivals N`: how good is the cut that few measurements found?

   All combinations of choices are tens of thousands for one product. N of them are drawn at random
   (always the same ones), each decision by itself among everything worth a try, so that every
   combination may come; a few rounds tell the eight best, more rounds the best of these. From
   there, every neighbour in each decision is tried until none is faster. What came out then meets
   the cut in question, in turn, for as long as a last word takes. The search must not look at that
   cut. */
#include "cmd_tune.h"
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
static Cut draw(const TuneSearch *s, const Cut *rule, uint64_t *state) {
  Cut c = *rule;
  for (int stage = 0; stage < TUNE_STAGES; stage++) {
    CutList wide = {0};
    s->t->v->vary(s->m, s->t->k, &c, stage, true, &wide);
    uint32_t i = number_below(state, wide.n + 1);
    if (i < wide.n) c = wide.at[i];
  }
  return c;
}

/* n cuts that fit, in seen after the rule's */
static void draw_all(TuneSearch *s, uint32_t n) {
  uint64_t state = 1;
  for (uint32_t i = 0; i < TRIES * n && s->seen.n <= n; i++) {
    Cut c = draw(s, &s->seen.at[0], &state);
    if (tune_is_new(s, &c)) vec_push(s->m->arena, s->seen, c);
  }
}

static void keep(Drawn *best, const Cut *c, double share) { /* FEW of them, fastest first */
  int i = FEW;
  for (; i > 0 && share < best[i - 1].share; i--)
    if (i < FEW) best[i] = best[i - 1];
  if (i < FEW) best[i] = (Drawn){*c, share};
}

/* The best of those drawn, after a few rounds, then after more. */
static bool best_drawn(TuneSearch *s) {
  Drawn best[FEW];
  Timing t[BATCH + 1];
  for (int i = 0; i < FEW; i++) best[i] = (Drawn){s->best, 1e30};
  for (uint32_t from = 1; from < s->seen.n; from += BATCH) {
    CutList batch = {0};
    vec_push(s->m->arena, batch, s->seen.at[0]);
    for (uint32_t i = from; i < s->seen.n && i < from + BATCH; i++)
      vec_push(s->m->arena, batch, s->seen.at[i]);
    if (!tune_measure(s->m, s->t, &batch, (TuneEffort){ROUNDS, 0}, t)) return false;
    for (uint32_t i = 1; i < batch.n; i++)
      if (t[i].good) keep(best, &batch.at[i], t[i].share);
  }
  CutList few = {0};
  for (int i = 0; i < FEW; i++) vec_push(s->m->arena, few, best[i].cut);
  return tune_contest(s, &few);
}

static bool descend(TuneSearch *s) {
  for (int turn = 0; turn < DESCENTS; turn++) {
    uint32_t before = s->seen.n;
    for (int stage = 0; stage < TUNE_STAGES; stage++) {
      CutList near = {0}, fresh = {0};
      s->t->v->vary(s->m, s->t->k, &s->best, stage, false, &near);
      for (uint32_t i = 0; i < near.n; i++) {
        if (!tune_is_new(s, &near.at[i])) continue;
        vec_push(s->m->arena, fresh, near.at[i]);
        vec_push(s->m->arena, s->seen, near.at[i]);
      }
      if (fresh.n && !tune_contest(s, &fresh)) return false;
    }
    if (s->seen.n == before) break;
  }
  return true;
}

bool tune_check(const TuneSearch *found, const Cut *pick, uint32_t n, TuneCheck *out) {
  TuneSearch s = *found;
  CutList both = {0};
  Timing t[2];
  s.seen = (CutList){0}, s.best = s.t->v->rule(s.m, s.t->k);
  vec_push(s.m->arena, s.seen, s.best);
  draw_all(&s, n);
  if (!best_drawn(&s) || !descend(&s)) return false;
  vec_push(s.m->arena, both, *pick);
  vec_push(s.m->arena, both, s.best);
  if (!tune_measure(s.m, s.t, &both, tune_last_effort(&s), t)) return false;
  *out = (TuneCheck){t[0].ns, t[1].ns, t[1].share, t[1].low, t[1].high, s.seen.n, s.best};
  return true;
}
