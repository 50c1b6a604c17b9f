/* `shardc fit`: the largest sizes of dims with which a plan fits into the memory of its machine.
   The dims grow in the proportion that they have in the file, each by multiples of a step: the one
   that --scale gives, or the smallest divisor of its size by which it can grow, since heads, axes
   of the mesh and stages must divide it. So sizes are a list in which no dim ever shrinks, and the
   bytes of a rank grow along it: bisection, over programs that are compiled to pass `memory`. Open
   choices of the plan (`micro`, `pipeline auto`, ..) are made anew for each size. Must not:
   estimate. */
#include "fit.h"
#include "driver/progress_line.h"
#include "driver/sheet/sheet.h"
#include "frontend/lower.h"
#include "ir/shape/placement.h"
#include "ir/support/num.h"
#include "ir/word_patterns.h"
#include <stdlib.h>

enum { MOST_DIMS = 8 };
static const int64_t MOST_SIZE = 1LL << 40;

typedef struct GrownDim { /* a dim */
  const char *name;
  int64_t base, step; /* its size in the file */
} GrownDim;

typedef struct Sized { /* a program of some size */
  int64_t number;      /* 0: none */
  int64_t size[MOST_DIMS];
  bool made;
  const char *why; /* if it is not */
  Cost cost;
} Sized;

typedef struct Fitting {
  Cli *o;
  Module *m;
  ChangeSearch search;
  int n;
  GrownDim dim[MOST_DIMS];
  int finest; /* the dim that takes every step; others follow it */
  ProgressLine progress;
} Fitting;

/* ---- programs of a size ---- */

static const char *key_of(const Fitting *fit, int i) {
  return arena_printf(fit->o->c->arena, "dim.%s", fit->dim[i].name);
}

/* The sum of all ranks. */
static double count_parameters(const Fitting *fit, const Change *change) {
  Cli one = cli_again(fit->o);
  one.dims = (Strings){0};
  for (uint32_t i = 0; i < fit->o->dims.n; i++)
    vec_push(one.c->arena, one.dims, fit->o->dims.at[i]);
  for (uint32_t i = 0; i < change->n; i++)
    vec_push(one.c->arena, one.dims,
             arena_printf(one.c->arena, "%s=%s", change->line[i].key + strlen("dim."),
                          change->line[i].value));
  Module *m = load_shard(&one, one.operands.at[0]);
  double count = 0;
  for (uint32_t i = 0; m && i < m->globals.n; i++)
    if (m->globals.at[i]->kind == GLOBAL_PARAM)
      count += (double)type_count(&m->globals.at[i]->type);
  ctx_free(one.c);
  return count;
}

static bool try_sizes(const Fitting *fit, const int64_t *size, Cost *cost, const char **why) {
  Change change = {0};
  Programs programs;
  Ctx *c;
  for (int i = 0; i < fit->n; i++)
    change = change_with(fit->o->c->arena, change, key_of(fit, i), "%lld", (long long)size[i]);
  if (!change_anew(fit->o, &change, &c, &programs, why)) return false;
  *cost = search_cost(&fit->search, &programs);
  ctx_free(c);
  return true;
}

static const char *sizes_text(const Fitting *fit, const Sized *one) {
  const char *text = "";
  for (int i = 0; i < fit->n; i++)
    text =
        arena_list(fit->o->c->arena, text, "%s = %lld", fit->dim[i].name, (long long)one->size[i]);
  return text;
}

/* Number `number` of the list of sizes. */
static Sized sized(Fitting *fit, int64_t number) {
  const GrownDim *finest = &fit->dim[fit->finest];
  Sized one = {.number = number};
  double factor = (double)number * (double)finest->step / (double)finest->base;
  for (int i = 0; i < fit->n; i++) {
    const GrownDim *dim = &fit->dim[i];
    int64_t steps = (int64_t)(factor * (double)dim->base / (double)dim->step * (1 + 1e-12));
    one.size[i] = dim->step * (steps > 1 ? steps : 1);
  }
  progress_say(fit->o, &fit->progress, "fit: %s", sizes_text(fit, &one));
  one.made = try_sizes(fit, one.size, &one.cost, &one.why);
  return one;
}

static bool fits(const Fitting *fit, const Sized *one) {
  Try try = {.made = one->made, .cost = one->cost};
  return search_fits(&fit->search, &try);
}

/* ---- steps ---- */

static bool grows_by(const Fitting *fit, int i, int64_t step, const char **why) {
  int64_t size[MOST_DIMS];
  Cost cost;
  for (int k = 0; k < fit->n; k++) size[k] = fit->dim[k].base + (k == i ? step : 0);
  return try_sizes(fit, size, &cost, why);
}

