/* `shardc compile`: the road from a file to an executable, or a part of it. */
#include "ir/placement.h"
#include "cmd.h"
#include "codegen/codegen.h"
#include "frontend/ast.h"
#include "frontend/fit.h"
#include "frontend/lower.h"
#include "passes/pass.h"
#include <stdlib.h>
#include <time.h>

typedef enum EmitKind {
  EMIT_AST,
  EMIT_IR,
  EMIT_C,
  EMIT_LLVM,
  EMIT_ASM,
  EMIT_EXE,
  EMIT_COUNT
} EmitKind;
static const char *const emit_names[] = {"ast", "ir", "c", "llvm", "asm", "exe"};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- where the result goes ---- */

/* gpt2 for dir/gpt2.shard */
static const char *base_name(Cli *o) {
  const char *path = o->operands.at[0], *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');
  return arena_strndup(o->c->arena, name, dot && dot != name ? (size_t)(dot - name) : strlen(name));
}

static Exit find_emit(const Cli *o, EmitKind *kind) {
  const char *text = o->value[OPT_EMIT] ? o->value[OPT_EMIT] : "exe";
  for (*kind = 0; *kind < EMIT_COUNT; (*kind)++)
    if (!strcmp(text, emit_names[*kind])) return EXIT_FINE;
  const char *near = diag_nearest(text, emit_names, EMIT_COUNT);
  if (near) return cli_usage("nothing to emit called `%s`; did you mean `%s`?", text, near);
  return cli_usage("nothing to emit called `%s`; one of ast, ir, c, llvm, asm, exe", text);
}

static const char *output_of(Cli *o, EmitKind kind) {
  if (o->value[OPT_OUTPUT]) return o->value[OPT_OUTPUT];
  return kind == EMIT_EXE ? base_name(o) : "-";
}

/* ---- --emit=ast ---- */

static Exit emit_ast(Cli *o, const char *output) {
  size_t n, length = 0;
  char *text = file_read(o->c, o->operands.at[0], &n), *printed = NULL;
  if (!text) return report(o, EXIT_ENVIRONMENT);
  AstFile *f = ast_parse(o->c, o->operands.at[0], text, n);
  FILE *out = f ? open_memstream(&printed, &length) : NULL;
  if (!out) return report(o, EXIT_ENVIRONMENT);
  ast_print(o->c, f, out);
  fclose(out);
  Exit e = write_text(o->c, output, printed, length);
  free(printed);
  return report(o, e);
}

/* ---- the road ---- */

typedef struct Targets { /* of one executable */
  Strings name;
  const char *folder; /* of their objects; NULL: there is only one */
} Targets;

static Exit build(Cli *o, Module *m, EmitKind kind, const char *output, int part, int parts) {
  BuildOptions b = {.output = output,
                    .keep_dir = o->value[OPT_KEEP],
                    .verbose = o->value[OPT_VERBOSE] != NULL,
                    .part = part,
                    .parts = parts};
  double start = now();
  b.emit = kind == EMIT_EXE ? NULL : emit_names[kind];
  b.jobs =
      o->value[OPT_JOBS] ? atoi(o->value[OPT_JOBS]) : (int)module_number(m, "target.workers", 1);
  if (b.jobs < 1) return cli_usage("`--jobs` wants a whole number of at least 1");
  if (b.keep_dir && !make_folder(o->c, b.keep_dir)) return EXIT_ENVIRONMENT;
  if (b.keep_dir && parts > 1) {
    b.keep_dir =
        arena_printf(o->c->arena, "%s/%s", b.keep_dir, module_setting(m, "target.name", ""));
    if (!make_folder(o->c, b.keep_dir)) return EXIT_ENVIRONMENT;
  }
  bool good = codegen_build(m, &b);
  if (o->value[OPT_TIMINGS]) fprintf(stderr, "%8.1f ms  codegen\n", 1e3 * (now() - start));
  if (!good && !diag_errors(o->c->diag)) return EXIT_ENVIRONMENT;
  return good ? EXIT_FINE : EXIT_INPUT;
}

/* ---- the one line that a good compile says ---- */

