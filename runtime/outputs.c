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

static bool of_batch(const rt_tensor *t) {
  for (int i = 0; i < t->rank; i++)
    if (!strcmp(t->dim[i], "Batch")) return true;
  return false;
}

static int64_t bytes_of(const rt_tensor *whole) {
  return rt_tensor_count(whole) * rt_elem_bytes((int)whole->elem);
}

static void add_item(Collector *c, int i, int64_t samples) {
  const rt_tensor *t = &c->r->whole->tensors[i];
  int64_t *size = rt_alloc(sizeof *size * RT_MAX_RANK);
  int rank = 0;
  if (of_batch(t)) size[rank++] = samples;
  for (int k = 0; k < t->rank; k++)
    if (strcmp(t->dim[k], "Batch")) size[rank++] = t->size[k];
  void *data = rt_alloc((size_t)((of_batch(t) ? samples : 1) * bytes_of(t)));
  c->part[c->o->n] = &c->r->p->tensors[i];
  c->o->item[c->o->n++] = (SafeItem){t->name, (int)t->elem, rank, size, data, NULL, NULL};
}

static bool make_room(Collector *c, int64_t samples, Fault *f) {
  const rt_program *p = c->r->whole;
  int64_t bytes = 0;
  int n = 0;
  for (int i = 0; i < p->ntensors; i++)
    if (!strncmp(p->tensors[i].name, "out.", 4)) bytes += samples * bytes_of(&p->tensors[i]), n++;
  if (bytes > MOST) {
    rt_fault(f, 103, "--dump: the outputs of %lld samples are %.1f GB", (long long)samples,
             1e-9 * (double)bytes);
    return rt_help(f, "--eval-batches N takes fewer; the most are %.1f GB", 1e-9 * (double)MOST);
  }
  c->o->item = rt_alloc(sizeof(SafeItem) * (size_t)(n + 1));
  c->part = rt_alloc(sizeof *c->part * (size_t)(n + 1));
  for (int i = 0; i < p->ntensors; i++)
    if (!strncmp(p->tensors[i].name, "out.", 4)) add_item(c, i, samples);
  return true;
}

/* A call of all ranks. */
static void take(const Collector *c, int k, int64_t sample) {
  const rt_tensor *part = c->part[k], *whole = &c->r->whole->tensors[part - c->r->p->tensors];
  int64_t bytes = bytes_of(whole);
  char *to = (char *)c->o->item[k].data + (of_batch(whole) ? sample * bytes : 0);
  if (rt_is_placed(part)) rt_tensor_gather(&c->r->device, part, to);
  else rt_tensor_copy(&c->r->device, part, 0, bytes, to);
}

bool rt_outputs(Run *r, const Evaluation *v, Outputs *o, Fault *f) {
  Collector c = {.r = r, .o = o};
  const rt_entry *e = rt_entry_find(r->p, "logits");
  *o = (Outputs){0};
  if (!e) return true; /* the model has no outputs */
  if (!make_room(&c, v->samples, f)) return false;
  for (int64_t i = 0; i < v->samples; i++) {
    int64_t sample = rt_evaluated(r, v, i);
    if (!rt_data_fill_one(&r->data, &r->data.valid, &r->device, sample, f) ||
        !rt_device_run(&r->device, e, f))
      return false;
    for (int k = 0; k < o->n; k++) take(&c, k, i);
  }
  free(c.part);
  return true;
}

void rt_outputs_free(Outputs *o) {
  for (int i = 0; i < o->n; i++) free((void *)o->item[i].size), free((void *)o->item[i].data);
  free(o->item);
  *o = (Outputs){0};
}
