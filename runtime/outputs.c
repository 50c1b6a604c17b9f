/* The model's outputs for many samples: entry `logits`, which takes one, run for each of an
   evaluation's. An output [Batch, A, ..] becomes [samples, A, ..], in the order of the evaluation;
   one without Batch is what it is. Must not: write files; hold more than MOST bytes. */
#include "runtime/device/shard_piece.h"
#include "run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int64_t MOST = (int64_t)4 << 30;

typedef struct Collector {
  Run *r;
  Outputs *o;
  const rt_tensor **part; /* of this rank, by item */
} Collector;

static bool of_batch(const rt_tensor *tensor) {
  for (int i = 0; i < tensor->rank; i++)
    if (!strcmp(tensor->dim[i], "Batch")) return true;
  return false;
}

static int64_t bytes_of(const rt_tensor *whole) {
  return rt_tensor_count(whole) * rt_elem_bytes((int)whole->elem);
}

static void add_item(Collector *collector, int i, int64_t samples) {
  const rt_tensor *tensor = &collector->r->whole->tensors[i];
  int64_t *size = rt_alloc(sizeof *size * RT_MAX_RANK);
  int rank = 0;
  if (of_batch(tensor)) size[rank++] = samples;
  for (int k = 0; k < tensor->rank; k++)
    if (strcmp(tensor->dim[k], "Batch")) size[rank++] = tensor->size[k];
  void *data = rt_alloc((size_t)((of_batch(tensor) ? samples : 1) * bytes_of(tensor)));
  collector->part[collector->o->n] = &collector->r->p->tensors[i];
  collector->o->item[collector->o->n++] =
      (SafeItem){tensor->name, (int)tensor->elem, rank, size, data, NULL, NULL};
}

static bool make_room(Collector *collector, int64_t samples, Fault *f) {
  const rt_program *program = collector->r->whole;
  int64_t bytes = 0;
  int n = 0;
  for (int i = 0; i < program->ntensors; i++)
    if (!strncmp(program->tensors[i].name, "out.", 4))
      bytes += samples * bytes_of(&program->tensors[i]), n++;
  if (bytes > MOST) {
    rt_fault(f, 103, "--dump: the outputs of %lld samples are %.1f GB", (long long)samples,
             1e-9 * (double)bytes);
    return rt_help(f, "--eval-batches N takes fewer; the most are %.1f GB", 1e-9 * (double)MOST);
  }
  collector->o->item = rt_alloc(sizeof(SafeItem) * (size_t)(n + 1));
  collector->part = rt_alloc(sizeof *collector->part * (size_t)(n + 1));
  for (int i = 0; i < program->ntensors; i++)
    if (!strncmp(program->tensors[i].name, "out.", 4)) add_item(collector, i, samples);
  return true;
}

/* A call of all ranks. */
static void take(const Collector *collector, int k, int64_t sample) {
  const rt_tensor *part = collector->part[k],
                  *whole = &collector->r->whole->tensors[part - collector->r->p->tensors];
  int64_t bytes = bytes_of(whole);
  char *to = (char *)collector->o->item[k].data + (of_batch(whole) ? sample * bytes : 0);
  if (rt_is_placed(part)) rt_tensor_gather(&collector->r->device, part, to);
  else rt_tensor_copy(&collector->r->device, part, 0, bytes, to);
}

bool rt_outputs(Run *r, const Evaluation *evaluation, Outputs *outputs, Fault *f) {
  Collector collector = {.r = r, .o = outputs};
  const rt_entry *entry = rt_entry_find(r->p, "logits");
  *outputs = (Outputs){0};
  if (!entry) return true; /* the model has no outputs */
  if (!make_room(&collector, evaluation->samples, f)) return false;
  for (int64_t i = 0; i < evaluation->samples; i++) {
    int64_t sample = rt_evaluated(r, evaluation, i);
    if (!rt_data_fill_one(&r->data, &r->data.valid, &r->device, sample, f) ||
        !rt_device_run(&r->device, entry, f))
      return false;
    for (int k = 0; k < outputs->n; k++) take(&collector, k, i);
  }
  free(collector.part);
  return true;
}

void rt_outputs_free(Outputs *outputs) {
  for (int i = 0; i < outputs->n; i++)
    free((void *)outputs->item[i].size), free((void *)outputs->item[i].data);
  free(outputs->item);
  *outputs = (Outputs){0};
}
