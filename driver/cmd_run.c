/* `shardc run`: compiles a model and starts it, as one process or as the ranks of its plan on this
   machine (runtime/start_ranks.h). Launching on several machines is the work of mpirun, srun and
   their kind; `shardc launch` writes their scripts. */
#include "cmd.h"
#include "driver/doctor/doctor.h"
#include "codegen/codegen.h"
#include "ir/support/num.h"
#include "runtime/start_ranks.h"
#include "ir/support/refused.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_GPUS = 16 };

static bool is_executable(const char *path) {
  char mark[4] = "";
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  bool elf = fd >= 0 && read(fd, mark, 4) == 4 && !memcmp(mark, "\177ELF", 4);
  if (fd >= 0) close(fd);
  return elf;
}

/* The output of a file on the option --version; NULL: it cannot be started. */
static FILE *version_of(const char *exe, pid_t *pid) {
  char *const words[] = {(char *)exe, (char *)"--version", NULL};
  posix_spawn_file_actions_t actions;
  int line[2];
  if (pipe2(line, O_CLOEXEC)) return NULL;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, line[1], STDOUT_FILENO);
  bool started = !posix_spawn(pid, exe, &actions, NULL, words, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(line[1]);
  if (started) return fdopen(line[0], "r");
  return close(line[0]), NULL;
}

/* Ranks of the first program of an executable, by a line such as "  sm_80, 8 ranks, program 1f..";
   1 if it prints none. */
static int64_t ranks_of(const char *exe) {
  char text[256];
  int64_t ranks = 1;
  long long said;
  pid_t pid;
  FILE *out = version_of(exe, &pid);
  if (!out) return 1;
  for (bool found = false; fgets(text, sizeof text, out);)
    if (!found && (found = sscanf(text, " %*[^,], %lld rank", &said) == 1)) ranks = said;
  fclose(out);
  while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {}
  return ranks > 0 && ranks <= RT_MOST_RANKS ? ranks : 1;
}

static Exit count_ranks(const Cli *o, const char *exe, const Module *m, int *n) {
  int64_t ranks = m || o->value[OPT_RANKS] ? 1 : ranks_of(exe);
  for (uint32_t i = 0; m && i < m->mesh.n; i++) ranks *= m->mesh.at[i].size;
  Exit e = cli_whole(o, OPT_RANKS, 1, RT_MOST_RANKS, &ranks);
  *n = (int)ranks;
  return e;
}

/* Makes executables find the stand-in as the driver of a GPU. */
static Exit find_standin(Cli *o) {
  const char *path = standin_path(o->c->arena);
  if (access(path, R_OK)) {
    Report *r = diag_at(o->c->diag, "E1314", (Span){0}, "cannot find the stand-in for a GPU");
    diag_fact(r, "looked for `%s`", path);
    diag_help(r, "build shardc with its tests, or set SHARDC_LIB to the folder that holds emulate");
    return cli_report(o, EXIT_ENVIRONMENT);
  }
  standin_use(o->c->arena);
  return EXIT_FINE;
}

/* A variable that the user has not set. */
static void put(const char *name, int64_t v) {
  const char *given = getenv(name);
  char text[24];
  snprintf(text, sizeof text, "%lld", (long long)v);
  if (!given || !*given) setenv(name, text, 1);
}

/* The shared memory of the one target; without one, the most of all targets. */
static int64_t standin_shared(const Module *m) {
  int64_t most = 0;
  if (m && module_on_gpu(m)) return m->target.shared;
  for (int i = 0; target_name(i); i++)
    most = max_i64(most, target_find(target_name(i))->facts.shared);
  return most;
}

/* As many GPUs as ranks. */
static void suit_standin(const Module *m, int ranks) {
  put("SHARDC_EMULATE_DEVICES", ranks < MOST_GPUS ? ranks : MOST_GPUS);
  put("SHARDC_EMULATE_SHARED", standin_shared(m));
}

/* The target of a given executable is unknown; its ranks take cores in the order of NUMA nodes, as
   GPUs are numbered in most machines. */
static Exit run_it(Cli *o, const char *exe, const Module *m) {
  Strings words = {0};
  int n;
  if (!strchr(exe, '/')) exe = arena_printf(o->c->arena, "./%s", exe);
  Exit e = count_ranks(o, exe, m, &n);
  if (e != EXIT_FINE) return e;
  if (o->value[OPT_EMULATE]) suit_standin(m, n);
  vec_push(o->c->arena, words, exe);
  for (uint32_t i = 1; i < o->operands.n; i++) vec_push(o->c->arena, words, o->operands.at[i]);
  vec_push(o->c->arena, words, NULL);
  return (Exit)rt_start_ranks(&(RankStart){
      .program = "shardc",
      .command = (char **)words.at,
      .n = n,
      .world = n,
      .bind = true,
      .gpus = m && module_on_gpu(m) && !o->value[OPT_EMULATE],
      .verbose = o->value[OPT_VERBOSE],
  });
}

Exit cmd_run(Cli *o) {
  const char *base = getenv("TMPDIR");
  Module *m;
  Exit e = o->value[OPT_EMULATE] ? find_standin(o) : EXIT_FINE;
  if (e != EXIT_FINE) return e;
  if (is_executable(o->operands.at[0])) {
    static const CliOption of_start[] = {OPT_RANKS, OPT_EMULATE};
    e = cli_only(o, of_start, COUNT_OF(of_start),
                 "the file is an executable, which is compiled already");
    return e == EXIT_FINE ? run_it(o, o->operands.at[0], NULL) : e;
  }
  char *folder = arena_printf(o->c->arena, "%s/shardc-run.XXXXXX", base && *base ? base : "/tmp");
  if (!mkdtemp(folder)) {
    diag_refused(o->c->diag, "E0002", CANNOT_MAKE_TEMPORARY, folder);
    return cli_report(o, EXIT_ENVIRONMENT);
  }
  const char *exe = arena_printf(o->c->arena, "%s/model", folder);
  o->here = true;
  e = compile_executable(o, exe, &m);
  if (e == EXIT_FINE) e = run_it(o, exe, m);
  unlink(exe), rmdir(folder);
  return e;
}
