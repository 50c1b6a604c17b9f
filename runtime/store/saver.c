/* A save, in steps, so that training can go on between them (`save async = on`):

     take      the state after a step: a copy in the arena SNAPSHOT, which a second device reads; in
               a synchronous save the tensors themselves
     start     rank 0 makes the folder .new-step-NNNNNN; then each rank writes its frozen
               parameters, once in a run: later saves link to that file
     write     each rank writes the other tensors and syncs
     meet      all ranks have written; rank 0 gets the sums of their files
     publish   rank 0 writes state.json, syncs, renames, syncs the parent; then old checkpoints go
     end       all ranks know

   So a folder step-NNNNNN is complete at any instant, and a killed process leaves only a .new- or
   .old- folder. Steps write and publish send no messages, so a thread can make them; the others are
   calls of all ranks at the same point between two steps of training. A synchronous save makes all
   of them in one go: files and bytes are the same. Must not: delete anything before the new
   checkpoint has its final name; touch tensors that training changes from the thread. */
#include "saver.h"
#include "runtime/base/file.h"
#include "runtime/device/shard_piece.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum SaveStage { NOTHING, WRITES, PUBLISHES } SaveStage;

struct Saver {
  Device *d;
  int64_t keep;
  Device then; /* its tensors are in the snapshot */
  rt_program program;
  bool aside; /* the state is in the snapshot */
  Progress progress;
  char run[RT_PATH], fresh[RT_PATH], folder[RT_PATH];
  SaveStage stage;
  SavedFiles mine, *all; /* of this rank; of all, on rank 0 */
  FileMark mark;
  LastSaved last;
  pthread_t thread;
  bool threaded;    /* there is one to join */
  atomic_bool busy; /* it works */
  bool ok;          /* its work succeeded; else `fault` says why not */
  Fault fault;
};

/* ---- the snapshot ---- */

/* Tensors of ranges are where the snapshot has them. */
static void relocate(Saver *saver) {
  const rt_program *program = saver->d->program;
  rt_tensor *tensors = rt_alloc(sizeof *tensors * (size_t)program->ntensors);
  memcpy(tensors, program->tensors, sizeof *tensors * (size_t)program->ntensors);
  for (int i = 0; i < program->ntensors; i++)
    for (int k = 0; k < program->nsnapshot; k++) {
      const rt_range *range = &program->snapshot[k];
      const rt_tensor *tensor = &program->tensors[i];
      int64_t at = tensor->offset - range->from;
      if (tensor->arena != range->arena || at < 0 || at >= range->bytes) continue;
      tensors[i].arena = RT_SNAPSHOT, tensors[i].offset = range->at + at;
    }
  saver->program = *program, saver->program.tensors = tensors;
  saver->then = *saver->d;
  saver->then.program = &saver->program, saver->then.state = NULL;
  saver->then.view[RT_SNAPSHOT] = saver->d->ctx.arena[RT_SNAPSHOT];
}

Saver *rt_saver_open(Device *d, int64_t keep) {
  Saver *saver = rt_alloc(sizeof *saver);
  *saver = (Saver){.d = d, .keep = keep};
  saver->all = rt_alloc(sizeof *saver->all * (size_t)rt_comm_world(d->comm));
  relocate(saver);
  if (rt_arena_bytes(d, RT_SNAPSHOT) && d->check)
    rt_poison(d->ctx.arena[RT_SNAPSHOT], rt_arena_bytes(d, RT_SNAPSHOT));
  return saver;
}

void rt_saver_close(Saver *saver) {
  if (saver) free((void *)saver->program.tensors), free(saver->all);
  free(saver);
}

void rt_saver_take(Saver *saver, const Progress *progress, bool aside) {
  Device *d = saver->d;
  bool copies = aside && rt_arena_bytes(d, RT_SNAPSHOT);
  saver->progress = *progress, saver->aside = aside;
  if (copies) d->kind->background(d, RT_BACKGROUND_keep);
}

/* ---- faults of files ---- */

static bool cannot(Fault *f, const char *what, const char *path) {
  int why = errno;
  rt_fault(f, 403, "cannot %s: %s", what, strerror(why));
  if (why == ENOSPC || why == EDQUOT)
    rt_help(f, "free some space on that disk, then continue with "
               "--resume");
  return rt_at(f, path, "", -1);
}

/* ---- start: frozen parameters ---- */

/* All 0: there is no such file. */
static FileMark mark_of(const char *path) {
  struct stat s;
  if (stat(path, &s)) return (FileMark){0};
  return (FileMark){(uint64_t)s.st_dev, (uint64_t)s.st_ino, (int64_t)s.st_size,
                    (int64_t)s.st_mtim.tv_sec, (int64_t)s.st_mtim.tv_nsec};
}

