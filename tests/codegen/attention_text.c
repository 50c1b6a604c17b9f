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

/* A sixth of the kernels, none of which caps scores, drop a fifth of the probabilities. */
static bool drops(int i) { return i % 6 == 1; }

/* Adds the mask of the probabilities that are kept; arguments and result as in add_bias. */
static int add_kept(Harness *h, int i, const AttentionShape *s, int next) {
  if (!drops(i)) return 0;
  const char *both =
      arena_printf(h->arena, "[T:%lld, S:%lld]", (long long)s->keys, (long long)s->queries);
  harness_add(h, "  %%%d = iota[S] : i32[S:%lld]\n", next, (long long)s->queries);
  harness_add(h, "  %%%d = const {value = 3} : i32[]\n", next + 1);
  harness_add(h, "  %%%d = mul %%%d, %%%d : i32[S:%lld]\n", next + 2, next, next + 1,
              (long long)s->queries);
  harness_add(h, "  %%%d = expand[T] %%%d : i32%s\n", next + 3, next + 2, both);
  harness_add(h, "  %%%d = iota[T] : i32[T:%lld]\n", next + 4, (long long)s->keys);
  harness_add(h, "  %%%d = add %%%d, %%%d : i32%s\n", next + 5, next + 3, next + 4, both);
  harness_add(h, "  %%%d = const {value = 5} : i32[]\n", next + 6);
  harness_add(h, "  %%%d = div %%%d, %%%d : i32%s\n", next + 7, next + 5, next + 6, both);
  harness_add(h, "  %%%d = mul %%%d, %%%d : i32%s\n", next + 8, next + 7, next + 6, both);
  harness_add(h, "  %%%d = sub %%%d, %%%d : i32%s\n", next + 9, next + 5, next + 8, both);
  return 10;
}

static const char *settings_of(int i) { return drops(i) ? ", drop = 0.2" : cap_of(i); }

/* A quarter of the kernels add a bias, which grows or falls with the distance and the query; `next`
   is the first free value. Returns how many values it takes, the last of which is the bias. */
static int add_bias(Harness *h, int i, const AttentionShape *s, int next) {
  if (i % 4 != 2) return 0;
  const char *both =
      arena_printf(h->arena, "[T:%lld, S:%lld]", (long long)s->keys, (long long)s->queries);
  harness_add(h, "  %%%d = iota[S] : i32[S:%lld]\n", next, (long long)s->queries);
  harness_add(h, "  %%%d = expand[T] %%%d : i32%s\n", next + 1, next, both);
  harness_add(h, "  %%%d = iota[T] : i32[T:%lld]\n", next + 2, (long long)s->keys);
  harness_add(h, "  %%%d = sub %%%d, %%%d : i32%s\n", next + 3, next + 1, next + 2, both);
  harness_add(h, "  %%%d = cast %%%d : f32%s\n", next + 4, next + 3, both);
  harness_add(h, "  %%%d = const {value = %g} : f32[]\n", next + 5, i % 8 == 2 ? -0.07 : 0.3);
  harness_add(h, "  %%%d = mul %%%d, %%%d : f32%s\n", next + 6, next + 4, next + 5, both);
  return 7;
}

/* The operands of attention from `mask` on. *out: the next free value. */
static const char *add_others(Harness *h, int i, const AttentionShape *s, const char *mask,
                              int *out) {
  int kept = add_kept(h, i, s, *out);
  *out += kept;
  if (kept) mask = arena_printf(h->arena, "%s, %%%d", mask, *out - 1);
  int biased = add_bias(h, i, s, *out);
  *out += biased;
  return biased ? arena_printf(h->arena, "%s, %%%d", mask, *out - 1) : mask;
}

void attention_forward(Harness *h, int i, const char *elem, AttentionShape s, AttentionMask m) {
  int out = 3 + (*m.arguments ? 1 : 0) + m.values;
  const char *mask = out == 3 ? "" : arena_printf(h->arena, ", %%%d", out - 1);
  harness_add(h, "kernel @k%d(%%0 : %s, %%1 : %s, %%2 : %s%s) {family = \"attention\"} {\n%s", i,
              q_type(h, &s, elem), k_type(h, &s, elem), k_type(h, &s, elem), m.arguments, m.ops);
  mask = add_others(h, i, &s, mask, &out);
  harness_add(h, "  %%%d, %%%d = attention[S -> T; D] %%0, %%1, %%2%s {scale = %g%s} : ", out,
              out + 1, mask, scale_of(i), settings_of(i));
  harness_add(h, "%s, %s\n  return %%%d, %%%d\n}\n", harness_dense(h, elem, s.nq, s.qdim, s.qsize),
              harness_dense(h, "f32", s.nq - 1, s.qdim, s.qsize), out, out + 1);
}

