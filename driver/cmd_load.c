/* Files in and out, and from a file to a module: a `.shard` file is lowered, dumped IR is read and
 * goes on where it was. */
#include "cmd.h"
#include "codegen/codegen.h"
#include "driver/fit/fit.h"
#include "frontend/lower.h"
#include "frontend/model/sema.h"
#include "frontend/settings/settings.h"
#include "ir/communicator.h"
#include "ir/schedule/flight.h"
#include "ir/cost/machine.h"
#include "ir/schedule/message.h"
#include "ir/plan/stage_class.h"
#include "ir/support/input.h"
#include "ir/support/num.h"
#include "ir/support/output.h"
#include "ir/plan/module_settings.h"
#include "ir/word_patterns.h"
#include "ir/support/refused.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static Exit cannot_read(Ctx *c, const char *path) {
  report_unread(c, path);
  return EXIT_ENVIRONMENT;
}

char *file_read(Ctx *c, const char *path, size_t *n) {
  char *text = text_read(c, path, n);
  if (!text) cannot_read(c, path);
  return text;
}

/* IR begins with the word shardc-ir, after white space and comments. */
FileKind file_kind(Ctx *c, const char *path) {
  static const char mark[] = "shardc-ir";
  size_t n;
  const char *text = text_read(c, path, &n);
  if (!text) return FILE_MISSING;
  for (text += strspn(text, " \t\r\n"); *text == '#'; text += strspn(text, " \t\r\n"))
    text += strcspn(text, "\n");
  return strncmp(text, mark, sizeof mark - 1) ? FILE_SHARD : FILE_IR;
}

Cli cli_again(const Cli *o) {
  Cli one = *o;
  one.c = ctx_new();
  one.c->input = o->c->input, one.c->input_length = o->c->input_length;
  one.c->input_path = o->c->input_path, one.c->open = o->c->open;
  return one;
}

Module *load_shard(Cli *o, const char *path) {
  SearchedPlan searched = {0};
  LowerOptions lower = {.path = path, .model = o->value[OPT_MODEL], .train = o->value[OPT_TRAIN]};
  lower.searched = &searched;
  lower.layouts = o->layouts;
  lower.plan = o->value[OPT_PLAN], lower.written = o->written;
  lower.dims = o->dims.at, lower.ndims = o->dims.n;
  lower.sets = o->sets.at, lower.nsets = o->sets.n;
  Module *m = lower_program(o->c, &lower);
  if (m || !searched.word || diag_errors(o->c->diag)) return m;
  return fit_searched(o, &searched);
}

static Module *load_ir(Cli *o, const char *path) {
  size_t n;
  const char *text = file_read(o->c, path, &n);
  Module *m = text ? ir_parse(o->c, path, text, n) : NULL;
  bool good = m && settings_check_dump(m) && target_complete(m) && ir_verify(m);
  return good ? m : NULL; /* it may be edited by hand */
}

/* The target that the plan's machine names; "": it says nothing of it. For an arch that is none,
   the one whose programs a plan shows. */
const char *machine_target(const Module *m) {
  const char *name = machine_arch(m);
  if (!name || !strcmp(name, "native")) return "";
  const Arch *arch = arch_find(name);
  return arch && arch_only_planned(arch) ? arch->as : name;
}

/* False: the machine's arch is for plans alone, which is reported. */
bool machine_compiles(const Cli *o, const Module *m) {
  const char *name = machine_arch(m), *all = "";
  const Arch *arch = name ? arch_find(name) : NULL;
  if (o->value[OPT_TARGET] || !arch || !arch_only_planned(arch)) return true;
  for (int i = 0; target_name(i); i++) all = arena_list(o->c->arena, all, "%s", target_name(i));
  Report *r = diag_at(o->c->diag, "E0602", module_written(m, "plan.on").value,
                      "no programs are compiled for `arch = %s`, which is for `plan`", name);
  diag_label(r, "a machine with %s", name);
  diag_help(r, "`--target NAME` compiles for another one: %s", all);
  return false;
}

