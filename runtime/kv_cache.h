/* Sampling with caches: one more position at a time (kv_cache.c). */
#ifndef SHARDC_RT_KV_CACHE_H
#define SHARDC_RT_KV_CACHE_H
#include "runtime/device/device.h"

enum { MOST_CACHES = 1024 };

typedef struct CacheTensor {
  const rt_tensor *cache, *row, *fill; /* all positions; the newest; all, as `logits` leaves them */
  int axis;                            /* of positions */
} CacheTensor;

typedef struct Decoder {
  Device *d;
  const rt_entry *entry; /* NULL: this program has none */
  const rt_tensor *token, *logits, *position;
  CacheTensor cache[MOST_CACHES];
  int ncaches;
  int64_t filled; /* positions in the caches */
} Decoder;

/* For this output of entry `logits`; leaves entry NULL where the program cannot. */
void rt_decoder_open(Decoder *decoder, Device *d, const rt_tensor *input, const rt_tensor *output);
/* Entry `logits` has run over a window of n tokens: takes their keys and values. */
void rt_decoder_fill(Decoder *decoder, int64_t n);
/* Runs entry `decode` for the token at the next position. */
bool rt_decoder_step(Decoder *decoder, int32_t token, Fault *f);
#endif
