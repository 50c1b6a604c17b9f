/* Command sample: continues a text one token at a time. Entry logits runs over a whole window
   (Batch 1, Seq positions); the last position's row gives the distribution of the next token. Where
   the program has an entry decode, a token costs one position instead (kv_cache.h); a longer prompt
   goes through logits, which fills the caches. A text longer than Seq moves the window: by one
   token, or, with caches, by a quarter of it, since their positions move as well. The tokenizer
   (run_tokenizer.h) gives the text of tokens; without one they are bytes, or numbers. Random
   numbers depend only on (seed, position). */
#include "kv_cache.h"
#include "ir/support/num.h"
#include "runtime/device/shard_piece.h"
#include "run.h"
#include "runtime/data/shuffle.h"
#include "run_tokenizer.h"
#include "sample_stop.h"
#include <errno.h>
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

/* An output that has the input's last dim (positions) and the dim that its tokens index. */
static bool matches(const rt_tensor *out, const rt_tensor *in) {
  if (out->kind != RT_OUTPUT || !in->of || in->rank < 2 || strncmp(out->name, "out.", 4))
    return false;
  int position = rt_tensor_axis(out, in->dim[in->rank - 1]), vocab = rt_tensor_axis(out, in->of);
  return position >= 0 && vocab >= 0 &&
         rt_tensor_count(out) == out->size[position] * out->size[vocab];
}

/* The only input that the output needs: nothing fills another one. */
static bool is_alone(const Sampler *sampler, Fault *f) {
  const rt_program *program = sampler->r->whole;
  for (int i = 0; i < program->ntensors; i++) {
    const rt_tensor *in = &program->tensors[i];
    if (in->kind != RT_INPUT || !rt_is_logits(in) || in == sampler->input) continue;
    rt_fault(f, 801, "this model cannot be sampled: %s needs input %s as well",
             sampler->output->name + strlen("out."), strrchr(in->name, '.') + 1);
    return rt_help(f, "`sample` fills one input, %s; `eval --dump FILE` has outputs for data",
                   strrchr(sampler->input->name, '.') + 1);
  }
  return true;
}

static bool find_tensors(Sampler *sampler, Fault *f) {
  const rt_program *program = sampler->r->whole;
  for (int i = 0; i < program->ntensors; i++)
    for (int k = 0; k < program->ntensors; k++) {
      const rt_tensor *in = &program->tensors[i], *out = &program->tensors[k];
      if (sampler->output || in->kind != RT_INPUT || !rt_is_logits(in) || !matches(out, in))
        continue;
      sampler->input = in, sampler->output = out;
    }
  if (sampler->output) return is_alone(sampler, f);
  rt_fault(f, 801, "this model cannot be sampled");
  return rt_help(f, "sampling needs an input [Batch, Seq] of V and an output [Batch, Seq, V]");
}

/* The part of a logical tensor on this rank. */
static const rt_tensor *own(const Sampler *sampler, const rt_tensor *t) {
  return &sampler->r->p->tensors[t - sampler->r->whole->tensors];
}

static const rt_tensor *logical(const Sampler *sampler, const rt_tensor *t) {
  return t ? &sampler->r->whole->tensors[t - sampler->r->p->tensors] : NULL;
}

/* Both narrow a draw, and temperature 0 draws nothing. */
static bool draws(const Sampler *sampler, Fault *f) {
  if (sampler->temperature > 0 || (!sampler->top && sampler->share >= 1)) return true;
  rt_fault(f, 104, "--temperature 0 takes the likeliest token, so --%s has no effect",
           sampler->top ? "top-k" : "top-p");
  return rt_help(f, "leave one of the two out");
}

static bool prepare(Sampler *sampler, Fault *f) {
  Run *r = sampler->r;
  sampler->entry = rt_entry_find(r->p, "logits");
  if (!sampler->entry) {
    rt_fault(f, 801, "this executable has no entry `logits`, from which tokens are chosen");
    return rt_help(f, "`output logits` in the model, of the same dims as its input and Vocab");
  }
  if (!find_tensors(sampler, f)) return false;
  int position = rt_tensor_axis(sampler->output, sampler->input->dim[sampler->input->rank - 1]);
  sampler->seq = sampler->input->size[sampler->input->rank - 1],
  sampler->vocab = sampler->input->of_size;
  sampler->position_stride = rt_tensor_stride(sampler->output, position);
  sampler->whole = rt_alloc((size_t)(sampler->input->bytes + sampler->output->bytes));
  sampler->window = rt_alloc(sizeof(int32_t) * (size_t)sampler->seq);
  sampler->weight = rt_alloc(sizeof(double) * (size_t)sampler->vocab);
  sampler->order = rt_alloc(sizeof(int32_t) * (size_t)sampler->vocab);
  sampler->temperature = r->o.at[OPT_temperature].given ? r->o.at[OPT_temperature].real : 0.8;
  sampler->share = r->o.at[OPT_top_p].given ? r->o.at[OPT_top_p].real : 1;
  sampler->top = rt_count_option(r, OPT_top_k, 0);
  return draws(sampler, f);
}

