/* `shardc doctor` on processors: cores, sockets, NUMA nodes, and the GPUs that are near each, as
   the system describes them (runtime/device/topology.h): by these `shardc run` places ranks. Must
   not: read anything itself. */
#include "doctor.h"
#include "runtime/device/topology.h"

static const char *counted(Arena *arena, int n, const char *what) {
  return arena_printf(arena, "%d %s%s", n, what, n == 1 ? "" : "s");
}

/* 64 in 32 cores, 2 sockets, 2 NUMA nodes */
static void add_counts(Doctor *doctor, const Topology *topology) {
  Arena *arena = doctor->arena;
  doctor_add(doctor, "processors",
             arena_printf(arena, "%d in %s, %s, %s", topology->cpus,
                          counted(arena, topology->cores, "core"),
                          counted(arena, topology->sockets, "socket"),
                          counted(arena, topology->nodes, "NUMA node")),
             NEED_NOTHING, "");
}

static const char *gpus_of(Doctor *doctor, const Topology *topology, int node) {
  const char *text = "";
  for (int i = 0; i < topology->gpus; i++)
    if (topology->gpu[i].node == node)
      text = arena_printf(doctor->arena, "%s%s%d (%s)", text, *text ? ", " : "; GPU ", i,
                          topology->gpu[i].bus);
  return text;
}

/* socket 0, processors 0-15,32-47; GPU 0 (0000:17:00.0), 1 (0000:2a:00.0) */
static void add_node(Doctor *doctor, const Topology *topology, int from) {
  int node = topology->cpu[from].node;
  cpu_set_t cpus;
  char text[1024];
  CPU_ZERO(&cpus);
  for (int i = from; i < topology->cpus && topology->cpu[i].node == node; i++)
    CPU_SET(topology->cpu[i].cpu, &cpus);
  doctor_add(doctor, arena_printf(doctor->arena, "NUMA node %d", node),
             arena_printf(doctor->arena, "socket %d, processors %s%s", topology->cpu[from].socket,
                          rt_cpus_text(&cpus, text, sizeof text), gpus_of(doctor, topology, node)),
             NEED_NOTHING, "");
}

void doctor_places(Doctor *doctor) {
  Topology *topology = ARENA_NEW(doctor->arena, Topology);
  if (!rt_topology_read(NULL, topology)) {
    doctor_add(doctor, "processors", NULL, NEED_NOTHING, "the system lists none under /sys");
    return;
  }
  add_counts(doctor, topology);
  for (int i = 0; i < topology->cpus; i++)
    if (!i || topology->cpu[i].node != topology->cpu[i - 1].node) add_node(doctor, topology, i);
  const char *lost = gpus_of(doctor, topology, -1);
  if (*lost) doctor_add(doctor, "no NUMA node", lost + 2, NEED_NOTHING, "");
}
