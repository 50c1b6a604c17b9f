/* The executable's main: one rank, one device. Reads the command line, checks that generated code
   and runtime belong together, meets the other ranks, runs a command. */
#include "runtime/device/shard_piece.h"
#include "run.h"
#include "ir/support/stack_room.h"
#include "runtime/base/file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool check_program(const rt_program *p, Fault *f) {
  if (p->abi == RT_ABI_VERSION) return true;
  return rt_fault(f, 105, "generated code has interface %d, the runtime has %d: compile again",
                  p->abi, RT_ABI_VERSION);
}

/* Sums up the command line: that of all ranks is the same, but for the number of the node. */
static uint64_t sum_of(int argc, char **argv) {
  static const char node[] = "--node-rank";
  Hash hash;
  rt_hash_start(&hash);
  for (int i = 1; i < argc; i++)
    if (!strcmp(argv[i], node)) i++;
    else if (strncmp(argv[i], node, sizeof node - 1) || argv[i][sizeof node - 1] != '=')
      rt_hash_add(&hash, argv[i], strlen(argv[i]) + 1);
  return rt_hash_end(&hash);
}

/* Output is the same on all ranks, so only rank 0 prints it. An error is printed by the rank that
   has it. */
static void be_silent(Run *r) {
  r->o.at[OPT_quiet].given = true;
  if (!freopen("/dev/null", "w", stdout)) rt_fail(403, "cannot open /dev/null");
}

static int run_command(Run *r) {
  if (r->o.command == 'i') return rt_info(r);
  rt_watch_look(&r->watch);
  return r->o.command == 't'   ? rt_train(r)
         : r->o.command == 'e' ? rt_eval(r)
         : r->o.command == 'x' ? rt_export(r)
                               : rt_sample(r);
}

/* The exit status, once all that was printed is out. */
static int written(int status) {
  if (fflush(stdout) && status == 0) rt_fail(403, "cannot write to the output");
  return status;
}

/* Every plan and target that was compiled in. */
static void print_version(const rt_program *p) {
  rt_say(stdout, "%s, compiled by %s\n", p->model, p->compiler);
  for (; p; p = p->next)
    rt_say(stdout, "  %s, %lld rank%s, program %s\n", p->target, (long long)rt_mesh_ranks(p),
           rt_mesh_ranks(p) > 1 ? "s" : "", p->hash);
}

static bool check_stack(Fault *f) {
  enum { KIB = 1024, LEAST = 1024 * KIB };
  size_t had = 0;
  if (stack_room(LEAST, &had)) return true;
  rt_fault(f, 701, "the stack is limited to %zu KiB, and %d are needed", had / KIB, LEAST / KIB);
  return rt_help(f, "`ulimit -s %d` before it starts", LEAST / KIB);
}

int main(int argc, char **argv) {
  Run run = {.p = &rt_the_program, .started = rt_now(), .lock = -1, .folder = -1}, *r = &run;
  Fault f = {0};
  const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
  if (!check_stack(&f) || !check_program(r->p, &f) || !rt_options_read(&r->o, argc, argv, &f))
    rt_die(&f);
  if (r->o.at[OPT_help].given) return rt_options_help(name, r->p->model), written(0);
  if (r->o.at[OPT_version].given) return print_version(r->p), written(0);
  r->first = r->p;
  if (!rt_start_node(r, name, &f)) rt_die(&f);
  rt_watch_start(&r->watch);
  r->p = rt_choose_program(r->p, &r->o);
  if (r->o.command != 'i' && !rt_processor_fits(r->p, &f)) rt_die(&f);
  if (!rt_override(r, &f)) rt_die(&f);
  r->comm.first = r->first, r->comm.options = sum_of(argc, argv);
  r->comm.meet = r->o.at[OPT_meet].given ? r->o.at[OPT_meet].text : NULL;
  if (r->o.command != 'i' && !rt_comm_open(&r->comm, r->p, &f)) rt_die(&f);
  r->whole = rt_whole_program(r->p);
  if (!rt_is_first(r)) be_silent(r);
  int status = run_command(r);
  rt_data_close(&r->data); /* before the device, for whose tensors it may be reading */
  if (r->device.kind) rt_device_stop(&r->device);
  rt_comm_close(&r->comm);
  exit(written(status)); /* not return: the thread that waits for signals looks at `run` */
}
