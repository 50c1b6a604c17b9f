/* `shardc data blend A=0.7 B=0.3`: documents of several sources in one file of tokens, which any
   run then reads under any plan as it reads others. The order is a formula:

     the next document is of the source i with the largest  w_i (n + 1) - t_i

   where n tokens are written, t_i of them of source i, and w_i are the weights, of sum 1; of equal
   ones the first. A source gives its documents in the order of its files. The blend ends with the
   first source that has none left; with `--tokens N`, after N tokens, and sources begin again. Must
   not: cut a document. */
#include "data_tokenize.h"
#include "driver/sheet/sheet.h"
#include "runtime/data/data_file.h"
#include <stdlib.h>
#include <string.h>

typedef struct BlendSource {
  const char *files;
  double weight;
  DataFile *parts;
  int n, part;      /* files; the one that is read */
  int64_t document; /* of this file, by its index */
  int64_t at;       /* tokens of this file that are read */
  int64_t size, taken;
} BlendSource;

typedef struct Blend {
  Cli *o;
  VEC(BlendSource) sources;
  Shards shards;
  int64_t eot;  /* -1: documents are those of an index */
  int64_t most; /* tokens to write; 0: until a source ends */
} Blend;

/* ---- the sources ---- */

static Exit read_operand(Blend *blend, const char *text) {
  const char *equals = strrchr(text, '=');
  char *end = NULL;
  double weight = equals ? strtod(equals + 1, &end) : 0;
  if (!equals || *end || !(weight > 0) || weight > 1e9)
    return cli_usage("`shardc data blend` needs FILES=WEIGHT, a number above 0, not `%s`", text);
  BlendSource source = {.weight = weight};
  source.files = arena_printf(blend->o->c->arena, "%.*s", (int)(equals - text), text);
  vec_push(blend->o->c->arena, blend->sources, source);
  return EXIT_FINE;
}

static bool has_end(const Blend *blend, const BlendSource *source) {
  for (int i = 0; i < source->n; i++)
    for (int64_t k = 0; k < source->parts[i].array.count; k++)
      if (rt_array_int(&source->parts[i].array, k) == blend->eot) return true;
  return false;
}

static Exit open_source(Blend *blend, BlendSource *source, int64_t *largest) {
  Fault f = {0};
  Exit e = EXIT_FINE;
  if (!rt_parts_open(source->files, blend->o->value[OPT_FROM], &source->parts, &source->n, &f))
    return data_fault(blend->o, &f);
  for (int i = 0; i < source->n && e == EXIT_FINE; i++) {
    const DataFile *part = &source->parts[i];
    source->size += part->array.count;
    e = data_keeps(blend->o, part->path);
    if (e == EXIT_FINE) e = data_tokens_of(blend->o, part, largest);
    if (e == EXIT_FINE && blend->eot < 0 && part->array.documents <= 1)
      e = cli_usage("`%s` says nowhere where documents end: `--eot ID` names the token that ends "
                    "one",
                    part->path);
  }
  if (e == EXIT_FINE && !source->size) e = cli_usage("`%s` has no tokens", source->files);
  if (e == EXIT_FINE && blend->eot >= 0 && !has_end(blend, source))
    e = cli_usage("`%s` has no token %lld, which `--eot` names: no document ends", source->files,
                  (long long)blend->eot);
  return e;
}

/* ---- documents ---- */

/* Where the document that begins at source->at ends. */
static int64_t end_of_document(const Blend *blend, BlendSource *source, const Array *array) {
  int64_t end = source->at;
  if (blend->eot < 0) {
    while (end <= source->at && ++source->document < array->documents)
      end = rt_array_document(array, source->document);
    return end > source->at ? end : array->count;
  }
  while (end < array->count && rt_array_int(array, end) != blend->eot) end++;
  return end < array->count ? end + 1 : end;
}

/* Goes to the next file with tokens. False: there is none left. */
static bool has_document(BlendSource *source) {
  while (source->part < source->n && source->at >= source->parts[source->part].array.count)
    source->part++, source->at = source->document = 0;
  return source->part < source->n;
}

static bool write_document(Blend *blend, BlendSource *source) {
  enum { BLOCK = 4096 };
  int32_t ids[BLOCK];
  const Array *array = &source->parts[source->part].array;
  int64_t end = end_of_document(blend, source, array);
  source->taken += end - source->at;
  for (int64_t n; source->at < end; source->at += n) {
    n = end - source->at < BLOCK ? end - source->at : BLOCK;
    for (int64_t k = 0; k < n; k++) ids[k] = (int32_t)rt_array_int(array, source->at + k);
    if (!shards_add(&blend->shards, ids, n)) return false;
  }
  shards_end_document(&blend->shards);
  return true;
}

static BlendSource *next_source(Blend *blend) {
  BlendSource *best = NULL;
  double most = 0;
  for (uint32_t i = 0; i < blend->sources.n; i++) {
    BlendSource *source = &blend->sources.at[i];
    double lag = source->weight * (double)(blend->shards.total + 1) - (double)source->taken;
    if (!best || lag > most) best = source, most = lag;
  }
  return best;
}

static bool write_blend(Blend *blend) {
  while (!blend->most || blend->shards.total < blend->most) {
    BlendSource *source = next_source(blend);
    if (!has_document(source)) {
      if (!blend->most) return true;
      source->part = 0, source->at = source->document = 0;
      has_document(source);
    }
    if (!write_document(blend, source)) return false;
  }
  return true;
}

static void say_sources(const Blend *blend) {
  if (blend->o->value[OPT_QUIET]) return;
  for (uint32_t i = 0; i < blend->sources.n; i++) {
    const BlendSource *source = &blend->sources.at[i];
    output_say(stdout, "%s: %lld tokens, %.1f%%, %.2f of its %lld\n", source->files,
               (long long)source->taken, 100 * (double)source->taken / (double)blend->shards.total,
               (double)source->taken / (double)source->size, (long long)source->size);
  }
}

/* ---- the command ---- */

static Exit open_blend(Blend *blend) {
  Exit e = cli_whole(blend->o, OPT_EOT, 0, INT32_MAX, &blend->eot);
  int64_t largest = 0;
  double sum = 0;
  if (e == EXIT_FINE) e = cli_whole(blend->o, OPT_TOKENS, 1, MOST_TOKENS, &blend->most);
  for (uint32_t i = 1; i < blend->o->operands.n && e == EXIT_FINE; i++)
    e = read_operand(blend, blend->o->operands.at[i]);
  for (uint32_t i = 0; i < blend->sources.n; i++) sum += blend->sources.at[i].weight;
  for (uint32_t i = 0; i < blend->sources.n && e == EXIT_FINE; i++) {
    blend->sources.at[i].weight /= sum;
    e = open_source(blend, &blend->sources.at[i], &largest);
  }
  return e == EXIT_FINE ? shards_open(&blend->shards, blend->o, largest) : e;
}

Exit data_blend(Cli *o) {
  Blend blend = {.o = o, .eot = -1};
  Exit e = open_blend(&blend);
  if (e == EXIT_FINE) {
    e = data_finish(o, &blend.shards, write_blend(&blend));
    if (e == EXIT_FINE) say_sources(&blend);
  }
  for (uint32_t i = 0; i < blend.sources.n; i++) {
    for (int k = 0; k < blend.sources.at[i].n; k++) rt_part_close(&blend.sources.at[i].parts[k]);
    free(blend.sources.at[i].parts);
  }
  return e;
}
