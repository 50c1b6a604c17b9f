/* Machines: the settings of a block must be consistent (E0602, E0606), and a plan's mesh must fit
   its machine: enough GPUs (E0708), a note about idle ones (N0701), nodes that can hold the axes
   that split layers (W0708). The traffic between nodes for each order of axes is known only after
   the passes (W0701). The supported processors are in settings.def (choices of node.arch). */
#include "sema_plan.h"
#include "ir/plan/module_settings.h"
#include "ir/support/num.h"
#include <string.h>

/* ---- the block ---- */

static bool is_gpu(const AstValue *arch) {
  return arch && arch->kind == VALUE_PATH && !strncmp(arch->path->text, "sm_", 3);
}

static const char *gpu_archs(Ctx *c) {
  uint32_t n;
  const SettingRow *rows = settings_table(&n);
  const char *text = "";
  for (uint32_t i = 0; i < n; i++)
    if (rows[i].kind == ROW_CHOICE && !strcmp(rows[i].word, "node.arch") &&
        !strncmp(rows[i].key, "sm_", 3))
      text = arena_list(c->arena, text, "`arch = %s` (%s)", rows[i].key, rows[i].help);
  return text;
}

enum { MOST_CORES = 1024, LEAST_MEMORY = 1 << 20 /* in bytes without a unit */ };

static void check_cores(World *w, const AstItem *item, const AstValue *gpus) {
  const AstValue *cores = settings_value(item, "node", "cores");
  if (cores && gpus)
    diag_help(world_error(w, "E0602", cores->span, "`cores` of a node with GPUs"),
              "`host cores = ..` are those of their host");
}

static void check_host(World *w, const AstItem *item, const AstValue *gpus) {
  const AstSetting *host = settings_line(item, "host");
  const AstValue *cores = settings_value(item, "host", "cores");
  if (host && !gpus) {
    Report *r =
        world_error(w, "E0602", host->path->span, "`host` is that of GPUs, and the node has none");
    diag_help(r, "`node memory = ..` is the whole memory of a node of CPUs");
  }
  if (cores && cores->number.value > MOST_CORES)
    diag_help(world_error(w, "E0602", cores->span, "a host of %lld cores",
                          (long long)cores->number.integral),
              "%d at most, as many as a set of processors holds", MOST_CORES);
}

/* Measured rates of kernels, links and memories are within the peaks of the block. */
static void check_reached(World *w, const AstItem *item) {
  static const struct {
    const char *word, *line, *peak;
  } bounds[] = {{"memory", "node", "hbm"},
                {"intra", "link", "intra"},
                {"inter", "link", "inter"},
                {"pcie", "host", "pcie"},
                {"dram", "host", "dram"}};
  for (size_t i = 0; i < COUNT_OF(bounds); i++) {
    const AstValue *rate = settings_value(item, "reached", bounds[i].word),
                   *peak = settings_value(item, bounds[i].line, bounds[i].peak);
    if (!rate || !peak || rate->number.value <= peak->number.value) continue;
    Report *r =
        world_error(w, "E0602", rate->span, "`reached %s` is more than its peak", bounds[i].word);
    diag_also(r, peak->span, "`%s %s`", bounds[i].line, bounds[i].peak);
  }
  const AstValue *launch = settings_value(item, "reached", "launch");
  if (launch && launch->number.value <= 0)
    world_error(w, "E0602", launch->span, "`launch` is a time above 0");
}

/* Shares of time in which threads of a rank, and ranks, of processors wait for the slowest. */
static void check_waits(World *w, const AstItem *item) {
  static const char *const words[] = {"joined", "balance"}, *const of[] = {"threads", "CPUs"};
  const AstValue *gpus = settings_value(item, "node", "gpus");
  for (size_t i = 0; i < COUNT_OF(words); i++) {
    const AstValue *share = settings_value(item, "reached", words[i]);
    if (share && share->number.value <= 0)
      world_error(w, "E0602", share->span, "`%s` is a share above 0", words[i]);
    if (share && gpus)
      world_error(w, "E0602", share->span, "`%s` is a share of %s, and the node has GPUs", words[i],
                  of[i]);
  }
}

/* `memory = 80` is 80 bytes, into which no plan fits. */
static void check_memory(World *w, const AstItem *item, const char *line) {
  const AstValue *memory = settings_value(item, line, "memory");
  if (!memory || memory->number.value >= (memory->number.unit == UNIT_NONE ? LEAST_MEMORY : 1))
    return;
  Report *r = world_error(w, "E0602", memory->span, "`memory` of `%s` is %.0f bytes", line,
                          memory->number.value);
  if (memory->number.value < 1) {
    diag_help(r, "more than 0, or leave it out: then no plan is too large for it");
    return;
  }
  diag_help(r, "with a unit, such as `%sGiB`", memory->number.text);
  diag_edit(r, memory->span, "%sGiB", memory->number.text);
}

