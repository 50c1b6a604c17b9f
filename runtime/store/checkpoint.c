/* Writing, listing and rotating checkpoints.

   A checkpoint is written into a folder of another name (.new-step-NNNNNN): tensors first, a file
   per rank, each tensor with its place in the logical one, then state.json with the sums of all
   files and of itself, by rank 0. Data that several ranks hold is written by one of them. Frozen
   parameters have files of their own, written once by a run, whose later checkpoints link to them.
   Then sync, rename, sync of the parent. So a folder step-NNNNNN is complete at any instant, and a
   killed process leaves only a .new- or .old- folder. Must not: delete anything before the new
   checkpoint has its final name. */
#include "checkpoint.h"
#include "ir/support/num.h"
#include "runtime/base/file.h"
#include "runtime/device/shard_piece.h"
#include "run_settings.h"
#include "safetensors.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void rank_file(char name[64], int rank, bool frozen) {
  snprintf(name, 64, "%s-%05d.safetensors", frozen ? "frozen" : "rank", rank);
}

void rt_checkpoint_path(char out[RT_PATH], const char *run, int64_t step) {
  char name[64];
  snprintf(name, sizeof name, "step-%06lld", (long long)step);
  rt_join(out, run, name);
}

static bool kept(const rt_tensor *tensor) {
  return tensor->kind == RT_PARAM || tensor->kind == RT_STATE;
}

/* The position of a piece in the logical tensor: begin:end/size of each dimension; for a part of
   that box, its range of elements follows after a semicolon. */
static char *place_text(const rt_program *program, const rt_tensor *tensor, const Piece *piece) {
  char text[RT_MAX_RANK * 64 + 64] = "";
  size_t n = 0, size = sizeof text;
  for (int i = 0; i < tensor->rank; i++)
    n += (size_t)snprintf(text + n, size - n, "%s%lld:%lld/%lld", i ? "," : "",
                          (long long)piece->begin[i], (long long)piece->end[i],
                          (long long)rt_whole_size(program, tensor, i));
  if (piece->in->flat)
    n += (size_t)snprintf(text + n, size - n, ";%lld:%lld", (long long)piece->from,
                          (long long)piece->to);
  return rt_copy_text(text, n);
}

typedef struct Contents {
  SafeItem *item;
  SafePair *pair;
  int64_t (*size)[RT_MAX_RANK];  /* of items */
  struct CheckpointParts *parts; /* of items that come in parts */
  int nitems, npairs, room;
} Contents;

/* A piece of a tensor on its way into a file. */
typedef struct CheckpointParts {
  const Device *d;
  const rt_tensor *t;
  Piece left;
  char *room; /* for a part without its padding; NULL: none yet */
} CheckpointParts;

enum { PART = 16 << 20 }; /* bytes */

static int64_t next_part(void *of, const void **data) {
  CheckpointParts *parts = of;
  int64_t n = rt_elem_bytes(parts->t->elem), most = min_i64(rt_span_most(parts->d, parts->t), PART);
  for (Piece part; rt_piece_cut(&parts->left, most / n, &part);) {
    Piece piece = rt_piece_logical(parts->d->program, parts->t, &part);
    int64_t bytes = (piece.to - piece.from) * n, held = (part.to - part.from) * n;
    if (!bytes) continue; /* nothing but padding */
    *data = rt_span_read(parts->d, parts->t, part.at * n, held);
    if (bytes == held) return bytes;
    if (!parts->room) parts->room = rt_alloc((size_t)most);
    rt_piece_copy((int)parts->t->elem, *data, &part, (int)parts->t->elem, parts->room, &piece);
    *data = parts->room;
    return bytes;
  }
  free(parts->room), parts->room = NULL;
  return 0;
}

static void add_parts(Contents *contents, const Device *d, const rt_tensor *tensor,
                      const char *name, int rank, const int64_t *size, const Piece *held) {
  CheckpointParts *parts = &contents->parts[contents->nitems];
  *parts = (CheckpointParts){d, tensor, *held, NULL};
  contents->item[contents->nitems++] =
      (SafeItem){name, (int)tensor->elem, rank, size, NULL, next_part, parts};
}