/* The command line overrides the machine of the plan. `verify`, which runs the ranks on this
   machine, prints no note about it. */
static void note_other_target(const Cli *o, const Module *m, const Target *target) {
  const char *of_machine = machine_target(m);
  if (!*of_machine || !strcmp(of_machine, target->name) || (o->planning && o->here) ||
      diag_given(o->c->diag, "N0602"))
    return;
  Report *r = diag_at(o->c->diag, "N0602", module_written(m, "plan.on").value,
                      "the target is %s, from `--target`", target->name);
  diag_label(r, "a machine with %s", of_machine);
}

static const char *default_target(const Cli *o, const Module *m) {
  const char *name = machine_target(m);
  const Target *target = *name ? target_find(name) : NULL;
  if (o->value[OPT_EMULATE] && !(target && target->facts.device == DEVICE_GPU))
    return target_first(DEVICE_GPU)->name;
  return *name ? name : "native";
}

/* The communicator does not affect numerics: what one rank computes stays the same. */
static Exit set_communicator(const Cli *o, Module *m) {
  const char *name = o->value[OPT_COMM];
  if (!name) return EXIT_FINE;
  if (!communicator_find(name))
    return cli_usage("`--comm` is one of %s, not `%s`", communicator_list(o->c->arena), name);
  module_set(m, "comm", "%s", name);
  return EXIT_FINE;
}

/* The number of workers that kernels are cut for, which is also the largest number that is
   started. */
static Exit count_workers(const Cli *o, const Target *target, int *workers) {
  enum { MOST = 1024 }; /* as many as a cpu_set_t holds */
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  int64_t n = cores > 0 ? cores : 1;
  *workers = (int)n;
  if (o->value[OPT_WORKERS] && target->facts.device == DEVICE_GPU)
    return cli_usage("`--workers` counts processors, and %s is a GPU", target->name);
  Exit e = cli_whole(o, OPT_WORKERS, 1, MOST, &n);
  *workers = (int)n;
  return e;
}

/* Sets the CPU target of the host if the plan runs updates on the host, with the rank's share of
   its cores. */
static void set_beside(Module *m, int cores) {
  if (!module_on_gpu(m) || !plan_offloads_any(m, OFFLOAD_OPTIMIZER)) return;
  const Target *target = target_find(module_word(m, "machine.host.arch"));
  int64_t said = module_whole(m, "machine.host.cores"), ranks = plan_machine(m).in_node;
  int64_t workers = (said ? said : cores) / (ranks ? ranks : 1);
  target_describe_beside(m, target, workers > 1 ? (int)workers : 1);
}

Exit know_targets(const Cli *o) {
  Arena *arena = o->c->arena;
  const char *all = "native", *list = o->value[OPT_TARGET];
  for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL) {
    const char *name = arena_strndup(arena, list, strcspn(list, ","));
    const char *own = arena_printf(arena, "%sa", name); /* of a generation that has only that one */
    const Target *older = target_find(name) ? NULL : target_for_newer(name);
    if (older && target_find(own)) return cli_usage("no target `%s`: it is `%s`", name, own);
    if (older)
      return cli_usage("no target `%s`: its instructions for products are not used; programs for "
                       "`%s` run on it, by the driver's assembler",
                       name, older->name);
    if (!target_find(name)) {
      for (int i = 0; target_name(i); i++) all = arena_printf(arena, "%s, %s", all, target_name(i));
      return cli_usage("no target `%s`; targets: %s", name, all);
    }
  }
  return EXIT_FINE;
}

static bool is_past(const Module *m, const char *pass) {
  const Pass *last = pass_find(m->after); /* in the table of all passes */
  return last && last >= pass_find(pass);
}

/* A dump keeps the facts of its target: none that were edited is dropped, and kernels that are
   grouped and cut for one target are not those of another. */
