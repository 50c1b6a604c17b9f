/* `shardc launch slurm|mpirun|k8s FILE --plan P,..`: writes the script with which a site starts the
   executable of these plans. The scripts are the files slurm.sh, mpirun.sh, k8s.yaml of this
   folder, with the numbers of the plans in place of @WORD@; lines that begin with @gpu@ are for
   plans on GPUs, those with @net@ for GPUs of several nodes. Must not: start anything. */
#include "driver/cmd.h"
#include "ir/communicator.h"
#include "ir/cost/machine.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include "ir/support/num.h"
#include "launch_arguments.h"
#include "runtime/start_ranks.h"
#include <stdlib.h>

const char *slurm_sh_text(size_t *n);
const char *mpirun_sh_text(size_t *n);
const char *k8s_yaml_text(size_t *n);

typedef struct LaunchKind {
  const char *name;
  const char *(*text)(size_t *n);
  bool yaml; /* words of the command are those of a list, not of a shell */
} LaunchKind;

static const LaunchKind kinds[] = {{"slurm", slurm_sh_text, false},
                                   {"mpirun", mpirun_sh_text, false},
                                   {"k8s", k8s_yaml_text, true}};

enum { MOST_PLANS = 64 };

typedef struct LaunchScript {
  Cli *o;
  const LaunchKind *kind;
  Strings plan, words; /* words: of the command in the script */
  int64_t ranks[MOST_PLANS], per_node;
  bool gpus, mpi;
  const char *exe, *out, *name;
} LaunchScript;

static int64_t nodes_of(const LaunchScript *script, uint32_t plan) {
  return (script->ranks[plan] + script->per_node - 1) / script->per_node;
}

static bool has_net(const LaunchScript *script) { return script->gpus && nodes_of(script, 0) > 1; }

/* ---- the request ---- */

static Exit find_kind(LaunchScript *script) {
  const char *word = script->o->operands.at[0], *names[COUNT_OF(kinds)];
  for (size_t i = 0; i < COUNT_OF(kinds); i++) {
    names[i] = kinds[i].name;
    if (!strcmp(word, kinds[i].name)) script->kind = &kinds[i];
  }
  if (script->kind) return EXIT_FINE;
  const char *near = diag_nearest(word, names, COUNT_OF(kinds));
  if (near) return cli_usage("no launcher `%s`; did you mean `%s`?", word, near);
  return cli_usage("no launcher `%s`; one of slurm, mpirun, k8s", word);
}

/* A line break would end a comment of the script, or be a blank in YAML. */
static Exit check_characters(const LaunchScript *script) {
  for (uint32_t i = 0; i <= script->words.n; i++) {
    const char *word = i < script->words.n ? script->words.at[i] : script->out;
    for (const char *c = word; c && *c; c++)
      if ((unsigned char)*c < ' ' || *c == 0x7f)
        return cli_usage("`%s` has a line break or another control character, which no script gets",
                         word);
  }
  return EXIT_FINE;
}

/* The words after FILE, without --out, whose value is the run directory. */
static Exit read_arguments(LaunchScript *script) {
  const Cli *o = script->o;
  Arena *arena = o->c->arena;
  const char *option;
  Fault f = {0};
  vec_push(arena, script->words, script->exe);
  bool command = o->operands.n > 2 && *o->operands.at[2] != '-';
  if (!command) vec_push(arena, script->words, "train");
  for (uint32_t i = 2; i < o->operands.n; i++) {
    const char *word = o->operands.at[i];
    if (!strncmp(word, "--out=", 6)) script->out = word + 6;
    else if (!strcmp(word, "--out") && i + 1 < o->operands.n) script->out = o->operands.at[++i];
    else vec_push(arena, script->words, word);
  }
  if (!launch_arguments((int)script->words.n, (char **)script->words.at, &option, &f))
    return cli_usage("after `--`: %s%s%s", f.what, *f.help ? "; " : "", f.help);
  return option ? cli_usage("after `--`: the script gives `%s` by itself", option) : EXIT_FINE;
}

static Exit read_per_node(LaunchScript *script, const Module *largest) {
  int64_t ranks = mesh_ranks(largest), said = plan_machine(largest).in_node;
  script->per_node =
      module_said(largest, "machine.node.arch") && said > 0 && said < ranks ? said : ranks;
  Exit e = cli_whole(script->o, OPT_PER_NODE, 1, RT_MOST_RANKS, &script->per_node);
  if (script->per_node > ranks) script->per_node = ranks;
  return e;
}

