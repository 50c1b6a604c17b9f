/* Seconds of kernels: at the peaks of a machine, or in a forecast (Machine.reach) as programs reach
   them. */
#ifndef SHARDC_KERNEL_TIME_H
#define SHARDC_KERNEL_TIME_H
#include "machine.h"

typedef enum KernelPart { /* of a kernel's time in a forecast */
                          PART_PRODUCTS,
                          PART_ATTENTION,
                          PART_MEMORY,
                          PART_LAUNCH,
                          KERNEL_PARTS
} KernelPart;

typedef struct KernelTime {
  double part[KERNEL_PARTS];
} KernelTime;

typedef struct KernelWork { /* what a rate of arch.def is for */
  KernelPart part;          /* products, attention, or memory */
  double flop;              /* with the ends of tiles; of the first two */
} KernelWork;

KernelWork kernel_work(const Module *m, const Arch *reach, const Fn *kernel);
double kernel_sum(const KernelTime *time);
/* One run of a kernel on the device. */
KernelTime kernel_time(const Module *m, const Machine *machine, const Fn *kernel);
/* All kernels of the device in a run of an entry or a body, with all rounds of its loops. */
KernelTime kernels_time(const Module *m, const Machine *machine, const Fn *f);
/* .. and its collectives that block: not those of neighbours in a pipeline. */
double collectives_time(const Module *m, const Machine *machine, const Fn *f);
#endif
