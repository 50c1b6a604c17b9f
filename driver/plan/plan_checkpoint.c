/* Part of `shardc plan`: the bytes of a checkpoint, and the least time to write one at the rate of
   the machine's disk. A checkpoint holds each parameter and each state once, in its logical size,
   whatever the plan; so they are counted before the passes that split and pad them. Frozen
   parameters are written once per run, and not counted. */
#include "plan_report.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include "passes/pass.h"

static bool is_saved(const Global *global) {
  bool kept = global->kind == GLOBAL_PARAM || global->kind == GLOBAL_STATE;
  return kept && !global->frozen && !global->derived;
}

double plan_checkpoint(const Cli *o) {
  Cli one = cli_again(o);
  PipelineOptions until = {.until = "precision"};
  Module *m;
  double bytes = 0;
  bool known = file_kind(one.c, one.operands.at[0]) == FILE_SHARD &&
               load_module(&one, &m) == EXIT_FINE && describe_target(&one, m) == EXIT_FINE &&
               pipeline_run(m, &until);
  for (uint32_t i = 0; known && i < m->globals.n; i++)
    if (is_saved(m->globals.at[i])) bytes += (double)type_dense_bytes(&m->globals.at[i]->type);
  ctx_free(one.c);
  return bytes;
}

void topic_checkpoint(Sheet *sheet, const Planned *planned) {
  const Module *m = planned->m;
  double rate = module_amount(m, "machine.node.disk"), bytes = planned->checkpoint;
  int64_t in_node = planned->machine.in_node > 0 ? planned->machine.in_node : 1;
  double nodes = (double)ceil_div(mesh_ranks(m), in_node);
  bool shown = planned->machine.memory > 0; /* there is a machine */
  if (bytes <= 0) return;
  sheet_say_if(sheet, shown, "a checkpoint: {checkpoint.bytes}", as_bytes(bytes));
  sheet_say_if(sheet, shown && rate > 0, ", written in at least {checkpoint.seconds}",
               as_seconds(bytes / nodes / rate));
  sheet_say_if(sheet, shown && rate <= 0, "; `node disk = 2GB/s` would tell how long it takes");
  sheet_say_if(sheet, shown, "\n");
}
