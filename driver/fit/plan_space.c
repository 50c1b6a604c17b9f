/* The rows of the space of plans (plan_space.h): dims of the model that axes may split, and every
   row that the numbers allow. A row that the compiler refuses is no plan; it says so when it is
   tried. Must not: compile, or judge. */
#include "plan_space.h"
#include "fit.h"
#include "ways.h"
#include "frontend/plan/plan.h"
#include "ir/cost/count.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/module_settings.h"
#include "ir/schedule/pipeline_schedule.h"
#include "ir/shape/placement.h"
#include "ir/support/num.h"
#include "ir/word_patterns.h"
#include <math.h>
#include <stdlib.h>

enum { MOST_CONTEXT = 64, MOST_STAGES = 256, ORDERS = 24 };

/* ---- dims of the model that an axis may split ---- */

static bool has_dim(const Fn *f, const Op *o, Str dim) {
  bool has = false;
  for (uint32_t i = 0; i < o->nin; i++) has |= type_find(value_type(f, o->in[i]), dim) >= 0;
  for (uint32_t i = 0; i < o->nout; i++) has |= type_find(value_type(f, o->out + i), dim) >= 0;
  return has;
}

/* A table that is read at all positions in order: its rows are those of the sequence. */
static bool op_renames(const Fn *f, const Op *o, Str dim) {
  return o->code == OP_rename && type_find(value_type(f, o->in[0]), dim) >= 0 &&
         type_find(value_type(f, o->out), dim) < 0;
}

static bool op_splits(Module *m, const Fn *f, const Op *o, Str dim) {
  ShardIndex *list;
  if (o->callee || o->code == OP_load || o->code == OP_store || !has_dim(f, o, dim)) return true;
  if (op_renames(f, o, dim)) return false;
  uint32_t n = shard_indexes(m, f, o, &list);
  for (uint32_t i = 0; i < n; i++) {
    for (uint32_t k = 0; k < o->nin; k++)
      if (list[i].in[k] == dim) return true;
    for (uint32_t k = 0; k < o->nout; k++)
      if (list[i].out[k] == dim) return true;
  }
  return false;
}

static bool all_split(Module *m, Str dim) {
  const Fn *step = ir_main_entry(m);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *f = m->fns.at[i];
    for (OpId k = 0; k < f->ops.n; k++)
      if ((f->kind == FN_BODY || f == step) && !op_splits(m, f, &f->ops.at[k], dim)) return false;
  }
  return true;
}

/* The type of the values that layers hand on; NULL: the model has no stack. */
static const Type *stream_of(const Module *m) {
  const Fn *step = ir_main_entry(m);
  for (OpId k = 0; step && k < step->ops.n; k++)
    if (step->ops.at[k].code == OP_loop && step->ops.at[k].nout)
      return value_type(step, step->ops.at[k].out);
  return NULL;
}

static uint32_t parameters_with(const Module *m, Str dim) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->globals.n; i++)
    n += m->globals.at[i]->kind == GLOBAL_PARAM && type_find(&m->globals.at[i]->type, dim) >= 0;
  return n;
}

/* The dim of parameters that says for whom a gather chooses rows: that of experts, which choose
   tokens or are chosen by them. NULL: the model has none. */
static Str experts_of(const Module *m, const Type *stream, Str layers) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    EACH_OP (m->fns.at[i], o) {
      const Type *rows = o->code == OP_gather ? value_type(m->fns.at[i], o->in[1]) : NULL;
      for (int k = 0; rows && k < rows->rank; k++) {
        Str dim = rows->axis[k].dim;
        if (parameters_with(m, dim) && dim != layers && type_find(stream, dim) < 0) return dim;
      }
    }
  return NULL;
}

/* The dim of a parameter that the most parameters have, of those that layers do not hand on, but
   these. */
static Str dim_of(Module *m, const Global *global, const Type *stream, Str layers, Str experts) {
  Str best = NULL;
  uint32_t most = 0;
  for (int i = 0; i < global->type.rank; i++) {
    Str dim = global->type.axis[i].dim;
    uint32_t n = parameters_with(m, dim);
    bool other = dim == layers || dim == experts || type_find(stream, dim) >= 0;
    if (other || n <= most || !all_split(m, dim)) continue;
    best = dim, most = n;
  }
  return best;
}

