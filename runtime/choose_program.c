/* Chooses the program of an executable that runs. Among several plans (compile --plan a,b), the
   plan for the number of launched ranks; among several targets, the one that --device names, else
   the newest that the GPU can run, else the one for CPUs; among several classes of ranks, the class
   of this rank. Must not: complain about a launch that does not fit or a missing device; the start
   of the run does, in more words. */
#include "run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const rt_program *for_cpu(const rt_program *p, int64_t ranks) {
  while (p && (p->sm || rt_mesh_ranks(p) != ranks)) p = p->next;
  return p;
}

/* The newest that a GPU of this capability can run, and of these one for it alone. */
static const rt_program *for_sm(const rt_program *p, int64_t ranks, int sm) {
  const rt_program *best = NULL;
  for (; p; p = p->next)
    if (p->sm && rt_runs_on(p, sm) && rt_mesh_ranks(p) == ranks &&
        (!best || p->sm > best->sm || (p->sm == best->sm && p->alone)))
      best = p;
  return best;
}

static const rt_program *oldest_gpu(const rt_program *p, int64_t ranks) {
  const rt_program *best = NULL;
  for (; p; p = p->next)
    if (p->sm && rt_mesh_ranks(p) == ranks && (!best || p->sm < best->sm)) best = p;
  return best;
}

/* Its compute capability; 0: there is no such GPU, or no driver. why: "" if there is none at all.
 */
static int capability(int number, const rt_program *gpu, char *why, size_t n) {
  DeviceFound device;
  Fault f = {0};
  *why = 0;
  bool there = rt_device_gpu.find(number, &device, &f);
  if (!there && device.driver && f.code != 1002) snprintf(why, n, "%s", f.what);
  if (there && !rt_runs_on(gpu, device.sm))
    snprintf(why, n, "%s has compute capability %d.%d, this executable is for %s", device.name,
             device.sm / 10, device.sm % 10, gpu->target);
  return there ? device.sm : 0;
}

/* Where no plan is for as many ranks as there are, the first is as good as any. */
static int64_t ranks_of_plan(const rt_program *first) {
  Launch l;
  Fault f = {0};
  int64_t world = rt_launch_find(&l, &f) ? l.world : 1;
  for (const rt_program *p = first; p; p = p->next)
    if (rt_mesh_ranks(p) == world) return world;
  return rt_mesh_ranks(first);
}

static const rt_program *choose(const rt_program *first, const Options *options) {
  const char *device = options->at[OPT_device].given ? options->at[OPT_device].text : NULL;
  int64_t ranks = first->next ? ranks_of_plan(first) : 0;
  const rt_program *cpu = for_cpu(first, ranks), *gpu = oldest_gpu(first, ranks), *best = first;
  bool asked = device && !strncmp(device, "gpu", 3);
  int number = asked && device[3] == ':' ? atoi(device + 4) : 0;
  char why[sizeof((Fault){0}).what];
  if (!first->next) return first;
  while (rt_mesh_ranks(best) != ranks) best = best->next;
  if (options->command == 'i' && !device) return best;
  if (cpu && (!gpu || (device && !asked))) return cpu;
  if (options->command == 'i') return gpu;
  best = for_sm(first, ranks, capability(number, gpu, why, sizeof why));
  if (best || asked || !cpu) return best ? best : gpu;
  if (*why && !options->at[OPT_quiet].given) rt_note("the GPU is not used: %s", why);
  return cpu;
}

const rt_program *rt_choose_program(const rt_program *first, const Options *options) {
  const rt_program *p = choose(first, options);
  Launch l;
  Fault f = {0};
  return rt_class_program(first, p, rt_launch_find(&l, &f) ? l.rank : 0);
}
