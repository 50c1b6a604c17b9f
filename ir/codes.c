/* Attribute `codes` of kernel functions: see codes.h. For each buffer that holds codes its number,
   that of the format and the elements of a run. Must not: decide which do. */
#include "codes.h"
#include <math.h>

enum { BUFFER, FORMAT, RUN, EACH };

bool kernel_codes(const Fn *k, uint32_t i, Codes *out) {
  const Attr *said = attr_get(&k->attrs, ATTR_codes);
  for (int64_t at = 0; said && at + EACH <= said->i; at += EACH) {
    const int64_t *entry = &said->list[at];
    if (entry[BUFFER] != i) continue;
    ValueId v = i < k->args.n ? k->args.at[i] : k->results.at[i - k->args.n];
    *out = (Codes){eights_format_at(entry[FORMAT]), type_count(value_type(k, v)), entry[RUN]};
    return true;
  }
  return false;
}

void kernel_add_codes(Module *m, Fn *k, uint32_t i, const Codes *codes) {
  const Attr *said = attr_get(&k->attrs, ATTR_codes);
  int64_t n = said ? said->i : 0, *list = ARENA_ARRAY(m->arena, int64_t, n + EACH);
  if (n) memcpy(list, said->list, sizeof *list * (size_t)n);
  list[n + BUFFER] = i, list[n + FORMAT] = eights_format_number(codes->format);
  list[n + RUN] = codes->run;
  attr_set_ints(m, &k->attrs, ATTR_codes, (int)(n + EACH), list);
}

void kernel_drop_codes(Fn *k) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < k->attrs.n; i++)
    if (k->attrs.at[i].key != ATTR_codes) k->attrs.at[n++] = k->attrs.at[i];
  k->attrs.n = n;
}

bool kernel_has_codes(const Fn *k) { return attr_get(&k->attrs, ATTR_codes); }

int64_t codes_bytes(const Codes *codes) {
  return codes->count + codes->count / EIGHTS_BLOCK * elem_bytes(ELEM_f32);
}

bool value_codes(const Fn *f, ValueId v, Codes *out) {
  while (f->values.at[v].storage.view == VIEW_OF) v = f->values.at[v].storage.base;
  const Op *made = value_def(f, v);
  return made && made->code == OP_kernel &&
         kernel_codes(made->callee, made->nin + (v - made->out), out);
}

/* ---- buffers ---- */

static float *scale_at(const Codes *codes, const unsigned char *buffer, int64_t at) {
  int64_t row = at / codes->run, block = at % codes->run / EIGHTS_BLOCK;
  return (float *)(uintptr_t)(buffer + codes->count) + (block * (codes->count / codes->run) + row);
}

void codes_write(const Codes *codes, unsigned char *to, const double *numbers) {
  for (int64_t first = 0; first < codes->count; first += EIGHTS_BLOCK) {
    double most = 0;
    for (int64_t i = first; i < first + EIGHTS_BLOCK; i++)
      most = isnan(numbers[i]) ? INFINITY : fmax(most, fabs(numbers[i]));
    int scale = eights_scale(codes->format, most);
    *scale_at(codes, to, first) = isfinite(most) ? (float)ldexp(1, scale) : NAN;
    for (int64_t i = first; i < first + EIGHTS_BLOCK; i++)
      to[i] = eights_code(codes->format, ldexp(numbers[i], -scale));
  }
}

double codes_read(const Codes *codes, const unsigned char *from, int64_t at) {
  return eights_units(codes->format, from[at]) * *scale_at(codes, from, at);
}

const Op *codes_quantize(const Fn *k, ValueId v) {
  const Op *cast = value_def(k, v), *op = cast ? value_def(k, cast->in[0]) : NULL;
  bool is = cast && cast->code == OP_cast && value_type(k, v)->elem == ELEM_bf16 && op;
  return is && op->code == OP_quantize ? op : NULL;
}

const Op *codes_most(const Fn *k, ValueId v) {
  const Op *quantize = codes_quantize(k, v), *op = quantize ? value_def(k, quantize->in[1]) : NULL;
  return op && op->code == OP_rmax ? op : NULL;
}

static bool share_dim(const Op *a, const Op *b) {
  for (int i = 0; i < a->group[0].nfrom; i++)
    for (int k = 0; k < b->group[0].nfrom; k++)
      if (a->group[0].from[i] == b->group[0].from[k]) return true;
  return false;
}

const Op *codes_other(const Fn *k) {
  Codes codes;
  if (k->results.n != 2 || !kernel_codes(k, k->args.n, &codes) ||
      !kernel_codes(k, k->args.n + 1, &codes))
    return NULL;
  const Op *first = codes_most(k, k->results.at[0]), *other = codes_most(k, k->results.at[1]);
  bool same = first && other && first->in[0] == other->in[0] && !share_dim(first, other);
  return same ? other : NULL;
}
