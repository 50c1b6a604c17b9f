/* Sampling with caches. Entry `decode` (pass decode) computes one position from its token and from
   caches of the keys and values of those before; what it adds to them are rows, outputs that are
   copied behind the others here. Entry `logits` fills all positions of a window at once. The
   globals belong together by number: decode.of.cache.N, .row.N, .fill.N. Positions that a cache
   does not hold yet are zero: kernels read whole tiles of keys and values, of which a mask admits
   some, and what it does not admit counts nothing only where it is a number. Must not: keep caches
   whose positions have moved. */
#include "kv_cache.h"
#include <stdio.h>
#include <string.h>

static const rt_tensor *numbered(const rt_program *p, const char *what, int number) {
  char name[RT_NAME];
  snprintf(name, sizeof name, "decode.of.%s.%d", what, number);
  return rt_tensor_find(p, name);
}

static const rt_tensor *named(const rt_program *p, const char *name) {
  char full[RT_NAME];
  snprintf(full, sizeof full, "decode.of.%s", name);
  return rt_tensor_find(p, full);
}

static bool open_cache(Decoder *c, int number) {
  const rt_program *p = c->d->program;
  CacheTensor t = {numbered(p, "cache", number), numbered(p, "row", number),
                   numbered(p, "fill", number), -1};
  if (!t.cache || !t.row || !t.fill) return false;
  for (int i = 0; i < t.cache->rank; i++)
    if (t.cache->size[i] != t.row->size[i]) t.axis = i;
  for (int i = 0; i < t.cache->nsplits; i++)
    if (t.cache->split[i].dim == t.axis) return false; /* positions on several ranks */
  c->cache[number] = t;
  return t.axis >= 0;
}

void rt_decoder_open(Decoder *c, Device *d, const rt_tensor *input, const rt_tensor *output) {
  const rt_program *p = d->program;
  static const char prefix[] = "logits.";
  *c = (Decoder){.d = d, .entry = rt_entry_find(p, "decode")};
  if (!c->entry || strncmp(input->name, prefix, sizeof prefix - 1)) return;
  c->token = named(p, input->name + sizeof prefix - 1);
  c->logits = named(p, output->name), c->position = named(p, "position");
  while (c->ncaches < MOST_CACHES && open_cache(c, c->ncaches)) c->ncaches++;
  bool more = numbered(p, "cache", c->ncaches) != NULL;
  if (!c->token || !c->logits || !c->position || more) c->entry = NULL;
  for (int i = 0; i < c->ncaches && c->entry; i++) rt_tensor_zero(d, c->cache[i].cache);
}

static void sizes_around(const CacheTensor *t, int64_t *outer, int64_t *inner) {
  *outer = 1, *inner = rt_elem_bytes(t->cache->elem);
  for (int i = 0; i < t->cache->rank; i++)
    *(i < t->axis ? outer : inner) *= i == t->axis ? 1 : t->cache->size[i];
}

/* n positions from the start of `from`, which holds `have`, behind the `at` positions of the cache.
 */
static void copy_rows(const Decoder *c, const CacheTensor *t, const rt_tensor *from, int64_t have,
                      int64_t at, int64_t n) {
  int64_t outer, inner, all = t->cache->size[t->axis];
  sizes_around(t, &outer, &inner);
  rt_tensor_rows(c->d, &(RowCopy){.to = t->cache,
                                  .from = from,
                                  .to_at = at * inner,
                                  .to_apart = all * inner,
                                  .from_apart = have * inner,
                                  .bytes = n * inner,
                                  .rows = outer});
}

void rt_decoder_fill(Decoder *c, int64_t n) {
  for (int i = 0; i < c->ncaches; i++)
    copy_rows(c, &c->cache[i], c->cache[i].fill, c->cache[i].cache->size[c->cache[i].axis], 0, n);
  c->filled = n;
}

bool rt_decoder_step(Decoder *c, int32_t token, Fault *f) {
  rt_elem_put(c->token->elem, rt_tensor_write(c->d, c->token), 0, token);
  rt_elem_put(c->position->elem, rt_tensor_write(c->d, c->position), 0, (double)c->filled);
  if (!rt_device_run(c->d, c->entry, f)) return false;
  for (int i = 0; i < c->ncaches; i++) copy_rows(c, &c->cache[i], c->cache[i].row, 1, c->filled, 1);
  c->filled++;
  return true;
}