/* A size that is a multiple of the step, and grows by it, can have any multiple. */
static Exit find_step(Fitting *fit, int i, const char *given) {
  GrownDim *dim = &fit->dim[i];
  const char *why = "";
  int64_t asked = 0;
  if (given && !whole_number(given, 1, MOST_SIZE, &asked))
    return cli_usage("`--scale %s=..` takes a whole number from 1 to %lld, not `%s`", dim->name,
                     (long long)MOST_SIZE, given);
  for (int64_t step = 1; !dim->step && step <= dim->base;
       step = divisor_from(dim->base, step + 1)) {
    if (grows_by(fit, i, step, &why)) dim->step = step;
    if (step == dim->base) break;
  }
  if (!dim->step)
    return cli_usage("`--scale`: `%s` cannot grow from %lld to %lld: %s", dim->name,
                     (long long)dim->base, (long long)(2 * dim->base), why);
  if (asked % dim->step)
    return cli_usage("`--scale %s=%s`: heads and the plan allow multiples of %lld", dim->name,
                     given, (long long)dim->step);
  if (asked) dim->step = asked;
  return EXIT_FINE;
}

static bool is_sized(const Dim *dim) {
  return dim->size && !dim->like && !dim->part && strcmp(dim->name, "Batch") != 0;
}

static const char *dim_names(const Fitting *fit) {
  const char *text = "";
  for (uint32_t i = 0; i < fit->m->dims.n; i++)
    if (is_sized(&fit->m->dims.at[i]))
      text = arena_list(fit->o->c->arena, text, "%s", fit->m->dims.at[i].name);
  return text;
}

/* Embed, or Embed=256 */
static Exit add_dim(Fitting *fit, const char *text) {
  size_t n = strcspn(text, "=");
  const char *name = arena_strndup(fit->o->c->arena, text, n);
  const Dim *found = NULL;
  for (uint32_t i = 0; i < fit->m->dims.n; i++)
    if (!strcmp(fit->m->dims.at[i].name, name)) found = &fit->m->dims.at[i];
  if (!strcmp(name, "Batch"))
    return cli_usage("`--scale Batch`: the batch is no size of the model: `--set train.batch=N`");
  if (found && found->like)
    return cli_usage("`--scale %s`: it is as large as `%s`: scale that one", name, found->like);
  if (!found || !is_sized(found))
    return cli_usage("`--scale` takes %s, not `%s`", dim_names(fit), name);
  for (int i = 0; i < fit->n; i++)
    if (!strcmp(fit->dim[i].name, name)) return cli_usage("`--scale` names `%s` twice", name);
  if (fit->n == MOST_DIMS) return cli_usage("`--scale` takes at most %d dims", MOST_DIMS);
  fit->dim[fit->n++] = (GrownDim){.name = name, .base = found->size};
  return EXIT_FINE;
}

static Exit find_dims(Fitting *fit) {
  const char *list = fit->o->value[OPT_SCALE], *given[MOST_DIMS];
  Exit e = EXIT_FINE;
  for (size_t n; *list && e == EXIT_FINE; list += n + strspn(list + n, ", ")) {
    n = strcspn(list, ", ");
    const char *text = arena_strndup(fit->o->c->arena, list, n), *sign = strchr(text, '=');
    e = add_dim(fit, text);
    if (e == EXIT_FINE) given[fit->n - 1] = sign ? sign + 1 : NULL;
  }
  for (int i = 0; i < fit->n && e == EXIT_FINE; i++) {
    e = find_step(fit, i, given[i]);
    const GrownDim *dim = &fit->dim[i], *finest = &fit->dim[fit->finest];
    if (e == EXIT_FINE && dim->base / dim->step > finest->base / finest->step) fit->finest = i;
  }
  return e;
}

/* ---- the largest ---- */

/* The largest that fits, and the next one; from the size of the file, where the smallest is none
   of the model (a table of positions shorter than the sequence). */
static void find_largest(Fitting *fit, Sized *most, Sized *next) {
  const GrownDim *finest = &fit->dim[fit->finest];
  *most = (Sized){0}, *next = sized(fit, 1);
  if (!next->made && finest->base > finest->step) *next = sized(fit, finest->base / finest->step);
  while (fits(fit, next) && next->size[fit->finest] < MOST_SIZE)
    *most = *next, *next = sized(fit, 2 * next->number);
  while (most->number && next->number - most->number > 1) {
    Sized middle = sized(fit, most->number + (next->number - most->number) / 2);
    if (fits(fit, &middle)) *most = middle;
    else *next = middle;
  }
}

/* ---- figures ---- */

static double bytes_of(const Fitting *fit, const Sized *one) {
  return (double)(budget_all(&one->cost.need) + fit_machine(fit->o, fit->m).reserve);
}

