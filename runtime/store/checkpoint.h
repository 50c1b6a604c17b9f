/* Checkpoints: folders step-NNNNNN inside a run directory, each complete or absent. */
#ifndef SHARDC_RT_CHECKPOINT_H
#define SHARDC_RT_CHECKPOINT_H
#include "runtime/device/device.h"
#include "safetensors.h"

typedef struct Progress { /* the state of a run: everything that the next step depends on besides
                             the tensors */
  int64_t step, samples, tokens; /* done; samples is the data cursor */
  uint64_t seed;
  double loss, valid_loss; /* NaN: not known */
  uint64_t data;           /* what is read (rt_data_identity); 0: not known */
  char optimizer[32];
  bool averages;  /* to read: moving averages in place of parameters */
  char *given;    /* numbers that the run was given, lines KEY=VALUE; NULL: none */
  char *settings; /* of the run that was read (run_settings.h); NULL: not known */
} Progress;

typedef struct CheckpointList { /* newest first */
  int n;
  int64_t *step;
} CheckpointList;

typedef struct SavedFile {
  int64_t bytes; /* 0: none */
  uint64_t hash;
} SavedFile;

typedef struct FileMark { /* a file that is replaced or changed gets another */
  uint64_t device, inode;
  int64_t bytes, seconds, nanoseconds;
} FileMark;

typedef struct LastSaved { /* by this process; all 0: nothing */
  int64_t step;
  SavedFile frozen; /* the parameters that no update writes */
  FileMark mark;    /* of their file */
} LastSaved;

typedef struct SavedFiles { /* of a rank */
  SavedFile file, frozen;
} SavedFiles;

/* The files of a checkpoint: this rank's tensors that no update writes (frozen; without any, no
   file), or the others; state.json, by rank 0: files: of all ranks. No messages are sent. */
void rt_checkpoint_file(char name[64], int rank, bool frozen);
bool rt_checkpoint_write(const char *path, const Device *d, bool frozen, SavedFile *file, Fault *f);
bool rt_checkpoint_state(const char *path, const Device *d, const Progress *p,
                         const SavedFiles *files, Fault *f);
/* The link `latest` or `best` of a run leads to this checkpoint from now on. */
void rt_checkpoint_point(const char *run, const char *link, int64_t step);
int64_t rt_checkpoint_best(const char *run); /* -1: there is no such checkpoint */
/* All but the newest and the best are removed. */
void rt_checkpoint_rotate(const char *run, int64_t newest, int64_t keep);
CheckpointList rt_checkpoint_list(const char *run);
void rt_checkpoint_path(char out[RT_PATH], const char *run, int64_t step);
void rt_checkpoint_aside(char out[RT_PATH], const char *run, const char *kind, int64_t step);
/* Puts back a checkpoint that was being replaced when the process died. */
void rt_checkpoint_recover(const char *run);
void rt_checkpoint_clean(const char *run); /* what a killed process left unfinished */
void rt_checkpoint_retire(const char *run, int64_t step); /* moves newer checkpoints aside */

/* Checks every byte against its sums, then fills parameters and states. Nothing is changed unless
 * all of it is good. */
bool rt_checkpoint_load(const char *folder, const Device *d, Progress *p, Fault *f);
/* The newest checkpoint of a run that verifies; damaged ones are named on stderr. False with
 * f->code 501 if none exists. */
bool rt_checkpoint_load_newest(const char *run, const Device *d, Progress *p, Fault *f);

/* Is this one checkpoint, does this hold some? */
bool rt_is_checkpoint(const char *folder);
bool rt_holds_checkpoints(const char *folder);
/* --init from one checkpoint, or from the newest of a run: parameters alone. */
bool rt_checkpoint_parameters(const char *from, const Device *d, Fault *f);

/* Progress.given in new memory; NULL: nothing, or it cannot be read. */
char *rt_checkpoint_given(const char *folder);
bool rt_state_check(Bytes text, Fault *f); /* is this a good state.json? */

/* --init (weights.c): parameters by name from safetensors files; h.*.x also from h.0.x, h.1.x, ..
 */
bool rt_weights_load(const char *path, const Device *d, Fault *f);
bool rt_holds_weights(const char *folder); /* under the usual names */
typedef struct Outputs {                   /* of many samples, in memory of their own */
  int n;
  SafeItem *item;
} Outputs;

/* Outputs that an entry has computed, parameters, states as safetensors; `more`, unless NULL,
   replaces the outputs of the model. */
bool rt_dump(const char *path, const Device *d, const Outputs *more, Fault *f);
bool rt_is_computed(const Device *d, const rt_tensor *output); /* has its entry run? */

/* Tensors that hold numbers which are not finite, of the given kinds (bits 1 << rt_kind): how many.
   `names` gets the bad and `clean` the good ones, up to a few, as text. */
int rt_check_finite(const Device *d, unsigned kinds, char *names, size_t nnames, char *clean,
                    size_t nclean);
#endif