/* Ops on which the first loop over layers depends. */
static void find_before(const Fn *step, bool *before) {
  OpId loop = 0;
  while (loop < step->ops.n && step->ops.at[loop].code != OP_loop) loop++;
  for (OpId i = loop + 1; i-- > 0 && loop < step->ops.n;)
    for (uint32_t k = 0; (i == loop || before[i]) && k < step->ops.at[i].nin; k++) {
      OpId def = step->values.at[step->ops.at[i].in[k]].def;
      if (def != NO_OP) before[def] = true;
    }
}

/* Numbers of parameters outside of layers that the first stage of a pipeline reads. */
static double first_parameters(const Module *m) {
  const Fn *step = ir_main_entry(m);
  double numbers = 0;
  if (!step) return 0;
  bool *before = ARENA_ARRAY(m->arena, bool, step->ops.n + 1);
  find_before(step, before);
  EACH_GLOBAL (m, global) {
    bool reads = false;
    for (OpId i = 0; i < step->ops.n; i++)
      reads |= before[i] && step->ops.at[i].code == OP_load && step->ops.at[i].global == global;
    if (reads && global->kind == GLOBAL_PARAM && global_learns(global) && !layer_star(global->name))
      numbers += (double)type_count(&global->type);
  }
  return numbers;
}

/* The dims of the most parameters; without those of experts, if these are given. */
static const char *tensor_dims(Module *m, const Type *stream, Str layers, Str experts) {
  const char *dims = "";
  for (uint32_t i = 0; stream && i < m->globals.n; i++) {
    const Global *global = m->globals.at[i];
    Str dim = global->kind == GLOBAL_PARAM ? dim_of(m, global, stream, layers, experts) : NULL;
    if (dim && !text_lists(dims, dim)) dims = arena_list(m->arena, dims, "%s", dim);
  }
  return dims;
}

static void find_experts(PlanSpace *space, Module *m, const Type *stream, Str layers) {
  Str experts = stream && *space->layers ? experts_of(m, stream, layers) : NULL;
  space->experts = "", space->tensor_beside = space->tensor;
  if (!experts) return;
  space->experts = experts, space->expert_count = dim_find(m, experts)->stored;
  space->tensor_beside = tensor_dims(m, stream, layers, experts);
  EACH_GLOBAL (m, global)
    if (global->kind == GLOBAL_PARAM && global_learns(global) &&
        type_find(&global->type, experts) >= 0)
      space->expert_parameters += (double)type_count(&global->type);
}

/* In the simplified program m a table that is read at all positions in order is a slice, whose
   positions no axis splits. */
static void find_dims(PlanSpace *space, Module *m) {
  pipeline_run(m, &(PipelineOptions){.until = "simplify"});
  const Type *stream = stream_of(m);
  Str batch = intern(m->ctx->names, "Batch"), layers = intern(m->ctx->names, space->layers);
  space->sequence = "", space->first_parameters = first_parameters(m);
  space->tensor = tensor_dims(m, stream, layers, NULL);
  find_experts(space, m, stream, layers);
  space->handed = stream && type_find(stream, batch) >= 0 ? 1 : 0;
  for (int i = 0; stream && i < stream->rank; i++)
    if (stream->axis[i].dim != batch) space->handed *= (double)stream->axis[i].size;
  for (int i = 0; stream && i < stream->rank; i++)
    if (stream->axis[i].dim != batch && !parameters_with(m, stream->axis[i].dim))
      space->sequence = stream->axis[i].dim, space->sequence_size = stream->axis[i].size;
  if (*space->sequence)
    space->heads = attention_heads(m, intern(m->ctx->names, space->sequence), &space->masked);
}

/* A stack of (Dense, Sparse) names weights h.*.0.w and h.*.1.w: each kind is gathered by itself. */
static double largest_kind(const Module *m) {
  enum { KINDS = 64 };
  double numbers[KINDS] = {0}, all = 0, most = 0;
  EACH_GLOBAL (m, global) {
    const char *star = global->kind == GLOBAL_PARAM ? layer_star(global->name) : NULL;
    long kind = star ? strtol(star + 3, NULL, 10) : 0;
    if (star) numbers[kind % KINDS] += (double)type_count(&global->type);
  }
  for (int i = 0; i < KINDS; i++) all += numbers[i], most = fmax(most, numbers[i]);
  return all > 0 ? most / all : 1;
}