/* The next piece that this rank writes: of what several hold alike, one does. */
static bool next_own(const Device *d, PieceWalk *walk, Piece *piece) {
  while (rt_piece_next(walk, piece))
    if (rt_is_writer(d->program, piece->in, walk->rank)) return true;
  return false;
}

static int count_pieces(const Device *d, const rt_tensor *tensor) {
  PieceWalk walk = rt_pieces(d->program, tensor, rt_comm_rank(d->comm));
  Piece piece;
  int n = 0;
  while (next_own(d, &walk, &piece)) n++;
  return n;
}

static void add_piece(Contents *contents, const Device *d, const rt_tensor *tensor, char *name,
                      const Piece *held) {
  Piece piece = rt_piece_logical(d->program, held->in, held);
  int64_t *size = contents->size[contents->nitems];
  bool flat = held->in->flat != NULL;
  for (int i = 0; i < tensor->rank; i++) size[i] = piece.end[i] - piece.begin[i];
  if (flat) size[0] = piece.to - piece.from;
  contents->pair[contents->npairs++] =
      (SafePair){rt_format("place.%s", name), place_text(d->program, tensor, &piece)};
  add_parts(contents, d, held->in, name, flat ? 1 : tensor->rank, size, held);
}

/* A tensor is one item, or NAME:0, NAME:1, ..: its chunks and parts, or ranges, of one dim each. */
static void add_pieces(Contents *contents, const Device *d, const rt_tensor *tensor) {
  PieceWalk walk = rt_pieces(d->program, tensor, rt_comm_rank(d->comm));
  bool several = tensor->flat || tensor->chunks || tensor->layers;
  Piece piece;
  for (int k = 0; next_own(d, &walk, &piece);) {
    Piece logical = rt_piece_logical(d->program, piece.in, &piece);
    if (logical.from == logical.to) continue;
    char *name = several ? rt_format("%s:%d", tensor->name, k)
                         : rt_copy_text(tensor->name, strlen(tensor->name));
    add_piece(contents, d, tensor, name, &piece), k++;
  }
}

static Contents room_for(int n) {
  return (Contents){rt_alloc(sizeof(SafeItem) * (size_t)n),
                    rt_alloc(sizeof(SafePair) * (size_t)n),
                    rt_alloc(sizeof(int64_t[RT_MAX_RANK]) * (size_t)n),
                    rt_alloc(sizeof(CheckpointParts) * (size_t)n),
                    0,
                    0,
                    n};
}

static bool in_file(const rt_tensor *tensor, bool frozen) {
  return kept(tensor) && tensor->frozen == frozen;
}

/* The tensors that this rank writes into a file of a checkpoint: frozen ones, or the others. */
static Contents own_contents(const Device *d, bool frozen) {
  const rt_program *program = d->program;
  int n = 1;
  for (int i = 0; i < program->ntensors; i++)
    if (in_file(&program->tensors[i], frozen)) n += count_pieces(d, &program->tensors[i]);
  Contents contents = room_for(n);
  for (int i = 0; i < program->ntensors; i++)
    if (in_file(&program->tensors[i], frozen)) add_pieces(&contents, d, &program->tensors[i]);
  return contents;
}

static void free_contents(Contents *contents) {
  for (int i = 0; i < contents->npairs; i++)
    free((char *)contents->pair[i].key), free((char *)contents->pair[i].value);
  for (int i = 0; i < contents->npairs; i++) free((char *)contents->item[i].name);
  for (int i = 0; i < contents->nitems; i++) free(contents->parts[i].room);
  free(contents->item), free(contents->pair), free(contents->size), free(contents->parts);
}

static bool cannot(Fault *f, const char *what, const char *path) {
  int why = errno;
  rt_fault(f, 403, "cannot %s: %s", what, strerror(why));
  if (why == ENOSPC || why == EDQUOT)
    rt_help(f, "free some space on that disk, then continue with "
               "--resume");
  return rt_at(f, path, "", -1);
}