static void frozen_file(char path[RT_PATH], const char *run, int64_t step, int rank) {
  char folder[RT_PATH], name[64];
  rt_checkpoint_path(folder, run, step);
  rt_checkpoint_file(name, rank, true);
  rt_join(path, folder, name);
}

/* The frozen parameters of an earlier checkpoint of this process, under a second name; unless
   somebody has changed or replaced that file since: then they are written again. The new name is
   compared, as the old one may be replaced before it is linked. */
static bool link_frozen(const char *path, const char *run, int rank, const LastSaved *last) {
  char before[RT_PATH];
  if (!last->frozen.bytes) return false;
  frozen_file(before, run, last->step, rank);
  if (link(before, path)) return false;
  FileMark mark = mark_of(path);
  if (!memcmp(&mark, &last->mark, sizeof mark)) return true;
  unlink(path);
  return false;
}

/* `mark` is of the file before others can see it. They never change, so the device has them as they
   were when the state was taken. */
static bool write_frozen(Saver *saver, Fault *f) {
  char path[RT_PATH], name[64];
  int rank = rt_comm_rank(saver->d->comm);
  rt_checkpoint_file(name, rank, true);
  rt_join(path, saver->fresh, name);
  if (link_frozen(path, saver->run, rank, &saver->last)) {
    saver->mine.frozen = saver->last.frozen, saver->mark = saver->last.mark;
    return true;
  }
  bool ok = rt_checkpoint_write(path, saver->d, true, &saver->mine.frozen, f);
  saver->mark = mark_of(path);
  return ok;
}

/* ---- write ---- */

static bool write_own(Saver *saver, Fault *f) {
  char path[RT_PATH], name[64];
  rt_checkpoint_file(name, rt_comm_rank(saver->d->comm), false);
  rt_join(path, saver->fresh, name);
  if (saver->aside) saver->d->kind->background(saver->d, RT_BACKGROUND_write);
  return rt_checkpoint_write(path, saver->aside ? &saver->then : saver->d, false, &saver->mine.file,
                             f);
}

/* ---- publish ---- */

/* Where a file system cannot exchange two names, the old folder goes aside first; a process that
   dies between the two renames leaves both, and rt_checkpoint_recover puts the old one back. */
static bool replace(const char *run, const char *fresh, const char *folder, int64_t step,
                    Fault *f) {
  char old[RT_PATH];
  rt_checkpoint_aside(old, run, "was", step);
  rt_remove_tree(old);
  if (rename(folder, old)) return cannot(f, "replace", folder);
  if (rename(fresh, folder)) {
    cannot(f, "rename to", folder);
    if (rename(old, folder)) rt_help(f, "the checkpoint before is in %s", old);
    return false;
  }
  rt_remove_tree(old);
  return true;
}

/* Gives the new folder its final name; an existing folder is exchanged, then removed. */
static bool put_in_place(const char *run, const char *fresh, const char *folder, int64_t step,
                         Fault *f) {
  if (!rename(fresh, folder)) return true;
  if (errno != ENOTEMPTY && errno != EEXIST) return cannot(f, "rename to", folder);
  if (renameat2(AT_FDCWD, fresh, AT_FDCWD, folder, RENAME_EXCHANGE)) {
    bool unknown = errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP || errno == EPERM;
    return unknown ? replace(run, fresh, folder, step, f) : cannot(f, "replace", folder);
  }
  rt_remove_tree(fresh);
  return true;
}

/* Not the run directory: one that is not there was moved. */
static bool prepare_folder(const char *fresh, Fault *f) {
  rt_remove_tree(fresh);
  return !mkdir(fresh, 0777) || cannot(f, "make", fresh);
}

static bool publish(Saver *saver, Fault *f) {
  char path[RT_PATH];
  int64_t step = saver->progress.step;
  rt_join(path, saver->fresh, "state.json");
  if (!rt_checkpoint_state(path, saver->d, &saver->progress, saver->all, f) ||
      !rt_sync_folder(saver->fresh, f) ||
      !put_in_place(saver->run, saver->fresh, saver->folder, step, f) ||
      !rt_sync_folder(saver->run, f))
    return false;
  rt_checkpoint_point(saver->run, "latest", step);
  rt_checkpoint_rotate(saver->run, step, saver->keep);
  return true;
}

/* ---- the thread ---- */