static void find_stack(PlanSpace *space) {
  const Module *m = space->m;
  space->stack = stack_paths(m), space->layers = "", space->largest = largest_kind(m);
  for (uint32_t i = 0; !strchr(space->stack, ',') && i < m->globals.n; i++) {
    const Global *global = m->globals.at[i];
    if (global->kind != GLOBAL_PARAM || !layer_star(global->name)) continue;
    space->layers = global->type.axis[0].dim, space->layer_count = global->type.axis[0].size;
  }
}

/* ---- the machine and the plan that is taken as a base ---- */

static Module *lower(PlanSpace *space) {
  Cli *one = ARENA_NEW(space->o->c->arena, Cli);
  *one = cli_again(space->o), one->value[OPT_TUNE_DB] = NULL; /* bounds know no records */
  const char *model = one->value[OPT_MODEL] ? one->value[OPT_MODEL] : space->base.model;
  one->written = arena_printf(
      one->c->arena, "plan %s %s%s {\n  on %s\n  mesh all_ranks = %lld\n%s}\n", space->name,
      *model ? "for " : "", model, space->base.on, (long long)space->ranks, space->base.rest);
  one->value[OPT_PLAN] = space->name;
  Module *m = load_shard(one, one->operands.at[0]);
  if (!m || diag_errors(one->c->diag)) {
    diag_print(one->c->diag, stderr, one->format, one->colour);
    return NULL;
  }
  return m;
}

static const char *fixed(const Cli *o, const char *key) {
  size_t n = strlen(key);
  for (uint32_t i = 0; i < o->fixes.n; i++)
    if (!strncmp(o->fixes.at[i], key, n) && o->fixes.at[i][n] == '=') return o->fixes.at[i] + n + 1;
  return NULL;
}

static bool is_number(const char *word) {
  return *word >= '1' && *word <= '9' && !word[strspn(word, "0123456789")];
}

/* No value twice, and none that is empty; all of `--fix zero=` is told by its words. */
static Exit check_list(const Cli *o, const char *key, const char *list) {
  Arena *arena = o->c->arena;
  for (const char *at = list; *at;) {
    size_t n = strcspn(at, ", ");
    const char *word = arena_strndup(arena, at, n);
    if (text_lists(arena_strndup(arena, list, (size_t)(at - list)), word))
      return cli_usage("`--fix %s=%s` has `%s` twice", key, list, word);
    at += n;
    size_t between = strspn(at, ", ");
    if (between && !at[between])
      return cli_usage("`--fix %s=%s` ends with a comma: no value follows it", key, list);
    at += between;
  }
  return EXIT_FINE;
}

/* Is every value one that plans may have? */
static Exit check_values(const Cli *o, SpaceField field) {
  Arena *arena = o->c->arena;
  const char *between = field == FIELD_ORDER ? ", -" : ", ", *key = space_key(field),
             *words = space_words(arena, field), *at = fixed(o, key);
  if (!at) return EXIT_FINE;
  if (field == FIELD_RECOMPUTE && !strcmp(at, "auto"))
    return cli_usage("`--fix recompute=auto` needs another value as well: a budget is tried for "
                     "the best plan of the others");
  do {
    const char *word = arena_strndup(arena, at, strcspn(at, between));
    if (*words && !text_lists(words, word))
      return cli_usage("`--fix %s` takes one of %s, not `%s`", key, words, word);
    if (!*words && !is_number(word))
      return cli_usage("`--fix %s` takes whole numbers above 0, not `%s`", key, word);
    at += strlen(word), at += strspn(at, between);
  } while (*at);
  return check_list(o, key, fixed(o, key));
}

static Exit check_fixes(const Cli *o) {
  Exit e = EXIT_FINE;
  const char *names = "ranks";
  for (int f = 0; f < SPACE_FIELDS; f++)
    names = arena_printf(o->c->arena, "%s, %s", names, space_key(f));
  for (uint32_t i = 0; i < o->fixes.n; i++) {
    const char *key = arena_strndup(o->c->arena, o->fixes.at[i], strcspn(o->fixes.at[i], "="));
    if (!text_lists(names, key)) return cli_usage("`--fix` takes %s, not `%s`", names, key);
  }
  for (SpaceField f = 0; f < SPACE_FIELDS && e == EXIT_FINE; f++) e = check_values(o, f);
  return e;
}

