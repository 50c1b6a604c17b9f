/* Plan and machine blocks: checked against the model, written as settings and lines of the
   module. */
#ifndef SHARDC_PLAN_H
#define SHARDC_PLAN_H
#include "frontend/model/build.h"

/* The model and the blocks that are chosen for a program. */
typedef struct Choice {
  const Decl *model;        /* a model or variant */
  const AstItem *base;      /* the model's item */
  const AstItem *variant;   /* or NULL */
  const Decl *train, *plan; /* or NULL */
} Choice;

/* ---- checks that need the model (sema_*.c), and what they write ---- */
void check_onebit(Eval *e, const AstItem *train);               /* E0602, E0703 (sema_onebit.c) */
void check_plan(Eval *e, const Choice *c, const AstItem *plan); /* E0701 .. E0709 */
void check_machine_block(World *w, const AstItem *item);        /* E0602, E0606 */
void report_no_machine(World *w, Span span, const char *name);  /* E0201 */
void check_recompute(Eval *e, const AstSetting *line);          /* E0709, E0606, E0901 */
void write_recompute(const Build *build, Eval *e, const AstItem *plan); /* the lines as settings */
void write_offload(const Build *build, const AstItem *plan);            /* the same */
/* Lines that a search chooses with the mesh: "place, micro, ..". */
extern const char plan_searched_lines[];
/* "mesh auto" or "plan auto", and where; NULL: neither. */
const char *plan_is_searched(const AstItem *plan, Span *at);
const Decl *plan_machine_of(World *w, const Decl *plan); /* NULL: none of the files has it */
#endif
