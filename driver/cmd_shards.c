/* Token files in the formats that executables read: heads, tokens, Megatron's index. A file has its
   name only when it is complete. A name under which it would be read as something else is refused.
   Must not: know where tokens come from. */
#include "cmd_shards.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static const struct {
  const char *name;
  int narrow, wide; /* bytes of a token: the least that holds all; equal: no choice */
  int head;
  const char *ends; /* of file names, as this format; a blank between */
} formats[] = {[TO_BYTES] = {"bytes", 1, 1, 0, ".txt .bytes"},
               [TO_U16] = {"u16", 2, 2, 0, ".bin .u16"},
               [TO_U32] = {"u32", 4, 4, 0, ".u32"},
               [TO_LLMC] = {"llmc", 2, 4, 1024, ".bin"},
               [TO_NPY] = {"npy", 2, 4, 128, ".npy"},
               [TO_MEGATRON] = {"megatron", 2, 4, 0, ".bin"}};
enum { FORMATS = sizeof formats / sizeof *formats };

static bool failed(Shards *s) {
  diag_at(s->o->c->diag, "E0002", (Span){0}, "cannot write `%s`: %s", s->name, strerror(errno));
  return false;
}

/* ---- which format ---- */

static int find_format(const char *name) {
  for (int i = 0; i < FORMATS; i++)
    if (!strcmp(formats[i].name, name)) return i;
  return -1;
}

static const char *end_of(const char *path) {
  const char *dot = strrchr(path, '.'), *slash = strrchr(path, '/');
  return dot && (!slash || dot > slash) ? dot : "";
}

static bool end_fits(int format, const char *end) {
  size_t n = strlen(end);
  for (const char *p = formats[format].ends; n && *p; p += strcspn(p, " "), p += *p == ' ')
    if (strcspn(p, " ") == n && !strncmp(p, end, n)) return true;
  return false;
}

/* By --to; without it by the name: .npy, .u16, .u32; llm.c's format otherwise. */
static int choose_format(const Cli *o, const char *output) {
  const char *to = o->value[OPT_TO], *end = end_of(output);
  if (to) return find_format(to);
  return !strcmp(end, ".npy")   ? TO_NPY
         : !strcmp(end, ".u16") ? TO_U16
         : !strcmp(end, ".u32") ? TO_U32
                                : TO_LLMC;
}

static Exit misnamed(int format, const char *output) {
  return cli_usage("`%s` would not be read as %s again: its name should end in one of %s", output,
                   formats[format].name, formats[format].ends);
}

static Exit too_large(Cli *o, int format, int64_t largest) {
  Report *r = diag_at(o->c->diag, "E1402", (Span){0}, "token %lld does not fit the format `%s`",
                      (long long)largest, formats[format].name);
  diag_help(r, "`--to llmc` takes 16 or 32 bits, as needed");
  return EXIT_INPUT;
}

Exit shards_open(Shards *s, Cli *o, int64_t largest) {
  const char *output = o->value[OPT_OUTPUT], *most = o->value[OPT_SHARD];
  char *end = NULL;
  if (!output) return cli_usage("where to? --output FILE");
  int format = choose_format(o, output);
  if (format < 0)
    return cli_usage("`--to` is one of bytes, u16, u32, llmc, npy, megatron, not `%s`",
                     o->value[OPT_TO]);
  if (!end_fits(format, end_of(output))) return misnamed(format, output);
  *s = (Shards){.o = o, .output = output, .format = (TokenFormat)format, .out.fd = -1};
  s->most = most ? strtoll(most, &end, 10) : 0;
  if (most && (*end || s->most < 1))
    return cli_usage("`--shard` takes a number of tokens, not `%s`", most);
  s->width = largest >> 8 * formats[format].narrow ? formats[format].wide : formats[format].narrow;
  if (largest >> 8 * s->width) return too_large(o, format, largest);
  return can_write(o->c, output) ? EXIT_FINE : EXIT_ENVIRONMENT;
}

/* ---- files ---- */

static void put_le(uint8_t *at, uint64_t v, int bytes) {
  for (int i = 0; i < bytes; i++) at[i] = (uint8_t)(v >> 8 * i);
}

static bool write_bytes(Shards *s, FILE *f, const void *data, size_t n) {
  return fwrite(data, 1, n, f) == n || failed(s);
}

static bool write_head(Shards *s) {
  uint8_t head[1024] = {0};
  int n = formats[s->format].head;
  if (s->format == TO_LLMC) {
    put_le(head, s->width == 2 ? 20240520 : 20240801, 4),
        put_le(head + 4, s->width == 2 ? 1 : 7, 4);
    put_le(head + 8, (uint64_t)s->n, 4);
  } else if (s->format == TO_NPY) {
    memcpy(head, "\x93NUMPY\1\0\x76\0", 10);
    memset(head + 10, ' ', 117), head[127] = '\n';
    char text[100];
    int k =
        snprintf(text, sizeof text, "{'descr': '<u%d', 'fortran_order': False, 'shape': (%lld,), }",
                 s->width, (long long)s->n);
    memcpy(head + 10, text, (size_t)k);
  }
  return n == 0 || write_bytes(s, s->f, head, (size_t)n);
}

