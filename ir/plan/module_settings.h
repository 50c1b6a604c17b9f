/* The settings of a module as passes and commands read them: the value of its `set` line, else the
   default of frontend/settings/settings.def. A key without a row in that table is a compiler bug.

   Each setting is read in one place: in this file those that several rooms need, the others in the
   pass that implements them (tests/frontend/settings.py counts). Keys without a table (comm,
   variants, debug.*) are read by module_setting of ir.h. */
#ifndef SHARDC_IR_MODULE_SETTINGS_H
#define SHARDC_IR_MODULE_SETTINGS_H
#include "ir/ir.h"

Str module_said(const Module *m, const char *key); /* what is written; NULL: nothing */
Str module_word(const Module *m, const char *key); /* or by default; NULL: neither */
bool module_on(const Module *m, const char *key);
double module_amount(const Module *m, const char *key); /* 0: neither; knows 20% and 25MiB */
int64_t module_whole(const Module *m, const char *key);
/* Is this scalar the value of a setting (MADE_SETTING), and as which number is it compiled? */
bool module_setting_scalar(const Module *m, const Global *scalar, double *value);
void module_amounts(const Module *m, const char *key, int n, double *to); /* of a list */

Str plan_precision(const Module *m); /* the type of values: bf16 with `precision fp8` */
bool plan_eights(const Module *m);   /* products of parameters in 8 bits */
Str plan_backward_format(const Module *m);
Str plan_gradient_type(const Module *m);   /* in which a gradient waits; NULL: unwritten */
Str plan_message_type(const Module *m);    /* of gradients in messages; NULL: unwritten */
bool plan_copies_weights(const Module *m); /* in the compute type, beside the master weights */
bool plan_int8_gradients(const Module *m); /* in messages of 8 bits */
bool plan_int8_weights(const Module *m);   /* of stage 3, in messages of 8 bits */
int64_t plan_int8_block(const Module *m);  /* numbers that share a scale in int8 states */
/* For a pipeline; for `auto`, which a driver replaces by its choice, the schedule that needs no
   choice. */
Str plan_schedule(const Module *m);
bool plan_uneven(const Module *m);      /* stages may have different numbers of layers */
int64_t plan_chunks(const Module *m);   /* of layers on a stage: 1, if it is not interleaved */
bool plan_takes_turns(const Module *m); /* forward and backward, if its stages stream */
int64_t plan_ahead(const Module *m);    /* of `zero_bubble`, its `memory`: 1, if it is another */
bool plan_offloads_any(const Module *m, OffloadWord word);
bool plan_offloads_all(const Module *m, OffloadWord word); /* of all parameters */
/* Has a line `offload` this of a parameter, or of values named after it? */
bool plan_offloads(const Module *m, OffloadWord word, Str param);
Span plan_offload_at(Module *m);             /* the first word that offloads something */
int64_t plan_micro(const Module *m);         /* samples per rank and micro-batch; 0: all of them */
int plan_zero_stage(const Module *m);        /* 0 to 3 */
Str plan_zero_axes(const Module *m);         /* "data, node"; "": those that split Batch */
int64_t plan_zero_bucket(const Module *m);   /* bytes of one message, at most */
bool plan_accumulates_full(const Module *m); /* whole gradients between micro-batches */
bool plan_overlaps(const Module *m);         /* messages run concurrently with the computation */
int64_t train_batch(const Module *m);        /* of all ranks; 0: unknown */
double train_steps(const Module *m);         /* 0: IR by hand need not say it */
int64_t made_workers(const Module *m); /* whose samples are contiguous in Batch; 0: there are no
                                          workers */
Str train_optimizer(const Module *m);  /* NULL: nothing is updated */
bool train_freezes(const Module *m); /* 1-bit Adam, which wants whole gradients: stage 1 at most */
enum { GPU_RESERVE = 1536 << 20 };   /* bytes of `reserve`, where none is written */
double machine_node_memory(const Module *m); /* 0: not known */
Str machine_arch(const Module *m);           /* of the plan's machine; NULL: the plan names none */
#endif