/* One rank has nobody to meet. */
static bool work(Saver *saver, Fault *f) {
  bool alone = rt_comm_world(saver->d->comm) == 1;
  if (saver->stage == PUBLISHES) return publish(saver, f);
  if (!write_own(saver, f)) return false;
  saver->all[0] = saver->mine;
  return !alone || publish(saver, f);
}

static void *work_aside(void *of) {
  Saver *saver = of;
  if (saver->d->pool) rt_pool_leave(saver->d->pool);
  saver->ok = work(saver, &saver->fault);
  atomic_store(&saver->busy, false);
  return NULL;
}

/* All signals are blocked in the thread that trains, where another one waits for them. */
static void begin_work(Saver *saver, bool wait) {
  saver->fault = (Fault){0};
  atomic_store(&saver->busy, true);
  saver->threaded =
      saver->aside && !wait && !pthread_create(&saver->thread, NULL, work_aside, saver);
  if (saver->threaded) return;
  saver->ok = work(saver, &saver->fault);
  atomic_store(&saver->busy, false);
}

static bool end_work(Saver *saver, Fault *f) {
  if (saver->threaded) pthread_join(saver->thread, NULL);
  saver->threaded = false;
  if (!saver->ok) *f = saver->fault;
  return saver->ok;
}

/* ---- calls of all ranks ---- */

static bool is_first(const Saver *saver) { return rt_comm_rank(saver->d->comm) == 0; }

static bool give_up(Saver *saver) {
  if (is_first(saver) && *saver->fresh) rt_remove_tree(saver->fresh);
  saver->stage = NOTHING;
  return false;
}

bool rt_saver_start(Saver *saver, const char *run, bool wait, Fault *f) {
  Comm *comm = saver->d->comm;
  int64_t step = saver->progress.step;
  snprintf(saver->run, sizeof saver->run, "%s", run);
  rt_checkpoint_path(saver->folder, run, step);
  rt_checkpoint_aside(saver->fresh, run, "new", step);
  saver->mine = (SavedFiles){0}, saver->mark = (FileMark){0};
  bool ok = *saver->folder && *saver->fresh;
  if (!ok) rt_fault(f, 401, "the name of the run directory is too long");
  ok = ok && (!is_first(saver) || prepare_folder(saver->fresh, f));
  if (!rt_comm_all(comm, "make the folder of a checkpoint", ok, f)) return give_up(saver);
  if (!rt_comm_all(comm, "write its part of a checkpoint", write_frozen(saver, f), f))
    return give_up(saver);
  saver->stage = WRITES;
  begin_work(saver, wait);
  return true;
}

static bool meet(Saver *saver, bool wait, Fault *f) {
  Comm *comm = saver->d->comm;
  bool ok = rt_comm_all(comm, "write its part of a checkpoint", end_work(saver, f), f);
  if (!ok) return give_up(saver);
  saver->stage = PUBLISHES;
  if (rt_comm_world(comm) == 1) return true;
  rt_comm_gather(comm, "sums of a checkpoint", &saver->mine, saver->all, sizeof saver->mine);
  if (is_first(saver)) begin_work(saver, wait);
  return true;
}

static bool end(Saver *saver, Fault *f) {
  bool ok =
      rt_comm_all(saver->d->comm, "finish a checkpoint", !is_first(saver) || end_work(saver, f), f);
  if (!ok) return give_up(saver);
  saver->last = (LastSaved){saver->progress.step, saver->mine.frozen, saver->mark};
  saver->stage = NOTHING;
  return true;
}

bool rt_saver_go_on(Saver *saver, bool wait, Fault *f) {
  if (saver->stage == WRITES) {
    if (!meet(saver, wait, f)) return false;
    if (!wait && rt_comm_world(saver->d->comm) > 1) return true;
  }
  return saver->stage != PUBLISHES || end(saver, f);
}

bool rt_saver_saves(const Saver *saver) { return saver && saver->stage != NOTHING; }
bool rt_saver_busy(const Saver *saver) { return saver && atomic_load(&saver->busy); }
const char *rt_saver_run(const Saver *saver) { return saver->run; }
int64_t rt_saver_step(const Saver *saver) { return saver->progress.step; }

bool rt_saver_writes(const rt_program *program, int rank) {
  bool writes = false;
  for (int i = 0; i < program->ntensors; i++) {
    const rt_tensor *tensor = &program->tensors[i];
    bool changes = tensor->kind == RT_PARAM || tensor->kind == RT_STATE || tensor->kind == RT_REST;
    writes |= changes && !tensor->frozen && rt_is_writer(program, tensor, rank);
  }
  return writes;
}
