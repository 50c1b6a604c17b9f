/* Two runs of one model, compared: for `shardc verify` alone. cmd_verify.c makes and runs them,
   verify_compare.c reads what they left behind. */
#ifndef SHARDC_CMD_VERIFY_H
#define SHARDC_CMD_VERIFY_H
#include "driver/cmd.h"

typedef struct VerifySide {   /* one of the two */
  const char *plan;           /* its name; NULL: none written */
  const char *metrics, *dump; /* files that its run wrote */
  Module *m;                  /* after all passes */
} VerifySide;

typedef struct Tolerance { /* relative; weights: by norm, and `noise` for each element beside that
                            */
  double loss, norm, weights, noise;
  double rounding; /* of the norm of a gradient, against that of all */
} Tolerance;

typedef struct Verdict {
  uint32_t steps, tensors;
  double loss, norm, weights;    /* largest differences, relative; of tensors by norm */
  uint32_t loss_step, norm_step; /* where, from 1 */
  const char *worst;             /* tensor */
  uint32_t beneath;              /* parameters that have a gradient of rounding alone: not judged */
  Str beneath_name;              /* the first */
  bool same_bits;                /* of losses, norms and tensors */
  uint32_t bad_loss, bad_norm;   /* the first step beyond the tolerance; 0: none */
  double a_loss, b_loss, a_norm, b_norm;
  const char *bad_tensor, *bad_index; /* the first beyond the tolerance, its largest difference */
  double bad_by, a_value, b_value;    /* relative; values there */
} Verdict;

/* False: a file cannot be read, or they are of different models; said as E0803. */
bool verify_compare(Cli *o, const VerifySide *a, const VerifySide *b, const Tolerance *tolerance,
                    Verdict *verdict);

/* cmd_run.c: starts n processes of a command and waits; the exit status of the first that failed */
typedef struct RankPlaces RankPlaces;
int run_ranks(char **command, int n, const RankPlaces *places); /* places NULL: anywhere */
#endif
