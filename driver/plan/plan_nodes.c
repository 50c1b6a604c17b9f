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

/* The bytes that leave the nodes of one class. */
static void say_sends(Sheet *sheet, const NodeView *view, uint32_t class, int axis) {
  const char *name = view->planned->class[class].name;
  const NodeSends *sends = &view->traffic.from[axis][class];
  double seconds = seconds_out(view, sends->own), all = seconds_out(view, sends->all);
  bool shown = axis_crosses(view->m, &view->planned->machine, axis) && sends->all > 0,
       others = shown && sends->all > sends->own;
  sheet_open(sheet, "from[]");
  sheet_say_if(sheet, shown, "    {:-10} {own:14}{!stages}", as_text(*name ? name : "each node"),
               as_bytes(sends->own), as_text(name));
  sheet_say_if(sheet, shown && seconds > 0, " {seconds_own:12}", as_seconds(seconds));
  sheet_say_if(sheet, others, "; with other stages of its node {all:-}", as_bytes(sends->all));
  sheet_say_if(sheet, others && all > 0, ", {seconds_all}", as_seconds(all));
  sheet_say_if(sheet, shown, "\n");
  sheet_close(sheet);
}

static void say_axis(Sheet *sheet, const NodeView *view, int axis) {
  const Planned *planned = view->planned;
  int64_t joined = node_joined(view->m, axis, view->in_node, 1), cpus = planned->machine.cpus,
          sets = node_sets(view->m, axis, view->in_node);
  bool crosses = axis_crosses(view->m, &planned->machine, axis);
  sheet_open(sheet, "axes[]");
  sheet_say(sheet, "  over {axis:-8} {in_node} of {} in a node",
            as_text(view->m->mesh.at[axis].name), as_count((double)joined),
            as_count((double)view->m->mesh.at[axis].size));
  sheet_say_if(sheet, cpus > 1, ", {on_cpu} on a processor",
               as_count((double)node_joined(view->m, axis, view->in_node, cpus)));
  sheet_say_if(sheet, crosses && sets > 1, ", {sets} sets of nodes at once",
               as_count((double)sets));
  sheet_say(sheet, crosses ? "\n" : ": nothing leaves\n");
  sheet_put(sheet, "{link}{leaves}", as_text(crosses ? "inter" : "intra"),
            as_bytes(view->traffic.leaves[axis]));
  for (uint32_t p = 0; p < planned->programs.n; p++) say_sends(sheet, view, p, axis);
  sheet_close(sheet);
}

/* sent between nodes per step (512 nodes of 8 ranks)
     over tensor   8 of 8 in a node: nothing leaves
     over data     1 of 8 in a node, 64 sets of nodes at once
       first            5.31 GiB     0.0571 s
   Nothing if all ranks are on one node. */
void topic_nodes(Sheet *sheet, const Planned *planned) {
  NodeView view;
  if (!view_nodes(planned, &view)) return;
  sheet_heads(
      sheet, EVERYWHERE,
      arena_printf(planned->m->arena, "sent between nodes per step (%lld node%s of %lld ranks)",
                   (long long)view.nodes, view.nodes > 1 ? "s" : "", (long long)view.in_node));
  sheet_open(sheet, "nodes");
  sheet_put(sheet, "{count}{ranks}{leaves}", as_count((double)view.nodes),
            as_count((double)view.in_node), as_bytes(view.traffic.sum));
  for (int axis = 0; axis < (int)view.m->mesh.n; axis++) say_axis(sheet, &view, axis);
  sheet_close(sheet);
}
