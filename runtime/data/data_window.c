/* What the inputs of a task get of one sample. Which positions of `mlm` are chosen, and what
   becomes of them, is a function of (seed, epoch, sample, position) alone: one Philox block per
   position, so that inputs and labels agree without a common memory, and so do all ranks and
   resumed runs. Must not: allocate (this runs inside steps). */
#include "data.h"
#include "shuffle.h"

enum { TASK_KEY = 0x6d6c6d }; /* keeps these numbers apart from those of the shuffle */

typedef struct Draw { /* of one position */
  double chosen, fate;
  uint64_t other;
} Draw;

static double unit(uint32_t word) { return word * 0x1p-32; }

static Draw draw(const Window *w, int64_t position) {
  uint32_t counter[4] = {(uint32_t)position, (uint32_t)w->sample, (uint32_t)(w->sample >> 32),
                         (uint32_t)w->epoch},
           out[4];
  rt_philox(w->seed ^ (uint64_t)TASK_KEY << 40, counter, out);
  return (Draw){unit(out[0]), unit(out[1]), (uint64_t)out[2] << 32 | out[3]};
}

static bool is_special(const Task *t, int64_t token) {
  for (int i = 0; i < t->nspecial; i++)
    if (t->special[i] == token) return true;
  return false;
}

static int64_t token_at(const Window *w, int64_t k) {
  return rt_array_int(&w->part->array, w->at + k);
}

/* By the index where there is one, else by the token that ends documents. */
static bool ends_document(const Task *t, const Window *w, int64_t k) {
  const Array *a = &w->part->array;
  return a->documents > 1 ? rt_array_ends(a, w->at + k) : t->eot >= 0 && token_at(w, k) == t->eot;
}

static int32_t masked(const Task *t, const Feed *e, const Window *w, int64_t k, int32_t token) {
  Draw d = draw(w, k);
  if (d.chosen >= t->rate || is_special(t, token)) return token;
  if (d.fate < t->mask) return (int32_t)t->mask_id;
  bool random = d.fate < t->mask + t->random && e->input->of_size > 0;
  return random ? (int32_t)(d.other % (uint64_t)e->input->of_size) : token;
}

static bool fill_tokens(const Task *t, const Feed *e, const Window *w, int32_t *to, Fault *f) {
  int64_t n = w->count - e->shift < e->count ? w->count - e->shift : e->count;
  if (!rt_copy_index(e, w->part, w->at + e->shift, n, to, f)) return false;
  for (int64_t k = 0; e->role == ROLE_MASKED && k < n; k++) to[k] = masked(t, e, w, k, to[k]);
  for (int64_t k = n; k < e->count; k++) to[k] = (int32_t)e->pad;
  return true;
}

static bool fill_labels(const Task *t, const Feed *e, const Window *w, int32_t *to, Fault *f) {
  int64_t n = w->count < e->count ? w->count : e->count;
  if (!rt_copy_index(e, w->part, w->at, n, to, f)) return false;
  for (int64_t k = 0; k < e->count; k++)
    if (k >= n || draw(w, k).chosen >= t->rate || is_special(t, to[k])) to[k] = (int32_t)e->ignore;
  return true;
}

/* Documents and positions within the sample: a document that began before it counts from the
   sample's begin; padding is a document of its own. */
static void fill_counter(const Task *t, const Feed *e, const Window *w, void *to) {
  int64_t doc = 0, pos = 0;
  for (int64_t k = 0; k < e->count; k++) {
    if (k == w->count && k) doc++, pos = 0;
    rt_elem_put(e->input->elem, to, k, (double)(e->role == ROLE_DOC ? doc : pos));
    pos++;
    if (k < w->count && ends_document(t, w, k)) doc++, pos = 0;
  }
}

bool rt_window_fill(const Task *t, const Feed *e, const Window *w, void *to, Fault *f) {
  switch (e->role) {
  case ROLE_NUMBERS:
  case ROLE_MASKED: return fill_tokens(t, e, w, to, f);
  case ROLE_LABELS: return fill_labels(t, e, w, to, f);
  case ROLE_DOC:
  case ROLE_POS: return fill_counter(t, e, w, to), true;
  case ROLE_TYPES:
    for (int64_t k = 0; k < e->count; k++) rt_elem_put(e->input->elem, to, k, 0);
    return true;
  case ROLE_VALID:
    for (int64_t k = 0; k < e->count; k++) rt_elem_put(e->input->elem, to, k, k < w->count);
    return true;
  }
  return true;
}