/* The driver's and the libraries' part of the memory, written or not, leaves some for programs. */
static void check_reserve(World *w, const AstItem *item) {
  const AstValue *memory = settings_value(item, "node", "memory"),
                 *reserve = settings_value(item, "node", "reserve");
  if (!memory || memory->number.value < 1) return;
  if (reserve && reserve->number.value >= memory->number.value)
    diag_label(world_error(w, "E0602", reserve->span, "`reserve` leaves nothing of `memory`"),
               "the driver's and the libraries' part of it");
  bool taken = settings_value(item, "node", "gpus") && memory->number.value <= GPU_RESERVE;
  if (reserve || !taken) return;
  Report *r = world_error(w, "E0602", memory->span, "`reserve` leaves nothing of `memory`");
  diag_label(r, "driver and libraries of a GPU take %s of it",
             arena_amount(w->ctx->arena, GPU_RESERVE));
  diag_help(r, "more memory, or, where they take less: `reserve = %lldKiB`",
            (long long)memory->number.value / 8 / 1024);
}

void check_machine_block(World *w, const AstItem *item) {
  const AstValue *gpus = settings_value(item, "node", "gpus"),
                 *arch = settings_value(item, "node", "arch");
  if (gpus && !arch) {
    Report *r = world_error(w, "E0606", gpus->span, "`node` with `gpus` has no `arch`");
    diag_help(r, "%s", gpu_archs(w->ctx));
  } else if (gpus && !is_gpu(arch)) {
    Report *r = world_error(w, "E0602", arch->span, "`%s` is no GPU, and the node has `gpus`",
                            arch->path->text);
    diag_help(r, "%s", gpu_archs(w->ctx));
  } else if (!gpus && is_gpu(arch)) {
    Report *r = world_error(w, "E0602", arch->span, "`%s` is a GPU, and the node has no `gpus`",
                            arch->path->text);
    diag_help(r, "`gpus = N`: how many a node has, each with a rank of its own");
  }
  check_cores(w, item, gpus), check_host(w, item, gpus);
  check_reached(w, item), check_waits(w, item);
  check_memory(w, item, "node"), check_memory(w, item, "host");
  check_reserve(w, item);
}

/* ---- a plan on it ---- */

static void too_many(PlanCheck *check, const Decl *decl, const AstValue *on, int64_t ranks,
                     int64_t gpus, int64_t nodes) {
  const AstSetting *mesh = settings_line(check->item, "mesh");
  Report *r = world_error(check->w, "E0708", mesh->span, "a mesh of %lld ranks on %lld GPUs",
                          (long long)ranks, (long long)(gpus * nodes));
  diag_also(r, on->span, "machine `%s`", decl->name);
  long long needed = (long long)((ranks + gpus - 1) / gpus);
  const AstValue *written = settings_value(check->item, "on", "nodes");
  diag_help(r, "`on %s nodes = %lld`", decl->name, needed);
  if (written) diag_edit(r, written->span, "%lld", needed);
  else
    diag_edit(r, (Span){on->span.file, on->span.offset + on->span.length, 0}, " nodes = %lld",
              needed);
}

static void note_idle(PlanCheck *check, const AstValue *on, int64_t ranks, int64_t all) {
  const AstSetting *mesh = settings_line(check->item, "mesh");
  Report *r =
      world_error(check->w, "N0701", mesh ? mesh->span : on->span, "%lld of %lld GPUs have no rank",
                  (long long)(all - ranks), (long long)all);
  diag_label(r, mesh ? "%lld ranks" : "one rank: the plan has no `mesh`", (long long)ranks);
  if (mesh) diag_also(r, on->span, "%lld GPUs", (long long)all);
}

void report_no_machine(World *w, Span span, const char *name) {
  Report *r = world_error(w, "E0201", span, "no machine named `%s`", name);
  const char *near = world_nearest(w, SPACE_MACHINE, name), *names = "";
  uint32_t at = 0;
  diag_near(r, "a machine", near);
  for (const Decl *decl; (decl = world_next(w, SPACE_MACHINE, &at));)
    names = arena_list(w->ctx->arena, names, "`%s`", decl->name);
  if (!near && *names) diag_help(r, "machines of the file and of those that it uses: %s", names);
  diag_help(r,
            "a machine is a block: `machine %s { node gpus = 8 arch = sm_90a memory = 80GB; link "
            "inter = 400GB/s }`",
            name);
}