/* A flat global or a copy, not a parameter of the model. */
static bool is_layout(const Module *m, const Global *g) {
  bool flat = g->derived;
  for (uint32_t i = 0; i < m->globals.n && !flat; i++) flat = m->globals.at[i]->within == g;
  return flat;
}

static int64_t logical_count(const Module *m, const Global *g) {
  int64_t n = type_count(&g->type);
  for (int i = 0; i < g->type.rank; i++) n *= placement_ways(m, &g->placed, g->type.axis[i].dim);
  return n;
}

static int64_t stored_bytes(const Module *m, bool parameters, int64_t *count) {
  int64_t bytes = 0;
  *count = 0;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    bool wanted = g->kind == GLOBAL_PARAM || (!parameters && g->kind == GLOBAL_STATE);
    if (!wanted) continue;
    if (g->kind == GLOBAL_PARAM && !is_layout(m, g)) *count += logical_count(m, g);
    if (!g->within) bytes += type_count(&g->type) * elem_bytes(g->type.elem);
  }
  return bytes;
}

static const char *scaled(Ctx *c, double value, double step, const char *const *units) {
  int unit = 0;
  while (value >= step && units[unit + 1]) value /= step, unit++;
  return arena_printf(c->arena, unit ? "%.1f%s" : "%.0f%s", value, units[unit]);
}

static void say_done(const Cli *o, const Module *m, const char *output, double seconds) {
  static const char *const numbers[] = {"", "k", "M", "G", "T", NULL};
  static const char *const sizes[] = {" B", " KiB", " MiB", " GiB", " TiB", NULL};
  int64_t count;
  double bytes = (double)stored_bytes(m, false, &count);
  uint32_t kernels = 0, tuned = 0;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    kernels += m->fns.at[i]->kind == FN_KERNEL;
    tuned += attr_get(&m->fns.at[i]->attrs, ATTR_tuned) != NULL;
  }
  if (o->value[OPT_QUIET] || o->format == DIAG_JSON) return;
  long long ranks = (long long)mesh_ranks(m);
  const char *each = ranks > 1 ? " each" : "";
  fprintf(stderr,
          "%s: %s parameters, %lld rank%s, %s of weights and states%s, %u kernels%s, %.1f s\n",
          output, scaled(o->c, (double)count, 1000, numbers), ranks, ranks > 1 ? "s" : "",
          scaled(o->c, bytes, 1024, sizes), each, kernels,
          tuned ? arena_printf(o->c->arena, " (%u tuned)", tuned) : "", seconds);
  for (uint32_t i = 0; i < m->settings.n; i++)
    if (!strncmp(m->settings.at[i].key, "made.recompute.", 15))
      fprintf(stderr, "  recompute: %s\n", m->settings.at[i].value);
}

/* How ranks talk is no matter of the model: what one rank computes stays the same. */
static Exit set_communicator(const Cli *o, Module *m) {
  const char *name = o->value[OPT_COMM];
  if (!name) return EXIT_FINE;
  if (strcmp(name, "local") && strcmp(name, "mpi") && strcmp(name, "nccl"))
    return cli_usage("`--comm` is one of local, mpi, nccl, not `%s`", name);
  module_set(m, "comm", "%s", name);
  return EXIT_FINE;
}

/* NCCL knows GPUs alone, and they know nothing better. */
static Exit suit_communicator(const Cli *o, Module *m) {
  bool gpu = for_gpu(m);
  if (!gpu && !strcmp(module_setting(m, "comm", ""), "nccl"))
    return cli_usage("`--comm nccl` is for GPUs: with it goes `--target sm_80`, or another GPU");
  if (gpu && m->mesh.n && !o->value[OPT_COMM] && !module_setting(m, "comm", NULL))
    module_set(m, "comm", "nccl");
  return EXIT_FINE;
}

/* One target, from the module as loaded to what `kind` asks for. */
static Exit make_one(Cli *o, Module *m, EmitKind kind, const char *output, int part, int parts) {
  Exit e = set_communicator(o, m);
  if (e == EXIT_FINE) e = run_pipeline(o, m, NULL);
  if (e == EXIT_FINE && kind == EMIT_EXE && !fit_check(o, m, o->facts)) e = EXIT_INPUT;
  if (e == EXIT_FINE && kind != EMIT_IR) e = suit_communicator(o, m);
  if (e != EXIT_FINE) return e;
  return kind == EMIT_IR ? emit_ir(o, m, output) : build(o, m, kind, output, part, parts);
}

