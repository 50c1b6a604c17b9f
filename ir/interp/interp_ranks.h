/* N ranks in one process: the interpreter of modules below pass `localize`.

     Ranks *r = ranks_new(m, arena);
     ranks_set(r, "tokens", data);              the whole tensor: every rank gets its blocks
     ranks_run(r, "step");
     const Tensor *w = ranks_get(r, "wte");     put together again; ranks that hold the same agree
     ranks_sent(r, axis, OP_all_reduce)         elements, in paper counting

   Ranks run as threads that meet at every collective; sums are made in the order of coordinates.
   After `memory` they run in byte arenas of their own (interp_placed.c), and a collective moves
   blocks of bytes as the tables of the executable say (message.h), not dims by their names.
   Paper counting: see ir/collectives.def. */
#ifndef SHARDC_INTERP_RANKS_H
#define SHARDC_INTERP_RANKS_H
#include "interp.h"

typedef struct Ranks Ranks;

Ranks *ranks_new(Module *m, Arena *a);
/* A module for each class of ranks (stage_class.h). */
Ranks *ranks_new_classes(Module *const *classes, uint32_t n, Arena *a);
void ranks_set_round(Ranks *r, bool on);
void ranks_set_exact_codes(Ranks *r, bool on);            /* interp_set_exact_codes */
void ranks_set_field(Ranks *r, bool on);                  /* interp_set_field */
void ranks_set_infinite(Ranks *r, bool on, double which); /* interp_set_infinite */
void ranks_set_work(Ranks *r, InterpWork *work);          /* interp_set_work */
void ranks_set_early(Ranks *r, bool on);                  /* interp_set_early */
void ranks_set(Ranks *r, const char *global, const double *data);
/* The same of a parameter or state by its logical numbers, as ranks_get gives them: padding is 0,
   and members of flat storage have theirs. */
void ranks_put(Ranks *r, const char *global, const double *data);
void ranks_set_all(Ranks *r, const char *global, double value);
/* NULL: no such global, or ranks that should hold the same do not (see ranks_error). */
const Tensor *ranks_get(Ranks *r, const char *global);
bool ranks_run(Ranks *r, const char *entry);
bool ranks_run_placed(Ranks *r, const char *entry); /* in bytes, as interp_run_placed */
const char *ranks_error(const Ranks *r);
Interp *ranks_rank(const Ranks *r, int64_t rank);
int64_t ranks_sent(const Ranks *r, int axis, OpCode c);  /* by each rank, since ranks_new */
int64_t ranks_calls(const Ranks *r, int axis, OpCode c); /* collectives of that kind */
#endif
