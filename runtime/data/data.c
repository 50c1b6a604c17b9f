/* Filling inputs from samples. The order of an epoch is a permutation of (seed, epoch) alone, the
   cursor counts samples, so a resumed run, or one of another batch size, continues exactly after
   the last sample used. Indexes are checked against their dimension as they are read. Must not:
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

static const DataFile *part_of(const Stream *stream, int64_t sample) {
  int low = 0, high = stream->nparts;
  while (high - low > 1) {
    int middle = (low + high) / 2;
    if (stream->part[middle].first <= sample) low = middle;
    else high = middle;
  }
  return &stream->part[low];
}

static bool outside(const Feed *feed, const DataFile *file, int64_t number, int64_t v, Fault *f) {
  double real = rt_array_real(&file->array, number);
  char text[32];
  if (file->array.kind == NUMBER_FLOAT) snprintf(text, sizeof text, "%.9g", real);
  else snprintf(text, sizeof text, "%lld", (long long)v);
  rt_fault(f, 204, "%s is not an index of %s: input %s takes 0 to %lld", text, feed->input->of,
           feed->input->name, (long long)feed->input->of_size - 1);
  rt_at(f, file->path, "number", number);
  return rt_help(f, "the file is read as %s; `--format` reads it in another way",
                 file->array.format);
}

static bool copy_wide(const Feed *feed, const DataFile *file, int64_t i, int64_t n, int32_t *to,
                      Fault *f) {
  int64_t limit = feed->input->of ? feed->input->of_size : INT32_MAX;
  for (int64_t k = 0; k < n; k++) {
    int64_t v = rt_array_int(&file->array, i + k);
    if ((v < 0 || v >= limit) && v != feed->ignore && (feed->input->of || v != (int32_t)v))
      return feed->input->of ? outside(feed, file, i + k, v, f)
                             : rt_fault(f, 204, "%lld does not fit 32 bits", (long long)v);
    to[k] = (int32_t)v;
  }
  return true;
}

/* The common case: tokens of one or two bytes, so the check is one comparison after a tight loop.
 */
static bool copy_narrow(const Feed *feed, const DataFile *file, int64_t i, int64_t n, int32_t *to,
                        Fault *f) {
  const uint8_t *from = file->array.at + i * file->array.width;
  uint32_t most = 0;
  for (int64_t k = 0; k < n; k++) {
    uint32_t v = file->array.width == 1 ? from[k] : (uint32_t)(from[2 * k] | from[2 * k + 1] << 8);
    to[k] = (int32_t)v;
    most = v > most ? v : most;
  }
  return most < (uint64_t)feed->input->of_size || copy_wide(feed, file, i, n, to, f);
}

bool rt_copy_index(const Feed *feed, const DataFile *file, int64_t i, int64_t n, int32_t *to,
                   Fault *f) {
  const Array *array = &file->array;
  bool narrow = array->kind == NUMBER_UINT && array->width <= 2 && !array->big && feed->input->of;
  return narrow ? copy_narrow(feed, file, i, n, to, f) : copy_wide(feed, file, i, n, to, f);
}

static void copy_normalised(const Feed *feed, const Array *array, int64_t i, char *to,
                            double scale) {
  for (int64_t k = 0; k < feed->count; k++) {
    int64_t c = k % feed->channels;
    double v = rt_array_real(array, i + k) * scale - (feed->mean ? feed->mean[c] : 0);
    rt_elem_put(feed->input->elem, to, k, feed->std ? v / feed->std[c] : v);
  }
}

static void copy_reals(const Feed *feed, const DataFile *file, int64_t i, char *to) {
  const Array *array = &file->array;
  int elem = feed->input->elem;
  bool byte = array->kind == NUMBER_UINT && array->width == 1;
  float scale = byte ? (float)feed->scale : 1;
  if (feed->mean || feed->std) {
    copy_normalised(feed, array, i, to, (double)scale);
  } else if (elem == RT_F32 && array->kind == NUMBER_FLOAT && array->width == 4 && !array->big) {
    memcpy(to, array->at + i * 4, (size_t)feed->count * 4);
  } else if (elem == RT_F32 && byte) {
    for (int64_t k = 0; k < feed->count; k++) ((float *)to)[k] = (float)array->at[i + k] * scale;
  } else {
    for (int64_t k = 0; k < feed->count; k++)
      rt_elem_put(elem, to, k, rt_array_real(array, i + k) * (double)scale);
  }
}