static Exit keeps_facts(const Cli *o, const Module *m, const char *name, bool *keeps) {
  const Target *target = name ? target_find(name) : NULL;
  *keeps = m->target.name && (!target || !strcmp(target->name, m->target.name));
  if (*keeps || !m->target.name) return EXIT_FINE;
  if (is_past(m, "select") ||
      (is_past(m, "fuse") && target->facts.device != target_of(m)->facts.device))
    return cli_usage("`%s` is IR after `%s`: its kernels are made for %s, not for `--target %s`",
                     o->operands.at[0], m->after, m->target.name, name);
  if (!target_edited(m)) return EXIT_FINE;
  return cli_usage("`%s` has facts of its own for %s, which `--target %s` would drop: leave it out",
                   o->operands.at[0], m->target.name, name);
}

static Exit set_target(Cli *o, Module *m) {
  const char *name = o->value[OPT_TARGET];
  if (m->target.name && o->value[OPT_WORKERS])
    return cli_usage("`%s` is made for %lld workers already: `--workers` is for model files, and "
                     "for IR without a target",
                     o->operands.at[0], (long long)m->target.workers);
  bool keeps;
  Exit e = keeps_facts(o, m, name, &keeps);
  if (e != EXIT_FINE || keeps) return e;
  const Target *target = target_find(name ? name : default_target(o, m));
  must(target, "no target for the module");
  if (name) note_other_target(o, m, target);
  int workers;
  e = count_workers(o, target, &workers);
  if (e == EXIT_FINE) target_describe(m, target, workers), set_beside(m, workers);
  return e;
}

/* The word that lets messages fly; else the whole line. */
static Span flight_word(const Module *m) {
  Span overlap = module_written(m, "plan.zero.overlap").value,
       ahead = module_written(m, "plan.zero.prefetch").value;
  return overlap.file ? overlap : ahead.file ? ahead : module_written(m, "plan.zero").all;
}

/* Messages staged through the host do not fly: the host sends them. */
static Exit check_flies(const Cli *o, const Module *m) {
  bool overlap = plan_overlaps(m);
  Ahead ahead = flights_ahead(m);
  if (!message_by_host(m) || (ahead.layers <= 0 && ahead.bytes <= 0 && !overlap)) return EXIT_FINE;
  Report *r = diag_at(o->c->diag, "E0602", flight_word(m),
                      "messages of GPUs over `--comm %s` are staged through the host, which waits "
                      "for each: none overlaps with the computation",
                      module_communicator(m)->name);
  diag_help(r, "leave out `--comm`, for %s, or `overlap` and `prefetch`",
            communicator_default(m)->words);
  return EXIT_INPUT;
}

Exit describe_target(Cli *o, Module *m) {
  Exit e = set_communicator(o, m);
  if (e == EXIT_FINE) e = set_target(o, m);
  const Communicator *communicator = module_communicator(m);
  if (e == EXIT_FINE && !module_on_gpu(m) && communicator->on_device)
    return cli_usage("`--comm %s` is for GPUs: add `--target %s`, or another GPU",
                     communicator->name, target_first(DEVICE_GPU)->name);
  if (e == EXIT_FINE) e = check_flies(o, m);
  return e;
}

static bool names_choices(const Cli *o) {
  return o->dims.n || o->sets.n || o->value[OPT_MODEL] || o->value[OPT_TRAIN] || o->value[OPT_PLAN];
}

static Exit choose_class(const Cli *o, Module *m) {
  const char *name = o->value[OPT_CLASS], *own = module_class(m).name;
  if (!name) return EXIT_FINE;
  if (*own && strcmp(own, name) != 0)
    return cli_usage("`--class %s`: `%s` is IR of the class %s", name, o->operands.at[0], own);
  if (module_choose_class(m, name)) return EXIT_FINE;
  return cli_usage("`--class` is first, middle, middle_1, middle_2_5, last or the like, not `%s`",
                   name);
}