/* Every plan fills its nodes, or is on one. */
static Exit check_nodes(const LaunchScript *script, uint32_t i) {
  long long ranks = script->ranks[i], each = script->per_node;
  const char *plan = script->plan.n ? script->plan.at[i] : "(none written)";
  if (ranks > each && ranks % each)
    return cli_usage("plan `%s` has %lld ranks, which nodes of %lld do not divide: "
                     "`--nproc-per-node N` says how many a node has",
                     plan, ranks, each);
  if (nodes_of(script, i) == 1 || script->gpus || script->mpi) return EXIT_FINE;
  return cli_usage(
      "the ranks of plan `%s` exchange tensors in the memory of one machine, and "
      "%lld on each of %lld nodes do not share one: compile with `--comm mpi`, for GPUs, "
      "or `--nproc-per-node %lld`",
      plan, each, (long long)nodes_of(script, i), ranks);
}

static Exit check_kind(const LaunchScript *script) {
  if (script->kind->yaml && script->mpi)
    return cli_usage("`--comm mpi` is for `launch mpirun` and `launch slurm`: pods of an Indexed "
                     "Job are started without mpirun");
  if (script->kind->yaml && script->plan.n > 1)
    return cli_usage("`launch k8s` takes one plan, which tells the number of pods");
  return EXIT_FINE;
}

static void sort_plans(LaunchScript *script, Module **m) {
  for (uint32_t i = 1; i < script->plan.n; i++)
    for (uint32_t k = i; k > 0 && mesh_ranks(m[k]) > mesh_ranks(m[k - 1]); k--) {
      Module *later = m[k];
      const char *name = script->plan.at[k];
      m[k] = m[k - 1], m[k - 1] = later;
      script->plan.at[k] = script->plan.at[k - 1], script->plan.at[k - 1] = name;
    }
}

static Exit load_plan(LaunchScript *script, uint32_t i, Module **m) {
  Cli o = *script->o;
  o.operands.at++, o.operands.n = 1;
  if (script->plan.n) o.value[OPT_PLAN] = script->plan.at[i];
  Exit e = load_module(&o, m);
  return e == EXIT_FINE ? describe_target(&o, *m) : e;
}

static Exit load_plans(LaunchScript *script) {
  Module *m[MOST_PLANS];
  uint32_t n = script->plan.n ? script->plan.n : 1;
  Exit e = EXIT_FINE;
  for (uint32_t i = 0; e == EXIT_FINE && i < n; i++) e = load_plan(script, i, &m[i]);
  if (e != EXIT_FINE) return e;
  sort_plans(script, m);
  script->gpus = module_on_gpu(m[0]);
  script->mpi = !strcmp(module_communicator(m[0])->name, "mpi");
  e = read_per_node(script, m[0]);
  for (uint32_t i = 0; e == EXIT_FINE && i < n; i++) {
    script->ranks[i] = mesh_ranks(m[i]);
    if (i && script->ranks[i] == script->ranks[i - 1])
      return cli_usage("`--plan`: two are for %lld ranks", (long long)script->ranks[i]);
    e = check_nodes(script, i);
  }
  return e;
}

static Exit read_plans(LaunchScript *script) {
  const char *list = script->o->value[OPT_PLAN];
  for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    vec_push(script->o->c->arena, script->plan,
             arena_strndup(script->o->c->arena, at, strcspn(at, ",")));
  if (script->plan.n > MOST_PLANS) return cli_usage("`--plan`: at most %d", MOST_PLANS);
  return EXIT_FINE;
}

/* ---- the text ---- */

/* A character in quotes, of a shell or of YAML, where Kubernetes expands `$(NAME)` and reads
   `$$` as `$`. */
static const char *in_quotes(char c, bool yaml) {
  if (c == '\'') return yaml ? "''" : "'\\''";
  return yaml && c == '$' ? "$$" : NULL;
}

/* As a shell reads one word; as a list of YAML has a text: a bare 100 or `on` is none. */
static void put_word(FILE *file, const char *word, bool yaml) {
  bool plain = *word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                           "0123456789_-+=./:,%@")];
  if (plain && !yaml) {
    fputs(word, file);
    return;
  }
  putc('\'', file);
  for (; *word; word++) {
    const char *text = in_quotes(*word, yaml);
    fputs(text ? text : (char[]){*word, 0}, file);
  }
  putc('\'', file);
}

static void put_command(FILE *file, const LaunchScript *script) {
  Arena *arena = script->o->c->arena;
  Strings words = {0};
  bool yaml = script->kind->yaml;
  for (uint32_t i = 0; i < script->words.n; i++) vec_push(arena, words, script->words.at[i]);
  if (yaml) {
    vec_push(arena, words, arena_printf(arena, "--nnodes=%lld", (long long)nodes_of(script, 0)));
    vec_push(arena, words,
             arena_printf(arena, "--nproc-per-node=%lld", (long long)script->per_node));
    if (nodes_of(script, 0) > 1)
      vec_push(arena, words,
               arena_printf(arena, "--meet=%s-0.%s:29500", script->name, script->name));
    vec_push(arena, words, arena_printf(arena, "--out=%s", script->out));
  }
  vec_push(arena, words, "--resume=auto");
  for (uint32_t i = 0; i < words.n; i++) {
    if (i) fputs(yaml ? ", " : " ", file);
    put_word(file, words.at[i], yaml);
  }
  if (!yaml) fputs(" --out \"$out\"", file);
}