static bool is_float(int elem) {
  return elem == RT_F32 || elem == RT_BF16 || elem == RT_F16 || elem == RT_F64;
}

/* One row of a column, in the input's own type. */
static bool fill_column(const Feed *feed, const DataFile *file, int64_t i, void *to, Fault *f) {
  if (feed->input->elem == RT_I32) return rt_copy_index(feed, file, i, feed->count, to, f);
  if (is_float(feed->input->elem)) return copy_reals(feed, file, i, to), true;
  for (int64_t k = 0; k < feed->count; k++)
    rt_elem_put(feed->input->elem, to, k, (double)rt_array_int(&file->array, i + k));
  return true;
}

static Window window_of(const Stream *stream, int64_t sample) {
  const DataFile *file = part_of(stream, sample);
  int64_t i = sample - file->first;
  if (!file->document)
    return (Window){.part = file, .at = file->low + i * stream->stride, .count = stream->length};
  Document document = file->document[file->low + i];
  return (Window){.part = file,
                  .at = document.at,
                  .count = document.count < stream->length ? document.count : stream->length};
}

static bool fill_feed(const Data *data, const DataSet *set, const Feed *feed, Window of, char *to,
                      Fault *f) {
  Window window = window_of(&set->stream[feed->stream], (int64_t)of.sample);
  window.seed = of.seed, window.epoch = of.epoch, window.sample = of.sample;
  return data->tasked ? rt_window_fill(&data->task, feed, &window, to, f)
                      : fill_column(feed, window.part, window.at + feed->shift, to, f);
}

/* The position of a row if the rows of each rank are contiguous: samples are dealt to the ranks
   round robin.
 */
static int64_t dealt_row(const rt_program *program, const rt_tensor *tensor, int64_t row) {
  if (!tensor->part) return row;
  int64_t ways = rt_whole_size(program, tensor, 0) / tensor->size[0], turn = row / tensor->part;
  return turn % ways * tensor->size[0] + turn / ways * tensor->part + row % tensor->part;
}

const rt_tensor *rt_data_local(const Data *data, const Device *device, const Feed *feed) {
  return &device->program->tensors[feed->input - data->program->tensors];
}

/* A row of an input of which ranks hold different parts: other ranks' rows are passed over, other
   ranks' parts of a row are cut off. */
static bool fill_part(const Filling *filling, const Feed *feed, char *to, Window of, int64_t row) {
  const Device *device = filling->device;
  const rt_tensor *local = rt_data_local(filling->d, device, feed);
  PieceWalk walk = rt_pieces(device->program, local, rt_comm_rank(device->comm));
  Piece mine, line = rt_piece_whole(filling->d->program, feed->input);
  row = dealt_row(device->program, local, row);
  if (!rt_piece_next(&walk, &mine) || row < mine.begin[0] || row >= mine.end[0]) return true;
  if (!fill_feed(filling->d, filling->s, feed, of, filling->stage, filling->f)) return false;
  line.begin[0] = row, line.end[0] = row + 1, line.to = rt_piece_count(&line);
  rt_piece_copy((int)local->elem, filling->stage, &line, (int)local->elem, to, &mine);
  return true;
}

static bool fill_sample(const Filling *filling, Window of, int64_t row) {
  for (int i = 0; i < filling->s->nfeeds; i++) {
    const Feed *feed = &filling->s->feed[i];
    const rt_tensor *local = rt_data_local(filling->d, filling->device, feed);
    char *to = filling->to ? filling->to[i] : rt_tensor_write(filling->device, local);
    int64_t bytes = feed->count * rt_elem_bytes((int)local->elem);
    if (local->nsplits ? !fill_part(filling, feed, to, of, row)
                       : !fill_feed(filling->d, filling->s, feed, of, to + row * bytes, filling->f))
      return false;
  }
  return true;
}

/* The sample at a position of the endless sequence of epochs. */
static int64_t sample_at(const Data *data, const DataSet *set, int64_t place,
                         const uint64_t *seed) {
  int64_t sample = place % set->samples;
  return seed && data->shuffle
             ? rt_permute(*seed, (uint64_t)(place / set->samples), set->samples, sample)
             : sample;
}