/* The part of the window that is given up when it is full. */
static int64_t step_of(const Sampler *sampler) {
  return sampler->decoder.entry && sampler->seq >= 4 ? sampler->seq / 4 : 1;
}

static void append(Sampler *sampler, int32_t token) {
  if (sampler->length == sampler->seq) {
    int64_t step = step_of(sampler);
    sampler->length -= step, sampler->decoder.filled = 0;
    memmove(sampler->window, sampler->window + step, sizeof(int32_t) * (size_t)sampler->length);
  }
  sampler->window[sampler->length++] = token;
}

static bool run_window(Sampler *sampler, Fault *f) {
  for (int64_t i = 0; i < sampler->seq; i++)
    rt_elem_put(sampler->input->elem, sampler->whole, i,
                i < sampler->length ? sampler->window[i] : 0);
  rt_tensor_keep(&sampler->r->device, own(sampler, sampler->input), (int)sampler->input->elem,
                 sampler->whole);
  sampler->from = sampler->output;
  if (!rt_device_run(&sampler->r->device, sampler->entry, f)) return false;
  if (sampler->caches) rt_decoder_fill(&sampler->decoder, sampler->length);
  return true;
}

/* A fixed rule, so that the same command gives the same text: short ends one by one. */
static bool run_logits(Sampler *sampler, Fault *f) {
  Decoder *c = &sampler->decoder;
  if (!sampler->caches || sampler->length - c->filled > 1 + sampler->seq / 16)
    return run_window(sampler, f);
  sampler->from = logical(sampler, c->logits);
  while (c->filled < sampler->length)
    if (!rt_decoder_step(c, sampler->window[c->filled], f)) return false;
  return true;
}

/* Brings the likeliest of the tokens from place i on to place i. */
static void bring_forward(Sampler *sampler, int64_t i) {
  int64_t best = i;
  for (int64_t k = i + 1; k < sampler->vocab; k++)
    if (sampler->weight[sampler->order[k]] > sampler->weight[sampler->order[best]]) best = k;
  int32_t token = sampler->order[best];
  sampler->order[best] = sampler->order[i], sampler->order[i] = token;
}

static void take_logits(Sampler *sampler, int64_t at, int64_t n, const void *logits,
                        int64_t stride) {
  for (int64_t i = 0; i < n; i++) {
    sampler->order[at + i] = (int32_t)(at + i);
    sampler->weight[at + i] = rt_elem_get(sampler->output->elem, logits, i * stride);
  }
}

/* Gathers logits that are split over ranks; otherwise reads only one row. */
static void read_logits(Sampler *sampler) {
  const Device *d = &sampler->r->device;
  const rt_tensor *part = own(sampler, sampler->from);
  int64_t bytes = rt_elem_bytes(sampler->output->elem), most = rt_span_most(d, part) / bytes - 1;
  bool window = sampler->from == sampler->output;
  int64_t row = window ? (sampler->length - 1) * sampler->position_stride : 0;
  int64_t stride =
      rt_tensor_stride(sampler->from, rt_tensor_axis(sampler->from, sampler->input->of));
  if (rt_is_placed(part)) {
    rt_tensor_gather(d, part, sampler->whole);
    take_logits(sampler, 0, sampler->vocab, sampler->whole + row * bytes, stride);
    return;
  }
  for (int64_t i = 0, n; i < sampler->vocab; i += n) {
    n = min_i64(most / stride + 1, sampler->vocab - i);
    take_logits(sampler, i, n,
                rt_span_read(d, part, (row + i * stride) * bytes, ((n - 1) * stride + 1) * bytes),
                stride);
  }
}

/* How many of the likeliest `n` tokens, already in front if n < vocab, have the share `most`. */
static int64_t cut_share(Sampler *sampler, int64_t n, double sum, double most) {
  double have = 0;
  int64_t i = 0;
  while (i < n && have < most * sum) {
    if (n == sampler->vocab) bring_forward(sampler, i);
    have += sampler->weight[sampler->order[i++]];
  }
  return i ? i : 1;
}

static double sum_of(const Sampler *sampler, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += sampler->weight[sampler->order[i]];
  return sum;
}

