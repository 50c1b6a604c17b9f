/* One comparison of programs in exact arithmetic: see equal_run.c. */
#ifndef SHARDC_EQUAL_RUN_H
#define SHARDC_EQUAL_RUN_H
#include "driver/cmd.h"
#include "ir/interp/equal.h"

typedef struct EqualRun {
  Cli *o;            /* with the sizes that are compared; in a context of its own */
  const char *sizes; /* in words; "": as written */
  bool buckets;      /* the plan has some */
  bool blocks;       /* and blocks of messages in 8 bits, larger than need be */
  bool tight;        /* buckets have no padding for alignment */
  bool made;         /* both sides could be made */
  int64_t ranks, steps, seed;
  uint32_t classes;
  EqualReport report;
  InterpWork work; /* that is left */
  bool limited, differs, early;
} EqualRun;

/* Compares as `o` says, within that many seconds; 0: without a limit. False: the sizes break a rule
   of a pass, and `strict` sizes may not. A difference becomes E1208 in run->o. */
bool equal_try(EqualRun *run, const Cli *o, bool strict, double seconds, Exit *e);

/* For `compile`: the answer in words, for the user and the executable; NULL: it was not asked for.
   A difference is reported. m: the module of `o`, as loaded. */
Exit equal_show(const Cli *o, const Module *m, const char **words);

#endif
