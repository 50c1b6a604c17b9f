/* One trial by hand: try FILE MESH RULES [MICRO [STAGE [SETTINGS [print]]]], such as
   try gpt2_ranks.shard "data = 2, tensor = 2" "place Batch -> data;place Heads, Mlp -> tensor".
   With PLACED set it also runs in bytes; PAD, RECOMPUTE, TRAIN, FROZEN are the trial's. */
#include "check.h"
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  Ctx *c = ctx_new();
  char *rules = arena_printf(c->arena, "%s\n", argv[3]);
  for (char *p = rules; *p; p++)
    if (*p == ';') *p = '\n';
  Trial t = {.file = argv[1], .steps = 3, .print = argc > 7};
  t.plan = (Plan){.mesh = argv[2], .rules = rules};
  t.frozen = getenv("FROZEN") ? strtoull(getenv("FROZEN"), NULL, 10) : 0;
  t.placed = getenv("PLACED") != NULL, t.train = getenv("TRAIN");
  t.plan.pad = getenv("PAD") ? atoi(getenv("PAD")) : 0, t.plan.recompute = getenv("RECOMPUTE");
  if (argc > 4) t.plan.micro = atoi(argv[4]);
  if (argc > 5) t.plan.zero = atoi(argv[5]);
  if (argc > 6) t.plan.settings = argv[6];
  Outcome o = trial_run(c, &t);
  if (o.error) printf("%s\n", o.error);
  else printf("worst %.3g at %s\n", o.worst, o.where);
  for (uint32_t a = 0; !o.error && a < o.m->mesh.n; a++)
    for (int k = 0; k < OP_COUNT; k++)
      if (o.sent[a][k])
        printf("%s %s %lld\n", o.m->mesh.at[a].name, op_name((OpCode)k), (long long)o.sent[a][k]);
  bool fine = !o.error && o.worst < 1e-7;
  ctx_free(c);
  return !fine;
}
