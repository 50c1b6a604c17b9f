/* Inside the driver: tuning records and measuring. */
#ifndef SHARDC_CMD_TUNE_H
#define SHARDC_CMD_TUNE_H
#include "driver/cmd.h"
#include "passes/tune/tune_db.h"

/* tune_records.c */
Str tune_device(Ctx *c); /* the processor's name */
Str tune_driver(Ctx *c); /* what makes the kernels */
/* Adds the records of a file; false: it cannot be read (E0001). */
bool tune_load(Cli *o, const char *path, TuneDb *db);

/* The kernels of a module after `order` that have variants, each key once. */
typedef struct Tunable {
  const Variants *v;
  Fn *k;
  Str key;
} Tunable;
typedef VEC(Tunable) Tunables;
Tunables tune_kernels(Module *m, const char *only); /* only: names with commas; NULL: all */

/* tune_run.c */
typedef struct Timing {
  double ns;               /* median */
  double share, low, high; /* of the first one's time in the same round: median and quartiles */
  int rounds;
  bool good; /* it ran, and gave what the first one gave */
} Timing;
typedef struct TuneEffort { /* the least number of rounds, and seconds during which more are
                               measured */
  int rounds;
  double seconds;
} TuneEffort;
/* Makes kernel k with each cut, runs them in turn, and fills one Timing per cut. False: nothing
   could be measured, said as a diagnostic. */
bool tune_measure(Module *m, const Tunable *tunable, const CutList *cuts, TuneEffort e,
                  Timing *out);

/* cmd_tune.c */
typedef struct TuneSearch { /* of the best cut for one kernel */
  Cli *o;
  Module *m;
  const Tunable *t;
  int rounds;
  bool hurry;    /* no more rounds than that */
  uint32_t most; /* cuts measured at most, 0: all combinations */
  CutList seen;
  Cut best;
} TuneSearch;
bool tune_is_new(const TuneSearch *tune_search, const Cut *c); /* it fits, and was not seen */
/* The best so far against those cuts, in turn; the fastest becomes the best. */
bool tune_contest(TuneSearch *tune_search, const CutList *cuts);
/* For the last word between two cuts: differences of one in a hundred must show. */
TuneEffort tune_last_effort(const TuneSearch *tune_search);

/* tune_check.c */
typedef struct TuneCheck {
  double pick_ns, best_ns;
  double reached, low, high; /* the best one's time as a share of the pick's, and quartiles */
  uint32_t cuts;
  Cut best;
} TuneCheck;
/* Checks how good a cut is: measures n others and the neighbours of the best of them. */
bool tune_check(const TuneSearch *s, const Cut *pick, uint32_t n, TuneCheck *out);
#endif
