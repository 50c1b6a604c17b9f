/* `--rank-logs`: a file per rank with all that the rank prints on stderr, besides stderr itself. A
   child process copies it, so that the last lines before a rank dies are in the file as well. */
#include "run.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* In the child: from standard input to the file, which is standard output, and to stderr, until the
   rank has ended. A signal to the job is for the rank. */
static _Noreturn void copy_until_end(void) {
  static const int others[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGQUIT, SIGPIPE};
  char part[4096];
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) signal(others[i], SIG_IGN);
  for (ssize_t got; (got = read(0, part, sizeof part)) > 0 || (got < 0 && errno == EINTR);) {
    if (got < 0) continue;
    if (write(1, part, (size_t)got) < 0 && errno != EINTR) dup2(2, 1); /* the disk is full */
    if (write(2, part, (size_t)got) < 0) continue;                     /* the terminal is closed */
  }
  _exit(0);
}

bool rt_rank_log(const Run *r, Fault *f) {
  char path[RT_PATH], name[32];
  int ends[2];
  if (!r->o.at[OPT_rank_logs].given) return true;
  snprintf(name, sizeof name, "rank-%d.log", rt_comm_rank(&r->comm));
  rt_join(path, r->out, name);
  int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (file < 0 || pipe2(ends, O_CLOEXEC)) {
    rt_fault(f, 401, "cannot write what this rank prints: %s", strerror(errno));
    return rt_at(f, path, "", -1);
  }
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[0], 0), dup2(file, 1);
    close_range(3, ~0u, 0);
    copy_until_end();
  }
  if (child > 0) dup2(ends[1], 2);
  close(ends[0]), close(ends[1]), close(file);
  return child > 0 || rt_fault(f, 401, "cannot write what this rank prints: %s", strerror(errno));
}
