/* The GPUs that the user lets a program use, as the driver takes them: see topology.h. Does not
   load the driver. */
#include "runtime/device/topology.h"
#include <stdlib.h>
#include <string.h>

void rt_topology_see(Topology *topology) {
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  Topology all = *topology;
  if (!text || !*text) return;
  for (topology->gpus = 0; *text && topology->gpus < TOPOLOGY_GPUS;) {
    char *end;
    long i = strtol(text, &end, 10);
    bool known = end != text && (!*end || *end == ',') && i >= 0 && i < all.gpus;
    topology->gpu[topology->gpus++] = known ? all.gpu[i] : (GpuPlace){"", -1};
    text += strcspn(text, ","), text += *text == ',';
  }
}
