/* The machine as /sys describes it (topology.h). Not by hwloc, because the kernel's files have all
   the needed facts, every Linux has them, and nothing has to be installed. Containers show only
   parts of these files: missing facts are taken as one socket and one NUMA node. Must not: change
   anything. */
#include "topology.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static bool first_line(char *line, int size, const char *sys, const char *path) {
  char name[512];
  snprintf(name, sizeof name, "%s/%s", sys, path);
  FILE *file = fopen(name, "r");
  bool good = file && fgets(line, size, file);
  if (file) fclose(file);
  if (good) line[strcspn(line, "\n")] = 0;
  return good;
}

static int number(const char *sys, const char *path, int otherwise) {
  char line[64];
  return first_line(line, sizeof line, sys, path) ? (int)strtol(line, NULL, 0) : otherwise;
}

/* 0-3,8 */
static void parse_list(const char *text, cpu_set_t *set) {
  CPU_ZERO(set);
  while (*text >= '0' && *text <= '9') {
    char *end;
    long first = strtol(text, &end, 10), last = first;
    if (*end == '-') last = strtol(end + 1, &end, 10);
    for (long i = first; i <= last && i < CPU_SETSIZE; i++) CPU_SET((int)i, set);
    text = end + (*end == ',');
  }
}

static bool read_list(const char *sys, const char *path, cpu_set_t *set) {
  char line[4096];
  CPU_ZERO(set);
  if (!first_line(line, sizeof line, sys, path)) return false;
  parse_list(line, set);
  return true;
}

static int least(const cpu_set_t *set) {
  for (int i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, set)) return i;
  return -1;
}