/* With GPUs all of the nodes' have a rank. */
static Exit count_ranks(PlanSpace *space) {
  const Module *m = space->m;
  const char *text = fixed(space->o, "ranks");
  int64_t gpus = module_whole(m, "machine.node.gpus");
  char *end = "";
  space->nodes = module_whole(m, "plan.on.nodes");
  space->ranks = text ? strtoll(text, &end, 10) : gpus * space->nodes;
  if (*end || (text && space->ranks < 1) || space->ranks > 1 << 20)
    return cli_usage("`--fix ranks` takes a whole number from 1 to %d, not `%s`", 1 << 20, text);
  return space->ranks ? EXIT_FINE
                      : cli_usage("`--search` over processors needs their number of ranks: "
                                  "`--fix ranks=N`");
}

static const char *unused_name(const char *names, Arena *arena) {
  const char *name = "found";
  while (names && text_lists(names, name)) name = arena_printf(arena, "%s_", name);
  return name;
}

/* The lines of `--plan`, or of the first plan for the model; false: there is no such plan. */
static bool read_base(PlanSpace *space, const char *names) {
  const Cli *o = space->o;
  Arena *arena = o->c->arena;
  const char *path = o->operands.at[0], *plan = o->value[OPT_PLAN], *model = o->value[OPT_MODEL];
  const char *own = arena_printf(arena, "on, mesh, %s", plan_searched_lines);
  if (plan) return program_plan_text(o->c, path, plan, own, &space->base);
  for (size_t n; *names; names += n + strspn(names + n, ", ")) {
    PlanText base = {"", "", ""};
    n = strcspn(names, ",");
    if (!program_plan_text(o->c, path, arena_strndup(arena, names, n), own, &base)) continue;
    if (model && *base.model && strcmp(base.model, model) != 0) continue;
    space->base = base;
    return true;
  }
  return false;
}

/* Where no plan says a precision: that in which GPUs train. */
static bool has_bf16(const Module *m) {
  const Arch *arch = machine_arch(m) ? arch_find(machine_arch(m)) : NULL;
  bool published = arch && arch->processors > 0 && arch->bf16 > 0;
  return module_said(m, "machine.node.bf16") || published;
}

Exit space_open(Cli *o, PlanSpace *out) {
  const char *path = o->operands.at[0], *on = o->value[OPT_ON];
  Exit e = check_fixes(o);
  if (e != EXIT_FINE) return e;
  const char *names = program_plans(o->c, path);
  if (!names) return EXIT_INPUT;
  *out = (PlanSpace){
      .o = o, .ranks = 1, .base = {"", "", ""}, .name = unused_name(names, o->c->arena)};
  bool planned = read_base(out, names);
  if (!planned && o->value[OPT_PLAN])
    return cli_usage("no plan `%s` in `%s`", o->value[OPT_PLAN], path);
  if (on && strpbrk(on, ";{}"))
    return cli_usage("`--on` takes a machine and its options, `--on \"MACHINE nodes = 2\"`; "
                     "`--fix` has settings of plans");
  if (on) out->base.on = on;
  if (on && !program_has_machine(o->c, path, on)) return EXIT_INPUT;
  if (!*out->base.on)
    return cli_usage("`--search` needs a machine: `--on MACHINE`, or a plan with a line `on`");
  if (!(out->m = lower(out))) return EXIT_INPUT;
  if (!planned && has_bf16(out->m)) out->base.rest = "  precision bf16 master = f32\n";
  e = count_ranks(out);
  if (e != EXIT_FINE) return e;
  if (!(out->m = lower(out))) return EXIT_INPUT;
  out->batch = train_batch(out->m), out->machine = plan_machine(out->m);
  Module *simple = lower(out);
  find_stack(out);
  if (simple) find_dims(out, simple);
  return simple ? EXIT_FINE : EXIT_INPUT;
}

const char *space_tensor(const PlanSpace *space, const SpacePlan *plan) {
  return plan->at[FIELD_EXPERT] > 1 ? space->tensor_beside : space->tensor;
}

int64_t space_copies(const SpacePlan *plan) {
  return (int64_t)plan->at[FIELD_EXPERT] * plan->at[FIELD_DATA] * plan->at[FIELD_REPLICA];
}

