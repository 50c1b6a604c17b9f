/* The flight recorder: the last events of a rank, in a mapped file of the run directory. The kernel
   keeps its bytes however the process ends, so that `shardc report` can say where each rank of a
   lost job was. A run that ends well removes its file. */
#ifndef SHARDC_RT_RECORDER_H
#define SHARDC_RT_RECORDER_H
#include "base.h"
#include <stdatomic.h>

enum { RECORD_EVENTS = 64, RECORD_TEXT = 104 };
#define RECORD_MAGIC "shardfl1"

typedef enum RecordKind {
  RECORD_NONE,
  RECORD_ENTRY,      /* an entry of the program begins, such as step; */
  RECORD_ENTRY_END,  /* it has run, or is on its way to a GPU */
  RECORD_KERNEL,     /* a kernel is launched */
  RECORD_CALL,       /* a message of several ranks begins; */
  RECORD_CALL_END,   /* it has come */
  RECORD_DEVICE_CALL /* the message that a GPU is in, seen from its host */
} RecordKind;

typedef struct RecordEvent {
  double when;     /* rt_now(): clocks of machines differ */
  int64_t step;    /* of training; 0: before the first */
  uint32_t number; /* messages of this rank so far */
  uint32_t kind;
  char what[RECORD_TEXT];
} RecordEvent;

typedef struct Record { /* the file */
  char magic[8];
  int32_t rank, world;
  int64_t pid, step;
  char host[64];
  int32_t lost;            /* 1 + the rank whose loss ended this one; 0: none is known */
  int32_t asked;           /* the signal that asked this rank to end; 0: none did */
  char why[256];           /* how it was lost */
  _Atomic uint64_t events; /* so far: event i is at i % RECORD_EVENTS */
  RecordEvent event[RECORD_EVENTS];
} Record;

/* FOLDER/flight-00002; NULL: it cannot be made, and the run does without. */
Record *rt_record_open(const char *folder, int rank, int world);
void rt_record_close(Record *record, const char *folder); /* and removes it */
void rt_record_path(char out[RT_PATH], const char *folder, int rank);
/* WHAT of OF over OVER, the last two or NULL. record NULL: nothing. Any thread. */
void rt_record(Record *record, RecordKind kind, uint32_t number, const char *what, const char *of,
               const char *over);

void rt_record_lost(Record *record, int rank, const char *why);

#endif