static int32_t choose(Sampler *sampler, double u) {
  int64_t n = sampler->top && sampler->top < sampler->vocab ? sampler->top : sampler->vocab;
  read_logits(sampler);
  for (int64_t i = 0; i < (n < sampler->vocab ? n : 1); i++) bring_forward(sampler, i);
  if (sampler->temperature == 0) return sampler->order[0];
  double most = sampler->weight[sampler->order[0]];
  for (int64_t i = 0; i < n; i++)
    sampler->weight[sampler->order[i]] =
        exp((sampler->weight[sampler->order[i]] - most) / sampler->temperature);
  double sum = sum_of(sampler, n);
  if (sampler->share < 1) n = cut_share(sampler, n, sum, sampler->share), sum = sum_of(sampler, n);
  for (int64_t i = 0; i < n; i++)
    if ((u -= sampler->weight[sampler->order[i]] / sum) < 0) return sampler->order[i];
  return sampler->order[0];
}

static bool start_window(Sampler *sampler, Fault *f) {
  const OptionValue *prompt = &sampler->r->o.at[OPT_prompt];
  Ids ids = {0};
  bool given = prompt->given && *prompt->text;
  if (!rt_run_tokenizer_encode(&sampler->tokenizer, given ? prompt->text : NULL, &ids, f))
    return false;
  for (int64_t i = 0; i < ids.n; i++) {
    append(sampler, ids.at[i]);
    if (given) rt_run_tokenizer_put(&sampler->tokenizer, ids.at[i], stdout);
  }
  free(ids.at);
  return true;
}

static bool open_caches(Sampler *sampler, Fault *f) {
  const OptionValue *value = &sampler->r->o.at[OPT_cache];
  if (value->given && strcmp(value->text, "on") && strcmp(value->text, "off"))
    return rt_fault(f, 103, "--cache takes on or off, not `%s`", value->text);
  rt_decoder_open(&sampler->decoder, &sampler->r->device, own(sampler, sampler->input),
                  own(sampler, sampler->output));
  sampler->caches = sampler->decoder.entry && !(value->given && !strcmp(value->text, "off"));
  if (sampler->decoder.entry || !value->given || strcmp(value->text, "on")) return true;
  const char *why = rt_setting_of(sampler->r->p, "sample.cache");
  return rt_fault(f, 801, "this executable samples without caches: %s",
                  why ? why : "several ranks compute all positions");
}

static void say_speed(const Sampler *sampler, int64_t tokens, double seconds) {
  const OptionValue *value = sampler->r->o.at;
  if (!value[OPT_profile].given && (value[OPT_quiet].given || !isatty(2))) return;
  fprintf(stderr, "%lld tokens in %.2f s: %.1f per second%s\n", (long long)tokens, seconds,
          (double)tokens / seconds, sampler->caches ? "" : ", without caches");
}

enum { CLOSED = 256 }; /* no number of a signal */

/* Why to end, asked of all ranks: a signal, or that nobody reads. 0: go on. */
static int ends(Run *r, bool closed) {
  int mine = closed ? CLOSED : atomic_load(&r->watch.caught);
  return (int)rt_comm_max(&r->comm, "whether to stop", mine);
}

int rt_sample(Run *r) {
  Fault f = {0};
  Sampler sampler = {.r = r};
  SampleStop stop = {0};
  if (!prepare(&sampler, &f) || !rt_start_device(r, &f) || !rt_can_finish(r, &f) ||
      !open_caches(&sampler, &f) || !rt_load_weights(r, &f) ||
      !rt_run_tokenizer_open(&sampler.tokenizer, r, sampler.vocab, &f) ||
      !rt_sample_stop_open(&stop, r, &sampler.tokenizer, &f))
    rt_die_on_all(r, &f);
  int64_t tokens = rt_count_option(r, OPT_tokens, 300);
  uint64_t seed = (uint64_t)rt_count_option(r, OPT_seed, 0);
  rt_set_scalar(r, "seed", (int64_t)seed);
  if (!start_window(&sampler, &f)) rt_die(&f);
  double start = rt_now();
  int64_t i = 0;
  bool more = true;
  int caught = 0, lost = 0; /* why the output takes no more; EPIPE: nobody reads it */
  for (; more && i < tokens && !(caught = ends(r, lost)); i++) {
    if (!run_logits(&sampler, &f)) rt_die_on_all(r, &f);
    int32_t token = choose(&sampler, rt_uniform(seed, 1, (uint64_t)i));
    append(&sampler, token);
    more = rt_sample_stop_put(&stop, token);
    lost = fflush(stdout) ? errno : 0;
  }
  rt_sample_stop_close(&stop);
  rt_run_tokenizer_close(&sampler.tokenizer);
  fflush(stdout);
  say_speed(&sampler, i, rt_now() - start);
  if (!rt_finish(r, NULL, &f)) rt_die_on_all(r, &f);
  if (lost && lost != EPIPE) rt_fail(403, "cannot write to the output: %s", strerror(lost));
  free(sampler.window), free(sampler.weight), free(sampler.order), free(sampler.whole);
  return caught && caught != CLOSED ? 128 + caught : 0;
}
