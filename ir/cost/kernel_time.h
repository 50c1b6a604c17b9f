/* Seconds of kernels: at the peaks of a machine, or in a forecast (Machine.reach) as programs reach
   them, by tuning records where there are some (Machine.records). */
#ifndef SHARDC_KERNEL_TIME_H
#define SHARDC_KERNEL_TIME_H
#include "kernel_record.h"
#include "machine.h"

typedef struct KernelTime {
  double part[KERNEL_PARTS];
  double recorded[KERNEL_PARTS]; /* of these by records of the same shape */
  double near[KERNEL_PARTS];     /* .. by the nearest record */
  double modeled[KERNEL_PARTS];  /* by a model that no run has checked */
  double launches;               /* in a forecast */
} KernelTime;

typedef struct KernelWork { /* what a rate of arch.def is for */
  KernelPart part;          /* products, attention, or memory */
  double flop;              /* with the ends of tiles; of the first two */
} KernelWork;

KernelWork kernel_work(const Module *m, const Arch *reach, const Fn *kernel);
double kernel_sum(const KernelTime *time);
/* If each record were forecast by the nearest other one: the error of four of five of the seconds
   of all. Less than 0: there are too few. */
double records_error(const Machine *machine, Arena *arena);
/* One run of a kernel on the device. */
KernelTime kernel_time(const Module *m, const Machine *machine, const Fn *kernel);
/* All kernels of the device in a run of an entry or a body, with all rounds of its loops. */
KernelTime kernels_time(const Module *m, const Machine *machine, const Fn *f);
/* .. and its collectives that block: not those of neighbours in a pipeline. */
double collectives_time(const Module *m, const Machine *machine, const Fn *f);
#endif