static FILE *open_stream(const Shards *s, Output *o, const char *name) {
  FILE *f = output_open(o, s->o->c->arena, name, 0666) ? fdopen(dup(o->fd), "wb") : NULL;
  if (!f) output_close(o, false);
  return f;
}

static bool start_file(Shards *s) {
  const char *end = end_of(s->output);
  Arena *a = s->o->c->arena;
  s->name = s->output, s->n = 0, s->ends.n = 0;
  if (s->most)
    s->name = arena_printf(a, "%.*s_%06d%s", (int)(end - s->output), s->output, s->files, end);
  s->f = open_stream(s, &s->out, s->name);
  s->files++;
  return s->f ? write_head(s) : failed(s);
}

/* Lengths and places of documents as sequences, each a document of its own. */
static bool write_tables(Shards *s, FILE *f) {
  uint8_t v[8];
  uint32_t n = s->ends.n;
  bool ok = true;
  for (uint32_t i = 0; ok && i < n; i++) {
    put_le(v, (uint64_t)(s->ends.at[i] - (i ? s->ends.at[i - 1] : 0)), 4);
    ok = write_bytes(s, f, v, 4);
  }
  for (uint32_t i = 0; ok && i < n; i++) {
    put_le(v, (uint64_t)((i ? s->ends.at[i - 1] : 0) * s->width), 8);
    ok = write_bytes(s, f, v, 8);
  }
  for (uint32_t i = 0; ok && i <= n; i++) put_le(v, i, 8), ok = write_bytes(s, f, v, 8);
  return ok;
}

static bool write_index(Shards *s) {
  size_t n = strlen(s->name) - strlen(end_of(s->name));
  const char *name = arena_printf(s->o->c->arena, "%.*s.idx", (int)n, s->name);
  uint8_t head[34] = "MMIDIDX\0\0";
  Output out;
  FILE *f = open_stream(s, &out, name);
  if (!f) return failed(s);
  put_le(head + 9, 1, 8), head[17] = s->width == 2 ? 8 : 4;
  put_le(head + 18, s->ends.n, 8), put_le(head + 26, s->ends.n + 1, 8);
  bool ok = write_bytes(s, f, head, sizeof head) && write_tables(s, f);
  if (fclose(f) && ok) ok = failed(s);
  return output_close(&out, ok) || (ok && failed(s));
}

static bool end_file(Shards *s) {
  bool megatron = s->format == TO_MEGATRON;
  int64_t last = s->ends.n ? s->ends.at[s->ends.n - 1] : 0;
  if (megatron && last < s->n) vec_push(s->o->c->arena, s->ends, s->n);
  bool ok = !formats[s->format].head || !fseek(s->f, 0, SEEK_SET) ? write_head(s) : failed(s);
  if (fclose(s->f) && ok) ok = failed(s);
  s->f = NULL;
  ok = ok && (!megatron || write_index(s));
  return output_close(&s->out, ok) || (ok && failed(s));
}

/* What this file still takes. */
static int64_t room(const Shards *s) {
  int64_t most = s->most ? s->most : INT64_MAX;
  bool counted = s->format == TO_LLMC;
  if (counted && most > INT32_MAX) most = INT32_MAX;
  return most - s->n;
}

static bool write_tokens(Shards *s, const int32_t *ids, int64_t n) {
  uint8_t block[1 << 14];
  int64_t most = (int64_t)sizeof block / s->width;
  for (int64_t k; n > 0; ids += k, n -= k) {
    k = n < most ? n : most;
    for (int64_t i = 0; i < k; i++) put_le(block + i * s->width, (uint32_t)ids[i], s->width);
    if (!write_bytes(s, s->f, block, (size_t)(k * s->width))) return false;
  }
  return true;
}

static bool over_full(Shards *s) {
  Report *r = diag_at(s->o->c->diag, "E1402", (Span){0},
                      "`%s` holds no more than 2147483647 tokens as llm.c's format", s->name);
  diag_help(r, "`--shard 1000000000` writes several files");
  return false;
}

bool shards_add(Shards *s, const int32_t *ids, int64_t n) {
  for (int64_t k; n > 0; ids += k, n -= k) {
    if (s->f && s->most && room(s) == 0 && !end_file(s)) return false;
    if (!s->f && !start_file(s)) return false;
    k = n < room(s) ? n : room(s);
    if (k == 0) return over_full(s);
    if (!write_tokens(s, ids, k)) return false;
    s->n += k, s->total += k;
  }
  return true;
}

void shards_end_document(Shards *s) {
  int64_t last = s->ends.n ? s->ends.at[s->ends.n - 1] : 0;
  if (s->f && s->n > last) vec_push(s->o->c->arena, s->ends, s->n);
}

bool shards_close(Shards *s) { return (s->f || start_file(s)) && end_file(s); }

void shards_remove(Shards *s) {
  if (s->f) fclose(s->f);
  output_close(&s->out, false);
}
