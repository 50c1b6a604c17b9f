/* Tuning records as text: one per line, twelve fields separated by tabs, so that `cat` joins
   files, `sort` and `grep` work on them, and they can be kept with a model in version control:

     family  key  target  workers  device  driver  cut  ns  rule's ns  rounds
     date  shape

   device is the processor's name, driver the compiler of the kernels, ns the median of `rounds`
   runs, shape (ir/cost/kernel_shape.h) what a forecast of other kernels needs; records of older
   files have none. Lines that begin with # and empty lines are comments. Unreadable lines are left
   out with one warning. */
#ifndef SHARDC_TUNE_DB_H
#define SHARDC_TUNE_DB_H
#include "ir/cost/kernel_shape.h"
#include "variants.h"

typedef struct TuneRecord {
  Str family, key, target, device, driver, date; /* date: 2026-11-20 */
  DeviceKind kind;                               /* of the target */
  int64_t workers, rounds;
  Cut cut;
  double ns, rule_ns;
  KernelShape shape; /* no bytes: not known */
} TuneRecord;

typedef VEC(TuneRecord) TuneDb;

/* Adds the records of a text. Records of one kernel on one machine are merged: the newest is kept,
   of one day the fastest. */
/* kind: of a target by its name. */
typedef DeviceKind TuneKind(const char *target);
void tune_db_read(Ctx *c, const char *name, const char *text, size_t n, TuneKind *kind, TuneDb *db);
void tune_db_add(Ctx *c, TuneDb *db, const TuneRecord *record);
char *tune_db_text(Ctx *c, TuneDb *db); /* sorted, so that equal contents are equal texts */
/* For a kernel of that key on that target with this number of workers: the record measured on
   `device` if there is one, else the newest of another machine. NULL: none. */
const TuneRecord *tune_db_find(const TuneDb *db, Str family, Str key, Str target, int64_t workers,
                               Str device);
#endif
