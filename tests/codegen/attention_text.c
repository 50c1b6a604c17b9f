/* Text of attention kernels: see attention_text.h. */
#include "attention_text.h"

static const char *q_type(Harness *h, const AttentionShape *s, const char *elem) {
  return harness_type(h, elem, s->nq, s->qdim, s->qsize);
}

static const char *k_type(Harness *h, const AttentionShape *s, const char *elem) {
  return harness_type(h, elem, s->nk, s->kdim, s->ksize);
}

static const char *lse_type(Harness *h, const AttentionShape *s) {
  return harness_type(h, "f32", s->nq - 1, s->qdim, s->qsize);
}

/* Factors of either sign, none, and one that leaves all scores alike. */
static double scale_of(int i) {
  return i % 9 == 7 ? -0.3 : i % 9 == 5 ? 0 : i % 27 == 1 ? 1e-8 : 0.4;
}

/* A third of the kernels cap their scores, within the range of scores or far from it. */
static const char *cap_of(int i) { return i % 3 ? "" : i % 2 ? ", cap = 1.5" : ", cap = 20"; }

void attention_forward(Harness *h, int i, const char *elem, AttentionShape s, AttentionMask m) {
  int out = 3 + (*m.arguments ? 1 : 0) + m.values;
  const char *mask = out == 3 ? "" : arena_printf(h->arena, ", %%%d", out - 1);
  harness_add(h, "kernel @k%d(%%0 : %s, %%1 : %s, %%2 : %s%s) {family = \"attention\"} {\n%s", i,
              q_type(h, &s, elem), k_type(h, &s, elem), k_type(h, &s, elem), m.arguments, m.ops);
  harness_add(h, "  %%%d, %%%d = attention[S -> T; D] %%0, %%1, %%2%s {scale = %g%s} : ", out,
              out + 1, mask, scale_of(i), cap_of(i));
  harness_add(h, "%s, %s\n  return %%%d, %%%d\n}\n", harness_dense(h, elem, s.nq, s.qdim, s.qsize),
              harness_dense(h, "f32", s.nq - 1, s.qdim, s.qsize), out, out + 1);
}

static void return_stack(Harness *h, const AttentionShape *s, const char *elem, int out) {
  const char *dims[7] = {"P"}, *one = harness_dense(h, elem, s->nq, s->qdim, s->qsize);
  int64_t size[7] = {3};
  for (int i = 0; i < s->nq; i++) dims[i + 1] = s->qdim[i], size[i + 1] = s->qsize[i];
  for (int i = 1; i < 3; i++)
    harness_add(h, "  %%%d = rename[T -> S] %%%d : %s\n", out + 2 + i, out + i, one);
  harness_add(h, "  %%%d = stack[P] %%%d, %%%d, %%%d : %s\n  return %%%d\n}\n", out + 5, out,
              out + 3, out + 4, harness_dense(h, elem, s->nq + 1, dims, size), out + 5);
}

void attention_backward(Harness *h, int i, const char *elem, AttentionShape s, AttentionMask m,
                        bool together) {
  int out = 6 + (*m.arguments ? 1 : 0) + m.values;
  const char *mask = out == 6 ? "" : arena_printf(h->arena, ", %%%d", out - 1);
  harness_add(h, "kernel @g%d(%%0 : %s, %%1 : %s, %%2 : %s, ", i, q_type(h, &s, elem),
              k_type(h, &s, elem), k_type(h, &s, elem));
  harness_add(h, "%%3 : %s, %%4 : %s, %%5 : %s%s) {family = \"attention_grad\"} {\n%s",
              q_type(h, &s, elem), lse_type(h, &s), q_type(h, &s, elem), m.arguments, m.ops);
  harness_add(h,
              "  %%%d, %%%d, %%%d = attention_grad[S -> T; D] %%0, %%1, %%2, %%3, %%4, %%5%s "
              "{scale = %g%s} : ",
              out, out + 1, out + 2, mask, scale_of(i), cap_of(i));
  harness_add(h, "%s, %s, %s\n", harness_dense(h, elem, s.nq, s.qdim, s.qsize),
              harness_dense(h, elem, s.nk, s.kdim, s.ksize),
              harness_dense(h, elem, s.nk, s.kdim, s.ksize));
  if (together) return_stack(h, &s, elem, out);
  else harness_add(h, "  return %%%d, %%%d, %%%d\n}\n", out, out + 1, out + 2);
}