static void say_size(Sheet *sheet, const Fitting *fit, const Sized *one, const char *head) {
  Change change = {0};
  for (int i = 0; i < fit->n; i++)
    change = change_with(fit->o->c->arena, change, key_of(fit, i), "%lld", (long long)one->size[i]);
  sheet_open(sheet, head);
  sheet_say(sheet, "{}: {sizes}", as_text(head), as_text(sizes_text(fit, one)));
  if (one->made)
    sheet_say(sheet, "; {parameters} parameters, {bytes} on the fullest rank",
              as_count(count_parameters(fit, &change)), as_bytes(bytes_of(fit, one)));
  sheet_say(sheet, "\n");
  for (int i = 0; i < fit->n; i++)
    sheet_put(sheet, arena_printf(fit->o->c->arena, "{dims.%s}", fit->dim[i].name),
              as_count((double)one->size[i]));
  sheet_close(sheet);
}

static void say_overflow(Sheet *sheet, const Fitting *fit, const Sized *one) {
  const Budget *need = &one->cost.need;
  double host = (double)one->cost.host;
  if (!one->made) {
    sheet_say(sheet, "  the plan cannot be compiled for this size: {refused}\n", as_text(one->why));
    return;
  }
  bool device = !fits(fit, &(Sized){.made = true, .cost = {.need = *need}});
  sheet_say(sheet, "  {overflows} overflows: ", as_text(device ? "the device" : "the host"));
  if (!device)
    sheet_say(sheet, "{host_bytes} of {host_capacity}\n", as_bytes(host),
              as_bytes((double)fit->search.host));
  else
    sheet_say(sheet,
              "weights {parts.weights}, gradients {parts.gradients}, optimizer {parts.optimizer}, "
              "saved {parts.saved}, working {parts.working}, buffers {parts.buffers}\n",
              as_bytes((double)need->weights), as_bytes((double)need->gradients),
              as_bytes((double)need->optimizer), as_bytes((double)need->saved),
              as_bytes((double)need->working), as_bytes((double)need->buffers));
}

static void say_all(Sheet *sheet, const Fitting *fit, const Sized *most, const Sized *next) {
  const Module *m = fit->m;
  double capacity = (double)(fit->search.device + fit_machine(fit->o, m).reserve);
  const char *steps = "";
  for (int i = 0; i < fit->n; i++)
    steps = arena_list(fit->o->c->arena, steps, "%s by %lld", fit->dim[i].name,
                       (long long)fit->dim[i].step);
  sheet_put(sheet, "{schema}", as_count(1));
  sheet_say(sheet, "{model}, {}: {ranks} rank{}, {capacity} each; {steps}\n", as_text(m->model),
            as_text(fit_subject(m)), as_exact((double)mesh_ranks(m)),
            as_text(mesh_ranks(m) > 1 ? "s" : ""), as_bytes(capacity), as_text(steps));
  if (most->number) say_size(sheet, fit, most, "largest");
  say_size(sheet, fit, next, "next");
  say_overflow(sheet, fit, next);
}

/* ---- the command ---- */

static Exit choose_plan(Cli *o) {
  const char *names = program_plans(o->c, o->operands.at[0]);
  if (!names) return EXIT_ENVIRONMENT;
  if (o->value[OPT_PLAN] || !*names) return EXIT_FINE;
  if (strchr(names, ','))
    return cli_usage("`%s` has the plans %s: --plan NAME", o->operands.at[0], names);
  o->value[OPT_PLAN] = names;
  return EXIT_FINE;
}

Exit cmd_fit(Cli *o) {
  Fitting fit = {.o = o};
  FileKind kind = file_kind(o->c, o->operands.at[0]);
  if (!o->value[OPT_SCALE])
    return cli_usage("`shardc fit` needs the dims that grow: `--scale Layers,Embed`");
  if (kind == FILE_IR) return cli_usage("`fit` needs a model file: the sizes of a dump are fixed");
  Exit e = know_targets(o);
  if (e == EXIT_FINE && kind == FILE_SHARD) e = choose_plan(o);
  if (e != EXIT_FINE) return cli_report(o, e);
  o->planning = true;
  Cli one = cli_again(o);
  fit.m = load_shard(&one, o->operands.at[0]);
  if (!fit.m || diag_errors(one.c->diag)) return cli_report(&one, EXIT_ENVIRONMENT);
  fit.search = search_new(o, fit.m, BY_BYTES);
  e = find_dims(&fit);
  if (e != EXIT_FINE) return e;
  Sized most, next;
  find_largest(&fit, &most, &next);
  progress_end(&fit.progress);
  Sheet *sheet = sheet_new(o->c->arena);
  say_all(sheet, &fit, &most, &next);
  sheet_show(sheet, o->value[OPT_JSON]);
  return most.number ? EXIT_FINE : EXIT_NO;
}
