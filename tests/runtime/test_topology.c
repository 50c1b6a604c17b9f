/* Machines described in folders like /sys: what is read is what was written; ranks get cores of
   their own, as many as others of their node, near their GPU. 60 random ones, and some by hand. */
#include "runtime/device/topology.h"
#include "folder.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

enum { MACHINES = 60 };

typedef struct Box { /* threads of a core have numbers as far apart as there are cores */
  int sockets, nodes, cores, threads, gpus; /* nodes of a socket, cores of a node, threads of one */
  int gpu_node[8];
} Box;

static char folder[300];
static uint64_t seed = 20;

static int draw(int n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (int)((seed >> 33) % (uint64_t)n);
}

/* The next one in the group's folder. */
static void new_folder(void **state) {
  static int n;
  snprintf(folder, sizeof folder, "%s/%d", (char *)*state, n++);
  mkdir(folder, 0700);
}

static void put(const char *text, const char *format, ...) {
  char path[600];
  va_list args;
  int n = snprintf(path, sizeof path, "%s/", folder);
  va_start(args, format);
  vsnprintf(path + n, sizeof path - (size_t)n, format, args);
  va_end(args);
  for (char *at = path + n; (at = strchr(at, '/')); *at++ = '/') *at = 0, mkdir(path, 0700);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fprintf(file, "%s\n", text);
  fclose(file);
}

static const char *number(int i) {
  static char text[4][16];
  static int at;
  char *to = text[at++ % 4];
  snprintf(to, sizeof text[0], "%d", i);
  return to;
}

static int all_cores(const Box *box) { return box->sockets * box->nodes * box->cores; }

/* All threads of cores [from, to). */
static const char *threads_of(const Box *box, int from, int to) {
  static char text[512];
  int n = 0;
  for (int t = 0; t < box->threads; t++)
    n += snprintf(text + n, sizeof text - (size_t)n, "%s%d-%d", t ? "," : "",
                  from + t * all_cores(box), to - 1 + t * all_cores(box));
  return text;
}

static void describe(const Box *box) {
  int cores = all_cores(box);
  put(threads_of(box, 0, cores), "devices/system/cpu/online");
  for (int i = 0; i < cores * box->threads; i++) {
    int core = i % cores;
    put(threads_of(box, core, core + 1), "devices/system/cpu/cpu%d/topology/thread_siblings_list",
        i);
    put(number(core / box->cores / box->nodes),
        "devices/system/cpu/cpu%d/topology/physical_package_id", i);
  }
  char online[16];
  snprintf(online, sizeof online, "0-%d", box->sockets * box->nodes - 1);
  put(online, "devices/system/node/online");
  for (int node = 0; node < box->sockets * box->nodes; node++)
    put(threads_of(box, node * box->cores, (node + 1) * box->cores),
        "devices/system/node/node%d/cpulist", node);
  for (int i = 0; i < box->gpus; i++) {
    put("0x10de", "bus/pci/devices/0000:%02x:00.0/vendor", 16 + i);
    put("0x030200", "bus/pci/devices/0000:%02x:00.0/class", 16 + i);
    put(number(box->gpu_node[i]), "bus/pci/devices/0000:%02x:00.0/numa_node", 16 + i);
  }
  put("0x8086", "bus/pci/devices/0000:00:02.0/vendor"); /* neither of these is one of its GPUs */
  put("0x030000", "bus/pci/devices/0000:00:02.0/class");
  put("0x10de", "bus/pci/devices/0000:01:00.1/vendor");
  put("0x040300", "bus/pci/devices/0000:01:00.1/class");
}

static void check_read(const Box *box, const Topology *t) {
  assert_int_equal(t->cpus, all_cores(box) * box->threads);
  assert_int_equal(t->cores, all_cores(box));
  assert_int_equal(t->sockets, box->sockets);
  assert_int_equal(t->nodes, box->sockets * box->nodes);
  assert_int_equal(t->gpus, box->gpus);
  for (int i = 0; i < t->cpus; i++) {
    const CpuPlace *place = &t->cpu[i];
    int core = place->cpu % all_cores(box);
    assert_int_equal(place->core, core);
    assert_int_equal(place->node, core / box->cores);
    assert_int_equal(place->socket, core / box->cores / box->nodes);
  }
  for (int i = 0; i < t->gpus; i++) assert_int_equal(t->gpu[i].node, box->gpu_node[i]);
}

