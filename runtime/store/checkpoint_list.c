/* Checkpoints of a run directory: listing, rotating, and the remains of processes that were killed
   (checkpoint.c writes them). A folder step-NNNNNN is complete at any instant; .new- is unfinished,
   .old- half removed, .was- one that was being replaced. Must not: remove the last whole one. */
#include "checkpoint.h"
#include "runtime/base/file.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void rt_checkpoint_path(char out[RT_PATH], const char *run, int64_t step) {
  char name[64];
  snprintf(name, sizeof name, "step-%06lld", (long long)step);
  rt_join(out, run, name);
}

void rt_checkpoint_aside(char out[RT_PATH], const char *run, const char *kind, int64_t step) {
  char name[64];
  snprintf(name, sizeof name, ".%s-step-%06lld", kind, (long long)step);
  rt_join(out, run, name);
}

static int64_t step_of(const char *name) {
  char *end;
  if (strncmp(name, "step-", 5) || name[5] < '0' || name[5] > '9') return -1;
  int64_t step = strtoll(name + 5, &end, 10);
  return *end ? -1 : step;
}

static int newest_first(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? 1 : x > y ? -1 : 0;
}

CheckpointList rt_checkpoint_list(const char *run) {
  CheckpointList list = {0, NULL};
  DIR *d = opendir(run);
  for (struct dirent *e; d && (e = readdir(d));) {
    int64_t step = step_of(e->d_name);
    if (step < 0) continue;
    if (!(list.n & (list.n + 1)) || !list.step) /* room for a power of two */
      if (!(list.step = realloc(list.step, sizeof *list.step * 2 * (size_t)(list.n + 1))))
        rt_fail(701, "no memory");
    list.step[list.n++] = step;
  }
  if (d) closedir(d);
  if (list.n) qsort(list.step, (size_t)list.n, sizeof *list.step, newest_first);
  return list;
}

bool rt_holds_checkpoints(const char *folder) {
  CheckpointList l = rt_checkpoint_list(folder);
  free(l.step);
  return l.n > 0;
}

/* A folder changes its name before it is emptied, so that a half-removed one never looks like a
 * checkpoint. */
static void remove_checkpoint(const char *run, int64_t step) {
  char folder[RT_PATH], old[RT_PATH];
  rt_checkpoint_path(folder, run, step);
  rt_checkpoint_aside(old, run, "old", step);
  if (!rename(folder, old)) rt_remove_tree(old);
}

/* A convenience: resuming does not need it. */
void rt_checkpoint_point(const char *run, const char *link, int64_t step) {
  char path[RT_PATH], temporary[RT_PATH], folder[RT_PATH], hidden[64];
  snprintf(hidden, sizeof hidden, ".%s", link);
  rt_join(path, run, link), rt_join(temporary, run, hidden);
  rt_checkpoint_path(folder, run, step);
  unlink(temporary);
  if (!symlink(strrchr(folder, '/') + 1, temporary) && rename(temporary, path)) unlink(temporary);
}

int64_t rt_checkpoint_best(const char *run) {
  char link[RT_PATH], name[64];
  rt_join(link, run, "best");
  ssize_t n = readlink(link, name, sizeof name - 1);
  name[n > 0 ? n : 0] = 0;
  return rt_exists(link) ? step_of(name) : -1;
}

void rt_checkpoint_rotate(const char *run, int64_t newest, int64_t keep) {
  CheckpointList list = rt_checkpoint_list(run);
  int64_t best = rt_checkpoint_best(run);
  for (int i = 0, seen = 0; i < list.n; i++)
    if (list.step[i] <= newest && ++seen > (keep > 1 ? keep : 1))
      if (list.step[i] != best) remove_checkpoint(run, list.step[i]);
  free(list.step);
}

void rt_checkpoint_recover(const char *run) {
  static const char name[] = ".was-step-";
  DIR *d = opendir(run);
  char from[RT_PATH], to[RT_PATH];
  for (struct dirent *e; d && (e = readdir(d));) {
    if (strncmp(e->d_name, name, sizeof name - 1)) continue;
    rt_join(from, run, e->d_name);
    rt_join(to, run, e->d_name + strlen(".was-"));
    if (rt_exists(to)) rt_remove_tree(from);
    else if (!rename(from, to)) rt_note("%s is put back", to);
  }
  if (d) closedir(d);
}

void rt_checkpoint_clean(const char *run) {
  DIR *d = opendir(run);
  char path[RT_PATH];
  for (struct dirent *e; d && (e = readdir(d));) {
    size_t n = strlen(e->d_name);
    bool part = !strncmp(e->d_name, "shardc-", 7) && n > 4 && !strcmp(e->d_name + n - 4, ".tmp");
    if (!part && strncmp(e->d_name, ".new-step-", 10) && strncmp(e->d_name, ".old-step-", 10))
      continue;
    rt_join(path, run, e->d_name);
    rt_remove_tree(path);
  }
  if (d) closedir(d);
}

void rt_checkpoint_retire(const char *run, int64_t step) {
  CheckpointList list = rt_checkpoint_list(run);
  for (int i = 0; i < list.n && list.step[i] > step; i++) {
    char from[RT_PATH], to[RT_PATH], name[64];
    rt_checkpoint_path(from, run, list.step[i]);
    snprintf(name, sizeof name, "replaced-step-%06lld", (long long)list.step[i]);
    rt_join(to, run, name);
    rt_remove_tree(to);
    if (!rename(from, to)) rt_note("%s is newer than the resumed step and is now %s", from, to);
  }
  free(list.step);
}