void check_machine(PlanCheck *check) {
  const AstValue *on = settings_value(check->item, "on", NULL);
  if (!on || on->kind != VALUE_PATH) return;
  const Decl *decl =
      world_find(check->w, SPACE_MACHINE, intern(check->e->ctx->names, on->path->text), false);
  if (!decl) {
    report_no_machine(check->w, on->span, on->path->text);
    return;
  }
  int64_t ranks = plan_mesh_ranks(check);
  int64_t gpus = settings_integer(decl->item, ITEM_MACHINE, "node", "gpus");
  int64_t nodes = settings_integer(check->item, ITEM_PLAN, "on", "nodes");
  if (gpus <= 0 || nodes <= 0) return;
  int64_t all = times_i64(gpus, nodes);
  if (settings_line(check->item, "mesh") && ranks > all)
    too_many(check, decl, on, ranks, gpus, nodes);
  else if (ranks < all) note_idle(check, on, ranks, all);
}

/* ---- W0708 ---- */

/* Does the line split elements of layers? Then its ranks talk in every layer. */
static bool splits_layers(const PlanCheck *check, const PlaceLine *rule) {
  for (uint32_t i = 0; i < rule->dims.n; i++)
    if (!rule->dims.at[i].otherwise && strcmp(rule->dims.at[i].dim, "Batch") != 0 &&
        !plan_is_stack_dim(check, rule->dims.at[i].dim))
      return true;
  return false;
}

/* The axis of Batch, another than `narrow`, that can have `times` as many ranks; NULL: none. */
static const PlanAxis *other_axis(const PlanCheck *check, const PlanAxis *narrow, int64_t times) {
  const PlaceLine *rule = plan_batch_rule(check);
  const AstItem *train = check->c->train ? check->c->train->item : NULL;
  int64_t batch = settings_integer(train, ITEM_TRAIN, "batch", NULL), micro = 1;
  if (settings_value(check->item, "micro", NULL))
    micro = settings_integer(check->item, ITEM_PLAN, "micro", NULL);
  bool divides = rule && rule->axes.n && micro > 0 && batch > 0 &&
                 batch % times_i64(times_i64(plan_batch_ranks(check), times), micro) == 0;
  return divides && rule->axes.at[0] != narrow ? rule->axes.at[0] : NULL;
}

static void help_narrow(PlanCheck *check, Report *r, const PlanAxis *axis, int64_t gpus) {
  int64_t n = min_i64(gpus, axis->size); /* of a mesh: at most 2^20 */
  while (axis->size % n || gpus % n) n--;
  const PlanAxis *other = other_axis(check, axis, axis->size / n);
  if (other)
    diag_help(r, "`%s = %lld, %s = %lld` uses the same number of ranks", axis->name, (long long)n,
              other->name, (long long)(other->size * axis->size / n));
  else diag_help(r, "`%s = %lld`", axis->name, (long long)n);
  diag_edit(r, axis->value, "%lld", (long long)n);
  if (other) diag_edit(r, other->value, "%lld", (long long)(other->size * axis->size / n));
}

/* No order of the mesh's axes keeps such an axis inside of a node. */
void warn_wide(PlanCheck *check, const PlaceLine *rule) {
  const AstValue *on = settings_value(check->item, "on", NULL);
  const Decl *decl = on && on->kind == VALUE_PATH
                         ? world_find(check->w, SPACE_MACHINE, on->path->text, false)
                         : NULL;
  int64_t gpus = decl ? settings_integer(decl->item, ITEM_MACHINE, "node", "gpus") : 0;
  for (uint32_t i = 0; gpus > 0 && splits_layers(check, rule) && i < rule->axes.n; i++) {
    const PlanAxis *axis = rule->axes.at[i];
    if (axis->size <= gpus) continue;
    Report *r =
        world_error(check->w, "W0708", axis->value,
                    "mesh axis `%s` does not fit in a node: %lld ranks, %lld GPUs in a node",
                    axis->name, (long long)axis->size, (long long)gpus);
    diag_label(r, "every layer would communicate over the network");
    diag_also(r, on->span, "machine `%s`", decl->name);
    help_narrow(check, r, axis, gpus);
  }
}

const Decl *plan_machine_of(World *w, const Decl *plan) {
  const AstValue *on = plan ? settings_value(plan->item, "on", NULL) : NULL;
  return on && on->kind == VALUE_PATH ? world_find(w, SPACE_MACHINE, on->path->text, false) : NULL;
}
