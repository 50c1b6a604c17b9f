/* The files of a checkpoint: tensors, a file per rank, each tensor with its place in the logical
   one, and state.json with the sums of all files and of itself, by rank 0. Data that several ranks
   hold is written by one of them. Frozen parameters have files of their own. Dumps are such files
   of whole tensors. Must not: decide when a file is written, or in which folder (saver.c). */
#include "checkpoint.h"
#include "ir/support/num.h"
#include "runtime/base/file.h"
#include "runtime/device/shard_piece.h"
#include "run_settings.h"
#include "safetensors.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rt_checkpoint_file(char name[64], int rank, bool frozen) {
  snprintf(name, 64, "%s-%05d.safetensors", frozen ? "frozen" : "rank", rank);
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

static bool write_items(const char *path, const Contents *contents, int64_t *bytes, uint64_t *hash,
                        Fault *f) {
  NewFile file;
  if (!rt_file_begin(&file, path, 0666, f)) return false;
  bool ok = rt_safe_write(file.fd, contents->item, contents->nitems, contents->pair,
                          contents->npairs, bytes, hash, f);
  return rt_file_end(&file, ok, true, f);
}

bool rt_checkpoint_write(const char *path, const Device *d, bool frozen, SavedFile *file,
                         Fault *f) {
  Contents contents = own_contents(d, frozen);
  bool any = !frozen || contents.nitems,
       ok = !any || write_items(path, &contents, &file->bytes, &file->hash, f);
  free_contents(&contents);
  return ok;
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

static void write_file(FILE *file, int rank, bool frozen, const SavedFile *saved) {
  char name[64];
  rt_checkpoint_file(name, rank, frozen);
  fprintf(file, "%s{\"name\":\"%s\",\"bytes\":%lld,\"xxh64\":\"%016llx\"}",
          rank || frozen ? "," : "", name, (long long)saved->bytes,
          (unsigned long long)saved->hash);
}

static void write_files(FILE *file, const SavedFiles *files, int world) {
  fprintf(file, ",\"files\":[");
  for (int i = 0; i < world; i++) write_file(file, i, false, &files[i].file);
  for (int i = 0; i < world; i++)
    if (files[i].frozen.bytes) write_file(file, i, true, &files[i].frozen);
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

bool rt_checkpoint_state(const char *path, const Device *d, const Progress *progress,
                         const SavedFiles *files, Fault *f) {
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
  if (progress->given) fprintf(file, ",\"given\":"), rt_write_settings(file, progress->given);
  fprintf(file, ","), write_dims(file, program), write_files(file, files, rt_comm_world(d->comm));
  fflush(file);
  fprintf(file, ",\"check\":\"%016llx\"}\n", (unsigned long long)rt_hash_of(text, n));
  fclose(file);
  bool ok = rt_write_file(path, text, (int64_t)n, true, f);
  free(text);
  return ok;
}
