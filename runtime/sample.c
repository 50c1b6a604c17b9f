/* Command sample: a text goes on by one token at a time. Entry logits runs over a whole window
   (Batch 1, Seq positions); the last position's row gives the distribution of the next token. Where
   the program has an entry decode, a token costs one position instead (kv_cache.h); a longer prompt
   goes through logits, which fills the caches. A text longer than Seq moves the window: by one
   token, or, with caches, by a quarter of it, since their positions move as well. What tokens say,
   the tokenizer knows (run_tokenizer.h); without one they are bytes, or numbers. Random numbers
   come from (seed, position) alone. */
#include "kv_cache.h"
#include "ir/support/num.h"
#include "runtime/device/shard_piece.h"
#include "run.h"
#include "runtime/data/shuffle.h"
#include "run_tokenizer.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Sampler {
  Run *r;
  const rt_entry *entry;
  const rt_tensor *input, *output; /* logical: of all ranks together */
  char *whole;                     /* room for an input or output of which ranks hold parts */
  int64_t seq, vocab;
  int64_t position_stride; /* of the output, in elements */
  int32_t *window;
  int64_t length;
  Decoder decoder;
  bool caches;           /* the decoder is used */
  const rt_tensor *from; /* where the newest logits are */
  double *weight;
  int32_t *order;
  double temperature, share;
  int64_t top;
  RunTokenizer tokenizer;
} Sampler;

static int axis_of(const rt_tensor *t, const char *dim) {
  for (int i = 0; i < t->rank; i++)
    if (!strcmp(t->dim[i], dim)) return i;
  return -1;
}

static int64_t stride_of(const rt_tensor *t, int axis) {
  int64_t s = 1;
  for (int i = t->rank - 1; i > axis; i--) s *= t->size[i];
  return s;
}

/* An output that has the input's last dim (positions) and the dim that its tokens index. */
static bool matches(const rt_tensor *out, const rt_tensor *in) {
  if (out->kind != RT_OUTPUT || !in->of || in->rank < 2 || strncmp(out->name, "out.", 4))
    return false;
  int position = axis_of(out, in->dim[in->rank - 1]), vocab = axis_of(out, in->of);
  return position >= 0 && vocab >= 0 &&
         rt_tensor_count(out) == out->size[position] * out->size[vocab];
}

static bool find_tensors(Sampler *s, Fault *f) {
  const rt_program *p = s->r->whole;
  for (int i = 0; i < p->ntensors; i++)
    for (int k = 0; k < p->ntensors; k++) {
      const rt_tensor *in = &p->tensors[i], *out = &p->tensors[k];
      if (s->output || in->kind != RT_INPUT || !rt_is_logits(in) || !matches(out, in)) continue;
      s->input = in, s->output = out;
    }
  if (s->output) return true;
  rt_fault(f, 801, "this model cannot be sampled");
  return rt_help(f, "sampling needs an input [Batch, Seq] of V and an output [Batch, Seq, V]");
}

/* What this rank holds of a logical tensor. */
static const rt_tensor *own(const Sampler *s, const rt_tensor *t) {
  return &s->r->p->tensors[t - s->r->whole->tensors];
}

static const rt_tensor *logical(const Sampler *s, const rt_tensor *t) {
  return t ? &s->r->whole->tensors[t - s->r->p->tensors] : NULL;
}

static bool prepare(Sampler *s, Fault *f) {
  Run *r = s->r;
  s->entry = rt_entry_find(r->p, "logits");
  if (!s->entry) return rt_fault(f, 801, "this executable has no entry `logits`");
  if (!find_tensors(s, f)) return false;
  int position = axis_of(s->output, s->input->dim[s->input->rank - 1]);
  s->seq = s->input->size[s->input->rank - 1], s->vocab = s->input->of_size;
  s->position_stride = stride_of(s->output, position);
  s->whole = rt_alloc((size_t)(s->input->bytes + s->output->bytes));
  s->window = rt_alloc(sizeof(int32_t) * (size_t)s->seq);
  s->weight = rt_alloc(sizeof(double) * (size_t)s->vocab);
  s->order = rt_alloc(sizeof(int32_t) * (size_t)s->vocab);
  s->temperature = r->o.at[OPT_temperature].given ? r->o.at[OPT_temperature].real : 0.8;
  s->share = r->o.at[OPT_top_p].given ? r->o.at[OPT_top_p].real : 1;
  s->top = rt_count_option(r, OPT_top_k, 0);
  return true;
}