/* One processor at most: GPUs tell at run time what they are. */
static Exit read_targets(Cli *o, Targets *t, EmitKind kind) {
  const char *list = o->value[OPT_TARGET];
  int processors = 0;
  for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    vec_push(o->c->arena, t->name, arena_strndup(o->c->arena, at, strcspn(at, ",")));
  if (t->name.n < 2) return EXIT_FINE;
  if (kind != EMIT_EXE) return cli_usage("`--target %s`: only executables are for several", list);
  for (uint32_t i = 0; i < t->name.n; i++) {
    const Target *x = target_find(t->name.at[i]);
    processors += x && !x->gpu;
    for (uint32_t k = 0; k < i; k++)
      if (!strcmp(t->name.at[i], t->name.at[k])) return cli_usage("`--target %s`: one twice", list);
  }
  return processors < 2 ? EXIT_FINE
                        : cli_usage("`--target %s`: one processor at most, beside GPUs", list);
}

/* Every target gets a copy of the module; what is said about the model was said at its loading. */
static Exit make_all(Cli *o, Module *m, const char *output, const Targets *t, double start) {
  size_t length;
  const char *given = o->value[OPT_TARGET], *text = ir_print(m, &length);
  Strings objects = {0};
  Exit e = EXIT_FINE;
  for (uint32_t i = 0; e == EXIT_FINE && i < t->name.n; i++) {
    Module *copy = ir_parse(o->c, o->operands.at[0], text, length);
    if (!copy) return EXIT_INPUT;
    o->value[OPT_TARGET] = t->name.at[i];
    vec_push(o->c->arena, objects, arena_printf(o->c->arena, "%s/part_%u.o", t->folder, i));
    e = make_one(o, copy, EMIT_EXE, objects.at[i], (int)i, (int)t->name.n);
    if (e == EXIT_FINE && start > 0)
      say_done(o, copy, arena_printf(o->c->arena, "%s (%s)", output, t->name.at[i]), now() - start);
  }
  o->value[OPT_TARGET] = given;
  BuildOptions b = {
      .output = output, .verbose = o->value[OPT_VERBOSE] != NULL, .parts = (int)t->name.n};
  if (e == EXIT_FINE && !targets_join(m, &b, objects.at)) e = EXIT_ENVIRONMENT;
  return e;
}

/* start: when the command began; 0: nothing is said. */
static Exit make(Cli *o, EmitKind kind, const char *output, Module **m, double start) {
  Targets t = {0};
  Exit e = read_targets(o, &t, kind);
  if (e == EXIT_FINE) e = load_module(o, m);
  if (e != EXIT_FINE) return e;
  if (t.name.n < 2) {
    e = make_one(o, *m, kind, output, 0, 1);
    if (e == EXIT_FINE && kind == EMIT_EXE && start > 0) say_done(o, *m, output, now() - start);
    return e;
  }
  t.folder = work_folder(o->c);
  if (!t.folder) return EXIT_ENVIRONMENT;
  e = make_all(o, *m, output, &t, start);
  remove_folder(o->c->arena, t.folder);
  return e;
}

Exit compile_executable(Cli *o, const char *output, Module **m) {
  return report(o, make(o, EMIT_EXE, output, m, 0));
}

Exit cmd_compile(Cli *o) {
  double start = now();
  EmitKind kind;
  Module *m;
  Exit e = find_emit(o, &kind);
  if (e != EXIT_FINE) return e;
  const char *output = output_of(o, kind);
  if (kind == EMIT_EXE && !strcmp(output, "-"))
    return cli_usage("an executable cannot go to stdout; name a file after -o");
  if (!can_write(o->c, output)) return report(o, EXIT_ENVIRONMENT);
  if (kind == EMIT_AST) return emit_ast(o, output);
  return report(o, make(o, kind, output, &m, start));
}
