/* Sampling with caches. Entry `decode` (pass decode) computes one position from its token and from
   caches of the keys and values of earlier positions; its new rows of keys and values are outputs,
   which this file appends to the caches. Entry `logits` fills all positions of a window at once.
   The globals belong together by number: decode.of.cache.N, .row.N, .fill.N. Positions that a cache
   does not hold yet are zero: kernels read whole tiles of keys and values, of which a mask admits
   some, and elements that the mask excludes have no effect only if they are finite. Must not: keep
   caches whose positions have moved. */
#include "kv_cache.h"
#include <stdio.h>
#include <string.h>

static const rt_tensor *numbered(const rt_program *program, const char *what, int number) {
  char name[RT_NAME];
  snprintf(name, sizeof name, "decode.of.%s.%d", what, number);
  return rt_tensor_find(program, name);
}

static const rt_tensor *named(const rt_program *program, const char *name) {
  char full[RT_NAME];
  snprintf(full, sizeof full, "decode.of.%s", name);
  return rt_tensor_find(program, full);
}

static bool open_cache(Decoder *decoder, int number) {
  const rt_program *program = decoder->d->program;
  CacheTensor tensor = {numbered(program, "cache", number), numbered(program, "row", number),
                        numbered(program, "fill", number), -1};
  if (!tensor.cache || !tensor.row || !tensor.fill) return false;
  for (int i = 0; i < tensor.cache->rank; i++)
    if (tensor.cache->size[i] != tensor.row->size[i]) tensor.axis = i;
  for (int i = 0; i < tensor.cache->nsplits; i++)
    if (tensor.cache->split[i].dim == tensor.axis) return false; /* positions on several ranks */
  decoder->cache[number] = tensor;
  return tensor.axis >= 0;
}

void rt_decoder_open(Decoder *decoder, Device *d, const rt_tensor *input, const rt_tensor *output) {
  const rt_program *program = d->program;
  static const char prefix[] = "logits.";
  *decoder = (Decoder){.d = d, .entry = rt_entry_find(program, "decode")};
  if (!decoder->entry || strncmp(input->name, prefix, sizeof prefix - 1)) return;
  decoder->token = named(program, input->name + sizeof prefix - 1);
  decoder->logits = named(program, output->name), decoder->position = named(program, "position");
  while (decoder->ncaches < MOST_CACHES && open_cache(decoder, decoder->ncaches))
    decoder->ncaches++;
  bool more = numbered(program, "cache", decoder->ncaches) != NULL;
  if (!decoder->token || !decoder->logits || !decoder->position || more) decoder->entry = NULL;
  for (int i = 0; i < decoder->ncaches && decoder->entry; i++)
    rt_tensor_zero(d, decoder->cache[i].cache);
}

static void sizes_around(const CacheTensor *tensor, int64_t *outer, int64_t *inner) {
  *outer = 1, *inner = rt_elem_bytes(tensor->cache->elem);
  for (int i = 0; i < tensor->cache->rank; i++)
    *(i < tensor->axis ? outer : inner) *= i == tensor->axis ? 1 : tensor->cache->size[i];
}

/* Copies n positions from the start of `from`, which holds `have`, after the first `at` positions
   of the cache.
 */
static void copy_rows(const Decoder *decoder, const CacheTensor *tensor, const rt_tensor *from,
                      int64_t have, int64_t at, int64_t n) {
  int64_t outer, inner, all = tensor->cache->size[tensor->axis];
  sizes_around(tensor, &outer, &inner);
  rt_tensor_rows(decoder->d, &(RowCopy){.to = tensor->cache,
                                        .from = from,
                                        .to_at = at * inner,
                                        .to_apart = all * inner,
                                        .from_apart = have * inner,
                                        .bytes = n * inner,
                                        .rows = outer});
}

void rt_decoder_fill(Decoder *decoder, int64_t n) {
  for (int i = 0; i < decoder->ncaches; i++)
    copy_rows(decoder, &decoder->cache[i], decoder->cache[i].fill,
              decoder->cache[i].cache->size[decoder->cache[i].axis], 0, n);
  decoder->filled = n;
}

bool rt_decoder_step(Decoder *decoder, int32_t token, Fault *f) {
  rt_elem_put(decoder->token->elem, rt_tensor_write(decoder->d, decoder->token), 0, token);
  rt_elem_put(decoder->position->elem, rt_tensor_write(decoder->d, decoder->position), 0,
              (double)decoder->filled);
  if (!rt_device_run(decoder->d, decoder->entry, f)) return false;
  for (int i = 0; i < decoder->ncaches; i++)
    copy_rows(decoder, &decoder->cache[i], decoder->cache[i].row, 1, decoder->filled, 1);
  decoder->filled++;
  return true;
}
