/* One training per run directory: a lock of the system on .lock, which ends with the process. Where
   the file system has no such locks (some of NFS and Lustre), a file that only one process can make
   (.lock-held, O_EXCL), with its host and pid: one whose process is gone, on this host, is taken
   over; of other hosts nobody knows. Must not: go on without either. */
#include "run.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static bool cannot(Fault *f, const char *folder) {
  rt_fault(f, 401, "cannot write into the run directory: %s", strerror(errno));
  return rt_at(f, folder, "", -1);
}

static bool taken(const char *folder, const char *who, Fault *f) {
  rt_fault(f, 404, "another process trains into this directory%s%s", *who ? ": " : "", who);
  if (*who) rt_help(f, "if that process is gone, remove .lock-held from the run directory");
  return rt_at(f, folder, "", -1);
}

static void release(int status, void *path) {
  (void)status;
  unlink(path);
}

/* such as "pid 4711 on node7"; is it a process of this host that is gone? */
static bool read_holder(const char *path, char who[128]) {
  char host[64] = "", own[64] = "";
  long pid = 0;
  FILE *in = fopen(path, "r");
  bool read = in && fscanf(in, "%ld %63s", &pid, host) == 2 && pid > 0;
  if (in) fclose(in);
  gethostname(own, sizeof own - 1);
  snprintf(who, 128, read ? "pid %ld on %s" : "an unknown one", pid, host);
  return read && !strcmp(host, own) && kill((pid_t)pid, 0) && errno == ESRCH;
}

static bool lock_by_file(const char *folder, int why, Fault *f) {
  char path[RT_PATH], who[128], host[64] = "";
  rt_join(path, folder, ".lock-held");
  int fd = -1;
  for (int i = 0; i < 2 && fd < 0; i++) {
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd >= 0) break;
    if (errno != EEXIST) return cannot(f, folder);
    if (!read_holder(path, who)) return taken(folder, who, f);
    unlink(path);
  }
  if (fd < 0) return taken(folder, who, f);
  gethostname(host, sizeof host - 1);
  dprintf(fd, "%ld %s\n", (long)getpid(), host);
  close(fd);
  on_exit(release, rt_copy_text(path, strlen(path)));
  rt_note("this file system has no locks (%s): %s keeps others out", strerror(why), path);
  return true;
}

bool rt_lock_folder(const char *folder, int *fd, Fault *f) {
  char path[RT_PATH];
  rt_join(path, folder, ".lock");
  *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (*fd < 0) return cannot(f, folder);
  if (!flock(*fd, LOCK_EX | LOCK_NB)) return true;
  return errno == EWOULDBLOCK ? taken(folder, "", f) : lock_by_file(folder, errno, f);
}

void rt_unlock_folder(const char *folder) {
  static const char *const names[] = {".lock", ".lock-held"};
  for (int i = 0; i < 2; i++) {
    char path[RT_PATH];
    rt_join(path, folder, names[i]);
    unlink(path);
  }
}
