/* The file of `train --trace` (runtime/device/trace_file.c), read for `plan --measured`. */
#ifndef SHARDC_PLAN_TRACE_H
#define SHARDC_PLAN_TRACE_H
#include "plan_report.h"

typedef enum BoxKind {
  BOX_OTHER,
  BOX_STEP,
  BOX_TURN,
  BOX_MESSAGE,
  BOX_WAIT,
  BOX_KERNEL, /* of rank 0 alone */
  BOX_KINDS
} BoxKind;

typedef struct TraceBox { /* an event of the file */
  BoxKind kind;
  int64_t rank, number, part, chunk; /* number: of a step */
  int turn;                          /* kind of its turn; -1: not in the file */
  bool sends, receives;              /* a message to or from a neighbour */
  Str name;                          /* name of a kernel */
  int axis;                          /* axis of a message or a wait; -1: not in the file */
  double from, to;                   /* seconds */
} TraceBox;

typedef struct TraceFile {
  char model[256];
  int64_t ranks;
  double flop;          /* of a step, per rank */
  bool complete, waits; /* waits: some are told */
  double error;
  VEC(TraceBox) box; /* of the ranks that are looked at, in the order of the file */
} TraceFile;

typedef struct TraceReading {
  const Planned *planned;
  const char *path;
  TraceFile file;
  int64_t stages, stride; /* rank of stage s: s * stride */
  Measured *measured;
} TraceReading;

/* False: reported. */
bool trace_read(TraceReading *reading); /* a complete trace of this model and its ranks */
bool trace_refuse(const TraceReading *reading, const char *why,
                  const char *help);               /* E1403; false */
bool trace_same_work(const TraceReading *reading); /* as the plan; to 1 %, or E1403 */
bool trace_choose_step(TraceReading *reading);     /* that of median time on rank 0 */
const TraceBox *trace_step(const TraceReading *reading, int64_t rank); /* of that number; or NULL */
bool trace_within(const TraceBox *box, const TraceBox *outer);         /* it begins inside of it */
#endif
