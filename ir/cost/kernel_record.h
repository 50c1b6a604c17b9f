/* Measured seconds of kernels by shape: tuning records (passes/tune/tune_db.h) in the settings of a
   module, for the forecast.

     set tune.time.0 = "contract 81250 f32 1 256 2304 768 905969664 10616832"

   is a record of 81,250 ns of the family and shape (kernel_shape.h) on the target of the module and
   all its workers. A kernel of the same shape takes that time. Another one takes that of the
   nearest record of the same family and type, times the ratio of the seconds that the model gives
   both shapes; records with over NEAR_WORK times its operations, or less than a NEARth, say nothing
   about it. */
#ifndef SHARDC_KERNEL_RECORD_H
#define SHARDC_KERNEL_RECORD_H
#include "kernel_shape.h"

enum { NEAR_WORK = 8 };

typedef struct KernelRecord {
  KernelShape shape;
  double seconds;
} KernelRecord;

typedef struct KernelRecords {
  VEC(KernelRecord) at;
  double ranks; /* of a node without GPUs, which share its workers: each takes longer by it */
} KernelRecords;

bool kernel_record_holds(const char *key); /* of a setting: it is a record */
/* Those of the module's settings; NULL: none. */
const KernelRecords *kernel_records(const Module *m, double ranks);
/* Writes a record into the settings, as number n. */
void kernel_record_set(Module *m, uint32_t n, const char *family, const KernelShape *shape,
                       double ns);
/* The nearest one, except `besides`; NULL: none is near. Its seconds are the mean of all records of
   that shape. *same: its shape is that of the kernel. */
bool kernel_record_near(const KernelRecords *records, const KernelShape *shape,
                        const KernelRecord *besides, KernelRecord *found, bool *same);
#endif