int64_t space_shards(const SpacePlan *plan) {
  return (int64_t)plan->at[FIELD_EXPERT] * plan->at[FIELD_DATA] *
         (plan->at[FIELD_OVER] ? plan->at[FIELD_CONTEXT] : 1);
}

bool space_same_mesh(const SpacePlan *a, const SpacePlan *b) {
  return !memcmp(a->at, b->at, SPACE_AXES * sizeof *a->at);
}

const char *space_lacks_rate(const PlanSpace *space) {
  const char *name = machine_arch(space->m);
  const Arch *arch = name ? arch_find(name) : NULL;
  if (!arch && space->machine.flops <= 0)
    return arena_printf(space->o->c->arena, "node %s", plan_precision(space->m));
  double intra = fmax(space->machine.intra, module_amount(space->m, "machine.reached.intra")),
         inter = fmax(space->machine.inter, module_amount(space->m, "machine.reached.inter"));
  if (space->ranks > 1 && intra <= 0 && !(arch && arch->intra > 0)) return "link intra";
  return space->nodes > 1 && inter <= 0 ? "link inter" : NULL;
}

/* ---- rows ---- */

/* The words that `--fix` admits, by value; numbers and orders are looked up in its text. */
static void read_fixes(PlanSpace *space) {
  Arena *arena = space->o->c->arena;
  for (SpaceField f = 0; f < SPACE_FIELDS; f++) {
    SpacePlan plan = {{0}};
    SpaceFix *fix = &space->fix[f];
    *fix = (SpaceFix){.list = space->o->fixes.n ? fixed(space->o, space_key(f)) : NULL};
    for (; fix->list && plan.at[f] < space_word_count(f); plan.at[f]++)
      if (text_lists(fix->list, space_value(arena, &plan, f))) fix->words |= 1u << plan.at[f];
  }
}

static bool lists_number(const char *list, int32_t number) {
  for (char *end; *list; list = end + strspn(end, ", "))
    if (strtoll(list, &end, 10) == number) return true;
  return false;
}

static bool admits_value(const PlanSpace *space, const SpacePlan *plan, SpaceField f) {
  const SpaceFix *fix = &space->fix[f];
  int32_t n = plan->at[f];
  if (!fix->list) return true;
  if (f == FIELD_ORDER) return text_lists(fix->list, space_value(space->o->c->arena, plan, f));
  if (!space_word_count(f)) return lists_number(fix->list, n);
  return fix->words >> n & 1;
}

/* The fields before `first`, in the order of the enum. */
static bool admits_first(const PlanSpace *space, const SpacePlan *plan, SpaceField first) {
  bool all = true;
  for (SpaceField f = 0; all && f < first; f++) all = admits_value(space, plan, f);
  return all;
}

static bool admits(const PlanSpace *space, const SpacePlan *plan) {
  return admits_first(space, plan, SPACE_FIELDS);
}

bool space_keeping(const PlanSpace *space, const SpacePlan *plan, int times, double bytes,
                   SpacePlan *out) {
  const int32_t *at = plan->at;
  int64_t share = space->batch / space_copies(plan), micro = times * at[FIELD_MICRO];
  *out = *plan;
  out->at[FIELD_MICRO] = (int32_t)micro;
  if (micro == share) out->at[FIELD_FULL] = 0;
  out->at[FIELD_RECOMPUTE] = bytes > 0 ? KEEP_AUTO + (int32_t)(bytes / (1 << 20)) : KEEP_INPUT;
  PlanSpace own = *space;
  SpacePlan said = *out;
  said.at[FIELD_RECOMPUTE] = KEEP_AUTO, read_fixes(&own);
  return *space->stack && bytes < 1e15 && share % micro == 0 && admits(&own, &said);
}

static void put(const PlanSpace *space, const SpacePlan *plan) {
  if (admits(space, plan)) space->visit(space->visitor, plan);
}

/* Stage 2 that adds up whole gradients is stage 1: the same program. */
static bool repeats_first(const PlanSpace *space, const SpacePlan *plan) {
  SpacePlan first = *plan;
  first.at[FIELD_ZERO] = 1, first.at[FIELD_FULL] = 0;
  return plan->at[FIELD_ZERO] == 2 && plan->at[FIELD_FULL] && admits(space, &first);
}