static void read_cpu(const char *sys, int i, CpuPlace *to) {
  char path[128];
  cpu_set_t siblings;
  snprintf(path, sizeof path, "devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
  int core = read_list(sys, path, &siblings) ? least(&siblings) : i;
  snprintf(path, sizeof path, "devices/system/cpu/cpu%d/topology/physical_package_id", i);
  int socket = number(sys, path, 0);
  *to = (CpuPlace){i, core < 0 ? i : core, socket < 0 ? 0 : socket, 0};
}

static void read_nodes(const char *sys, Topology *to) {
  cpu_set_t online, cpus;
  char path[128];
  if (!read_list(sys, "devices/system/node/online", &online)) return;
  for (int node = 0; node < CPU_SETSIZE; node++) {
    snprintf(path, sizeof path, "devices/system/node/node%d/cpulist", node);
    if (!CPU_ISSET(node, &online) || !read_list(sys, path, &cpus)) continue;
    for (int i = 0; i < to->cpus; i++)
      if (CPU_ISSET(to->cpu[i].cpu, &cpus)) to->cpu[i].node = node;
  }
}

static int by_place(const void *a, const void *b) {
  const CpuPlace *x = a, *y = b;
  int keys[] = {x->node - y->node, x->socket - y->socket, x->core - y->core, x->cpu - y->cpu};
  for (int i = 0; i < 4; i++)
    if (keys[i]) return keys[i];
  return 0;
}

static int by_bus(const void *a, const void *b) {
  return strcmp(((const GpuPlace *)a)->bus, ((const GpuPlace *)b)->bus);
}

/* Display controllers of NVIDIA, in the order of their addresses, in which the driver numbers GPUs
   of one kind. */
static void read_gpus(const char *sys, Topology *to) {
  char name[512], path[128];
  snprintf(name, sizeof name, "%s/bus/pci/devices", sys);
  DIR *folder = opendir(name);
  for (struct dirent *entry; folder && to->gpus < TOPOLOGY_GPUS && (entry = readdir(folder));) {
    if (strlen(entry->d_name) >= sizeof to->gpu->bus || *entry->d_name == '.') continue;
    snprintf(path, sizeof path, "bus/pci/devices/%.15s/vendor", entry->d_name);
    if (number(sys, path, 0) != 0x10de) continue;
    snprintf(path, sizeof path, "bus/pci/devices/%.15s/class", entry->d_name);
    if (number(sys, path, 0) >> 16 != 3) continue;
    GpuPlace *gpu = &to->gpu[to->gpus++];
    snprintf(path, sizeof path, "bus/pci/devices/%.15s/numa_node", entry->d_name);
    gpu->node = number(sys, path, -1);
    snprintf(gpu->bus, sizeof gpu->bus, "%.15s", entry->d_name);
  }
  if (folder) closedir(folder);
  qsort(to->gpu, (size_t)to->gpus, sizeof *to->gpu, by_bus);
}

/* Counts cores, sockets and nodes: is processor i the first one of its core, its socket, its
   node? */
static void count_places(Topology *to) {
  for (int i = 0; i < to->cpus; i++) {
    bool core = true, socket = true, node = true;
    for (int k = 0; k < i; k++) {
      core &= to->cpu[k].core != to->cpu[i].core;
      socket &= to->cpu[k].socket != to->cpu[i].socket;
      node &= to->cpu[k].node != to->cpu[i].node;
    }
    to->cores += core, to->sockets += socket, to->nodes += node;
  }
}

bool rt_topology_read(const char *sys, Topology *to) {
  cpu_set_t online;
  const char *said = getenv("SHARDC_SYS");
  if (!sys) sys = said && *said ? said : "/sys";
  *to = (Topology){0};
  if (!read_list(sys, "devices/system/cpu/online", &online)) return false;
  for (int i = 0; i < CPU_SETSIZE; i++)
    if (CPU_ISSET(i, &online)) read_cpu(sys, i, &to->cpu[to->cpus++]);
  read_nodes(sys, to);
  read_gpus(sys, to);
  qsort(to->cpu, (size_t)to->cpus, sizeof *to->cpu, by_place);
  count_places(to);
  return to->cpus > 0;
}

/* ---- sharing ---- */

/* Cores of the node (-1: of all) of which a processor is allowed, numbered: `from` to `end` - 1 go
   to the set, with their threads. NULL: they are counted only. */
static int cores_of(const Topology *topology, const cpu_set_t *allowed, int node, int from, int end,
                    cpu_set_t *own) {
  int cores = 0, last = -1;
  for (int i = 0; i < topology->cpus; i++) {
    const CpuPlace *place = &topology->cpu[i];
    if (!CPU_ISSET(place->cpu, allowed) || (node >= 0 && place->node != node)) continue;
    if (place->core != last) cores++, last = place->core;
    if (own && cores - 1 >= from && cores - 1 < end) CPU_SET(place->cpu, own);
  }
  return cores;
}

/* Part `me` of n of the node's cores. */
static bool part_of(const Topology *topology, const cpu_set_t *allowed, int node, int me, int n,
                    cpu_set_t *own) {
  int cores = cores_of(topology, allowed, node, 0, 0, NULL);
  CPU_ZERO(own);
  if (cores < n) return false;
  cores_of(topology, allowed, node, me * cores / n, (me + 1) * cores / n, own);
  return true;
}

static bool near_gpu(const Topology *topology, const cpu_set_t *allowed, int me, int n,
                     cpu_set_t *own) {
  int node = topology->gpu[me % topology->gpus].node, before = 0, all = 0;
  for (int i = 0; i < n; i++) {
    bool here = topology->gpu[i % topology->gpus].node == node;
    all += here, before += here && i < me;
  }
  return node >= 0 && part_of(topology, allowed, node, before, all, own);
}

bool rt_topology_share(const Topology *topology, const cpu_set_t *allowed, int me, int n, bool gpus,
                       cpu_set_t *own) {
  if (topology->nodes < 2 && topology->sockets < 2) return false;
  if (gpus && topology->gpus) return near_gpu(topology, allowed, me, n, own);
  return part_of(topology, allowed, -1, me, n, own);
}

const char *rt_cpus_text(const cpu_set_t *set, char *text, int size) {
  int n = 0;
  *text = 0;
  for (int i = 0, last; i < CPU_SETSIZE && n < size; i = last + 1) {
    last = i;
    if (!CPU_ISSET(i, set)) continue;
    while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set)) last++;
    n += snprintf(text + n, (size_t)(size - n), last > i ? "%s%d-%d" : "%s%d", n ? "," : "", i,
                  last);
  }
  return text;
}
