/* Shared by the files of the host writer: the text that grows, and its three parts. */
#ifndef SHARDC_HOST_H
#define SHARDC_HOST_H
#include "codegen.h"
#include "ir/collective.h"
#include "ir/loop.h"
#include "ir/schedule/pipeline_schedule.h"
#include "ir/schedule/stream_order.h"

typedef struct HostWriter {
  Module *m;
  Tier tiers; /* memories that it has values in: the first ones of tiers.def */
  char *text;
  size_t n, cap;
} HostWriter;

void host_put(HostWriter *writer, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Text that was not written by shardc itself (names of models, files, dims, settings) is written
   only by these: as a C string, and inside a comment. */
void host_string(HostWriter *writer, const char *s);
void host_comment(HostWriter *writer, const char *s);
/* For loops that take turns (host_turns.c): the table of the schedule; then the code up to the `{`
   of a switch over the next loop of chunks. */
void host_put_turn_table(HostWriter *writer, const ScheduleTable *table, const char *axis);
void host_put_next_chunk(HostWriter *writer, const ScheduleTable *table);
/* The call that says: round n of that loop begins; the last one has ended. */
void host_put_turn(HostWriter *writer, const ScheduleTable *table, int loop);
void host_put_turns_end(HostWriter *writer);
const char *host_c_name(HostWriter *writer, Str name); /* h.forward -> h_forward */
const char *host_source(HostWriter *writer,
                        Loc l); /* gpt2.shard:19, "" if unknown; as the user wrote it */

/* A call of the runtime up to its second argument. Generated code makes no other calls but of its
   own functions: no text that is put may hold the name of one. */
typedef enum HostCall {
#define RT_CALL(result, name, arguments, what) CALL_##name,
#include "runtime/rt_abi.def"
#undef RT_CALL
} HostCall;
void host_call(HostWriter *writer, const char *indent, HostCall c);

void host_kernels(
    HostWriter *writer); /* host_tables.c: kernel descriptions, before the functions */
/* The table SYMBOL_maps, if the kernel has tensor maps; how many (host_maps.c). */
int host_maps(HostWriter *writer, const Fn *k, const char *symbol);
void host_tables(HostWriter *writer); /* everything after them, rt_the_program last */
void host_function(HostWriter *writer, const Fn *f); /* host_body.c */
uint32_t host_count_collectives(const Module *m);
uint32_t host_row(const Module *m, const Fn *f, OpId id); /* of a collective, in their table */
/* host_tokens.c: before what the op does; `round`: the expression for the round of the loop around
   it. */
const char *host_stream_word(OpStream stream);
void host_put_tokens(HostWriter *writer, const char *indent, const Op *o, const char *round);
#endif