static bool write_items(const char *path, const Contents *contents, int64_t *bytes, uint64_t *hash,
                        Fault *f) {
  NewFile file;
  if (!rt_file_begin(&file, path, 0666, f)) return false;
  bool ok = rt_safe_write(file.fd, contents->item, contents->nitems, contents->pair,
                          contents->npairs, bytes, hash, f);
  return rt_file_end(&file, ok, true, f);
}

/* Keys and values of a window are no result. */
static bool shown(const rt_tensor *tensor) {
  return tensor->kind == RT_OUTPUT && strncmp(tensor->name, "decode.of.fill.", 15) &&
         strncmp(tensor->name, "decode.of.row.", 14);
}

/* Has a step run? Frozen ones store no norms of groups. */
static bool has_trained(const Device *d, bool frozen) {
  bool ran = false;
  for (int i = 0; i < d->program->nentries; i++) {
    const rt_entry *entry = &d->program->entries[i];
    bool counts = rt_entry_trains(entry) && (frozen || entry->phase != RT_PHASE_frozen);
    ran |= counts && rt_has_run(d, entry);
  }
  return ran;
}

/* Has an entry run that stores the output, by the names that lowering and optimizers give? */
bool rt_is_computed(const Device *d, const rt_tensor *tensor) {
  static const char *const of[][2] = {{"out.", "logits"}, {"eval.", "eval"}, {"decode.", "decode"}};
  for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
    const rt_entry *entry = rt_entry_find(d->program, of[i][1]);
    if (!strncmp(tensor->name, of[i][0], strlen(of[i][0]))) return entry && rt_has_run(d, entry);
  }
  return has_trained(d, strncmp(tensor->name, "norm2.of.", 9) != 0);
}

/* Logical tensors, gathered; rank 0 writes. */
bool rt_dump(const char *path, const Device *d, const Outputs *more, Fault *f) {
  const rt_program *program = rt_whole_program(d->program);
  bool first = rt_comm_rank(d->comm) == 0, ok = true;
  Contents contents = room_for(program->ntensors + (more ? more->n : 0) + 1);
  for (int i = 0; i < program->ntensors; i++) {
    const rt_tensor *tensor = &d->program->tensors[i], *whole = &program->tensors[i];
    if (!kept(tensor) && !(shown(tensor) && rt_is_computed(d, tensor))) continue;
    if (more && !strncmp(tensor->name, "out.", 4)) continue;
    if (!rt_is_placed(tensor)) {
      Piece all = rt_piece_whole(d->program, tensor);
      add_parts(&contents, d, tensor, tensor->name, tensor->rank, whole->size, &all);
      continue;
    }
    void *data = first ? rt_alloc((size_t)whole->bytes) : NULL;
    rt_tensor_gather(d, tensor, data);
    contents.item[contents.nitems++] =
        (SafeItem){tensor->name, tensor->elem, tensor->rank, whole->size, data, NULL, NULL};
  }
  int own = contents.nitems;
  int64_t bytes;
  uint64_t hash;
  for (int i = 0; more && i < more->n; i++) contents.item[contents.nitems++] = more->item[i];
  if (first) ok = write_items(path, &contents, &bytes, &hash, f);
  for (int i = 0; i < own; i++) {
    const rt_tensor *tensor = rt_tensor_find(d->program, contents.item[i].name);
    if (rt_is_placed(tensor)) free((void *)contents.item[i].data);
  }
  free_contents(&contents);
  rt_whole_free(program, d->program);
  return ok;
}

typedef struct WrittenDims {
  const char *seen[256];
  int n;
} WrittenDims;

static void write_dims_of(FILE *file, const rt_program *program, const rt_tensor *tensor,
                          WrittenDims *dims) {
  for (int k = 0; k < tensor->rank; k++) {
    int j = 0;
    while (j < dims->n && strcmp(dims->seen[j], tensor->dim[k])) j++;
    if (j < dims->n || dims->n == 256) continue;
    dims->seen[dims->n++] = tensor->dim[k];
    if (dims->n > 1) fputc(',', file);
    rt_json_write(file, tensor->dim[k]);
    fprintf(file, ":%lld", (long long)rt_whole_size(program, tensor, k));
  }
}

