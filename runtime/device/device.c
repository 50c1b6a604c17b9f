/* Code shared by all kinds of device: dispatch of the calls of generated code to the kind, and the
   runtime's view of tensors. Must not: know what a kind does. */
#include "device.h"
#include "ir/support/num.h"
#include "runtime/base/recorder.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rt_state {
  Device *device;
};

/* ---- rt_abi.def ---- */

void rt_launch(rt_ctx *rt, const rt_kernel *k, void *const *buffers) {
  Device *d = rt->state->device;
  if (d->comm) rt_record(d->comm->record, RECORD_KERNEL, 0, k->name, NULL, NULL);
  d->kind->launch(d, k, buffers);
}

void rt_copy(rt_ctx *rt, void *to, const void *from, int64_t bytes) {
  Device *d = rt->state->device;
  d->kind->copy(d, to, from, bytes);
}

/* Down, up: what ran last is asked for (rt_device_run). */
void rt_move(rt_ctx *rt, void *to, const void *from, int64_t bytes, rt_way way) {
  Device *d = rt->state->device;
  d->now[way != RT_WAY_DOWN] += bytes;
  d->kind->move(d, to, from, bytes, way);
}

void rt_after(rt_ctx *rt, rt_stream stream, rt_stream other, int64_t back) {
  Device *d = rt->state->device;
  if (d->kind->after) d->kind->after(d, stream, other, back < 0 ? 0 : back, false);
}

void rt_until(rt_ctx *rt, rt_stream stream, rt_stream other, int64_t count) {
  Device *d = rt->state->device;
  if (d->kind->after) d->kind->after(d, stream, other, count, true);
}

void rt_zero(rt_ctx *rt, void *to, int64_t bytes) {
  Device *d = rt->state->device;
  d->kind->zero(d, to, bytes);
}

void *rt_counter(rt_ctx *rt, int64_t i) {
  Device *d = rt->state->device;
  return d->kind->counter(d, i);
}

void rt_collect(rt_ctx *rt, const rt_collective *c, const void *send, void *receive, void *work) {
  Device *d = rt->state->device;
  d->kind->collect(d, c, send, receive, work);
}

void rt_start(rt_ctx *rt, const rt_collective *c, const void *send, void *receive, void *work) {
  Device *d = rt->state->device;
  d->kind->begin(d, c, send, receive, work);
}

void rt_wait(rt_ctx *rt, const rt_collective *c, int64_t n) {
  Device *d = rt->state->device;
  d->kind->end(d, c, n);
}

void rt_turn(rt_ctx *rt, rt_turn_kind kind, int chunk, int64_t part) {
  Trace *trace = rt->state->device->trace;
  if (trace) rt_trace_turn(trace, kind, chunk, part);
}

int64_t rt_coordinate(rt_ctx *rt, int axis) { return rt->state->device->comm->group[axis].me; }

/* ---- start, stop, run ---- */

/* The scalars mesh.AXIS, from which generated code takes offsets. */
static void set_coordinates(const Device *d) {
  char name[RT_NAME];
  for (int i = 0; i < d->program->naxes && d->comm; i++) {
    snprintf(name, sizeof name, "mesh.of.%s", d->program->mesh[i].name);
    const rt_tensor *tensor = rt_tensor_find(d->program, name);
    if (tensor) rt_elem_put((int)tensor->elem, rt_tensor_write(d, tensor), 0, d->comm->group[i].me);
  }
}

bool rt_device_start(Device *d, const rt_program *program, Comm *comm, const DeviceOptions *options,
                     Fault *f) {
  *d = (Device){.kind = program->sm ? &rt_device_gpu : &rt_device_cpu,
                .program = program,
                .comm = comm,
                .check = options->check,
                .samples = options->samples,
                .saves = options->saves};
  d->ctx.state = rt_alloc(sizeof(struct rt_state));
  d->ctx.state->device = d;
  d->touched = rt_alloc(2 * sizeof(int64_t) * (size_t)program->nentries);
  d->moved = rt_alloc(2 * sizeof(int64_t) * (size_t)program->nentries);
  d->ran = rt_alloc(sizeof(bool) * (size_t)program->nentries);
  if (d->kind->fetch) d->state = rt_alloc((size_t)program->ntensors + 1);
  if (!d->kind->start(d, options, f)) return false;
  set_coordinates(d);
  return true;
}