Exit load_module(Cli *o, Module **m) {
  const char *path = o->operands.at[0];
  FileKind kind = file_kind(o->c, path);
  *m = NULL;
  Exit e = know_targets(o);
  if (e != EXIT_FINE) return e;
  if (kind == FILE_MISSING) return cannot_read(o->c, path);
  if (kind == FILE_IR && names_choices(o))
    return cli_usage("`%s` is IR: its model, plan, sizes and settings are fixed already", path);
  *m = kind == FILE_IR ? load_ir(o, path) : load_shard(o, path);
  if (*m && !can_write_all(o)) return EXIT_ENVIRONMENT; /* an output is a file that was read */
  if (*m && kind == FILE_SHARD) fit_choose(o, *m);
  if (*m && (e = choose_class(o, *m)) != EXIT_FINE) return e;
  if (o->here)
    diag_drop(o->c->diag, "N0701"); /* the ranks run on this machine, whatever the plan's
                                                  machine is */
  if (diag_errors(o->c->diag)) return EXIT_INPUT;
  return *m ? use_records(o, *m) : EXIT_ENVIRONMENT;
}

/* ---- out ---- */

static Exit cannot_write(Ctx *c, const char *path) {
  diag_refused(c->diag, "E0002", CANNOT_WRITE, path);
  return EXIT_ENVIRONMENT;
}

static bool is_read(Ctx *c, const char *path) {
  Report *r =
      diag_at(c->diag, "E0002", (Span){0}, "cannot write `%s`: this command reads it", path);
  diag_help(r, "name another file");
  return false;
}

/* Found out before the long work, not after it. */
bool can_write(Ctx *c, const char *path) {
  if (!strcmp(path, "-")) return true;
  if (text_was_read(c, path)) return is_read(c, path);
  return output_possible(c->arena, path) || (cannot_write(c, path), false);
}

/* A folder that exists can be written in, and one that does not can be made. */
static bool can_fill(Ctx *c, const char *path) {
  struct stat info;
  if (stat(path, &info)) return can_write(c, path);
  if (S_ISDIR(info.st_mode) && !access(path, W_OK | X_OK)) return true;
  if (!S_ISDIR(info.st_mode)) errno = ENOTDIR;
  return cannot_write(c, path), false;
}

bool can_write_all(const Cli *o) {
  static const CliOption files[] = {OPT_OUTPUT, OPT_HTML, OPT_SVG},
                         folders[] = {OPT_KEEP, OPT_DUMP_IR};
  for (size_t i = 0; i < COUNT_OF(files); i++)
    if (o->value[files[i]] && !can_write(o->c, o->value[files[i]])) return false;
  for (size_t i = 0; i < COUNT_OF(folders); i++)
    if (o->value[folders[i]] && !can_fill(o->c, o->value[folders[i]])) return false;
  return true;
}

Exit write_text(Ctx *c, const char *path, const char *text, size_t n) {
  if (!strcmp(path, "-"))
    return fwrite(text, 1, n, stdout) == n ? EXIT_FINE : cannot_write(c, "stdout");
  return output_write(c->arena, path, text, n, 0666) ? EXIT_FINE : cannot_write(c, path);
}

bool make_folder(Ctx *c, const char *path) {
  struct stat info;
  if (!mkdir(path, 0777) || (!stat(path, &info) && S_ISDIR(info.st_mode))) return true;
  return cannot_write(c, path), false;
}

/* Errors of the surroundings, not of the input: files (E00xx), dumps (E1201), compilers and linkers
 * (E13xx). */
static bool of_surroundings(const char *code) {
  return !strncmp(code, "E00", 3) || !strcmp(code, "E0803") || !strcmp(code, "E1201") ||
         !strncmp(code, "E13", 3);
}

Exit exit_of(const Cli *o, Exit otherwise) {
  const char *code = diag_first_code(o->c->diag);
  if (otherwise == EXIT_USAGE || !code) return otherwise;
  if (!strcmp(code, "E0801") || !strcmp(code, "E0802")) return EXIT_NO;
  if (diag_given(o->c->diag, "E1204")) return EXIT_BUG;
  return of_surroundings(code) ? EXIT_ENVIRONMENT : EXIT_INPUT;
}

Exit cli_report(Cli *o, Exit otherwise) {
  diag_print(o->c->diag, stderr, o->format, o->colour);
  return exit_of(o, otherwise);
}
