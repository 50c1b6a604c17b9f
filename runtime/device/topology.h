/* The machine as the system describes it under /sys: processors by core, socket and NUMA node, and
   GPUs by NUMA node; and the processors that each of several ranks on this machine should use. For
   `shardc run` and `doctor`; executables use the processors that they are given. */
#ifndef SHARDC_RT_TOPOLOGY_H
#define SHARDC_RT_TOPOLOGY_H
#include <sched.h>
#include <stdbool.h>

typedef struct CpuPlace {      /* one hardware thread */
  int cpu, core, socket, node; /* core: the first processor of its core */
} CpuPlace;

typedef struct GpuPlace {
  char bus[16]; /* 0000:17:00.0 */
  int node;     /* -1: the system does not say */
} GpuPlace;

enum { TOPOLOGY_GPUS = 64 };

typedef struct Topology {
  int cpus, cores, sockets, nodes, gpus;
  CpuPlace cpu[CPU_SETSIZE]; /* by NUMA node, then core: threads of a core are adjacent */
  GpuPlace gpu[TOPOLOGY_GPUS];
} Topology;

/* sys: the folder to read instead of /sys; NULL: what SHARDC_SYS says, or /sys. False: there is no
   list of processors. */
bool rt_topology_read(const char *sys, Topology *to);

/* Keeps the GPUs that the driver's environment variable names, in its order; if it names them
   otherwise than by numbers, their nodes are not known. */
void rt_topology_see(Topology *topology);

/* The processors of rank `me` of n, of those in `allowed`: no two ranks share a core. With GPUs
   (rank i has the i-th, as executables take them): cores of the GPU's NUMA node, divided among its
   ranks; else consecutive cores, equally many for each rank. False: one NUMA node and one socket,
   so that all processors are equally near; fewer cores than ranks; GPUs whose node is unknown. */
bool rt_topology_share(const Topology *topology, const cpu_set_t *allowed, int me, int n, bool gpus,
                       cpu_set_t *own);

/* 0-3,8: as the system writes sets of processors. Returns text. */
const char *rt_cpus_text(const cpu_set_t *set, char *text, int size);
#endif
