/* `shardc` whose `plan --search --all`, after it has compiled every plan of a space, searches this
   space by time and by memory as well, and adds a line for each search to the file that
   SHARDC_SEARCHES names:

     OBJECTIVE SEARCH VALUE GAP COMPILED

   `exact` has no gap and no limit of tries, `early` ends after 4 plans, `usual` is what users have.
   The searches are those of the compiler; programs that were compiled before are not compiled
   again. Linked with --wrap of the functions below. Must not: judge (enumerate.py). */
#include "driver/fit/best.h"
#include "ir/support/num.h"
#include <stdio.h>
#include <stdlib.h>

bool __real_best_find(BestPlans *best);
bool __wrap_best_find(BestPlans *best);
Try __real_search_try(const ChangeSearch *search, Change change);
Try __wrap_search_try(const ChangeSearch *search, Change change);
void __real_search_try_jobs(const ChangeSearch *search, TryJob *job, int n);
void __wrap_search_try_jobs(const ChangeSearch *search, TryJob *job, int n);

/* ---- what was compiled ---- */

typedef struct Answer { /* the result of a job; the job of a single try has one change */
  const char *question;
  TryJob job;
} Answer;
enum { SLOTS = 1 << 17 };
static Answer *answers[SLOTS]; /* by the hash of the question */
static uint32_t answered;

static const char *question_of(const ChangeSearch *search, const TryJob *job) {
  Arena *arena = search->o->c->arena;
  const char *text = arena_printf(arena, "%d %d %d %d %d %d %d", search->by, search->forecasts,
                                  search->micros, search->bounds, job->deeper, job->inside, job->n);
  for (int i = 0; i < job->n; i++)
    for (uint32_t k = 0; k < job->change[i].n; k++) {
      const PlanLine *line = &job->change[i].line[k];
      text = arena_printf(arena, "%s\n%d %s=%s", text, i, line->key, line->value);
    }
  return text;
}

/* The slot of the question; it is empty if the question is new. */
static Answer **slot_of(const char *question) {
  uint64_t hash = 14695981039346656037u; /* FNV-1a */
  for (const char *c = question; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
  uint64_t at = hash % SLOTS;
  while (answers[at] && strcmp(answers[at]->question, question) != 0) at = (at + 1) % SLOTS;
  return &answers[at];
}

static void keep_answer(const ChangeSearch *search, Answer **slot, const char *question,
                        const TryJob *job) {
  must(++answered < SLOTS / 4 * 3, "searches: more than %d programs", SLOTS / 4 * 3);
  *slot = ARENA_NEW(search->o->c->arena, Answer);
  **slot = (Answer){question, *job};
}

Try __wrap_search_try(const ChangeSearch *search, Change change) {
  TryJob job = {.change = {change}, .n = 1};
  const char *question = question_of(search, &job);
  Answer **slot = slot_of(question);
  if (*slot) return (*slot)->job.made[0];
  job.made[0] = __real_search_try(search, change);
  return keep_answer(search, slot, question, &job), job.made[0];
}

void __wrap_search_try_jobs(const ChangeSearch *search, TryJob *job, int n) {
  TryJob left[2];
  int at[2], count = 0;
  for (int i = 0; i < n; i++) {
    const Answer *answer = *slot_of(question_of(search, &job[i]));
    if (answer) job[i] = answer->job;
    else left[count] = job[i], at[count++] = i;
  }
  if (count) __real_search_try_jobs(search, left, count);
  for (int i = 0; i < count; i++) {
    const char *question = question_of(search, &left[i]);
    Answer **slot = slot_of(question);
    if (!*slot) keep_answer(search, slot, question, &left[i]);
    job[at[i]] = left[i];
  }
}

/* ---- the searches ---- */

static const struct {
  const char *name;
  double gap;
  uint32_t most;
} kinds[] = {{"exact", 0, 1000000}, {"early", 0, 4}, {"usual", USUAL_GAP / 100., USUAL_TRIES}};

static void search_again(const BestPlans *all, bool memory, uint32_t kind, FILE *out) {
  BestPlans best = {.space = all->space,
                    .search = search_new(all->space.o, all->space.m, BY_SECONDS),
                    .wanted = {.memory = memory, .gap = kinds[kind].gap, .most = kinds[kind].most}};
  must(__real_best_find(&best) && best.fitting, "searches: no plan");
  fprintf(out, "%s %s %.17g %.17g %u\n", memory ? "memory" : "time", kinds[kind].name,
          best_value(&best, &best.found.at[0].cost), best_gap(&best), best.done.n);
}

bool __wrap_best_find(BestPlans *best) {
  const char *path = getenv("SHARDC_SEARCHES");
  bool found = __real_best_find(best);
  if (!path || !found || !best->wanted.all || !best->fitting) return found;
  FILE *out = fopen(path, "w");
  must(out, "searches: `%s` cannot be written", path);
  for (int memory = 0; memory < 2; memory++)
    for (uint32_t i = 0; i < COUNT_OF(kinds); i++) search_again(best, memory, i, out);
  fclose(out);
  return true;
}