bool rt_device_join(Device *d, Fault *f) { return !d->kind->join || d->kind->join(d, f); }

void rt_device_stop(Device *d) {
  if (d->kind) d->kind->stop(d);
  for (int i = 0; i < RT_ARENAS; i++) rt_region_unmap(&d->arena[i]);
  rt_trace_close(d->trace);
  free(d->counters), free(d->touched), free(d->moved), free(d->ran), free(d->state),
      free(d->ctx.state);
  *d = (Device){0};
}

int64_t rt_arena_bytes(const Device *d, rt_arena a) {
  bool is = a == RT_SAMPLING ? d->samples : a != RT_SNAPSHOT || d->saves;
  return is ? d->program->arena_bytes[a] : 0;
}

bool rt_is_there(const Device *d, const rt_tensor *tensor) {
  return tensor->arena != RT_SAMPLING || d->samples;
}

static void push_written(Device *d) {
  int n = d->program->ntensors;
  for (int i = 0; i < n; i++) {
    if (d->state[i] != WRITTEN) continue;
    d->kind->push(d, &d->program->tensors[i]);
    d->state[i] = SAME, d->state[n] = true;
  }
}

static void forget_views(Device *d) {
  for (int i = 0; i < d->program->ntensors; i++) {
    const rt_tensor *tensor = &d->program->tensors[i];
    if (tensor->kind != RT_INPUT && tensor->kind != RT_SCALAR && rt_is_there(d, tensor))
      d->state[i] = STALE;
  }
}

bool rt_device_run(Device *d, const rt_entry *entry, Fault *f) {
  if (d->state) push_written(d);
  d->now[0] = d->now[1] = 0;
  if (d->comm) rt_record(d->comm->record, RECORD_ENTRY, 0, entry->name, NULL, NULL);
  bool ok = d->kind->run(d, entry, f);
  if (d->comm) rt_record(d->comm->record, RECORD_ENTRY_END, 0, entry->name, NULL, NULL);
  ptrdiff_t i = entry - d->program->entries;
  if (i >= 0 && i < d->program->nentries) { /* tests run entries of their own */
    d->ran[i] = true;
    if (d->now[0] || d->now[1]) /* else nothing moves, or a graph moves what its recording did */
      memcpy(&d->moved[2 * i], d->now, sizeof d->now);
  }
  if (d->state) forget_views(d);
  return ok;
}

bool rt_has_run(const Device *d, const rt_entry *entry) {
  return d->ran[entry - d->program->entries];
}

void rt_device_words(const Device *d, char *out, size_t n) { d->kind->words(d, out, n); }

/* ---- tensors ---- */

bool rt_is_viewed(const Device *d, const rt_tensor *tensor) {
  return !d->state || tensor->view >= 0;
}

int64_t rt_span_most(const Device *d, const rt_tensor *tensor) {
  return rt_is_viewed(d, tensor) ? INT64_MAX : d->program->host_window;
}

static char *view_of(const Device *d, const rt_tensor *tensor, bool writes) {
  uint8_t *state = d->state ? &d->state[tensor - d->program->tensors] : NULL;
  uint8_t *flying = d->state ? &d->state[d->program->ntensors] : NULL;
  if (state && *state == STALE) d->kind->fetch(d, tensor), *state = SAME, *flying = false;
  if (state && writes && *flying) d->kind->drain(d), *flying = false;
  if (state && writes) *state = WRITTEN;
  if (state) return d->apart + tensor->view;
  uintptr_t view =
      (uintptr_t)d->view[tensor->arena]; /* rt_device_with: may begin before any object */
  return (char *)(view + (uintptr_t)tensor->offset);
}