static bool fill(void *argument) {
  const Filling *filling = argument;
  const DataSet *set = filling->s;
  for (int64_t row = 0; set->samples && row < filling->d->batch; row++) {
    int64_t place = filling->first + row;
    Window of = {.seed = filling->seed ? *filling->seed : 0,
                 .epoch = filling->seed ? (uint64_t)(place / set->samples) : 0,
                 .sample = (uint64_t)sample_at(filling->d, set, place, filling->seed)};
    if (!fill_sample(filling, of, row)) return false;
  }
  return true;
}

/* Without a seed every pass sees the same masks. */
static bool fill_rows(void *argument) {
  const Filling *filling = argument;
  for (int64_t row = 0; row < filling->d->batch; row++) {
    int64_t sample =
        filling->first + (row < filling->count * filling->rounds ? row % filling->count : 0);
    if (!fill_sample(filling, (Window){.sample = (uint64_t)sample}, row)) return false;
  }
  return true;
}

static bool fill_one(void *argument) {
  const Filling *filling = argument;
  Window of = {.sample = (uint64_t)filling->first};
  for (int i = 0; i < filling->s->nfeeds; i++) {
    char name[RT_NAME];
    snprintf(name, sizeof name, "logits.%.200s", filling->s->feed[i].input->name);
    const rt_tensor *tensor = rt_tensor_find(filling->device->program, name);
    if (!tensor) continue; /* no output needs it */
    if (!fill_feed(filling->d, filling->s, &filling->s->feed[i], of, filling->stage, filling->f))
      return false;
    rt_tensor_keep(filling->device, tensor, (int)filling->s->feed[i].input->elem, filling->stage);
  }
  return true;
}

/* Reports the file that is mapped at this address. */
static bool lost_page(const DataSet *set, const uint8_t *at, Fault *f) {
  rt_fault(f, 201, "the file became shorter while it was read, or its disk does not answer");
  for (int i = 0; i < set->nstreams; i++)
    for (int k = 0; k < set->stream[i].nparts; k++) {
      const DataFile *file = &set->stream[i].part[k];
      if (at >= file->file.at && at < file->file.at + file->file.n)
        return rt_at(f, file->path, "byte", at - file->file.at);
    }
  return false;
}

static bool guarded(bool (*read)(void *), Filling filling) {
  const void *lost;
  if (rt_map_read(filling.guard, read, &filling, &lost)) return true;
  return lost ? lost_page(filling.s, lost, filling.f) : false;
}

/* By this thread, into the inputs. */
static Filling into_inputs(const Data *data, const DataSet *set, const Device *device,
                           int64_t first, Fault *f) {
  rt_data_settle(data);
  return (Filling){.d = data,
                   .s = set,
                   .device = device,
                   .stage = data->stage,
                   .guard = data->guard,
                   .first = first,
                   .f = f};
}

bool rt_data_fill(const Data *data, const DataSet *set, const Device *device, int64_t cursor,
                  const uint64_t *seed, Fault *f) {
  bool ok;
  if (rt_data_take(data, set, cursor, seed, &ok, f)) return ok;
  Filling filling = into_inputs(data, set, device, cursor, f);
  filling.seed = seed;
  return guarded(fill, filling);
}

bool rt_data_fill_rows(const Data *data, const DataSet *set, const Device *device, int64_t first,
                       int64_t count, int64_t rounds, Fault *f) {
  Filling filling = into_inputs(data, set, device, first, f);
  filling.count = count, filling.rounds = rounds;
  return guarded(fill_rows, filling);
}

bool rt_data_fill_one(const Data *data, const DataSet *set, const Device *device, int64_t sample,
                      Fault *f) {
  return guarded(fill_one, into_inputs(data, set, device, sample, f));
}

/* Asks the system for the bytes of a window without waiting for them. */
static void fetch(const Window *window) {
  const Array *array = &window->part->array;
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE),
            at = (uintptr_t)(array->at + window->at * array->width), begin = at & ~(page - 1);
  madvise((void *)begin, at + (uintptr_t)(window->count * array->width) - begin, MADV_WILLNEED);
}

/* All windows are asked for before the first is read: a disk answers them together. */
bool rt_data_read(Filling filling) {
  for (int64_t row = 0; filling.s->samples && row < filling.d->batch; row++)
    for (int i = 0; i < filling.s->nstreams; i++) {
      Window window = window_of(&filling.s->stream[i],
                                sample_at(filling.d, filling.s, filling.first + row, filling.seed));
      fetch(&window);
    }
  return guarded(fill, filling);
}
