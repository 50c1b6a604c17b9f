/* `shardc compile`: from a file to an executable, or to the result of an earlier step. */
#include "ir/cost/count.h"
#include "ir/cost/forecast.h"
#include "ir/communicator.h"
#include "ir/shape/placement.h"
#include "ir/plan/stage_class.h"
#include "ir/support/num.h"
#include "ir/support/output.h"
#include "cmd.h"
#include "codegen/cache.h"
#include "codegen/codegen.h"
#include "frontend/syntax/ast.h"
#include "driver/equal/equal_run.h"
#include "driver/fit/fit.h"
#include "frontend/lower.h"
#include "passes/math/noise.h"
#include "passes/pass.h"
#include "runtime/base/base.h"
#include "runtime/device/pool.h"
#include <stdlib.h>

typedef enum EmitKind {
  EMIT_AST,
  EMIT_IR,
  EMIT_C,
  EMIT_LLVM,
  EMIT_ASM,
  EMIT_PTX,
  EMIT_EXE,
  EMIT_COUNT
} EmitKind;
static const char *const emit_names[] = {"ast", "ir", "c", "llvm", "asm", "ptx", "exe"};
_Static_assert(COUNT_OF(emit_names) == EMIT_COUNT, "a name per EmitKind");

enum { MOST_JOBS = 1024 };

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
  return cli_usage("nothing to emit called `%s`; one of ast, ir, c, llvm, asm, ptx, exe", text);
}

static const char *output_of(Cli *o, EmitKind kind) {
  if (o->value[OPT_OUTPUT]) return o->value[OPT_OUTPUT];
  return kind == EMIT_EXE ? base_name(o) : "-";
}

/* ---- --emit=ast ---- */

static Exit emit_ast(Cli *o, const char *output) {
  size_t n, length = 0;
  char *text = file_read(o->c, o->operands.at[0], &n), *printed = NULL;
  if (!text) return cli_report(o, EXIT_ENVIRONMENT);
  AstFile *file = ast_parse(o->c, o->operands.at[0], text, n);
  FILE *out = file ? heap_stream(&printed, &length) : NULL;
  if (!out) return cli_report(o, EXIT_ENVIRONMENT);
  ast_print(o->c, file, out);
  fclose(out);
  Exit e = write_text(o->c, output, printed, length);
  free(printed);
  return cli_report(o, e);
}

/* ---- programs and their options ---- */

typedef struct ProgramPart {
  Module *m;
  const char *name; /* of its plan, target, class of ranks; NULL: there are no others */
} ProgramPart;

typedef struct LoadedPlan {
  Module *m;
  const struct Change *chosen; /* for what this plan leaves open: that of no other one */
} LoadedPlan;

typedef struct CompileParts { /* of one executable: a program for every plan, target and class */
  Strings plan, target;
  VEC(ProgramPart) part;
  EmitKind kind;
  const char *output;
  double start; /* when the command began; 0: nothing is said */
} CompileParts;

static Exit build_options(Cli *o, const CompileParts *all, uint32_t part, const char *output,
                          BuildOptions *options) {
  const ProgramPart *program_part = &all->part.at[part];
  *options = (BuildOptions){.output = output,
                            .keep_dir = o->value[OPT_KEEP],
                            .verbose = o->value[OPT_VERBOSE] != NULL,
                            .quick = o->value[OPT_QUICK] != NULL,
                            .part = (int)part,
                            .parts = (int)all->part.n};
  options->emit = all->kind == EMIT_EXE ? NULL : emit_names[all->kind];
  int64_t jobs = rt_cpus();
  if (cli_whole(o, OPT_JOBS, 1, MOST_JOBS, &jobs) != EXIT_FINE) return EXIT_USAGE;
  options->jobs = (int)jobs;
  if (options->keep_dir && !make_folder(o->c, options->keep_dir)) return EXIT_ENVIRONMENT;
  if (options->keep_dir && program_part->name) {
    options->keep_dir = arena_printf(o->c->arena, "%s/%s", options->keep_dir, program_part->name);
    if (!make_folder(o->c, options->keep_dir)) return EXIT_ENVIRONMENT;
  }
  return EXIT_FINE;
}

static Exit built(Cli *o, bool good, double seconds) {
  if (o->value[OPT_TIMINGS]) output_say(stderr, "%8.1f ms  codegen\n", 1e3 * seconds);
  if (!good && !diag_errors(o->c->diag)) return EXIT_ENVIRONMENT;
  return good ? EXIT_FINE : EXIT_INPUT;
}

