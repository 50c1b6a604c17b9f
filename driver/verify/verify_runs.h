/* Two runs of one model, compared; only for `shardc verify`. cmd_verify.c compiles and runs them,
   verify_compare.c reads their results. */
#ifndef SHARDC_CMD_VERIFY_H
#define SHARDC_CMD_VERIFY_H
#include "driver/cmd.h"

enum { NOISY_RUNS = 4 };

typedef struct VerifySide {   /* one of the two */
  const char *plan;           /* its name; NULL: none written */
  const char *metrics, *dump; /* files that its run wrote */
  Module *m;                  /* after all passes */
} VerifySide;

typedef struct Tolerance {
  double loss, norm, weights; /* relative; a tensor by its norm */
  double move;                /* how far the optimizer can move an element */
  double noise;               /* share of an operand (passes/math/noise.h) */
} Tolerance;

typedef struct NoisyRuns { /* of one rank without a plan; of n 0: there are none */
  uint32_t n;
  VerifySide at[NOISY_RUNS];
} NoisyRuns;

typedef struct Verdict {
  uint32_t steps, tensors;
  double loss, norm, weights;          /* largest differences, relative; of tensors by norm */
  double loss_rounding, norm_rounding; /* largest allowance for what rounding decides, relative */
  const char *worst;                   /* tensor */
  int64_t excused;                     /* elements whose difference rounding explains */
  uint32_t excused_tensors;
  const char *excused_name;    /* the first of them */
  uint32_t left_out;           /* tensors not compared: one side lacks them, or its type differs */
  const char *left_out_name;   /* the first of them */
  bool same_bits;              /* of losses, norms and tensors */
  uint32_t bad_loss, bad_norm; /* the first step beyond the tolerance; 0: none */
  double a_loss, b_loss, a_norm, b_norm;
  const char *bad_tensor, *bad_index; /* the first beyond the tolerance, its largest difference */
  double bad_by, a_value, b_value;    /* relative; values at that element */
} Verdict;

/* False: a file cannot be read, or they are of different models; said as E0803. */
bool verify_compare(Cli *o, const VerifySide *a, const VerifySide *b, const NoisyRuns *noisy,
                    const Tolerance *tolerance, Verdict *verdict);
#endif
