/* Pass `prove` checks the events of an entry (events.h). The checks are declared one by one, for
   tests and for programs in which ranks run different code. */
#ifndef SHARDC_PROVE_H
#define SHARDC_PROVE_H
#include "ir/schedule/events.h"
#include "ir/schedule/send_order.h"
#include "ir/plan/stage_class.h"
#include "ir/support/diag.h"

typedef struct RankClass { /* ranks that run one program */
  const char *name;        /* ranks 0 to 3 */
  const EventList *events;
  StageClass stages; /* position of the stages along the axis of the pipeline */
  bool turns;        /* rounds of these stages follow a schedule
                        (ir/schedule/pipeline_schedule.h) */
  SendOrder sends;   /* where they wait for their receives */
} RankClass;

/* Operations of different streams that touch a common byte are ordered by tokens. False: a
   diagnostic names the two (E1112). */
bool prove_streams(Module *m);
/* All classes send the same messages over every axis, in the same order, and reach the end, if
   every group of an axis has ranks of each. False: a diagnostic shows the messages, or the ranks
   that wait for each other (E1113). */
bool prove_order(Module *m, const RankClass *classes, uint32_t n);
/* For programs in which ranks exchange values with their neighbours (send, receive): do all places
   along these axes, each running the program of its class, reach the end? False: a diagnostic
   shows where each rank waits (E1113). */
bool prove_hops(Module *m, const RankClass *classes, uint32_t n);
/* Are these sides of one message? */
bool prove_alike(const Event *a, const Event *b);

const char *prove_said(const Module *m,
                       const Event *event); /* all_gather over data in @h, round 2 */
Report *prove_wrong(Module *m, const Event *event, const char *code, const char *words);
/* Do the classes of a program reach the end together? Else E1113. */
bool prove_classes(Module *const *classes, uint32_t n);
#endif