static int cores_in(const Box *box, const cpu_set_t *set, int node) {
  int n = 0;
  for (int core = 0; core < all_cores(box); core++)
    n += CPU_ISSET(core, set) && (node < 0 || core / box->cores == node);
  return n;
}

/* With whole cores allowed at random. */
static void check_share(const Box *box, const Topology *t, int ranks, bool gpus) {
  cpu_set_t allowed, own, taken;
  CPU_ZERO(&allowed);
  CPU_ZERO(&taken);
  bool some = draw(2);
  for (int core = 0; core < all_cores(box); core++)
    for (int k = 0, in = !some || draw(4); in && k < box->threads; k++)
      CPU_SET(core + k * all_cores(box), &allowed);
  int least = 1 << 20, most = 0, on[8] = {0};
  for (int i = 0; gpus && i < ranks; i++) on[box->gpu_node[i % box->gpus]]++;
  for (int i = 0; i < ranks; i++) {
    int node = gpus ? box->gpu_node[i % box->gpus] : -1;
    bool room = cores_in(box, &allowed, node) >= (gpus ? on[node] : ranks);
    bool good = rt_topology_share(t, &allowed, i, ranks, gpus, &own);
    assert_int_equal(good, room && (t->nodes > 1 || t->sockets > 1));
    if (!good) return;
    int cores = cores_in(box, &own, node);
    assert_int_equal(cores, cores_in(box, &own, -1));        /* near the GPU */
    assert_int_equal(CPU_COUNT(&own), cores * box->threads); /* whole cores */
    assert_true(cores > 0);
    for (int c = 0; c < CPU_SETSIZE; c++)
      if (CPU_ISSET(c, &own)) assert_true(CPU_ISSET(c, &allowed) && !CPU_ISSET(c, &taken));
    CPU_OR(&taken, &taken, &own);
    if (cores < least) least = cores;
    if (cores > most) most = cores;
  }
  if (gpus) return;
  assert_true(most - least <= 1);
  assert_int_equal(CPU_COUNT(&taken), CPU_COUNT(&allowed)); /* none is left */
}

static void test_random(void **state) {
  static Topology t;
  for (int i = 0; i < MACHINES; i++) {
    new_folder(state);
    Box box = {1 + draw(2), 1 + draw(3), 1 + draw(5), 1 + draw(2), draw(5), {0}};
    for (int k = 0; k < box.gpus; k++) box.gpu_node[k] = draw(box.sockets * box.nodes);
    describe(&box);
    assert_true(rt_topology_read(folder, &t));
    check_read(&box, &t);
    for (int ranks = 1; ranks < 8; ranks++) check_share(&box, &t, ranks, false);
    for (int ranks = 1; box.gpus && ranks < 8; ranks++) check_share(&box, &t, ranks, true);
  }
}

/* Containers show little of it. */
static void test_little(void **state) {
  static Topology t;
  cpu_set_t all, own;
  memset(&all, 255, sizeof all);
  new_folder(state);
  assert_false(rt_topology_read(folder, &t));
  put("0-2,5", "devices/system/cpu/online");
  assert_true(rt_topology_read(folder, &t));
  assert_int_equal(t.cpus, 4);
  assert_int_equal(t.cores, 4);
  assert_int_equal(t.nodes * t.sockets, 1);
  assert_false(rt_topology_share(&t, &all, 0, 2, false, &own));
}

/* The first GPU of CUDA is not the first one of the machine. */
static void test_visible(void **state) {
  static Topology t;
  Box box = {2, 1, 2, 1, 3, {0, 0, 1}};
  cpu_set_t all, own;
  char text[64];
  memset(&all, 255, sizeof all);
  new_folder(state);
  describe(&box);
  setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
  assert_true(rt_topology_read(folder, &t));
  rt_topology_see(&t);
  assert_int_equal(t.gpus, 2);
  assert_true(rt_topology_share(&t, &all, 0, 2, true, &own));
  assert_string_equal(rt_cpus_text(&own, text, sizeof text), "2-3");
  assert_true(rt_topology_share(&t, &all, 1, 2, true, &own));
  assert_string_equal(rt_cpus_text(&own, text, sizeof text), "0-1");
  setenv("CUDA_VISIBLE_DEVICES", "GPU-8d0a", 1);
  assert_true(rt_topology_read(folder, &t));
  rt_topology_see(&t);
  assert_false(rt_topology_share(&t, &all, 0, 1, true, &own));
  unsetenv("CUDA_VISIBLE_DEVICES");
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_random), cmocka_unit_test(test_little),
                                     cmocka_unit_test(test_visible)};
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
