/* Programs that parts run: each in a process group of its own, so that ending it ends what it
   started, and with a time after which that happens. */
#include "bundle.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static _Noreturn void become(char *const *words, const char *folder, const char *log, int in,
                             int out) {
  int messages = open(log, O_WRONLY | O_CREAT | O_APPEND, 0666), none = open("/dev/null", O_RDWR);
  setpgid(0, 0), prctl(PR_SET_PDEATHSIG, SIGKILL); /* with its part */
  dup2(in >= 0 ? in : none, 0), dup2(out >= 0 ? out : messages, 1), dup2(messages, 2);
  if (chdir(folder)) _exit(126);
  for (int i = 3; i < 256; i++) close(i);
  execvp(words[0], words);
  dprintf(2, "cannot run %s: %s\n", words[0], strerror(errno));
  _exit(127);
}

bool child_start(Child *c, char *const *words, const char *folder, const char *log, bool pipes) {
  int to[2] = {-1, -1}, from[2] = {-1, -1};
  if (pipes && (pipe(to) || pipe(from))) return false;
  fflush(NULL);
  c->pid = fork();
  if (!c->pid) become(words, folder, log, to[0], from[1]);
  if (c->pid > 0) setpgid(c->pid, c->pid);
  if (pipes) close(to[0]), close(from[1]);
  c->in = to[1], c->out = from[0];
  return c->pid > 0;
}

void child_rank(int rank, int ranks) {
  static const char *const names[] = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"};
  for (int i = 0; i < 4; i++)
    if (ranks > 1) setenv(names[i], rt_format("%d", i < 2 ? rank : ranks), 1);
    else unsetenv(names[i]);
}

static void close_pipes(Child *c) {
  if (c->in >= 0) close(c->in);
  if (c->out >= 0) close(c->out);
  c->in = c->out = -1;
}

void child_stop(Child *c) {
  int status;
  close_pipes(c);
  if (c->pid <= 0) return;
  kill(-c->pid, SIGKILL), kill(c->pid, SIGKILL);
  while (waitpid(c->pid, &status, 0) < 0 && errno == EINTR) {}
  c->pid = 0;
}

int child_wait(Child *c, double until) {
  const struct timespec nap = {.tv_nsec = 5000000};
  int status = 0;
  while (waitpid(c->pid, &status, WNOHANG) == 0) {
    if (rt_now() > until) return child_stop(c), -1;
    nanosleep(&nap, NULL);
  }
  kill(-c->pid, SIGKILL); /* and the processes that it started */
  c->pid = 0, close_pipes(c);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool child_line(Child *c, char *line, int size, double until) {
  for (int n = 0; n + 1 < size;) {
    struct pollfd p = {c->out, POLLIN, 0};
    double left = until - rt_now();
    if (left <= 0 || poll(&p, 1, (int)(1e3 * left) + 1) < 1) return false;
    if (read(c->out, line + n, 1) != 1) return false;
    if (line[n] == '\n') return line[n] = 0, true;
    n++;
  }
  return false;
}

void last_words(const char *log, char *out, int size) {
  char line[1000];
  FILE *f = fopen(log, "r");
  snprintf(out, (size_t)size, "it said nothing");
  while (f && fgets(line, sizeof line, f)) {
    line[strcspn(line, "\r\n")] = 0;
    bool help = !strncmp(line, "  ", 2);
    if (*line && !help) snprintf(out, (size_t)size, "%s", line);
  }
  if (f) fclose(f);
}
