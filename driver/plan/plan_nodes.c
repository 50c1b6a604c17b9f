/* Part of `shardc plan`: how the axes of the mesh map to the nodes of the machine, and the bytes of
   a step that leave a node (ir/cost/nodes.h). Groups of ranks over an axis that are on disjoint
   sets of nodes send at the same time: these sets share the traffic that one set would carry alone
   (the bandwidth amplification of 3D parallelism, DeepSpeed 2020, where each stage has data
   parallel groups of its own). The ranks of a node share its link: those of one stage always, those
   of several stages if their gradients are ready at the same time; both are reported. Must not:
   count traffic inside of a node. */
#include "plan_report.h"
#include "ir/cost/nodes.h"
#include "ir/shape/placement.h"

typedef struct NodeView {
  const Planned *planned;
  const Module *m;
  int64_t in_node, nodes;
  NodeTraffic traffic;
} NodeView;

/* False: there is one node of one processor, or no machine. */
static bool view_nodes(const Planned *planned, NodeView *view) {
  const Module *m = planned->programs.at[0];
  int64_t in_node = planned->machine.in_node, ranks = mesh_ranks(m);
  if (in_node <= 0 || ranks < 2 || (ranks <= in_node && planned->machine.cpus < 2)) return false;
  *view = (NodeView){.planned = planned, .m = m, .in_node = in_node};
  view->nodes = (ranks + in_node - 1) / in_node;
  view->traffic = node_traffic(planned->programs.at, planned->programs.n, in_node);
  return true;
}

static double seconds_out(const NodeView *view, double bytes) {
  double rate = view->planned->machine.inter;
  return rate > 0 ? bytes / rate : 0;
}

/* ---- text ---- */

static void say_sends(const NodeView *view, const char *class, const NodeSends *sends) {
  Arena *arena = view->planned->m->arena;
  double seconds = seconds_out(view, sends->own), all = seconds_out(view, sends->all);
  printf("    %-10s %14s", *class ? class : "each node", arena_amount(arena, sends->own));
  if (seconds > 0) printf(" %10.3g s", seconds);
  if (sends->all > sends->own) {
    printf("; with other stages of its node %s", arena_amount(arena, sends->all));
    if (all > 0) printf(", %.3g s", all);
  }
  printf("\n");
}

static void say_axis(const NodeView *view, int axis) {
  const Planned *planned = view->planned;
  int64_t joined = node_joined(view->m, axis, view->in_node, 1), cpus = planned->machine.cpus,
          sets = node_sets(view->m, axis, view->in_node);
  bool crosses = axis_crosses(view->m, &planned->machine, axis);
  printf("  over %-8s %lld of %lld in a node", view->m->mesh.at[axis].name, (long long)joined,
         (long long)view->m->mesh.at[axis].size);
  if (cpus > 1)
    printf(", %lld on a processor", (long long)node_joined(view->m, axis, view->in_node, cpus));
  if (crosses && sets > 1) printf(", %lld sets of nodes at once", (long long)sets);
  printf(crosses ? "\n" : ": nothing leaves\n");
  for (uint32_t p = 0; crosses && p < planned->programs.n; p++)
    if (view->traffic.from[axis][p].all > 0)
      say_sends(view, planned->class[p].name, &view->traffic.from[axis][p]);
}

/* out of a node in a step (512 nodes of 8 ranks)
     over tensor   8 of 8 in a node: nothing leaves
     over data     1 of 8 in a node, 64 sets of nodes at once
       first            5.31 GiB     0.0571 s */
void plan_say_nodes(const Planned *planned) {
  NodeView view;
  if (!view_nodes(planned, &view)) return;
  printf("out of a node in a step (%lld node%s of %lld ranks)\n", (long long)view.nodes,
         view.nodes > 1 ? "s" : "", (long long)view.in_node);
  for (int axis = 0; axis < (int)view.m->mesh.n; axis++) say_axis(&view, axis);
}

/* ---- the page ---- */

static void put_html_count(FILE *file, const NodeView *view, int64_t n) {
  plan_html_number(file, arena_printf(view->planned->m->arena, "%lld", (long long)n));
}

