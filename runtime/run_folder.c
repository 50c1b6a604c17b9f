/* The run directory, which users may move or remove while a run trains. Rank 0 holds the directory
   open (O_PATH). Before a file is written by name, rank 0 checks that the name still leads to this
   directory. If it does not, /proc has the new name. A directory that was removed is created again,
   under its name or, if another file has that name now, under the next free one. Must not: write
   into a directory that is not the run's. */
#include "runtime/base/file.h"
#include "run.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool rt_keep_folder(Run *r, Fault *f) {
  if (r->folder >= 0) close(r->folder);
  r->folder = open(r->out, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (r->folder >= 0) return true;
  rt_fault(f, 401, "cannot open: %s", strerror(errno));
  return rt_at(f, r->out, "", -1);
}

static bool leads_there(const Run *r, const char *path) {
  struct stat held, found;
  return !fstat(r->folder, &held) && !stat(path, &found) && held.st_dev == found.st_dev &&
         held.st_ino == found.st_ino;
}

static bool make_again(Run *r, Fault *f) {
  char name[RT_PATH];
  int lock = -1;
  snprintf(name, sizeof name, "%s", r->out);
  for (int i = 1; rt_exists(name); i++)
    if (snprintf(name, sizeof name, "%s-%03d", r->out, i) >= RT_PATH)
      return rt_fault(f, 401, "the name of the run directory is too long");
  if (!rt_make_folders(name, f) || !rt_lock_folder(name, &lock, f)) return false;
  close(r->lock);
  r->lock = lock, memcpy(r->out, name, sizeof name);
  return rt_keep_folder(r, f);
}

Whereabouts rt_find_folder(Run *r, Fault *f) {
  char link[48], now[RT_PATH];
  if (leads_there(r, r->out)) return FOLDER_STAYED;
  snprintf(link, sizeof link, "/proc/self/fd/%d", r->folder);
  ssize_t n = readlink(link, now, sizeof now - 1);
  now[n > 0 ? n : 0] = 0;
  if (!leads_there(r, now)) return make_again(r, f) ? FOLDER_MADE : FOLDER_LOST;
  memcpy(r->out, now, sizeof now);
  return FOLDER_MOVED;
}
