/* Tuning records of a module's settings (kernel_record.h), and the nearest one of a shape: that of
   the least sum of differences of the logarithms of sizes, operations and bytes. */
#include "kernel_record.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char PREFIX[] = "tune.time.";

bool kernel_record_holds(const char *key) { return !strncmp(key, PREFIX, sizeof PREFIX - 1); }

void kernel_record_set(Module *m, uint32_t n, const char *family, const KernelShape *shape,
                       double ns) {
  module_set(m, arena_printf(m->arena, "%s%u", PREFIX, n), "%s %.0f %s", family, ns,
             kernel_shape_text(m->arena, shape));
}

static bool record_of(const Module *m, const char *text, KernelRecord *record) {
  const char *space = strchr(text, ' ');
  char *end;
  if (!space) return false;
  record->seconds = 1e-9 * strtod(space, &end);
  return record->seconds > 0 && *end == ' ' &&
         kernel_shape_read(arena_strndup(m->arena, text, (size_t)(space - text)), end + 1,
                           &record->shape);
}

const KernelRecords *kernel_records(const Module *m, double ranks) {
  KernelRecords *records = ARENA_NEW(m->arena, KernelRecords);
  records->ranks = ranks;
  for (uint32_t i = 0; i < m->settings.n; i++) {
    KernelRecord record;
    if (kernel_record_holds(m->settings.at[i].key) &&
        record_of(m, m->settings.at[i].value, &record))
      vec_push(m->arena, records->at, record);
  }
  return records->at.n ? records : NULL;
}

/* Infinity: one says nothing about the other. */
static double distance(const KernelShape *a, const KernelShape *b) {
  if (a->part != b->part || a->grad != b->grad || a->elem != b->elem) return INFINITY;
  double work = fabs(log(a->flop / b->flop)), sum = work + fabs(log(a->bytes / b->bytes));
  for (int i = 0; i < SHAPE_SIZES; i++) sum += fabs(log(a->size[i] / b->size[i]));
  return work > log(NEAR_WORK) * (1 + 1e-9) ? INFINITY : sum;
}

bool kernel_record_near(const KernelRecords *records, const KernelShape *shape,
                        const KernelRecord *besides, KernelRecord *found, bool *same) {
  double least = INFINITY, sum = 0, equal = 1e-9;
  int n = 0;
  for (uint32_t i = 0; i < records->at.n; i++) {
    const KernelRecord *record = &records->at.at[i];
    double far = record == besides ? INFINITY : distance(&record->shape, shape);
    if (far < least - equal) least = far, sum = 0, n = 0, *found = *record;
    if (far <= least + equal && isfinite(far)) sum += record->seconds, n++;
  }
  if (!n) return false;
  found->seconds = sum / n, *same = least <= equal;
  return true;
}
