/* `shardc` whose first compilation has a fault, which `verify` must find: SHARDC_FAULT=KIND:NUMBER,
   where NUMBER counts, from 0, the places of that kind in the training step after pass `zero`:

     scaled   what a collective gives is twice as large
     lost     an all_reduce does nothing
     swapped  a slice is taken at the place of another one of the same value
     left     an add of two tensors gives the first one

   Linked with --wrap=pipeline_classes. Exit status 77: there is no such place. */
#include "passes/base/rebuild.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool __real_pipeline_classes(Module *m, const PipelineOptions *options, Programs *out);
bool __wrap_pipeline_classes(Module *m, const PipelineOptions *options, Programs *out);

enum { NO_PLACE = 77 };

typedef struct Seeded {
  Module *m;
  Rebuild r;
  const struct FaultKind *kind;
  int left; /* places before it */
} Seeded;

typedef struct FaultKind {
  const char *name;
  bool (*is_place)(const Fn *f, const Op *o);
  void (*write)(Seeded *seeded, const Op *o);
} FaultKind;

static bool collects(const Fn *f, const Op *o) {
  (void)f;
  return o->code == OP_all_reduce || o->code == OP_reduce_scatter;
}

static void write_twice(Seeded *seeded, const Op *o) {
  ValueId out = rebuild_op(&seeded->r, o)->out;
  seeded->r.map[o->out] = ir_binary(seeded->m, seeded->r.to, OP_add, out, out, o->loc);
}

static bool reduces(const Fn *f, const Op *o) {
  (void)f;
  return o->code == OP_all_reduce;
}

static bool adds(const Fn *f, const Op *o) {
  return o->code == OP_add && value_type(f, o->out)->rank > 0;
}

static void write_first(Seeded *seeded, const Op *o) {
  seeded->r.map[o->out] = seeded->r.map[o->in[0]];
}

static const Op *other_slice(const Fn *f, const Op *o) {
  for (uint32_t i = 0; i < f->ops.n; i++) {
    const Op *other = &f->ops.at[i];
    if (other->code == OP_slice && other->in[0] == o->in[0] && other < o &&
        type_count(value_type(f, other->out)) == type_count(value_type(f, o->out)))
      return other;
  }
  return NULL;
}

static bool can_swap(const Fn *f, const Op *o) { return o->code == OP_slice && other_slice(f, o); }

static void write_swapped(Seeded *seeded, const Op *o) {
  int64_t at = attr_int(&other_slice(seeded->r.from, o)->attrs, ATTR_at, 0);
  attr_set_int(seeded->m, &rebuild_op(&seeded->r, o)->attrs, ATTR_at, at);
}

static const FaultKind kinds[] = {{"scaled", collects, write_twice},
                                  {"lost", reduces, write_first},
                                  {"swapped", can_swap, write_swapped},
                                  {"left", adds, write_first}};

static void write_fn(Seeded *seeded, Fn *f) {
  seeded->r = rebuild_begin(seeded->m, f);
  bool here = false;
  for (uint32_t i = 0; i < f->ops.n; i++) {
    bool place = seeded->kind->is_place(f, &f->ops.at[i]) && !seeded->left--;
    if (place) seeded->kind->write(seeded, &f->ops.at[i]);
    else rebuild_op(&seeded->r, &f->ops.at[i]);
    here |= place;
  }
  if (!here) return;
  rebuild_results(&seeded->r);
  module_replace(seeded->m, f, seeded->r.to);
}

static bool is_seeded(Module *m, const char *fault) {
  Seeded seeded = {.m = m, .left = atoi(strchr(fault, ':') + 1)};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strncmp(fault, kinds[i].name, strlen(kinds[i].name))) seeded.kind = &kinds[i];
  uint32_t n = m->fns.n;
  for (uint32_t i = 0; seeded.kind && i < n && seeded.left >= 0; i++)
    if (entry_trains(m->fns.at[i]) || strstr(m->fns.at[i]->name, ".fwd") ||
        strstr(m->fns.at[i]->name, ".bwd"))
      write_fn(&seeded, m->fns.at[i]);
  module_collect(m);
  return seeded.kind && seeded.left < 0;
}

bool __wrap_pipeline_classes(Module *m, const PipelineOptions *options, Programs *out) {
  PipelineOptions until = *options;
  const char *fault = getenv("SHARDC_FAULT");
  if (!fault || !strchr(fault, ':')) return __real_pipeline_classes(m, options, out);
  until.until = "zero";
  if (!pipeline_run(m, &until)) return false;
  if (!is_seeded(m, fault)) exit(NO_PLACE);
  unsetenv("SHARDC_FAULT");
  return __real_pipeline_classes(m, options, out);
}
