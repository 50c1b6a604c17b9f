/* A module as a graph for graphviz: a box per function, a node per op, an edge per value. Kernel
   functions are single nodes of their callers, unless one is asked for by name. Edges carry the
   type of the value; loads and stores are drawn as what they are, memory. */
#include "driver/cmd.h"
#include <stdlib.h>

typedef struct Graph {
  FILE *out;
  Module *m;
  const Fn *f;
  uint32_t number; /* of f in the module: node names are function_op */
} Graph;

/* Writes the text between the quotes of a label. */
static void put_escaped(FILE *out, const char *s) {
  for (; *s; s++) {
    if (*s == '"' || *s == '\\') putc('\\', out);
    putc(*s, out);
  }
}

static const char *shape_of(const Op *o) {
  if (o->code == OP_load || o->code == OP_store) return "cylinder";
  if (o->code == OP_loop || o->code == OP_call) return "box3d";
  return o->callee ? "component" : "box";
}

static void put_node(const Graph *graph, uint32_t i, const Op *o) {
  fprintf(graph->out, "    n%u_%u [shape=%s, label=\"%s", graph->number, i, shape_of(o),
          op_name(o->code));
  if (o->global) fputs("\\n@", graph->out), put_escaped(graph->out, o->global->name);
  if (o->callee) fputs("\\n@", graph->out), put_escaped(graph->out, o->callee->name);
  Str family = o->callee ? attr_str(&o->callee->attrs, ATTR_family, NULL) : NULL;
  if (family) fputs("\\n", graph->out), put_escaped(graph->out, family);
  if (o->code == OP_loop)
    fprintf(graph->out, "\\n%lld rounds", (long long)attr_int(&o->attrs, ATTR_trip, 1));
  fputs("\"];\n", graph->out);
}

static void put_edge(const Graph *graph, ValueId v, const char *to) {
  const Value *x = &graph->f->values.at[v];
  if (x->def == NO_OP) fprintf(graph->out, "    n%u_arg%u -> %s", graph->number, x->result, to);
  else fprintf(graph->out, "    n%u_%u -> %s", graph->number, x->def, to);
  fputs(" [label=\"", graph->out);
  put_escaped(graph->out, type_text(graph->m, &x->type));
  fputs("\"];\n", graph->out);
}

static void put_args(const Graph *graph) {
  for (uint32_t i = 0; i < graph->f->args.n; i++)
    fprintf(graph->out, "    n%u_arg%u [shape=ellipse, label=\"%%%u\"];\n", graph->number, i, i);
}

static void put_edges(const Graph *graph) {
  char to[40];
  for (uint32_t i = 0; i < graph->f->ops.n; i++) {
    const Op *o = &graph->f->ops.at[i];
    snprintf(to, sizeof to, "n%u_%u", graph->number, i);
    for (uint32_t k = 0; k < o->nin; k++) put_edge(graph, o->in[k], to);
  }
  for (uint32_t i = 0; i < graph->f->results.n; i++) {
    snprintf(to, sizeof to, "n%u_result%u", graph->number, i);
    fprintf(graph->out, "    %s [shape=ellipse, label=\"result %u\"];\n", to, i);
    put_edge(graph, graph->f->results.at[i], to);
  }
}

static void put_fn(const Graph *graph) {
  fprintf(graph->out, "  subgraph cluster_%u {\n    label=\"@", graph->number);
  put_escaped(graph->out, graph->f->name);
  fputs("\";\n", graph->out);
  put_args(graph);
  for (uint32_t i = 0; i < graph->f->ops.n; i++) put_node(graph, i, &graph->f->ops.at[i]);
  put_edges(graph);
  fputs("  }\n", graph->out);
}

char *module_dot(Module *m, const Fn *only, size_t *n) {
  char *text = NULL;
  Graph graph = {heap_stream(&text, n), m, NULL, 0};
  if (!graph.out) bug("no memory");
  fputs("digraph \"", graph.out);
  put_escaped(graph.out, m->model);
  fputs("\" {\n  node [fontname=\"monospace\", fontsize=10];\n  edge [fontsize=8];\n", graph.out);
  for (graph.number = 0; graph.number < m->fns.n; graph.number++) {
    graph.f = m->fns.at[graph.number];
    if (only ? graph.f == only : graph.f->kind != FN_KERNEL) put_fn(&graph);
  }
  fputs("}\n", graph.out);
  fclose(graph.out);
  char *copy = arena_strndup(m->arena, text, *n);
  free(text);
  return copy;
}
