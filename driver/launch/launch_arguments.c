/* Checks the arguments that `shardc launch` writes into a script, by the table of options of the
   executable: a wrong word is an error today, not in the queue of a cluster. */
#include "launch_arguments.h"
#include "runtime/options.h"

bool launch_arguments(int argc, char **argv, const char **option, Fault *f) {
  static const struct {
    OptionId id;
    const char *name;
  } own[] = {{OPT_resume, "--resume"},       {OPT_nnodes, "--nnodes"},
             {OPT_node_rank, "--node-rank"}, {OPT_nproc_per_node, "--nproc-per-node"},
             {OPT_meet, "--meet"},           {OPT_help, "--help"},
             {OPT_version, "--version"}};
  Options options;
  *option = NULL;
  if (!rt_options_read(&options, argc, argv, f)) return false;
  for (size_t i = 0; i < sizeof own / sizeof *own; i++)
    if (options.at[own[i].id].given) *option = own[i].name;
  return options.command == 't' || rt_fault(f, 104, "a script is for `train`");
}