static char *span(const Device *d, const rt_tensor *tensor, int64_t from, int64_t bytes,
                  bool writes) {
  if (rt_is_viewed(d, tensor)) return view_of(d, tensor, writes) + from;
  if (bytes > d->program->host_window)
    rt_fail(105, "%lld bytes of %s do not pass through the window", (long long)bytes, tensor->name);
  return d->kind->span(d, tensor, from, bytes, writes);
}

const char *rt_span_read(const Device *d, const rt_tensor *tensor, int64_t from, int64_t bytes) {
  return span(d, tensor, from, bytes, false);
}

char *rt_span_write(const Device *d, const rt_tensor *tensor, int64_t from, int64_t bytes) {
  return span(d, tensor, from, bytes, true);
}

const void *rt_tensor_read(const Device *d, const rt_tensor *tensor) {
  return span(d, tensor, 0, tensor->bytes, false);
}

void *rt_tensor_write(const Device *d, const rt_tensor *tensor) {
  return span(d, tensor, 0, tensor->bytes, true);
}

void rt_tensor_copy(const Device *d, const rt_tensor *tensor, int64_t from, int64_t bytes,
                    void *to) {
  int64_t most = rt_span_most(d, tensor);
  for (int64_t at = 0, n; at < bytes; at += n) {
    n = min_i64(bytes - at, most);
    memcpy((char *)to + at, rt_span_read(d, tensor, from + at, n), (size_t)n);
  }
}

/* Afterwards the data on the device is authoritative, so pending writes are copied to it first. */
void rt_tensor_rows(Device *d, const RowCopy *c) {
  if (d->state) {
    uint8_t *to = &d->state[c->to - d->program->tensors];
    push_written(d);
    *to = STALE;
  }
  d->kind->rows(d, c);
}

void rt_tensor_zero(Device *d, const rt_tensor *tensor) {
  d->kind->zero(d, d->ctx.arena[tensor->arena] + tensor->offset, tensor->bytes);
}

/* Views of the host keep their earlier contents. */
void rt_ahead_take(const Device *d) {
  for (int i = 0; d->program->host_ahead && i < d->program->ntensors; i++)
    if (d->program->tensors[i].ahead >= 0 && d->program->tensors[i].kind == RT_INPUT)
      d->state[i] = STALE;
  d->kind->background(d, RT_BACKGROUND_take);
}

const rt_entry *rt_entry_find(const rt_program *program, const char *name) {
  for (int i = 0; i < program->nentries; i++)
    if (!strcmp(program->entries[i].name, name)) return &program->entries[i];
  return NULL;
}

const rt_entry *rt_entry_of_phase(const rt_program *program, rt_phase phase) {
  for (int i = 0; i < program->nentries; i++)
    if (program->entries[i].phase == phase) return &program->entries[i];
  return NULL;
}

bool rt_phase_replaces(rt_phase phase) {
  static const bool replaces[] = {
      false,
#define PHASE(name, entry, replaces, meaning) replaces,
#include "ir/phases.def"
#undef PHASE
  };
  return replaces[phase];
}

bool rt_entry_trains(const rt_entry *entry) {
  return rt_phase_replaces(entry->phase) || !strcmp(entry->name, "step");
}

const rt_tensor *rt_tensor_find(const rt_program *program, const char *name) {
  for (int i = 0; i < program->ntensors; i++)
    if (!strcmp(program->tensors[i].name, name)) return &program->tensors[i];
  return NULL;
}

int64_t rt_tensor_count(const rt_tensor *tensor) {
  int64_t n = 1;
  for (int i = 0; i < tensor->rank; i++) n *= tensor->size[i];
  return n;
}

int rt_tensor_axis(const rt_tensor *tensor, const char *dim) {
  for (int i = 0; i < tensor->rank; i++)
    if (!strcmp(tensor->dim[i], dim)) return i;
  return -1;
}

int64_t rt_tensor_stride(const rt_tensor *tensor, int axis) {
  int64_t stride = 1;
  for (int i = axis + 1; i < tensor->rank; i++) stride *= tensor->size[i];
  return axis < 0 ? 0 : stride;
}
