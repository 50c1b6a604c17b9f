/* Filling inputs from samples. The order of an epoch is a permutation of (seed, epoch) alone, the
   cursor counts samples, so a resumed run, or one of another batch size, goes on exactly behind the
   last sample used. Indexes are checked against their dimension as they are read. Must not:
   allocate (this runs inside steps). */
#include "data_fill.h"
#include "runtime/base/file.h"
#include "runtime/device/shard_piece.h"
#include "shuffle.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const DataFile *part_of(const Stream *s, int64_t sample) {
  int low = 0, high = s->nparts;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (s->part[middle].first <= sample) low = middle;
    else high = middle;
  }
  return &s->part[low];
}

static bool outside(const Feed *e, const DataFile *p, int64_t number, int64_t v, Fault *f) {
  double real = rt_array_real(&p->array, number);
  char text[32];
  if (p->array.kind == NUMBER_FLOAT) snprintf(text, sizeof text, "%.9g", real);
  else snprintf(text, sizeof text, "%lld", (long long)v);
  rt_fault(f, 204, "%s is not an index of %s: input %s takes 0 to %lld", text, e->input->of,
           e->input->name, (long long)e->input->of_size - 1);
  rt_at(f, p->path, "number", number);
  return rt_help(f, "the file is read as %s; `--format` reads it in another way", p->array.format);
}

static bool copy_wide(const Feed *e, const DataFile *p, int64_t i, int64_t n, int32_t *to,
                      Fault *f) {
  int64_t limit = e->input->of ? e->input->of_size : INT32_MAX;
  for (int64_t k = 0; k < n; k++) {
    int64_t v = rt_array_int(&p->array, i + k);
    if ((v < 0 || v >= limit) && v != e->ignore && (e->input->of || v != (int32_t)v))
      return e->input->of ? outside(e, p, i + k, v, f)
                          : rt_fault(f, 204, "%lld does not fit 32 bits", (long long)v);
    to[k] = (int32_t)v;
  }
  return true;
}

/* The common case: tokens of one or two bytes, so the check is one comparison behind a tight loop.
 */
static bool copy_narrow(const Feed *e, const DataFile *p, int64_t i, int64_t n, int32_t *to,
                        Fault *f) {
  const uint8_t *from = p->array.at + i * p->array.width;
  uint32_t most = 0;
  for (int64_t k = 0; k < n; k++) {
    uint32_t v = p->array.width == 1 ? from[k] : (uint32_t)(from[2 * k] | from[2 * k + 1] << 8);
    to[k] = (int32_t)v;
    most = v > most ? v : most;
  }
  return most < (uint64_t)e->input->of_size || copy_wide(e, p, i, n, to, f);
}

bool rt_copy_index(const Feed *e, const DataFile *p, int64_t i, int64_t n, int32_t *to, Fault *f) {
  const Array *a = &p->array;
  bool narrow = a->kind == NUMBER_UINT && a->width <= 2 && !a->big && e->input->of;
  return narrow ? copy_narrow(e, p, i, n, to, f) : copy_wide(e, p, i, n, to, f);
}

static void copy_normalised(const Feed *e, const Array *a, int64_t i, char *to, double scale) {
  for (int64_t k = 0; k < e->count; k++) {
    int64_t c = k % e->channels;
    double v = rt_array_real(a, i + k) * scale - (e->mean ? e->mean[c] : 0);
    rt_elem_put(e->input->elem, to, k, e->std ? v / e->std[c] : v);
  }
}

static void copy_reals(const Feed *e, const DataFile *p, int64_t i, char *to) {
  const Array *a = &p->array;
  int elem = e->input->elem;
  bool byte = a->kind == NUMBER_UINT && a->width == 1;
  float scale = byte ? (float)e->scale : 1;
  if (e->mean || e->std) {
    copy_normalised(e, a, i, to, (double)scale);
  } else if (elem == RT_F32 && a->kind == NUMBER_FLOAT && a->width == 4 && !a->big) {
    memcpy(to, a->at + i * 4, (size_t)e->count * 4);
  } else if (elem == RT_F32 && byte) {
    for (int64_t k = 0; k < e->count; k++) ((float *)to)[k] = (float)a->at[i + k] * scale;
  } else {
    for (int64_t k = 0; k < e->count; k++)
      rt_elem_put(elem, to, k, rt_array_real(a, i + k) * (double)scale);
  }
}

