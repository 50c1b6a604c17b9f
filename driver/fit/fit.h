/* The memory of a plan's machine: what a plan leaves open is chosen so that it fits (choose.c), and
   what does not fit is refused with a change that does (fit.c). For the driver alone.

   All of it may run passes on copies of the program (search.h). */
#ifndef SHARDC_FIT_H
#define SHARDC_FIT_H
#include "search.h"
#include "ir/cost/machine.h"

/* cmd_load.c: FILE -> a module; NULL: diagnostics were given, or FILE cannot be read */
Module *load_shard(Cli *o, const char *path);

/* FILE with the plan that the search finds in place of this one; for o, it is the plan from then
   on. NULL: an error was given (searched.c). */
Module *fit_searched(Cli *o, const SearchedPlan *plan);

/* The machine of the plan, or this machine for `verify`, which runs the ranks locally. */
Machine fit_machine(const Cli *o, const Module *m);
/* Memory that a rank may use: on the plan's machine, or on this machine if the plan names none. */
int64_t fit_capacity(const Cli *o, const Module *m);
/* The target of --target that plans are tried for; NULL: no --target. */
const char *fit_target(const Cli *o);

/* Chooses what the plan leaves open, in m and for all later tries, with notes. */
void fit_choose(Cli *o, Module *m);
void fit_offload(Cli *o, Module *m); /* `offload auto` (fit_offload.c) */
/* Sets the bucket of `zero` if the plan sets none: its bytes, no note; 0: none is. */
int64_t fit_set_bucket(Module *m);
double fit_latency(const Module *m, int64_t bytes); /* of a full bucket's time, in percent */

/* After pass `memory`: a `prefetch` in bytes that holds no layer is E0602; false. */
bool flights_check(Cli *o, Module *m);
/* "plan `zero3`", or "the program" if no plan has a name; "plan `zero3` with `long`", if the model
   has several train blocks. */
const char *fit_subject(const Module *m);
/* After pass `memory`. False: E0801 was given. */
bool fit_check(Cli *o, const Module *m);
/* The same of what programs for GPUs have in the memory of their host, if its machine says how much
   there is (fit_host.c). */
bool fit_hosts(Cli *o, const Programs *programs);

/* The class of ranks that needs the most memory. */
const Module *fit_largest(const Programs *programs);
/* Both checks, of all classes: E0801 judges the largest, and the fullest node. */
bool programs_fit(Cli *o, const Programs *programs);

const char *mesh_words(const Module *m); /* tensor = 4, data = 2 */
/* After pass `memory`: W0701 where another order of the mesh's axes keeps bytes inside of nodes
   (fit_nodes.c). */
void nodes_warn(Cli *o, const Programs *programs);
#endif