static void put_offload(const PlanSpace *space, SpacePlan plan) {
  bool ahead = plan.at[FIELD_OVERLAP] == OVERLAP_AHEAD; /* of parameters that devices update */
  int most = space->machine.host > 0 && !ahead ? OFFLOAD_PARAMS + 1 : 0;
  for (int n = 0; n <= most; n++) {
    plan.at[FIELD_OFFLOAD] = n;
    if (!n && repeats_first(space, &plan)) continue;
    if (n <= OFFLOAD_PARAMS || !plan.at[FIELD_OVERLAP]) put(space, &plan);
  }
}

/* In a pipeline nothing is gathered ahead of the first turn. */
static int most_overlap(const PlanSpace *space, const SpacePlan *plan, int stage) {
  if (!space->machine.gpus) return 0;
  return (stage == 1 || stage == 2) && plan->at[FIELD_PIPE] == 1 ? OVERLAP_AHEAD : 1;
}

static void put_zero(const PlanSpace *space, SpacePlan plan) {
  int32_t *at = plan.at;
  bool copies = at[FIELD_DATA] > 1 || at[FIELD_EXPERT] > 1;
  bool shards = copies || at[FIELD_CONTEXT] > 1;
  int64_t parts = space->batch / space_copies(&plan) / at[FIELD_MICRO];
  for (int stage = at[FIELD_REPLICA] > 1; stage <= (shards ? LAST_ZERO : 0); stage++)
    for (int over = space->only_over; over <= (stage && at[FIELD_CONTEXT] > 1); over++)
      for (int full = 0; full <= (stage > 1 && parts > 1); full++)
        for (int overlap = most_overlap(space, &plan, stage); overlap >= 0; overlap--) {
          at[FIELD_ZERO] = stage, at[FIELD_OVER] = over;
          at[FIELD_FULL] = full, at[FIELD_OVERLAP] = overlap;
          if (!over && stage && !copies) continue;
          put_offload(space, plan);
        }
}

/* With all micro-batches that divide the share of a rank. */
static void put_micro(const PlanSpace *space, SpacePlan plan) {
  int32_t *at = plan.at;
  int64_t share = space->batch / space_copies(&plan);
  for (int64_t micro = 1;; micro = divisor_from(share, micro + 1)) {
    at[FIELD_MICRO] = (int32_t)micro;
    for (int keep = 0; keep <= KEEP_SPLIT; keep++) {
      bool splits = at[FIELD_TENSOR] > 1 && !at[FIELD_SEQUENCE];
      at[FIELD_RECOMPUTE] = keep;
      if (!keep || (*space->stack && (keep == KEEP_INPUT || splits))) put_zero(space, plan);
    }
    if (micro == share) return;
  }
}

/* one_f_one_b, zero_bubble with both memories, interleaved: 1, 2, 3, then chunks + 2. */
static void put_pipeline(const PlanSpace *space, SpacePlan plan) {
  int64_t stages = plan.at[FIELD_PIPE], layers = space->layer_count;
  if (stages == 1) put_micro(space, plan);
  for (int n = 1; stages > 1 && n <= MOST_CHUNKS + 2; n++) {
    plan.at[FIELD_PIPELINE] = n;
    if (n <= 3 || layers % (stages * (n - 2)) == 0) put_micro(space, plan);
  }
}

static bool has_way(const PlanSpace *space, const SpacePlan *plan, int way) {
  int64_t ranks = plan->at[FIELD_CONTEXT];
  if (way == WAY_GATHER) return true;
  if (ranks == 1 || !space->heads) return false;
  if (way == WAY_BALANCED) return space->masked && space->sequence_size % (2 * ranks) == 0;
  if (way == WAY_RING) return true;
  const Dim *heads = dim_find(space->m, intern(space->m->ctx->names, space->heads));
  if (text_lists(space_tensor(space, plan), space->heads)) ranks *= plan->at[FIELD_TENSOR];
  return heads && heads->stored % ranks == 0;
}

/* Without `--fix way` one: more would be most of a space. */
static void put_ways(const PlanSpace *space, SpacePlan plan) {
  bool all = fixed(space->o, "way") != NULL;
  int first = !all && has_way(space, &plan, WAY_BALANCED) ? WAY_BALANCED : WAY_GATHER;
  for (int way = first; way < (all ? WAYS : first + 1); way++) {
    plan.at[FIELD_WAY] = way;
    if (has_way(space, &plan, way)) put_pipeline(space, plan);
  }
}