/* ---- the one line that a good compile says ---- */

static int64_t logical_count(const Module *m, const Global *global) {
  int64_t n = 1;
  for (int i = 0; i < global->type.rank; i++) {
    Axis a = global->type.axis[i];
    n *= placement_logical(m, a.dim, a.size * placement_ways(m, &global->placed, a.dim));
  }
  return n;
}

static int64_t stored_bytes(const Module *m, bool parameters, int64_t *count) {
  int64_t bytes = 0;
  *count = 0;
  EACH_GLOBAL (m, global) {
    bool wanted = global->kind == GLOBAL_PARAM || (!parameters && global->kind == GLOBAL_STATE);
    if (!wanted) continue;
    if (global->kind == GLOBAL_PARAM && global_is_tensor(m, global))
      *count += logical_count(m, global);
    if (!global->within) bytes += global_bytes(m, global);
  }
  return bytes;
}

static const char *short_count(Ctx *c, double value) { /* 118.5k */
  static const char *const units[] = {"", "k", "M", "G", "T"};
  int unit = 0;
  for (; value >= 1000 && unit < 4; unit++) value /= 1000;
  return arena_printf(c->arena, unit ? "%.1f%s" : "%.0f%s", value, units[unit]);
}

static void say_done(const Cli *o, const Module *m, const char *output, double seconds) {
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
  output_say(stderr,
             "%s: %s parameters, %lld rank%s, %s of weights and states%s, %u kernels%s, %.1f s\n",
             output, short_count(o->c, (double)count), ranks, ranks > 1 ? "s" : "",
             arena_amount(o->c->arena, bytes), each, kernels,
             tuned ? arena_printf(o->c->arena, " (%u tuned)", tuned) : "", seconds);
  if (m->compared) output_say(stderr, "  equal: %s\n", m->compared);
  for (uint32_t i = 0; i < m->settings.n; i++)
    if (!strncmp(m->settings.at[i].key, "made.recompute.", 15))
      output_say(stderr, "  recompute: %s\n", m->settings.at[i].value);
}

/* Without the setting generated code has that of processors. */
static void choose_communicator(Module *m) {
  const Communicator *communicator = module_communicator(m);
  if (communicator->on_device && m->mesh.n) module_set(m, "comm", "%s", communicator->name);
}

/* Said before the passes run, which may take a while. */
static Exit suit_target(Cli *o, Module *m, EmitKind kind) {
  Exit e = kind == EMIT_PTX ? describe_target(o, m) : EXIT_FINE;
  if (e != EXIT_FINE || kind != EMIT_PTX || module_on_gpu(m)) return e;
  return cli_usage("`--emit=%s` is for GPUs: add `--target %s`, or another GPU; the "
                   "assembly of kernels for a processor is `--emit=asm`",
                   emit_names[kind], target_first(DEVICE_GPU)->name);
}

/* Ranks of all classes know by it that they run one executable. */
static void share_hash(const Programs *programs) {
  CacheKey h = hash_begin();
  for (uint32_t i = 0; i < programs->n; i++) h = hash_text(h, ir_print(programs->at[i], NULL));
  for (uint32_t i = 0; programs->n > 1 && i < programs->n; i++)
    module_set(programs->at[i], "made.program", "%s", hash_words(programs->at[i]->arena, h, 32));
}

/* In exact arithmetic. Not for `verify`, which trains. */
static Exit compare(const Cli *o, const CompileParts *parts, Module *m, Programs *programs) {
  const char *words = NULL;
  Exit e = parts->kind == EMIT_EXE && !o->planning ? equal_show(o, m, &words) : EXIT_FINE;
  for (uint32_t i = 0; i < programs->n; i++) programs->at[i]->compared = words;
  return e;
}

/* For the progress line of the executable, next to the time that it measures. */
static void note_forecast(const Programs *programs) {
  const Fn *step = ir_main_entry(programs->at[0]);
  Forecast forecast = plan_forecast(programs->at, programs->n, step);
  for (uint32_t i = 0; i < programs->n && forecast.known; i++) {
    Module *m = programs->at[i];
    module_set(m, "made.forecast", "%.4g", forecast.step.time.total);
    module_set(m, "made.forecast.error", "about %.0f %%", 100 * forecast.error);
    for (int by = 0; by < RATE_SOURCES; by++)
      if (*forecast.source[by].parts)
        module_set(m, arena_printf(m->arena, "made.forecast.%s", source_key((RateSource)by)),
                   "%s: error about %.0f %%", forecast.source[by].parts,
                   100 * forecast.source[by].error);
  }
}