static void put_html_sends(FILE *file, const NodeView *view, double bytes) {
  Arena *arena = view->planned->m->arena;
  double seconds = seconds_out(view, bytes);
  plan_html_number(file, bytes > 0 ? arena_amount(arena, bytes) : "");
  plan_html_number(file, seconds > 0 ? arena_printf(arena, "%.3g s", seconds) : "");
}

static void put_html_axis(FILE *file, const NodeView *view, int axis) {
  const Planned *planned = view->planned;
  bool crosses = axis_crosses(view->m, &planned->machine, axis);
  for (uint32_t p = 0; p < (crosses ? planned->programs.n : 1); p++) {
    const NodeSends *sends = &view->traffic.from[axis][p];
    const char *class = planned->class[p].name;
    if (crosses && sends->all <= 0) continue;
    fprintf(file, "<tr><td>%s</td>", view->m->mesh.at[axis].name);
    put_html_count(file, view, view->m->mesh.at[axis].size);
    put_html_count(file, view, node_joined(view->m, axis, view->in_node, 1));
    if (planned->machine.cpus > 1)
      put_html_count(file, view, node_joined(view->m, axis, view->in_node, planned->machine.cpus));
    put_html_count(file, view, crosses ? node_sets(view->m, axis, view->in_node) : 0);
    fprintf(file, "<td>%s</td>", !crosses ? "nothing leaves" : *class ? class : "each node");
    put_html_sends(file, view, crosses ? sends->own : 0);
    put_html_sends(file, view, crosses && sends->all > sends->own ? sends->all : 0);
    fputs("</tr>\n", file);
  }
}

void plan_html_nodes(FILE *file, const Planned *planned) {
  NodeView view;
  if (!view_nodes(planned, &view)) return;
  fprintf(file, "<h3>What leaves a node in a step</h3>\n<p>%lld node%s of %lld ranks.</p>\n",
          (long long)view.nodes, view.nodes > 1 ? "s" : "", (long long)view.in_node);
  plan_html_heads(file, arena_printf(planned->m->arena,
                                     "over #ranks #in_a_node %s#sets_at_once from #bytes #seconds "
                                     "#with_other_stages_of_it #seconds",
                                     planned->machine.cpus > 1 ? "#on_a_processor " : ""));
  for (int axis = 0; axis < (int)view.m->mesh.n; axis++) put_html_axis(file, &view, axis);
  fputs("</table>\n", file);
}

/* ---- JSON ---- */

static void put_sends(const NodeView *view, uint32_t p, const NodeSends *sends) {
  printf("%s{\"stages\":\"%s\",\"own\":%.17g,\"all\":%.17g,\"seconds_own\":%.6g,"
         "\"seconds_all\":%.6g}",
         p ? "," : "", view->planned->class[p].name, sends->own, sends->all,
         seconds_out(view, sends->own), seconds_out(view, sends->all));
}

static void put_axis(const NodeView *view, int axis) {
  const Planned *planned = view->planned;
  bool crosses = axis_crosses(view->m, &planned->machine, axis);
  printf("%s{\"axis\":\"%s\",\"in_node\":%lld,\"on_cpu\":%lld,\"link\":\"%s\",\"sets\":%lld,"
         "\"leaves\":%.17g,"
         "\"from\":[",
         axis ? "," : "", view->m->mesh.at[axis].name,
         (long long)node_joined(view->m, axis, view->in_node, 1),
         (long long)node_joined(view->m, axis, view->in_node, planned->machine.cpus),
         crosses ? "inter" : "intra", (long long)node_sets(view->m, axis, view->in_node),
         view->traffic.leaves[axis]);
  for (uint32_t p = 0; p < planned->programs.n; p++)
    put_sends(view, p, &view->traffic.from[axis][p]);
  printf("]}");
}

void plan_put_nodes(const Planned *planned) {
  NodeView view;
  if (!view_nodes(planned, &view)) return;
  printf("\"nodes\":{\"count\":%lld,\"ranks\":%lld,\"leaves\":%.17g,\"axes\":[",
         (long long)view.nodes, (long long)view.in_node, view.traffic.sum);
  for (int axis = 0; axis < (int)view.m->mesh.n; axis++) put_axis(&view, axis);
  printf("]},");
}