bool space_with_way(const PlanSpace *space, const SpacePlan *plan, int way, SpacePlan *out) {
  *out = *plan, out->at[FIELD_WAY] = way;
  return way != plan->at[FIELD_WAY] && !fixed(space->o, "way") && has_way(space, plan, way) &&
         plan->at[FIELD_CONTEXT] > 1;
}

/* Which of the axes `data` and `context` is first matters to plans that shard over both alone. */
static void put_orders(PlanSpace space, SpacePlan plan) {
  SpaceLinks seen[ORDERS];
  for (int order = 0; order < ORDERS; order++) {
    bool same = false;
    plan.at[FIELD_ORDER] = order, seen[order] = space_links(&space, &plan);
    space.only_over = false;
    for (int i = 0; i < order; i++) {
      if (!space_same_links(&seen[i], &seen[order])) continue;
      same |= seen[i].data_first == seen[order].data_first, space.only_over = true;
    }
    for (int sequence = 0; !same && sequence <= (plan.at[FIELD_TENSOR] > 1 && *space.sequence);
         sequence++) {
      plan.at[FIELD_SEQUENCE] = sequence;
      put_ways(&space, plan);
    }
  }
}

static bool divides_dims(const PlanSpace *space, const SpacePlan *plan) {
  const char *dims = space_tensor(space, plan);
  bool all = plan->at[FIELD_TENSOR] == 1 || *dims;
  for (uint32_t i = 0; i < space->m->dims.n; i++)
    if (text_lists(dims, space->m->dims.at[i].name))
      all &= space->m->dims.at[i].stored % plan->at[FIELD_TENSOR] == 0;
  return all;
}

/* ZeRO inside a node, copies over the nodes. */
static void put_data(const PlanSpace *space, SpacePlan plan, int64_t ranks) {
  int64_t inside = space->machine.in_node / plan.at[FIELD_TENSOR] / plan.at[FIELD_CONTEXT];
  if (space->batch % (ranks * plan.at[FIELD_EXPERT]) || !divides_dims(space, &plan)) return;
  plan.at[FIELD_DATA] = (int32_t)ranks, plan.at[FIELD_REPLICA] = 1;
  if (admits_first(space, &plan, SPACE_AXES)) put_orders(*space, plan);
  if (inside < 2 || inside >= ranks || ranks % inside || plan.at[FIELD_EXPERT] > 1) return;
  plan.at[FIELD_DATA] = (int32_t)inside, plan.at[FIELD_REPLICA] = (int32_t)(ranks / inside);
  if (admits_first(space, &plan, SPACE_AXES)) put_orders(*space, plan);
}

/* Experts have ranks of their own, or the axes of all others. */
static void put_experts(const PlanSpace *space, SpacePlan plan, int64_t ranks) {
  int64_t most = *space->experts && space->expert_count < ranks ? space->expert_count : ranks;
  for (int64_t n = 1; n <= (*space->experts ? most : 1); n++) {
    if (ranks % n || (n > 1 && space->expert_count % n)) continue;
    plan.at[FIELD_EXPERT] = (int32_t)n;
    put_data(space, plan, ranks / n);
  }
}

void space_list(const PlanSpace *all, SpaceVisit *visit, void *visitor) {
  PlanSpace own = *all, *space = &own;
  int64_t ranks = space->ranks;
  own.visit = visit, own.visitor = visitor;
  read_fixes(&own);
  for (int64_t t = 1; t <= ranks; t++) {
    if (ranks % t || (t > 1 && !*space->tensor)) continue;
    for (int64_t c = 1; t * c <= ranks && c <= MOST_CONTEXT; c++) {
      if (ranks / t % c || (c > 1 && (!*space->sequence || space->sequence_size % c))) continue;
      for (int64_t p = 1; t * c * p <= ranks && p <= MOST_STAGES; p++) {
        if (ranks / t / c % p || (p > 1 && (!*space->layers || p > space->layer_count))) continue;
        SpacePlan plan = {.at = {(int32_t)t, (int32_t)c}};
        plan.at[FIELD_PIPE] = (int32_t)p;
        put_experts(space, plan, ranks / t / c / p);
      }
    }
  }
}
