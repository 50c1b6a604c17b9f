/* When 1-bit Adam refreshes its frozen second moments (setting optim.renew): in steps that become
   rarer. After the freeze, the first `often` steps refresh them, then as many that are 2 steps
   apart, then 4, and so on: "0/1 Adam" (Lu et al., 2022), its policy for the variance. Read by the
   runtime, which takes these steps, and by `plan`, which counts them. Must not: know the step of
   the freeze. */
#ifndef SHARDC_RENEWAL_H
#define SHARDC_RENEWAL_H
#include <stdbool.h>
#include <stdint.h>

/* The first refresh later than `behind` steps after the freeze; often: 1 or more. */
static inline int64_t renewal_after(int64_t behind, int64_t often) {
  int64_t from = 0, apart = 1;
  while (apart <= behind && behind >= from + often * apart) from += often * apart, apart *= 2;
  return from + ((behind - from) / apart + 1) * apart;
}

/* Is step number `behind` after the freeze, from 1, a refresh? */
static inline bool renewal_at(int64_t behind, int64_t often) {
  return behind > 0 && renewal_after(behind - 1, often) == behind;
}
#endif
