/* ptxas as a child process: see codegen/assemble.h.

   ptxas ends with 0 also where it puts registers into memory or runs tensor instructions one after
   the other; it says so on stderr (spill warnings, C75xx). Such a kernel is right, but slow. */
#include "ptxas.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *on_path(Arena *arena, const char *name) {
  const char *path = getenv("PATH");
  while (path && *path) {
    size_t n = strcspn(path, ":");
    const char *file = arena_printf(arena, "%.*s/%s", (int)n, path, name);
    if (n && !access(file, X_OK)) return file;
    path += n + (path[n] == ':');
  }
  return NULL;
}

/* Runs a command; what it says on both streams goes to *said. False: it did not end with 0. */
static bool run(Arena *arena, const char *const *words, const char **said) {
  int ends[2], status;
  char *text = arena_alloc(arena, 1 << 16);
  size_t n = 0;
  if (pipe(ends)) bug("no pipe: %s", strerror(errno));
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) {
    dup2(ends[1], STDOUT_FILENO), dup2(ends[1], STDERR_FILENO);
    close(ends[0]), close(ends[1]);
    execv(words[0], (char *const *)words);
    _exit(127);
  }
  close(ends[1]);
  char rest[4096];
  for (ssize_t k; (k = read(ends[0], rest, sizeof rest)) > 0 || (k < 0 && errno == EINTR);)
    for (ssize_t i = 0; i < k && n + 1 < 1 << 16; i++) text[n++] = rest[i];
  close(ends[0]);
  text[n] = 0, *said = text;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  return pid > 0 && WIFEXITED(status) && !WEXITSTATUS(status);
}

/* The first line that has one of these words; NULL: none. */
static const char *line_with(Arena *arena, const char *text, const char *const *word) {
  for (const char *line = text; *line;) {
    size_t n = strcspn(line, "\n");
    const char *own = arena_strndup(arena, line, n);
    for (int i = 0; word[i]; i++)
      if (strstr(own, word[i])) return own;
    line += n + (line[n] == '\n');
  }
  return NULL;
}

static Assembled said_of(Arena *arena, bool ok, const char *said) {
  const char *const slow[] = {"C75", "spill", "Spill", NULL};
  const char *const any[] = {"error", "fatal", "", NULL};
  if (ok) return (Assembled){.slow = line_with(arena, said, slow)};
  const char *line = line_with(arena, said, any);
  return (Assembled){.refused = line ? line : "it printed nothing"};
}

/* By itself ptxas sometimes keeps a few bytes in memory so that one more CTA finds room on a
   multiprocessor. Told that one is enough, it takes the registers that it needs. */
static Assembled ptxas_run(Arena *arena, const Assembler *assembler, const Target *target,
                           const char *ptx, const char *cubin) {
  const char *said, *arch = arena_printf(arena, "-arch=%s", target->name);
  Assembled made = {0};
  for (int i = 0; i < 2 && (!i || made.slow); i++) {
    const char *words[] = {assembler->path,
                           arch,
                           "--warn-on-spills",
                           ptx,
                           "-o",
                           cubin,
                           i ? "--minnctapersm=1" : NULL,
                           NULL};
    bool ok = run(arena, words, &said);
    made = said_of(arena, ok, said);
  }
  if (made.refused) unlink(cubin);
  return made;
}

const Assembler *ptxas_find(Arena *arena) {
  Assembler *assembler = ARENA_NEW(arena, Assembler);
  *assembler = (Assembler){.name = "ptxas", .ending = ".cubin", .run = ptxas_run};
  assembler->path = on_path(arena, assembler->name);
  if (!assembler->path) return NULL;
  const char *words[] = {assembler->path, "--version", NULL};
  return run(arena, words, &assembler->version) ? assembler : NULL;
}