static bool is_float(int elem) {
  return elem == RT_F32 || elem == RT_BF16 || elem == RT_F16 || elem == RT_F64;
}

/* One row of a column, in the input's own type. */
static bool fill_column(const Feed *e, const DataFile *p, int64_t i, void *to, Fault *f) {
  if (e->input->elem == RT_I32) return rt_copy_index(e, p, i, e->count, to, f);
  if (is_float(e->input->elem)) return copy_reals(e, p, i, to), true;
  for (int64_t k = 0; k < e->count; k++)
    rt_elem_put(e->input->elem, to, k, (double)rt_array_int(&p->array, i + k));
  return true;
}

static Window window_of(const Stream *s, int64_t sample) {
  const DataFile *p = part_of(s, sample);
  int64_t i = sample - p->first;
  if (!p->document) return (Window){.part = p, .at = p->low + i * s->stride, .count = s->length};
  Document d = p->document[p->low + i];
  return (Window){.part = p, .at = d.at, .count = d.count < s->length ? d.count : s->length};
}

static bool fill_feed(const Data *d, const DataSet *s, const Feed *e, Window of, char *to,
                      Fault *f) {
  Window w = window_of(&s->stream[e->stream], (int64_t)of.sample);
  w.seed = of.seed, w.epoch = of.epoch, w.sample = of.sample;
  return d->tasked ? rt_window_fill(&d->task, e, &w, to, f)
                   : fill_column(e, w.part, w.at + e->shift, to, f);
}

/* Where row lies if every rank's rows stand end to end: samples that are dealt go round the ranks.
 */
static int64_t dealt_row(const rt_program *p, const rt_tensor *t, int64_t row) {
  if (!t->part) return row;
  int64_t ways = rt_whole_size(p, t, 0) / t->size[0], turn = row / t->part;
  return turn % ways * t->size[0] + turn / ways * t->part + row % t->part;
}

const rt_tensor *rt_data_local(const Data *d, const Device *device, const Feed *e) {
  return &device->program->tensors[e->input - d->program->tensors];
}

/* A row of an input of which ranks hold different parts: other ranks' rows are passed over, other
   ranks' parts of a row are cut off. */
static bool fill_part(const Filling *l, const Feed *e, char *to, Window of, int64_t row) {
  const Device *device = l->device;
  const rt_tensor *local = rt_data_local(l->d, device, e);
  PieceWalk walk = rt_pieces(device->program, local, rt_comm_rank(device->comm));
  Piece mine, line = rt_piece_whole(l->d->program, e->input);
  row = dealt_row(device->program, local, row);
  if (!rt_piece_next(&walk, &mine) || row < mine.begin[0] || row >= mine.end[0]) return true;
  if (!fill_feed(l->d, l->s, e, of, l->stage, l->f)) return false;
  line.begin[0] = row, line.end[0] = row + 1, line.to = rt_piece_count(&line);
  rt_piece_copy((int)local->elem, l->stage, &line, (int)local->elem, to, &mine);
  return true;
}

static bool fill_sample(const Filling *l, Window of, int64_t row) {
  for (int i = 0; i < l->s->nfeeds; i++) {
    const Feed *e = &l->s->feed[i];
    const rt_tensor *local = rt_data_local(l->d, l->device, e);
    char *to = l->to ? l->to[i] : rt_tensor_write(l->device, local);
    int64_t bytes = e->count * rt_elem_bytes((int)local->elem);
    if (local->nsplits ? !fill_part(l, e, to, of, row)
                       : !fill_feed(l->d, l->s, e, of, to + row * bytes, l->f))
      return false;
  }
  return true;
}

/* Which sample stands at a place of the endless row of epochs. */
static int64_t sample_at(const Data *d, const DataSet *s, int64_t place, const uint64_t *seed) {
  int64_t sample = place % s->samples;
  return seed && d->shuffle ? rt_permute(*seed, (uint64_t)(place / s->samples), s->samples, sample)
                            : sample;
}

