/* A step of a plan: the programs of its classes of ranks (ir/plan/stage_class.h), one or several,
   after pass `memory`: operations, messages and waits, and a lower bound of the time.

   The time that stages of a pipeline wait for each other: the table of the schedule
   (pipeline_schedule.h) is simulated turn by turn; the cost of a turn is that of its loop for one
   micro-batch in the program of its stage's class: operations, and separately bytes between kernels
   and memory. Stages that gather or sum over their own axis in a turn (`zero 2` and `3` over it)
   synchronise in it. The waiting time of a class is the time until the last stage is done, less its
   own work. Work outside of the loops, such as the update, runs on all stages at the same time. */
#ifndef SHARDC_IR_STEP_H
#define SHARDC_IR_STEP_H
#include "ir/cost/kernel_time.h"
#include "ir/cost/timeline.h"
#include "ir/schedule/pipeline_schedule.h"

typedef struct PlanStep { /* one run of an entry */
  TrafficList traffic;    /* of each kind what the class sends that sends most */
  double flop, moved;     /* operations, bytes between kernels and memory */
  double waited;          /* operations of other stages of a pipeline, done meanwhile */
  KernelTime kernels;     /* of a forecast: seconds of its own kernels */
  double bubble;          /* .. of waiting for other stages */
  Lanes lanes;            /* nothing if the machine does not say how fast it is */
  StepTime time;
} PlanStep;

/* The step of the class that the others wait for; entry NULL: nothing. */
PlanStep plan_step(Module *const *programs, uint32_t n, const Fn *entry);
/* The same on another machine than the plan's: that of a forecast. */
PlanStep plan_step_on(const Machine *machine, Module *const *programs, uint32_t n, const Fn *entry);

typedef struct StageCosts { /* of a micro-batch, by stage and loop */
  ScheduleTable table;
  double *flop, *bytes;
  double *seconds; /* of kernels and blocking messages, in a forecast; else NULL */
} StageCosts;

/* False: the entry has no table of stages. */
bool stage_costs(Module *const *programs, uint32_t n, const Fn *entry, StageCosts *costs);
/* FLOP until the last stage is done; 0: there is no table. */
double stages_makespan(Module *const *programs, uint32_t n);
#endif
