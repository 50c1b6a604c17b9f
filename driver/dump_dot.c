/* A module as a graph for graphviz: a box per function, a node per op, an edge per value. Kernel
   functions are single nodes of their callers, unless one is asked for by name. Edges carry the
   type of the value; loads and stores are drawn as what they are, memory. */
#include "cmd.h"
#include <stdlib.h>

typedef struct Graph {
  FILE *out;
  Module *m;
  const Fn *f;
  uint32_t number; /* of f in the module: node names are function_op */
} Graph;

/* What stands between quotes of a label. */
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

static void put_node(const Graph *g, uint32_t i, const Op *o) {
  fprintf(g->out, "    n%u_%u [shape=%s, label=\"%s", g->number, i, shape_of(o), op_name(o->code));
  if (o->global) fputs("\\n@", g->out), put_escaped(g->out, o->global->name);
  if (o->callee) fputs("\\n@", g->out), put_escaped(g->out, o->callee->name);
  Str family = o->callee ? attr_str(&o->callee->attrs, ATTR_family, NULL) : NULL;
  if (family) fputs("\\n", g->out), put_escaped(g->out, family);
  if (o->code == OP_loop)
    fprintf(g->out, "\\n%lld rounds", (long long)attr_int(&o->attrs, ATTR_trip, 1));
  fputs("\"];\n", g->out);
}

static void put_edge(const Graph *g, ValueId v, const char *to) {
  const Value *x = &g->f->values.at[v];
  if (x->def == NO_OP) fprintf(g->out, "    n%u_arg%u -> %s", g->number, x->result, to);
  else fprintf(g->out, "    n%u_%u -> %s", g->number, x->def, to);
  fputs(" [label=\"", g->out);
  put_escaped(g->out, type_text(g->m, &x->type));
  fputs("\"];\n", g->out);
}

static void put_args(const Graph *g) {
  for (uint32_t i = 0; i < g->f->args.n; i++)
    fprintf(g->out, "    n%u_arg%u [shape=ellipse, label=\"%%%u\"];\n", g->number, i, i);
}

static void put_edges(const Graph *g) {
  char to[40];
  for (uint32_t i = 0; i < g->f->ops.n; i++) {
    const Op *o = &g->f->ops.at[i];
    snprintf(to, sizeof to, "n%u_%u", g->number, i);
    for (uint32_t k = 0; k < o->nin; k++) put_edge(g, o->in[k], to);
  }
  for (uint32_t i = 0; i < g->f->results.n; i++) {
    snprintf(to, sizeof to, "n%u_result%u", g->number, i);
    fprintf(g->out, "    %s [shape=ellipse, label=\"result %u\"];\n", to, i);
    put_edge(g, g->f->results.at[i], to);
  }
}

static void put_fn(const Graph *g) {
  fprintf(g->out, "  subgraph cluster_%u {\n    label=\"@", g->number);
  put_escaped(g->out, g->f->name);
  fputs("\";\n", g->out);
  put_args(g);
  for (uint32_t i = 0; i < g->f->ops.n; i++) put_node(g, i, &g->f->ops.at[i]);
  put_edges(g);
  fputs("  }\n", g->out);
}

char *module_dot(Module *m, const Fn *only, size_t *n) {
  char *text = NULL;
  Graph g = {heap_stream(&text, n), m, NULL, 0};
  if (!g.out) bug("no memory");
  fputs("digraph \"", g.out);
  put_escaped(g.out, m->model);
  fputs("\" {\n  node [fontname=\"monospace\", fontsize=10];\n  edge [fontsize=8];\n", g.out);
  for (g.number = 0; g.number < m->fns.n; g.number++) {
    g.f = m->fns.at[g.number];
    if (only ? g.f == only : g.f->kind != FN_KERNEL) put_fn(&g);
  }
  fputs("}\n", g.out);
  fclose(g.out);
  char *copy = arena_strndup(m->arena, text, *n);
  free(text);
  return copy;
}