static bool fill(void *argument) {
  const Filling *l = argument;
  const DataSet *s = l->s;
  for (int64_t row = 0; s->samples && row < l->d->batch; row++) {
    int64_t place = l->first + row;
    Window of = {.seed = l->seed ? *l->seed : 0,
                 .epoch = l->seed ? (uint64_t)(place / s->samples) : 0,
                 .sample = (uint64_t)sample_at(l->d, s, place, l->seed)};
    if (!fill_sample(l, of, row)) return false;
  }
  return true;
}

/* Without a seed every pass sees the same masks. */
static bool fill_rows(void *argument) {
  const Filling *l = argument;
  for (int64_t row = 0; row < l->d->batch; row++) {
    int64_t sample = l->first + (row < l->count * l->rounds ? row % l->count : 0);
    if (!fill_sample(l, (Window){.sample = (uint64_t)sample}, row)) return false;
  }
  return true;
}

static bool fill_one(void *argument) {
  const Filling *l = argument;
  Window of = {.sample = (uint64_t)l->first};
  for (int i = 0; i < l->s->nfeeds; i++) {
    char name[RT_NAME];
    snprintf(name, sizeof name, "logits.%.200s", l->s->feed[i].input->name);
    const rt_tensor *t = rt_tensor_find(l->device->program, name);
    if (!t) continue; /* no output needs it */
    if (!fill_feed(l->d, l->s, &l->s->feed[i], of, l->stage, l->f)) return false;
    rt_tensor_keep(l->device, t, (int)l->s->feed[i].input->elem, l->stage);
  }
  return true;
}

/* The file that is mapped there. */
static bool lost_page(const DataSet *s, const uint8_t *at, Fault *f) {
  rt_fault(f, 201, "the file became shorter while it was read, or its disk does not answer");
  for (int i = 0; i < s->nstreams; i++)
    for (int k = 0; k < s->stream[i].nparts; k++) {
      const DataFile *p = &s->stream[i].part[k];
      if (at >= p->file.at && at < p->file.at + p->file.n)
        return rt_at(f, p->path, "byte", at - p->file.at);
    }
  return false;
}

static bool guarded(bool (*read)(void *), Filling l) {
  const void *lost;
  if (rt_map_read(l.guard, read, &l, &lost)) return true;
  return lost ? lost_page(l.s, lost, l.f) : false;
}

/* By this thread, into the inputs. */
static Filling into_inputs(const Data *d, const DataSet *s, const Device *device, int64_t first,
                           Fault *f) {
  rt_data_settle(d);
  return (Filling){.d = d,
                   .s = s,
                   .device = device,
                   .stage = d->stage,
                   .guard = d->guard,
                   .first = first,
                   .f = f};
}

bool rt_data_fill(const Data *d, const DataSet *s, const Device *device, int64_t cursor,
                  const uint64_t *seed, Fault *f) {
  bool ok;
  if (rt_data_take(d, s, cursor, seed, &ok, f)) return ok;
  Filling l = into_inputs(d, s, device, cursor, f);
  l.seed = seed;
  return guarded(fill, l);
}

bool rt_data_fill_rows(const Data *d, const DataSet *s, const Device *device, int64_t first,
                       int64_t count, int64_t rounds, Fault *f) {
  Filling l = into_inputs(d, s, device, first, f);
  l.count = count, l.rounds = rounds;
  return guarded(fill_rows, l);
}

bool rt_data_fill_one(const Data *d, const DataSet *s, const Device *device, int64_t sample,
                      Fault *f) {
  return guarded(fill_one, into_inputs(d, s, device, sample, f));
}

/* Asks the system for the bytes of a window without waiting for them. */
static void fetch(const Window *w) {
  const Array *a = &w->part->array;
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)(a->at + w->at * a->width),
            begin = at & ~(page - 1);
  madvise((void *)begin, at + (uintptr_t)(w->count * a->width) - begin, MADV_WILLNEED);
}

/* All windows are asked for before the first is read: a disk answers them together. */
bool rt_data_read(Filling l) {
  for (int64_t row = 0; l.s->samples && row < l.d->batch; row++)
    for (int i = 0; i < l.s->nstreams; i++) {
      Window w = window_of(&l.s->stream[i], sample_at(l.d, l.s, l.first + row, l.seed));
      fetch(&w);
    }
  return guarded(fill, l);
}
