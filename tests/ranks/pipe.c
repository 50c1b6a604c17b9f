/* Pipelines of every kind in the interpreter: ranks_pipe FOLDER [EVERY [FIRST [END]]]

   The product of six models (GPT-2, Llama, BERT, a tied, an untied, and a conditioned one),
   schedules {sequential, gpipe, one_f_one_b, interleaved, zero_bubble}, pipe {2, 3, 4}, tensor
   {1, 2}, data {1, 2}, ZeRO stages 0 to 3 and micro-batches {1, 2, P, 2 P + 1}, 5760 of them:
   losses of all steps, weights, states, an evaluation and logits equal one rank within 1e-9. The
   number of the combination draws the other settings of the plan: layers on a stage, uneven
   ones, chunks, memory of `zero_bubble`, `recompute`, `else Seq`, buckets, whole gradients
   between micro-batches, messages in flight, a run in bytes; so is one in forty that takes 20
   steps instead of two.

   EVERY: one combination of EVERY is tried (default 1: all), of those with numbers FIRST to END -
   1. Each is a process of its own. None is refused. Must not: look at what passes do. */
#include "check.h"
#include "tests/common/limit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EQUAL, WRONG };
enum { MODELS = 6, SCHEDULES = 5, SIZES = 3 * 2 * 2 * 4 * 4, ALL = MODELS * SCHEDULES * SIZES };

static const struct {
  const char *file, *tensor, *otherwise, *stack;
} models[MODELS] = {
    {"pipe_gpt2", "Heads, Mlp, Vocab", "Seq", "h"},
    {"pipe_llama", "Kv, Mlp, Vocab", "Seq", "layers"},
    {"pipe_bert", "Heads, Mlp, Vocab", "Seq", "encoder"},
    {"pipe_tied", "Wide", "Embed", "h"},
    {"pipe_untied", "Wide, Out", "Embed", "h"},
    {"pipe_conditioned", "Wide, Out", "Embed", "h"},
};

static const char *const schedules[SCHEDULES] = {"sequential", "gpipe", "one_f_one_b",
                                                 "interleaved", "zero_bubble"};

typedef struct Case {
  int model, schedule, stages, tensor, data, zero, parts;
  int layers, chunks, ahead, steps;
  bool uneven, keeps, otherwise, full, flies, placed;
  const char *bucket;
} Case;

