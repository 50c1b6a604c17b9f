/* Writing, listing and rotating checkpoints.

   A checkpoint is written into a folder of another name (.new-step-NNNNNN): tensors first, each
   with its place in the logical tensor, then state.json with the sums of all files and of itself.
   Then sync, rename, sync of the parent. So a folder step-NNNNNN is complete at any instant, and
   what a kill leaves behind is only ever a .new- or .old- folder. Must not: delete anything before
   the new checkpoint stands under its name. */
#include "checkpoint.h"
#include "file.h"
#include "safetensors.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char rank_file[] = "rank-00000.safetensors";

void rt_checkpoint_path(char out[RT_PATH], const char *run, int64_t step) {
  char name[64];
  snprintf(name, sizeof name, "step-%06lld", (long long)step);
  rt_join(out, run, name);
}

static bool kept(const rt_tensor *t) { return t->kind == RT_PARAM || t->kind == RT_STATE; }

/* Where the slice of this rank lies in the logical tensor: begin:end/size of each dimension. */
static char *place_text(const rt_tensor *t) {
  char text[RT_MAX_RANK * 64] = "";
  for (int i = 0, n = 0; i < t->rank; i++)
    n += snprintf(text + n, sizeof text - (size_t)n, "%s0:%lld/%lld", i ? "," : "",
                  (long long)t->size[i], (long long)t->size[i]);
  return rt_copy_text(text, strlen(text));
}

typedef struct Contents {
  SafeItem *item;
  SafePair *pair;
  int nitems, npairs;
} Contents;

static void add(Contents *c, const Device *d, const rt_tensor *t, bool place) {
  c->item[c->nitems++] = (SafeItem){t->name, t->elem, t->rank, t->size, rt_tensor_data(d, t)};
  if (place) c->pair[c->npairs++] = (SafePair){rt_format("place.%s", t->name), place_text(t)};
}

static Contents contents(const Device *d, bool outputs, bool places) {
  const rt_program *p = d->program;
  Contents c = {rt_alloc(sizeof(SafeItem) * (size_t)p->ntensors),
                rt_alloc(sizeof(SafePair) * (size_t)p->ntensors), 0, 0};
  for (int i = 0; i < p->ntensors; i++)
    if (kept(&p->tensors[i]) || (outputs && p->tensors[i].kind == RT_OUTPUT))
      add(&c, d, &p->tensors[i], places);
  return c;
}

static void free_contents(Contents *c) {
  for (int i = 0; i < c->npairs; i++) free((char *)c->pair[i].key), free((char *)c->pair[i].value);
  free(c->item), free(c->pair);
}

static bool cannot(Fault *f, const char *what, const char *path) {
  int why = errno;
  rt_fault(f, 403, "cannot %s: %s", what, strerror(why));
  if (why == ENOSPC || why == EDQUOT) rt_help(f, "free some space there, then go on with --resume");
  return rt_at(f, path, "", -1);
}

static bool write_tensors(const char *path, const Device *d, bool outputs, int64_t *bytes,
                          uint64_t *hash, Fault *f) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0) return cannot(f, "make the file", path);
  Contents c = contents(d, outputs, !outputs);
  bool ok = rt_safe_write(fd, c.item, c.nitems, c.pair, c.npairs, bytes, hash, f);
  if (ok && fsync(fd)) ok = cannot(f, "write", path);
  if (close(fd) && ok) ok = cannot(f, "write", path);
  free_contents(&c);
  return ok || rt_at(f, path, "", -1);
}

bool rt_dump(const char *path, const Device *d, Fault *f) {
  char temporary[RT_PATH + 8];
  int64_t bytes;
  uint64_t hash;
  snprintf(temporary, sizeof temporary, "%s.tmp", path);
  bool ok = write_tensors(temporary, d, true, &bytes, &hash, f);
  if (ok && rename(temporary, path)) ok = cannot(f, "rename to", path);
  if (!ok) unlink(temporary);
  return ok;
}

static void write_dims(FILE *o, const rt_program *p) {
  const char *seen[256];
  int n = 0;
  fprintf(o, "\"dims\":{");
  for (int i = 0; i < p->ntensors; i++)
    for (int k = 0; k < p->tensors[i].rank; k++) {
      int j = 0;
      while (j < n && strcmp(seen[j], p->tensors[i].dim[k])) j++;
      if (j < n || n == 256) continue;
      seen[n++] = p->tensors[i].dim[k];
      if (n > 1) fputc(',', o);
      rt_json_write(o, p->tensors[i].dim[k]);
      fprintf(o, ":%lld", (long long)p->tensors[i].size[k]);
    }
  fprintf(o, "}");
}

static bool write_state(const char *path, const rt_program *p, const Progress *g, int64_t bytes,
                        uint64_t hash, Fault *f) {
  char *text = NULL;
  size_t n = 0;
  FILE *o = open_memstream(&text, &n);
  fprintf(o, "{\"schema\":1,\"model\":"), rt_json_write(o, p->model);
  fprintf(o, ",\"compiler\":"), rt_json_write(o, p->compiler);
  fprintf(o, ",\"program\":"), rt_json_write(o, p->hash);
  fprintf(o, ",\"step\":%lld,\"samples\":%lld,\"tokens\":%lld,\"seed\":%lld,\"loss\":",
          (long long)g->step, (long long)g->samples, (long long)g->tokens, (long long)g->seed);
  rt_json_real(o, g->loss);
  fprintf(o, ",\"valid_loss\":"), rt_json_real(o, g->valid_loss);
  fprintf(o, ","), write_dims(o, p);
  fprintf(o, ",\"files\":[{\"name\":\"%s\",\"bytes\":%lld,\"xxh64\":\"%016llx\"}]", rank_file,
          (long long)bytes, (unsigned long long)hash);
  fflush(o);
  fprintf(o, ",\"check\":\"%016llx\"}\n", (unsigned long long)rt_hash_of(text, n));
  fclose(o);
  bool ok = rt_write_file(path, text, (int64_t)n, true, f);
  free(text);
  return ok;
}

