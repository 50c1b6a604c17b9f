/* Writing the flight recorder: see recorder.h. One event costs a copy of some words: nothing is
   formatted and no system call is made. Must not: fail a run. */
#include "recorder.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void rt_record_path(char out[RT_PATH], const char *folder, int rank) {
  char name[32];
  snprintf(name, sizeof name, "flight-%05d", rank);
  rt_join(out, folder, name);
}

/* All bytes are allocated, so that a full disk refuses the file and not a later write. */
static Record *map(int fd) {
  void *at = MAP_FAILED;
  if (!ftruncate(fd, 0) && !posix_fallocate(fd, 0, sizeof(Record)))
    at = mmap(NULL, sizeof(Record), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? NULL : at;
}

/* Files of an earlier job of more ranks. */
static void forget_others(const char *folder, int world) {
  char path[RT_PATH];
  for (int i = world;; i++) {
    rt_record_path(path, folder, i);
    if (unlink(path)) return;
  }
}

Record *rt_record_open(const char *folder, int rank, int world) {
  char path[RT_PATH];
  rt_record_path(path, folder, rank);
  unlink(path); /* of an earlier job, which may be mapped still */
  if (!rank) forget_others(folder, world);
  int fd = *path ? open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
  if (fd < 0) return NULL;
  Record *record = map(fd);
  close(fd);
  if (!record) {
    unlink(path);
    return NULL;
  }
  memcpy(record->magic, RECORD_MAGIC, sizeof record->magic);
  record->rank = rank, record->world = world, record->pid = getpid();
  gethostname(record->host, sizeof record->host - 1);
  return record;
}

void rt_record_close(Record *record, const char *folder) {
  char path[RT_PATH];
  if (!record) return;
  rt_record_path(path, folder, record->rank);
  record->magic[0] = 0; /* the directory may have another name by now */
  unlink(path);         /* the mapping stays: other threads may write until the process ends */
}

void rt_record_lost(Record *record, int rank, const char *why) {
  if (!record) return;
  snprintf(record->why, sizeof record->why, "%s", why);
  record->lost = rank + 1;
}

/* As much as there is room for, with a zero at the end. */
static size_t add(char *text, size_t at, const char *more) {
  size_t n = strlen(more), room = RECORD_TEXT - 1 - at;
  if (n > room) n = room;
  memcpy(text + at, more, n);
  text[at + n] = 0;
  return at + n;
}

void rt_record(Record *record, RecordKind kind, uint32_t number, const char *what, const char *of,
               const char *over) {
  if (!record) return;
  uint64_t i = atomic_fetch_add(&record->events, 1);
  RecordEvent *event = &record->event[i % RECORD_EVENTS];
  event->kind = RECORD_NONE; /* while it is written */
  event->when = rt_now(), event->step = record->step, event->number = number;
  size_t at = add(event->what, 0, what);
  if (of) at = add(event->what, add(event->what, at, " of "), of);
  if (over) add(event->what, add(event->what, at, " over "), over);
  event->kind = kind;
}