/* The part of the window that is given up when it is full. */
static int64_t step_of(const Sampler *s) {
  return s->decoder.entry && s->seq >= 4 ? s->seq / 4 : 1;
}

static void append(Sampler *s, int32_t token) {
  if (s->length == s->seq) {
    int64_t step = step_of(s);
    s->length -= step, s->decoder.filled = 0;
    memmove(s->window, s->window + step, sizeof(int32_t) * (size_t)s->length);
  }
  s->window[s->length++] = token;
}

static bool run_window(Sampler *s, Fault *f) {
  for (int64_t i = 0; i < s->seq; i++)
    rt_elem_put(s->input->elem, s->whole, i, i < s->length ? s->window[i] : 0);
  rt_tensor_keep(&s->r->device, own(s, s->input), (int)s->input->elem, s->whole);
  s->from = s->output;
  if (!rt_device_run(&s->r->device, s->entry, f)) return false;
  if (s->caches) rt_decoder_fill(&s->decoder, s->length);
  return true;
}

/* A fixed rule, so that the same command gives the same text: short ends one by one. */
static bool run_logits(Sampler *s, Fault *f) {
  Decoder *c = &s->decoder;
  if (!s->caches || s->length - c->filled > 1 + s->seq / 16) return run_window(s, f);
  s->from = logical(s, c->logits);
  while (c->filled < s->length)
    if (!rt_decoder_step(c, s->window[c->filled], f)) return false;
  return true;
}

/* Brings the likeliest of the tokens from place i on to place i. */
static void bring_forward(Sampler *s, int64_t i) {
  int64_t best = i;
  for (int64_t k = i + 1; k < s->vocab; k++)
    if (s->weight[s->order[k]] > s->weight[s->order[best]]) best = k;
  int32_t token = s->order[best];
  s->order[best] = s->order[i], s->order[i] = token;
}

static void take_logits(Sampler *s, int64_t at, int64_t n, const void *logits, int64_t stride) {
  for (int64_t i = 0; i < n; i++) {
    s->order[at + i] = (int32_t)(at + i);
    s->weight[at + i] = rt_elem_get(s->output->elem, logits, i * stride);
  }
}

/* What ranks hold parts of is gathered; else no more is read than one row. */
static void read_logits(Sampler *s) {
  const Device *d = &s->r->device;
  const rt_tensor *part = own(s, s->from);
  int64_t bytes = rt_elem_bytes(s->output->elem), most = rt_span_most(d, part) / bytes - 1;
  bool window = s->from == s->output;
  int64_t row = window ? (s->length - 1) * s->position_stride : 0;
  int64_t stride = stride_of(s->from, axis_of(s->from, s->input->of));
  if (rt_is_placed(part)) {
    rt_tensor_gather(d, part, s->whole);
    take_logits(s, 0, s->vocab, s->whole + row * bytes, stride);
    return;
  }
  for (int64_t i = 0, n; i < s->vocab; i += n) {
    n = min_i64(most / stride + 1, s->vocab - i);
    take_logits(s, i, n,
                rt_span_read(d, part, (row + i * stride) * bytes, ((n - 1) * stride + 1) * bytes),
                stride);
  }
}

/* How many of the likeliest `n` tokens, already in front if n < vocab, have the share `most`. */
static int64_t cut_share(Sampler *s, int64_t n, double sum, double most) {
  double have = 0;
  int64_t i = 0;
  while (i < n && have < most * sum) {
    if (n == s->vocab) bring_forward(s, i);
    have += s->weight[s->order[i++]];
  }
  return i ? i : 1;
}

static double sum_of(const Sampler *s, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += s->weight[s->order[i]];
  return sum;
}

