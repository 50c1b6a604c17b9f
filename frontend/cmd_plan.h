/* What `shardc plan` knows of one plan, for its forms: text, JSON (cmd_plan.c), a page
   (cmd_plan_html.c). Ranks of a module are one class, so that all of it holds for each of them. */
#ifndef SHARDC_CMD_PLAN_H
#define SHARDC_CMD_PLAN_H
#include "cmd.h"
#include "frontend/lower.h"
#include "frontend/machine.h"

typedef struct Planned {
  const char *name; /* of the plan; "" for the default one */
  Module *m;
  const LowerFacts *facts;
  Budget need;
  Machine machine;
  TrafficList traffic;
  double flop, moved; /* of a step: operations, bytes between kernels and memory */
  StepTime time;
  bool fits;
} Planned;

typedef struct PlanPart {
  const char *name;
  int64_t bytes;
} PlanPart;
enum { PLAN_PARTS = 7 };
void plan_parts(const Planned *p, PlanPart *out); /* PLAN_PARTS of them: weights .. reserve */

const char *plan_amount(Arena *a, double bytes); /* 3.18 MiB */
const char *plan_mesh(const Planned *p);         /* data = 2, tensor = 2 */
const char *plan_title(const Planned *p);        /* plan two for Tiny: 2 ranks (data = 2) */
#endif