/* NCCL gets no more CTAs than kernels leave multiprocessors to it (pass spare). Ranks of all
   classes say so, since those of a communicator must agree. */
static void limit_messages(const Programs *programs) {
  int64_t most = 0;
  for (uint32_t i = 0; i < programs->n; i++)
    EACH_FN (programs->at[i], f) most = max_i64(most, attr_int(&f->attrs, ATTR_spare, 0));
  for (uint32_t i = 0; most && i < programs->n; i++)
    module_set(programs->at[i], "made.channels", "%lld", (long long)most);
}

static void add_programs(Cli *o, CompileParts *parts, const Programs *programs, const char *name) {
  Arena *arena = o->c->arena;
  share_hash(programs);
  for (uint32_t i = 0; i < programs->n; i++) {
    const char *class = programs->n > 1 ? module_class(programs->at[i]).name : NULL;
    const char *both = name && class ? arena_printf(arena, "%s, %s", name, class) : NULL;
    choose_communicator(programs->at[i]);
    vec_push(arena, parts->part,
             (ProgramPart){programs->at[i], both    ? both
                                            : class ? class
                                                    : name});
  }
}

/* first, middle or last */
static const char *class_names(Arena *arena, const Programs *programs) {
  const char *text = "";
  for (uint32_t i = 0; i < programs->n; i++)
    text = arena_printf(arena, "%s%s%s", text,
                        !i                    ? ""
                        : i + 1 < programs->n ? ", "
                                              : " or ",
                        module_class(programs->at[i]).name);
  return text;
}

/* The programs of a module as loaded, ready for what `kind` asks for. */
static Exit prepare(Cli *o, Module *m, CompileParts *parts, const char *name) {
  Programs programs = {.n = 1, .at = {m}};
  PipelineOptions options = {0};
  if (!machine_compiles(o, m)) return EXIT_INPUT;
  Exit e = suit_target(o, m, parts->kind);
  if (e == EXIT_FINE) e = pipeline_options(o, m, &options);
  if (e == EXIT_FINE && o->noise > 0 && (e = run_pipeline(o, m, "micro")) == EXIT_FINE)
    noise_add(m, o->noise);
  if (e == EXIT_FINE && !pipeline_classes(m, &options, &programs)) e = EXIT_INPUT;
  if (e == EXIT_FINE && parts->kind == EMIT_EXE && !programs_fit(o, &programs)) e = EXIT_INPUT;
  if (e == EXIT_FINE && parts->kind == EMIT_EXE) nodes_warn(o, &programs);
  for (uint32_t i = 0; e == EXIT_FINE && parts->kind != EMIT_EXE && i < programs.n; i++)
    if (!flights_check(o, programs.at[i])) e = EXIT_INPUT;
  if (e != EXIT_FINE) return e;
  if (parts->kind == EMIT_EXE && *module_class(m).name)
    return cli_usage("`%s` is IR for one class of ranks: an executable has all of them",
                     o->operands.at[0]);
  if (parts->kind != EMIT_EXE && programs.n > 1)
    return cli_usage("`--emit=%s` takes one class of ranks: `--class %s`", emit_names[parts->kind],
                     class_names(o->c->arena, &programs));
  e = compare(o, parts, m, &programs);
  if (parts->kind == EMIT_EXE) note_forecast(&programs), limit_messages(&programs);
  add_programs(o, parts, &programs, name);
  return e;
}

/* ---- several plans, several targets ---- */

static Exit read_list(Cli *o, CliOption option, const char *name, Strings *out) {
  const char *list = o->value[option];
  for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    vec_push(o->c->arena, *out, arena_strndup(o->c->arena, at, strcspn(at, ",")));
  for (uint32_t i = 0; i < out->n; i++)
    for (uint32_t k = 0; k < i; k++)
      if (!strcmp(out->at[i], out->at[k]))
        return cli_usage("`--%s %s` names one twice", name, list);
  return EXIT_FINE;
}