/* Logical sizes: those of parameters before those of outputs, which may be of some layers. */
static void write_dims(FILE *file, const rt_program *program) {
  WrittenDims dims = {.n = 0};
  fprintf(file, "\"dims\":{");
  for (int outputs = 0; outputs < 2; outputs++)
    for (int i = 0; i < program->ntensors; i++)
      if ((program->tensors[i].kind == RT_OUTPUT) == outputs)
        write_dims_of(file, program, &program->tensors[i], &dims);
  fprintf(file, "}");
}

typedef struct WrittenPieces { /* by a rank */
  SavedFile file, frozen;
} WrittenPieces;

static void write_file(FILE *file, int rank, bool frozen, const SavedFile *saved) {
  char name[64];
  rank_file(name, rank, frozen);
  fprintf(file, "%s{\"name\":\"%s\",\"bytes\":%lld,\"xxh64\":\"%016llx\"}",
          rank || frozen ? "," : "", name, (long long)saved->bytes,
          (unsigned long long)saved->hash);
}

static void write_files(FILE *file, const WrittenPieces *pieces, int world) {
  fprintf(file, ",\"files\":[");
  for (int i = 0; i < world; i++) write_file(file, i, false, &pieces[i].file);
  for (int i = 0; i < world; i++)
    if (pieces[i].frozen.bytes) write_file(file, i, true, &pieces[i].frozen);
  fprintf(file, "]");
}

/* As compiled, whatever --set says. */
static void write_settings(FILE *file, const Device *d) {
  const rt_program *program = d->first ? d->first : d->program;
  char *lines = rt_run_settings(program);
  fprintf(file,
          ",\"source\":\"%016llx\",\"settings\":", (unsigned long long)rt_source_hash(program));
  rt_write_settings(file, lines);
  free(lines);
}

static bool write_state(const char *path, const Device *d, const Progress *progress,
                        const WrittenPieces *pieces, int world, Fault *f) {
  const rt_program *program = d->program;
  char *text = NULL;
  size_t n = 0;
  FILE *file = open_memstream(&text, &n);
  if (!file) return rt_fault(f, 701, "no memory for state.json");
  fprintf(file, "{\"schema\":1,\"model\":"), rt_json_write(file, program->model);
  fprintf(file, ",\"compiler\":"), rt_json_write(file, program->compiler);
  fprintf(file, ",\"program\":"), rt_json_write(file, program->hash);
  fprintf(file, ",\"step\":%lld,\"samples\":%lld,", (long long)progress->step,
          (long long)progress->samples);
  if (progress->tokens) fprintf(file, "\"tokens\":%lld,", (long long)progress->tokens);
  fprintf(file, "\"seed\":%lld,\"loss\":", (long long)progress->seed);
  rt_json_real(file, progress->loss);
  fprintf(file, ",\"valid_loss\":"), rt_json_real(file, progress->valid_loss);
  fprintf(file, ",\"data\":\"%016llx\",\"optimizer\":", (unsigned long long)progress->data);
  rt_json_write(file, progress->optimizer);
  write_settings(file, d);
  fprintf(file, ","), write_dims(file, program), write_files(file, pieces, world);
  fflush(file);
  fprintf(file, ",\"check\":\"%016llx\"}\n", (unsigned long long)rt_hash_of(text, n));
  fclose(file);
  bool ok = rt_write_file(path, text, (int64_t)n, true, f);
  free(text);
  return ok;
}

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
  rank_file(name, rank, true);
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

/* mark: of the file of frozen parameters, before others can see it. */
static bool write_rank(const char *folder, const char *run, const Device *d, const LastSaved *last,
                       WrittenPieces *pieces, FileMark *mark, Fault *f) {
  bool ok = true;
  for (int frozen = 0; ok && frozen < 2; frozen++) {
    SavedFile *file = frozen ? &pieces->frozen : &pieces->file;
    char path[RT_PATH], name[64];
    rank_file(name, rt_comm_rank(d->comm), frozen);
    rt_join(path, folder, name);
    if (frozen && link_frozen(path, run, rt_comm_rank(d->comm), last)) {
      *file = last->frozen, *mark = last->mark;
      continue;
    }
    Contents contents = own_contents(d, frozen);
    if (!frozen || contents.nitems) ok = write_items(path, &contents, &file->bytes, &file->hash, f);
    free_contents(&contents);
    if (frozen) *mark = mark_of(path);
  }
  return ok;
}