/* The sums of a value of n dims over S and the first `heads` dims but P; returns the last value. */
static int add_sums(Harness *h, const char *elem, int n, const char *const *dims,
                    const int64_t *size, int heads, int of, int next) {
  const char *over = "S", *kept[7];
  int64_t left[7];
  int count = 0;
  for (int i = 0; i < n; i++) {
    bool head = strcmp(dims[i], "P") && strcmp(dims[i], "S") && strcmp(dims[i], "D");
    if (head && heads-- > 0) over = arena_printf(h->arena, "%s, %s", over, dims[i]);
    else if (strcmp(dims[i], "S")) kept[count] = dims[i], left[count++] = size[i];
  }
  if (strcmp(elem, "f32"))
    harness_add(h, "  %%%d = cast %%%d : %s\n", next, of, harness_dense(h, "f32", n, dims, size)),
        of = next++;
  harness_add(h, "  %%%d = sum[%s] %%%d : %s\n", next, over, of,
              harness_dense(h, "f32", count, kept, left));
  return next;
}

static void return_stack(Harness *h, const AttentionShape *s, const char *elem, int out,
                         int heads) {
  const char *dims[7] = {"P"}, *one = harness_dense(h, elem, s->nq, s->qdim, s->qsize);
  int64_t size[7] = {3};
  for (int i = 0; i < s->nq; i++) dims[i + 1] = s->qdim[i], size[i + 1] = s->qsize[i];
  for (int i = 1; i < 3; i++)
    harness_add(h, "  %%%d = rename[T -> S] %%%d : %s\n", out + 2 + i, out + i, one);
  int all = out + 5;
  harness_add(h, "  %%%d = stack[P] %%%d, %%%d, %%%d : %s\n", all, out, out + 3, out + 4,
              harness_dense(h, elem, s->nq + 1, dims, size));
  if (heads < 0) harness_add(h, "  return %%%d\n}\n", all);
  else
    harness_add(h, "  return %%%d, %%%d\n}\n", all,
                add_sums(h, elem, s->nq + 1, dims, size, heads, all, all + 1));
}

static void return_three(Harness *h, const AttentionShape *s, const char *elem, int out,
                         int heads) {
  const char *more = "", *dims[6];
  for (int i = 0; i < s->nq; i++) dims[i] = s->qdim[i];
  if (heads >= 0)
    more = arena_printf(h->arena, ", %%%d",
                        add_sums(h, elem, s->nq, dims, s->qsize, heads, out, out + 3));
  harness_add(h, "  return %%%d, %%%d, %%%d%s\n}\n", out, out + 1, out + 2, more);
}

void attention_backward(Harness *h, int i, const char *elem, AttentionShape s, AttentionMask m,
                        bool together, int summed) {
  int out = 6 + (*m.arguments ? 1 : 0) + m.values;
  const char *mask = out == 6 ? "" : arena_printf(h->arena, ", %%%d", out - 1);
  harness_add(h, "kernel @g%d(%%0 : %s, %%1 : %s, %%2 : %s, ", i, q_type(h, &s, elem),
              k_type(h, &s, elem), k_type(h, &s, elem));
  harness_add(h, "%%3 : %s, %%4 : %s, %%5 : %s%s) {family = \"attention_grad\"} {\n%s",
              q_type(h, &s, elem), lse_type(h, &s), q_type(h, &s, elem), m.arguments, m.ops);
  mask = add_others(h, i, &s, mask, &out);
  harness_add(h,
              "  %%%d, %%%d, %%%d = attention_grad[S -> T; D] %%0, %%1, %%2, %%3, %%4, %%5%s "
              "{scale = %g%s} : ",
              out, out + 1, out + 2, mask, scale_of(i), settings_of(i));
  harness_add(h, "%s, %s, %s\n", harness_dense(h, elem, s.nq, s.qdim, s.qsize),
              harness_dense(h, elem, s.nk, s.kdim, s.ksize),
              harness_dense(h, elem, s.nk, s.kdim, s.ksize));
  (together ? return_stack : return_three)(h, &s, elem, out, summed);
}