/* One processor at most: GPUs tell at run time what they are. */
static Exit read_parts(Cli *o, CompileParts *parts) {
  int processors = 0;
  Exit e = read_list(o, OPT_TARGET, "target", &parts->target);
  if (e == EXIT_FINE) e = read_list(o, OPT_PLAN, "plan", &parts->plan);
  if (e != EXIT_FINE || (parts->target.n < 2 && parts->plan.n < 2)) return e;
  if (parts->kind != EMIT_EXE)
    return cli_usage("`--emit=%s` takes one plan and one target: only executables are for several; "
                     "`--keep DIR` keeps the kernels of all of them",
                     emit_names[parts->kind]);
  for (uint32_t i = 0; i < parts->target.n; i++) {
    const Target *target = target_find(parts->target.at[i]);
    processors += target && target->facts.device == DEVICE_CPU;
  }
  return processors < 2
             ? EXIT_FINE
             : cli_usage("`--target %s`: at most one CPU target, combined with GPU targets",
                         o->value[OPT_TARGET]);
}

/* Every target gets a copy of the module; what is said about the model was said at its loading. */
static Exit prepare_targets(Cli *o, Module *m, CompileParts *parts, const char *plan) {
  const char *given = o->value[OPT_TARGET];
  Exit e = EXIT_FINE;
  for (uint32_t i = 0; e == EXIT_FINE && i < parts->target.n; i++) {
    Module *copy = ir_copy(m, o->operands.at[0]);
    const char *target = o->value[OPT_TARGET] = parts->target.at[i];
    const char *name = plan ? arena_printf(o->c->arena, "%s, %s", plan, target) : target;
    e = prepare(o, copy, parts, name);
  }
  o->value[OPT_TARGET] = given;
  return e;
}

/* An executable takes the plan for as many ranks as it is started with. */
static Exit check_plan(const Cli *o, const Module *m, const LoadedPlan *before, uint32_t n) {
  for (uint32_t i = 0; i < n; i++) {
    if (strcmp(before[i].m->model, m->model))
      return cli_usage("`--plan %s`: they are for several models, %s and %s", o->value[OPT_PLAN],
                       before[i].m->model, m->model);
    if (mesh_ranks(before[i].m) == mesh_ranks(m))
      return cli_usage("`--plan %s`: two are for %lld ranks, and the number of ranks is what tells "
                       "an executable which plan it runs",
                       o->value[OPT_PLAN], (long long)mesh_ranks(m));
  }
  return EXIT_FINE;
}

static Exit load_plan(Cli *o, LoadedPlan *plan) {
  o->chosen = NULL;
  Exit e = load_module(o, &plan->m);
  plan->chosen = o->chosen;
  return e;
}

static Exit load_plans(Cli *o, const CompileParts *parts, LoadedPlan *all) {
  const char *given = o->value[OPT_PLAN];
  Exit e = EXIT_FINE;
  for (uint32_t i = 0; e == EXIT_FINE && i < parts->plan.n; i++) {
    o->value[OPT_PLAN] = parts->plan.at[i];
    e = load_plan(o, &all[i]);
    o->value[OPT_PLAN] = given;
    if (e == EXIT_FINE) e = check_plan(o, all[i].m, all, i);
  }
  return e;
}

static const char *said_name(const Cli *o, const CompileParts *parts, uint32_t part) {
  const char *name = parts->part.at[part].name;
  return name ? arena_printf(o->c->arena, "%s (%s)", parts->output, name) : parts->output;
}

static Exit say_part(const Cli *o, const CompileParts *parts, uint32_t i, Exit e) {
  if (e == EXIT_FINE && parts->kind == EMIT_EXE && parts->start > 0)
    say_done(o, parts->part.at[i].m, said_name(o, parts, i), rt_now() - parts->start);
  return e;
}

static Exit build_one(Cli *o, const CompileParts *parts) {
  BuildOptions options;
  double start = rt_now();
  Exit e = build_options(o, parts, 0, parts->output, &options);
  if (e != EXIT_FINE) return e;
  bool good = codegen_build(parts->part.at[0].m, &options);
  return say_part(o, parts, 0, built(o, good, rt_now() - start));
}

/* Starts all before it waits for any, so that compilers of host programs run concurrently with
   those of kernels. */
static Exit build_objects(Cli *o, const CompileParts *parts, const char *const *object) {
  uint32_t n = parts->part.n, begun = 0;
  Linking **linking = ARENA_ARRAY(o->c->arena, Linking *, n);
  double *seconds = ARENA_ARRAY(o->c->arena, double, n);
  Exit e = EXIT_FINE;
  for (uint32_t i = 0; e == EXIT_FINE && i < n; i++) {
    BuildOptions options;
    double start = rt_now();
    if ((e = build_options(o, parts, i, object[i], &options)) != EXIT_FINE) break;
    linking[begun++] = codegen_begin(parts->part.at[i].m, &options);
    seconds[i] = rt_now() - start;
    if (diag_errors(o->c->diag)) e = EXIT_INPUT;
  }
  for (uint32_t i = 0; i < begun; i++) {
    double start = rt_now();
    Exit own = built(o, codegen_end(linking[i]), seconds[i] + rt_now() - start);
    own = say_part(o, parts, i, own);
    if (e == EXIT_FINE) e = own;
  }
  return e;
}