static bool finish_folder(const char *folder, const Device *d, const Progress *progress,
                          const WrittenPieces *pieces, Fault *f) {
  char path[RT_PATH];
  rt_join(path, folder, "state.json");
  return write_state(path, d, progress, pieces, rt_comm_world(d->comm), f) &&
         rt_sync_folder(folder, f);
}

static void aside(char out[RT_PATH], const char *run, const char *kind, int64_t step) {
  char name[64];
  snprintf(name, sizeof name, ".%s-step-%06lld", kind, (long long)step);
  rt_join(out, run, name);
}

/* Where a file system cannot exchange two names, the old folder goes aside first; a process that
   dies between the two renames leaves both, and rt_checkpoint_recover puts the old one back. */
static bool replace(const char *run, const char *fresh, const char *folder, int64_t step,
                    Fault *f) {
  char old[RT_PATH];
  aside(old, run, "was", step);
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

static void point_latest(const char *run,
                         const char *folder) { /* a convenience: resuming does not need it */
  char link[RT_PATH], temporary[RT_PATH];
  rt_join(link, run, "latest"), rt_join(temporary, run, ".latest");
  unlink(temporary);
  if (!symlink(strrchr(folder, '/') + 1, temporary) && rename(temporary, link)) unlink(temporary);
}

/* Not the run directory: one that is not there was moved. */
static bool prepare_folder(const char *fresh, Fault *f) {
  rt_remove_tree(fresh);
  return !mkdir(fresh, 0777) || cannot(f, "make", fresh);
}

static bool publish(const char *run, const char *fresh, const char *folder, int64_t step,
                    Fault *f) {
  if (!put_in_place(run, fresh, folder, step, f) || !rt_sync_folder(run, f)) return false;
  point_latest(run, folder);
  return true;
}

bool rt_checkpoint_save(const char *run, const Device *d, const Progress *progress, LastSaved *last,
                        Fault *f) {
  char folder[RT_PATH], fresh[RT_PATH];
  FileMark mark = {0};
  bool first = rt_comm_rank(d->comm) == 0;
  WrittenPieces mine = {0}, *all = rt_alloc(sizeof *all * (size_t)rt_comm_world(d->comm));
  rt_checkpoint_path(folder, run, progress->step);
  aside(fresh, run, "new", progress->step);
  bool ok = *folder && *fresh;
  if (!ok) rt_fault(f, 401, "the name of the run directory is too long");
  ok = rt_comm_all(d->comm, "make the folder of a checkpoint",
                   ok && (!first || prepare_folder(fresh, f)), f);
  ok = ok && rt_comm_all(d->comm, "write its part of a checkpoint",
                         write_rank(fresh, run, d, last, &mine, &mark, f), f);
  rt_comm_gather(d->comm, "sums of a checkpoint", &mine, all, sizeof mine);
  bool good = ok;
  if (first && ok)
    good =
        finish_folder(fresh, d, progress, all, f) && publish(run, fresh, folder, progress->step, f);
  if (first && !good && *fresh) rt_remove_tree(fresh);
  free(all);
  ok = ok && rt_comm_all(d->comm, "finish a checkpoint", good, f);
  if (!ok) return false;
  *last = (LastSaved){progress->step, mine.frozen, mark};
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
  aside(old, run, "old", step);
  if (!rename(folder, old)) rt_remove_tree(old);
}

void rt_checkpoint_rotate(const char *run, int64_t newest, int64_t keep) {
  CheckpointList list = rt_checkpoint_list(run);
  for (int i = 0, seen = 0; i < list.n; i++)
    if (list.step[i] <= newest && ++seen > (keep > 1 ? keep : 1))
      remove_checkpoint(run, list.step[i]);
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