static uint64_t mix(uint64_t z) { /* splitmix64 */
  z = (z + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/* The least significant digit of a number whose digits have different bases. */
static int digit(int *number, int base) {
  int d = *number % base;
  return *number /= base, d;
}

static void draw_rest(Case *k, uint64_t r) {
  bool chunked = !strcmp(schedules[k->schedule], "interleaved");
  k->chunks = chunked ? 2 + (int)(r % 2) : 1;
  k->uneven = (r >> 4) % 4 == 0;
  k->layers = k->stages * (chunked ? k->chunks : 1 + (int)((r >> 8) % 2)) - (k->uneven ? 1 : 0);
  k->keeps = (r >> 12) % 3 == 0, k->otherwise = (r >> 16) % 3 == 0;
  k->full = (r >> 20) % 3 == 0, k->flies = (r >> 24) % 4 == 0, k->placed = (r >> 28) % 3 == 0;
  k->bucket = (r >> 32) % 2 ? "400" : "100000";
  k->steps = (r >> 36) % 40 == 0 ? 20 : 2;
  k->ahead = !strcmp(schedules[k->schedule], "zero_bubble") ? 1 + (int)((r >> 44) % 2) : 1;
}

static Case combination(int number) {
  Case k = {0};
  int rest = number;
  k.model = digit(&rest, MODELS), k.schedule = digit(&rest, SCHEDULES);
  k.stages = 2 + digit(&rest, 3), k.tensor = 1 + digit(&rest, 2), k.data = 1 + digit(&rest, 2);
  k.zero = digit(&rest, 4);
  k.parts = (int[]){1, 2, k.stages, 2 * k.stages + 1}[digit(&rest, 4)];
  bool two = !strcmp(models[k.model].file, "pipe_conditioned"); /* values from stage to stage */
  if (two && !strcmp(schedules[k.schedule], "interleaved")) k.schedule--; /* E0901 */
  draw_rest(&k, mix((uint64_t)number));
  if (two) k.ahead = 1; /* E0901 */
  return k;
}

static const char *plan_settings(Ctx *c, const Case *k) {
  const char *chunks = arena_printf(c->arena, " plan.pipeline.chunks=%d", k->chunks),
             *zero = arena_printf(
                 c->arena, " plan.zero.over=data plan.zero.bucket=%s plan.zero.overlap=%s%s%s",
                 k->bucket, k->flies ? "on" : "off", k->full ? " plan.zero.accumulate=full" : "",
                 k->zero == 3 && k->flies ? " plan.zero.prefetch=1" : "");
  return arena_printf(c->arena, "plan.pipeline=%s%s%s%s%s", schedules[k->schedule],
                      k->uneven ? " plan.pipeline.uneven=on" : "", k->chunks > 1 ? chunks : "",
                      k->ahead > 1 ? " plan.pipeline.memory=2" : "", k->zero ? zero : "");
}

static Trial trial_of(Ctx *c, const char *folder, const Case *k) {
  Arena *a = c->arena;
  Trial t = {.file = arena_printf(a, "%s/%s.shard", folder, models[k->model].file)};
  t.steps = k->steps, t.batch = k->data * k->parts, t.placed = k->placed;
  t.dim = arena_printf(a, "Layers=%d", k->layers);
  t.plan = (Plan){.zero = k->zero, .micro = 1, .settings = plan_settings(c, k)};
  t.plan.mesh = arena_printf(a, "tensor = %d, data = %d, pipe = %d", k->tensor, k->data, k->stages);
  t.plan.rules =
      arena_printf(a, "place Layers -> pipe\nplace Batch -> data\nplace %s -> tensor%s%s\n",
                   models[k->model].tensor, k->otherwise ? " else " : "",
                   k->otherwise ? models[k->model].otherwise : "");
  if (k->keeps) t.plan.recompute = arena_printf(a, "%s keep = input", models[k->model].stack);
  return t;
}

static void print_case(int number, const Trial *t) {
  printf("%d: %s %s batch %lld, %d steps, mesh %s, zero %d, %s%s, %s\n%s", number, t->file, t->dim,
         (long long)t->batch, t->steps, t->plan.mesh, t->plan.zero, t->plan.settings,
         t->placed ? ", in bytes" : "", t->plan.recompute ? t->plan.recompute : "", t->plan.rules);
}

static int run_one(const char *folder, int number) {
  Ctx *c = ctx_new();
  Case k = combination(number);
  Trial t = trial_of(c, folder, &k);
  Outcome o = trial_run(c, &t);
  if (!o.error && o.worst < 1e-9) return EQUAL;
  print_case(number, &t);
  if (o.error) printf("%s\n", o.error);
  else printf("%g at %s\n", o.worst, o.where);
  return WRONG;
}

static int in_child(const char *folder, int number) {
  fflush(stdout);
  pid_t pid = fork();
  if (!pid) {
    limit_processor_seconds(120);
    int code = run_one(folder, number);
    fflush(stdout);
    _exit(code);
  }
  int status;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  printf("%d: signal %d\n", number, WTERMSIG(status));
  return WRONG;
}

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  int every = argc > 2 ? atoi(argv[2]) : 1, first = argc > 3 ? atoi(argv[3]) : 0,
      end = argc > 4 ? atoi(argv[4]) : ALL, count[2] = {0};
  for (int i = first; i < end; i += every) {
    int code = in_child(argv[1], i);
    count[code != EQUAL]++;
  }
  printf("%d equal, %d wrong\n", count[EQUAL], count[WRONG]);
  return count[WRONG] || !count[EQUAL];
}