static void put_nodes(FILE *file, const LaunchScript *script) {
  long long most = nodes_of(script, 0),
            least = nodes_of(script, script->plan.n ? script->plan.n - 1 : 0);
  if (least < most) fprintf(file, "%lld-", least);
  fprintf(file, "%lld", most);
}

/* The text for @WORD@ at `at`; its length, 0: no such word. */
static size_t put_mark(FILE *file, const LaunchScript *script, const char *at) {
  const char *end = strchr(at + 1, '@');
  size_t n = end ? (size_t)(end - at) + 1 : 0;
  if (n == 9 && !strncmp(at, "@COMMAND@", n)) put_command(file, script);
  else if (n == 10 && !strncmp(at, "@PER_NODE@", n))
    fprintf(file, "%lld", (long long)script->per_node);
  else if (n == 7 && !strncmp(at, "@NODES@", n)) put_nodes(file, script);
  else if (n == 6 && !strncmp(at, "@NAME@", n)) fputs(script->name, file);
  else if (n == 5 && !strncmp(at, "@EXE@", n)) fputs(script->exe, file);
  else if (n == 5 && !strncmp(at, "@OUT@", n)) put_word(file, script->out, false);
  else if (n == 7 && !strncmp(at, "@RANKS@", n))
    for (uint32_t i = 0; i < (script->plan.n ? script->plan.n : 1); i++)
      fprintf(file, i ? " %lld" : "%lld", (long long)script->ranks[i]);
  else return 0;
  return n;
}

static void put_line(FILE *file, const LaunchScript *script, const char *line, size_t n) {
  bool gpu = !strncmp(line, "@gpu@", 5), net = !strncmp(line, "@net@", 5);
  if ((gpu && !script->gpus) || (net && !has_net(script))) return;
  for (size_t i = gpu || net ? 5 : 0; i < n;) {
    size_t mark = line[i] == '@' ? put_mark(file, script, line + i) : 0;
    if (!mark) putc(line[i], file);
    i += mark ? mark : 1;
  }
}

static Exit write_script(const LaunchScript *script) {
  const Cli *o = script->o;
  const char *output = o->value[OPT_OUTPUT] ? o->value[OPT_OUTPUT] : "-";
  size_t length, n;
  const char *line = script->kind->text(&length), *end = line + length;
  char *text;
  FILE *file = heap_stream(&text, &n);
  for (; line < end; line += strcspn(line, "\n") + 1)
    put_line(file, script, line, strcspn(line, "\n") + 1);
  fclose(file);
  Exit e = write_text(o->c, output, text, n);
  free(text);
  return e;
}

/* A name that hosts and labels may have: small letters, digits and dashes. */
static const char *name_of(Arena *arena, const char *stem) {
  char *name = arena_strndup(arena, stem, strlen(stem));
  for (char *c = name; *c; c++) {
    if (*c >= 'A' && *c <= 'Z') *c = (char)(*c - 'A' + 'a');
    else if (!((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9'))) *c = '-';
  }
  return *name == '-' || !*name ? "train" : name;
}

Exit cmd_launch(Cli *o) {
  Arena *arena = o->c->arena;
  LaunchScript script = {.o = o};
  const char *file = o->operands.at[1], *slash = strrchr(file, '/');
  const char *base = slash ? slash + 1 : file, *dot = strrchr(base, '.');
  const char *stem =
      arena_strndup(arena, base, dot && dot != base ? (size_t)(dot - base) : strlen(base));
  script.exe = o->value[OPT_EXE] ? o->value[OPT_EXE] : arena_printf(arena, "./%s", stem);
  script.name = name_of(arena, stem);
  Exit e = find_kind(&script);
  if (e == EXIT_FINE) e = read_arguments(&script);
  if (e == EXIT_FINE) e = check_characters(&script);
  if (e == EXIT_FINE) e = read_plans(&script);
  if (e == EXIT_FINE) e = load_plans(&script);
  if (e == EXIT_FINE) e = check_kind(&script);
  if (!script.out)
    script.out =
        arena_printf(arena, script.kind && script.kind->yaml ? "/runs/%s" : "runs/%s", script.name);
  return cli_report(o, e == EXIT_FINE ? write_script(&script) : e);
}
