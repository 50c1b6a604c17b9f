/* The cost of attention by warpgroups (wgmma) in a forecast. */
#ifndef SHARDC_ATTENTION_TIME_H
#define SHARDC_ATTENTION_TIME_H
#include "arch.h"
#include "kernel_shape.h"

/* Is the kernel one by warpgroups, of an arch that has some? Others have one share of the peak. */
bool attention_by_groups(const Arch *reach, const KernelShape *shape);
/* The operations that its device could have done meanwhile at `groups.unit` of its peak. */
double attention_groups_work(const Arch *reach, const KernelShape *shape);
/* Scores that a causal mask leaves out of those that are computed, on average for a row: groups of
   `rows` compute tiles of `columns` up to the last one that a row of the group sees. */
double attention_left_out(int64_t rows, int64_t columns);
/* Bytes of y and dy that the gradient's first phase reads before its products, for sums of rows. */
double attention_groups_bytes(const KernelShape *shape);
#endif
