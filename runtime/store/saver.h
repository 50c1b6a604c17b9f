/* Saves of a run: checkpoints that are written at once, or while training goes on (saver.c). */
#ifndef SHARDC_RT_SAVER_H
#define SHARDC_RT_SAVER_H
#include "checkpoint.h"

typedef struct Saver Saver;

/* keep: number of checkpoints that stay. The device is started, and stays until the saver is
   closed. */
Saver *rt_saver_open(Device *d, int64_t keep);
void rt_saver_close(Saver *saver); /* nothing is being saved */

/* Takes the state of this step, when nothing is being saved. aside: into the snapshot, so that
   training may go on. A rank that writes nothing that changes needs none. */
void rt_saver_take(Saver *saver, const Progress *progress, bool aside);
/* Begins to write the state that was taken into a run directory, by a thread if it was taken aside
   and `wait` is not set. A state that was taken aside may be written again, elsewhere. A call of
   all ranks. */
bool rt_saver_start(Saver *saver, const char *run, bool wait, Fault *f);

bool rt_saver_saves(const Saver *saver); /* a save is started and not over */
bool rt_saver_busy(const Saver *saver);  /* a thread of this rank writes */
/* The next step of a save; wait: all of them. A call of all ranks between two steps of training; no
   rank is busy, unless they wait. False: the save has failed and is over. */
bool rt_saver_go_on(Saver *saver, bool wait, Fault *f);
const char *rt_saver_run(const Saver *saver); /* of the last save: its run directory, its step */
int64_t rt_saver_step(const Saver *saver);

/* Does this rank write anything that changes? */
bool rt_saver_writes(const rt_program *program, int rank);
#endif
