/* Shared by the files of pass `precision`: for each function a plan that gives the element type of
   every value, and the function written by it. See precision.c. */
#ifndef SHARDC_PASSES_PRECISION_H
#define SHARDC_PASSES_PRECISION_H
#include "passes/base/rebuild.h"

/* The origin of a float; decides whether it may be rounded to the compute type. */
typedef enum Make {
  MADE_NEUTRAL, /* from constants, parameters, integers: takes the other operand's class */
  MADE_NARROW,  /* of products: activations and their gradients */
  MADE_STATS,   /* of reductions, inputs, states: stays f32 */
  MADE_MIXED    /* of both: is computed in f32 and may be rounded where it is kept */
} Make;

enum Uses {                  /* by whom a value is used, perhaps under another shape */
            USE_PRODUCT = 1, /* a contraction or attention */
            USE_LOOP = 2,    /* a loop's operand */
            USE_CARRIED = 4, /* the body's next round, in the compute type */
            USE_STACKED = 8, /* kept for another loop */
            USE_REDUCTION = 16,
            USE_WIDE = 32 /* op `wide`: delivered in f32 */
};

typedef struct Info {
  Elem elem;
  Make make;
  bool wide; /* marked @f32: products that read it are f32 */
} Info;

typedef struct BodyPlan BodyPlan;

typedef struct FnPlan {
  const Fn *f;
  Info *info;        /* by ValueId */
  uint8_t *uses;     /* by ValueId: enum Uses */
  uint32_t *readers; /* by ValueId: operands of ops */
  bool *rounded;     /* by ValueId: computed in f32, then rounded for all readers */
  BodyPlan **body;   /* by OpId: loops */
} FnPlan;

struct BodyPlan { /* a body for operands of these types */
  const Fn *f;
  Info *args; /* by argument */
  uint32_t carry;
  bool *carried, *wanted; /* by result: carried in the compute type; products needed in f32 */
  FnPlan plan;
  Fn *made; /* NULL until written */
};

typedef struct Precision {
  Module *m;
  Elem compute;   /* bf16, f16 */
  Elem added;     /* of sums over rounds */
  bool wide_sums; /* gradients are needed in f32: products return them in f32 through loops */
  VEC(BodyPlan *) bodies;
} Precision;

/* precision_plan.c */
bool precision_is_product(const Op *o);
FnPlan precision_plan(Precision *precision, const Fn *f,
                      const BodyPlan *body); /* body: NULL for entries */

/* precision_emit.c */
Fn *precision_write(Precision *precision, const FnPlan *plan, const BodyPlan *body);

/* precision_frozen.c: parameters that no update writes, in the type in which they are read */
void precision_frozen(Module *m, Elem compute);

/* precision.c */
BodyPlan *precision_body(Precision *precision, const Op *loop, const FnPlan *plan);
Fn *precision_made(Precision *precision, BodyPlan *plan);
#endif