static int32_t choose(Sampler *s, double u) {
  int64_t n = s->top && s->top < s->vocab ? s->top : s->vocab;
  read_logits(s);
  for (int64_t i = 0; i < (n < s->vocab ? n : 1); i++) bring_forward(s, i);
  if (s->temperature == 0) return s->order[0];
  double most = s->weight[s->order[0]];
  for (int64_t i = 0; i < n; i++)
    s->weight[s->order[i]] = exp((s->weight[s->order[i]] - most) / s->temperature);
  double sum = sum_of(s, n);
  if (s->share < 1) n = cut_share(s, n, sum, s->share), sum = sum_of(s, n);
  for (int64_t i = 0; i < n; i++)
    if ((u -= s->weight[s->order[i]] / sum) < 0) return s->order[i];
  return s->order[0];
}

static bool start_window(Sampler *s, Fault *f) {
  const OptionValue *prompt = &s->r->o.at[OPT_prompt];
  Ids ids = {0};
  bool given = prompt->given && *prompt->text;
  if (!rt_run_tokenizer_encode(&s->tokenizer, given ? prompt->text : "\n", &ids, f)) return false;
  if (ids.n == 0) rt_ids_add(&ids, 0); /* a text without tokens: something must be first */
  for (int64_t i = 0; i < ids.n; i++) {
    append(s, ids.at[i]);
    if (given) rt_run_tokenizer_put(&s->tokenizer, ids.at[i]);
  }
  free(ids.at);
  return true;
}

static bool open_caches(Sampler *s, Fault *f) {
  const OptionValue *o = &s->r->o.at[OPT_cache];
  if (o->given && strcmp(o->text, "on") && strcmp(o->text, "off"))
    return rt_fault(f, 103, "--cache takes on or off, not `%s`", o->text);
  rt_decoder_open(&s->decoder, &s->r->device, own(s, s->input), own(s, s->output));
  s->caches = s->decoder.entry && !(o->given && !strcmp(o->text, "off"));
  if (s->decoder.entry || !o->given || strcmp(o->text, "on")) return true;
  const char *why = rt_setting_of(s->r->p, "sample.cache");
  return rt_fault(f, 801, "this executable samples without caches: %s", why ? why : "no entry");
}

static void say_speed(const Sampler *s, int64_t tokens, double seconds) {
  const OptionValue *o = s->r->o.at;
  if (!o[OPT_profile].given && (o[OPT_quiet].given || !isatty(2))) return;
  fprintf(stderr, "%lld tokens in %.2f s: %.1f per second%s\n", (long long)tokens, seconds,
          (double)tokens / seconds, s->caches ? "" : ", without caches");
}

enum { CLOSED = 256 }; /* no number of a signal */

/* Why to end, asked of all ranks: a signal, or that nobody reads. 0: go on. */
static int ends(Run *r, bool closed) {
  int mine = closed ? CLOSED : atomic_load(&r->watch.caught);
  return (int)rt_comm_max(&r->comm, "whether to stop", mine);
}

int rt_sample(Run *r) {
  Fault f = {0};
  Sampler s = {.r = r};
  if (!prepare(&s, &f) || !rt_start_device(r, &f) || !open_caches(&s, &f) ||
      !rt_load_weights(r, &f) || !rt_run_tokenizer_open(&s.tokenizer, r, s.vocab, &f))
    rt_die_on_all(r, &f);
  int64_t tokens = rt_count_option(r, OPT_tokens, 300);
  uint64_t seed = (uint64_t)rt_count_option(r, OPT_seed, 0);
  rt_set_scalar(r, "seed", (int64_t)seed);
  if (!start_window(&s, &f)) rt_die(&f);
  double start = rt_now();
  int64_t i = 0;
  bool closed = false; /* nobody reads any more */
  int caught = 0;
  for (; i < tokens && !(caught = ends(r, closed)); i++) {
    if (!run_logits(&s, &f)) rt_die_on_all(r, &f);
    int32_t token = choose(&s, rt_uniform(seed, 1, (uint64_t)i));
    append(&s, token);
    rt_run_tokenizer_put(&s.tokenizer, token);
    closed = fflush(stdout) != 0;
  }
  rt_run_tokenizer_close(&s.tokenizer);
  fflush(stdout);
  say_speed(&s, i, rt_now() - start);
  if (!rt_finish(r, NULL, &f)) rt_die_on_all(r, &f);
  free(s.window), free(s.weight), free(s.order), free(s.whole);
  return caught && caught != CLOSED ? 128 + caught : 0;
}
