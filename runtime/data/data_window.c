/* Fills the inputs of a task from one sample. The positions that `mlm` chooses and their
   replacements are a function of (seed, epoch, sample, position) only: one Philox block per
   position, so that inputs and labels, all ranks and resumed runs agree without shared state. Must
   not: allocate (this runs inside steps). */
#include "data.h"
#include "shuffle.h"

enum { TASK_KEY = 0x6d6c6d }; /* keeps these numbers apart from those of the shuffle */

typedef struct Draw { /* of one position */
  double chosen, fate;
  uint64_t other;
} Draw;

static double unit(uint32_t word) { return word * 0x1p-32; }

static Draw draw(const Window *window, int64_t position) {
  uint32_t counter[4] = {(uint32_t)position, (uint32_t)window->sample,
                         (uint32_t)(window->sample >> 32), (uint32_t)window->epoch},
           out[4];
  rt_philox(window->seed ^ (uint64_t)TASK_KEY << 40, counter, out);
  return (Draw){unit(out[0]), unit(out[1]), (uint64_t)out[2] << 32 | out[3]};
}

static bool is_special(const Task *task, int64_t token) {
  for (int i = 0; i < task->nspecial; i++)
    if (task->special[i] == token) return true;
  return false;
}

static int64_t token_at(const Window *window, int64_t k) {
  return rt_array_int(&window->part->array, window->at + k);
}

/* By the index where there is one, else by the token that ends documents. */
static bool ends_document(const Task *task, const Window *window, int64_t k) {
  const Array *a = &window->part->array;
  return a->documents > 1 ? rt_array_ends(a, window->at + k)
                          : task->eot >= 0 && token_at(window, k) == task->eot;
}

static int32_t masked(const Task *task, const Feed *feed, const Window *window, int64_t k,
                      int32_t token) {
  Draw d = draw(window, k);
  if (d.chosen >= task->rate || is_special(task, token)) return token;
  if (d.fate < task->mask) return (int32_t)task->mask_id;
  bool random = d.fate < task->mask + task->random && feed->input->of_size > 0;
  return random ? (int32_t)(d.other % (uint64_t)feed->input->of_size) : token;
}

static bool fill_tokens(const Task *task, const Feed *feed, const Window *window, int32_t *to,
                        Fault *f) {
  int64_t n = window->count - feed->shift < feed->count ? window->count - feed->shift : feed->count;
  if (!rt_copy_index(feed, window->part, window->at + feed->shift, n, to, f)) return false;
  for (int64_t k = 0; feed->role == ROLE_MASKED && k < n; k++)
    to[k] = masked(task, feed, window, k, to[k]);
  for (int64_t k = n; k < feed->count; k++) to[k] = (int32_t)feed->pad;
  return true;
}

static bool fill_labels(const Task *task, const Feed *feed, const Window *window, int32_t *to,
                        Fault *f) {
  int64_t n = window->count < feed->count ? window->count : feed->count;
  if (!rt_copy_index(feed, window->part, window->at, n, to, f)) return false;
  for (int64_t k = 0; k < feed->count; k++)
    if (k >= n || draw(window, k).chosen >= task->rate || is_special(task, to[k]))
      to[k] = (int32_t)feed->ignore;
  return true;
}

static bool outside(const Feed *feed, const Window *window, int64_t number, Fault *f) {
  rt_fault(f, 204, "%s %lld of a sample is not an index of %s: input %s takes 0 to %lld",
           feed->role == ROLE_DOC ? "document" : "position", (long long)number, feed->input->of,
           feed->input->name, (long long)feed->input->of_size - 1);
  return rt_at(f, window->part->path, "number", window->at);
}

/* Documents and positions within the sample: a document that began before it counts from the
   sample's begin; padding is a document of its own. */
static bool fill_counter(const Task *task, const Feed *feed, const Window *window, void *to,
                         Fault *f) {
  int64_t doc = 0, pos = 0, limit = feed->input->of ? feed->input->of_size : INT64_MAX;
  for (int64_t k = 0; k < feed->count; k++) {
    if (k == window->count && k) doc++, pos = 0;
    int64_t number = feed->role == ROLE_DOC ? doc : pos;
    if (number >= limit) return outside(feed, window, number, f);
    rt_elem_put(feed->input->elem, to, k, (double)number);
    pos++;
    if (k < window->count && ends_document(task, window, k)) doc++, pos = 0;
  }
  return true;
}

bool rt_window_fill(const Task *task, const Feed *feed, const Window *window, void *to, Fault *f) {
  switch (feed->role) {
  case ROLE_NUMBERS:
  case ROLE_MASKED: return fill_tokens(task, feed, window, to, f);
  case ROLE_LABELS: return fill_labels(task, feed, window, to, f);
  case ROLE_DOC:
  case ROLE_POS: return fill_counter(task, feed, window, to, f);
  case ROLE_TYPES:
    for (int64_t k = 0; k < feed->count; k++) rt_elem_put(feed->input->elem, to, k, 0);
    return true;
  case ROLE_VALID:
    for (int64_t k = 0; k < feed->count; k++)
      rt_elem_put(feed->input->elem, to, k, k < window->count);
    return true;
  }
  return true;
}