static Exit build_parts(Cli *o, const CompileParts *parts) {
  Arena *arena = o->c->arena;
  Strings object = {0};
  const char *folder = work_folder(o->c);
  if (!folder) return EXIT_ENVIRONMENT;
  for (uint32_t i = 0; i < parts->part.n; i++)
    vec_push(arena, object, arena_printf(arena, "%s/part_%u.o", folder, i));
  Exit e = build_objects(o, parts, object.at);
  BuildOptions options = {
      .output = parts->output, .verbose = o->value[OPT_VERBOSE] != NULL, .parts = (int)object.n};
  if (e == EXIT_FINE && !targets_join(vec_last(parts->part).m, &options, object.at))
    e = EXIT_ENVIRONMENT;
  remove_folder(arena, folder);
  return e;
}

static Exit make(Cli *o, EmitKind kind, const char *output, Module **m, double start) {
  CompileParts parts = {.kind = kind, .output = output, .start = start};
  Exit e = read_parts(o, &parts);
  uint32_t n = parts.plan.n > 1 ? parts.plan.n : 1;
  LoadedPlan *all = ARENA_ARRAY(o->c->arena, LoadedPlan, n);
  if (e == EXIT_FINE) e = n > 1 ? load_plans(o, &parts, all) : load_plan(o, all);
  if (e == EXIT_FINE) *m = all[0].m;
  for (uint32_t i = 0; e == EXIT_FINE && i < n; i++) {
    const char *plan = n > 1 ? parts.plan.at[i] : NULL, *given = o->value[OPT_PLAN];
    if (plan) o->value[OPT_PLAN] = plan;
    o->chosen = all[i].chosen;
    e = parts.target.n > 1 ? prepare_targets(o, all[i].m, &parts, plan)
                           : prepare(o, all[i].m, &parts, plan);
    o->value[OPT_PLAN] = given;
  }
  if (e != EXIT_FINE) return e;
  if (kind == EMIT_IR) return emit_ir(o, parts.part.at[0].m, output);
  return parts.part.n > 1 ? build_parts(o, &parts) : build_one(o, &parts);
}

Exit compile_executable(Cli *o, const char *output, Module **m) {
  if (o->value[OPT_PLAN] && strchr(o->value[OPT_PLAN], ','))
    return cli_usage("`--plan %s`: one plan at a time; `compile` puts several into an executable",
                     o->value[OPT_PLAN]);
  return cli_report(o, make(o, EMIT_EXE, output, m, 0));
}

/* Refuses options that this kind of result does not depend on. */
static Exit check_kind(const Cli *o, EmitKind kind) {
  static const CliOption of_ast[] = {OPT_EMIT, OPT_OUTPUT},
                         of_programs[] = {OPT_KEEP, OPT_EQUAL, OPT_JOBS, OPT_QUICK, OPT_VERBOSE};
  static const CliOption class = OPT_CLASS;
  if (kind >= EMIT_EXE) return cli_idle(o, &class, 1, "an executable has all classes of ranks");
  if (kind == EMIT_AST)
    return cli_only(o, of_ast, COUNT_OF(of_ast),
                    "`--emit=ast` reads the file and compiles nothing");
  return cli_idle(o, of_programs, COUNT_OF(of_programs),
                  arena_printf(o->c->arena, "`--emit=%s` makes no executable", emit_names[kind]));
}

Exit cmd_compile(Cli *o) {
  double start = rt_now();
  EmitKind kind;
  Module *m;
  Exit e = find_emit(o, &kind);
  if (e == EXIT_FINE) e = check_kind(o, kind);
  if (e != EXIT_FINE) return e;
  const char *output = output_of(o, kind);
  if (kind == EMIT_EXE && !strcmp(output, "-"))
    return cli_usage("an executable cannot go to stdout; name a file after -o");
  if (!can_write(o->c, output)) return cli_report(o, EXIT_ENVIRONMENT);
  if (kind == EMIT_AST) return emit_ast(o, output);
  return cli_report(o, make(o, kind, output, &m, start));
}