static bool write_folder(const char *folder, const Device *d, const Progress *p, Fault *f) {
  char path[RT_PATH];
  int64_t bytes;
  uint64_t hash;
  rt_join(path, folder, rank_file);
  if (!write_tensors(path, d, false, &bytes, &hash, f)) return false;
  rt_join(path, folder, "state.json");
  return write_state(path, d->program, p, bytes, hash, f) && rt_sync_folder(folder, f);
}

/* Puts the new folder at its place; one that is there already is exchanged, then removed. */
static bool put_in_place(const char *fresh, const char *folder, Fault *f) {
  if (!rename(fresh, folder)) return true;
  if (errno != ENOTEMPTY && errno != EEXIST) return cannot(f, "rename to", folder);
  if (renameat2(AT_FDCWD, fresh, AT_FDCWD, folder, RENAME_EXCHANGE))
    return cannot(f, "replace", folder);
  rt_remove_tree(fresh);
  return true;
}

static void point_latest(const char *run,
                         const char *folder) { /* a convenience: resuming does not need it */
  char link[RT_PATH], temporary[RT_PATH];
  rt_join(link, run, "latest"), rt_join(temporary, run, ".latest");
  unlink(temporary);
  if (!symlink(strrchr(folder, '/') + 1, temporary) && rename(temporary, link)) unlink(temporary);
}

bool rt_checkpoint_save(const char *run, const Device *d, const Progress *p, Fault *f) {
  char folder[RT_PATH], fresh[RT_PATH], name[64];
  rt_checkpoint_path(folder, run, p->step);
  snprintf(name, sizeof name, ".new-step-%06lld", (long long)p->step);
  rt_join(fresh, run, name);
  if (!*folder || !*fresh) return rt_fault(f, 401, "the name of the run directory is too long");
  rt_remove_tree(fresh);
  if (!rt_make_folders(fresh, f)) return false;
  if (!write_folder(fresh, d, p, f) || !put_in_place(fresh, folder, f)) {
    rt_remove_tree(fresh);
    return false;
  }
  if (!rt_sync_folder(run, f)) return false;
  point_latest(run, folder);
  return true;
}

/* ---- what there is ---- */

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
  CheckpointList l = {0, NULL};
  DIR *d = opendir(run);
  for (struct dirent *e; d && (e = readdir(d));) {
    int64_t step = step_of(e->d_name);
    if (step < 0) continue;
    if (!(l.n & (l.n + 1)) || !l.step) /* room for a power of two */
      if (!(l.step = realloc(l.step, sizeof *l.step * 2 * (size_t)(l.n + 1))))
        rt_fail(701, "no memory");
    l.step[l.n++] = step;
  }
  if (d) closedir(d);
  if (l.n) qsort(l.step, (size_t)l.n, sizeof *l.step, newest_first);
  return l;
}

/* A folder changes its name before it is emptied, so that a half-removed one never looks like a
 * checkpoint. */
static void remove_checkpoint(const char *run, int64_t step) {
  char folder[RT_PATH], old[RT_PATH], name[64];
  rt_checkpoint_path(folder, run, step);
  snprintf(name, sizeof name, ".old-step-%06lld", (long long)step);
  rt_join(old, run, name);
  if (!rename(folder, old)) rt_remove_tree(old);
}

void rt_checkpoint_rotate(const char *run, int64_t newest, int keep) {
  CheckpointList l = rt_checkpoint_list(run);
  for (int i = 0, seen = 0; i < l.n; i++)
    if (l.step[i] <= newest && ++seen > (keep > 1 ? keep : 1)) remove_checkpoint(run, l.step[i]);
  free(l.step);
}

void rt_checkpoint_clean(const char *run) {
  DIR *d = opendir(run);
  char path[RT_PATH];
  for (struct dirent *e; d && (e = readdir(d));) {
    if (strncmp(e->d_name, ".new-step-", 10) && strncmp(e->d_name, ".old-step-", 10)) continue;
    rt_join(path, run, e->d_name);
    rt_remove_tree(path);
  }
  if (d) closedir(d);
}

void rt_checkpoint_retire(const char *run, int64_t step) {
  CheckpointList l = rt_checkpoint_list(run);
  for (int i = 0; i < l.n && l.step[i] > step; i++) {
    char from[RT_PATH], to[RT_PATH], name[64];
    rt_checkpoint_path(from, run, l.step[i]);
    snprintf(name, sizeof name, "replaced-step-%06lld", (long long)l.step[i]);
    rt_join(to, run, name);
    rt_remove_tree(to);
    if (!rename(from, to))
      fprintf(stderr, "note: %s is newer than the resumed step and is now %s\n", from, to);
  }
  free(l.step);
}
