/* Which of the programs of an executable runs (compile --target x86,sm_80): --device says, or what
   is there: the newest that the GPU can run, else the one for processors. Must not: complain about
   a device that is not there; its start does, in more words. */
#include "run.h"
#include "cuda.h"
#include <stdlib.h>
#include <string.h>

static const rt_program *for_cpu(const rt_program *p) {
  while (p && p->sm) p = p->next;
  return p;
}

/* The newest that a GPU of this capability can run. */
static const rt_program *for_sm(const rt_program *p, int sm) {
  const rt_program *best = NULL;
  for (; p; p = p->next)
    if (p->sm && p->sm <= sm && (!best || p->sm > best->sm)) best = p;
  return best;
}

static const rt_program *oldest_gpu(const rt_program *p) {
  const rt_program *best = NULL;
  for (; p; p = p->next)
    if (p->sm && (!best || p->sm < best->sm)) best = p;
  return best;
}

/* Its compute capability; 0: there is no such GPU, or no driver. */
static int capability(int number) {
  CudaApi a;
  CudaDevice d;
  Fault f = {0};
  return rt_cuda_load(&a, &f) && rt_cuda_device(&a, number, &d, &f) ? d.sm : 0;
}

const rt_program *rt_choose_program(const rt_program *first, const Options *o) {
  const char *device = o->at[OPT_device].given ? o->at[OPT_device].text : NULL;
  const rt_program *cpu = for_cpu(first), *gpu = oldest_gpu(first), *best;
  bool asked = device && !strncmp(device, "gpu", 3);
  int number = asked && device[3] == ':' ? atoi(device + 4) : 0;
  if (!first->next || (o->command == 'i' && !device)) return first;
  if (cpu && (!gpu || (device && !asked))) return cpu;
  if (o->command == 'i') return gpu;
  best = for_sm(first, capability(number));
  return best ? best : asked || !cpu ? gpu : cpu;
}
