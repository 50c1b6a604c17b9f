/* Two texts compared by lines, as a unified diff with three lines around each change.

   Myers' greedy algorithm: for d = 0, 1, .. the furthest point on every diagonal that d inserted or
   deleted lines can reach; the points of all rounds are kept, and the way is found backwards. The
   lines that both texts begin and end with are cut off first. */
#include "driver/cmd.h"
#include <stdlib.h>

enum { CONTEXT = 3 };

typedef struct DiffLine {
  const char *at;
  size_t n;
} DiffLine;
typedef VEC(DiffLine) DiffLines;

typedef struct Difference {
  Arena *arena;
  DiffLines a, b;
  bool *cut, *added; /* by line of a: not in b; by line of b: not in a */
} Difference;

static DiffLines split_lines(Arena *arena, const char *text) {
  DiffLines l = {0};
  while (*text) {
    size_t n = strcspn(text, "\n");
    vec_push(arena, l, ((DiffLine){text, n}));
    text += n + (text[n] == '\n');
  }
  return l;
}

static bool same(const Difference *difference, int64_t i, int64_t k) {
  const DiffLine *x = &difference->a.at[i], *y = &difference->b.at[k];
  return x->n == y->n && !memcmp(x->at, y->at, x->n);
}

/* Is diagonal q reached in round d by an added line, from q + 1, or by a cut one, from q - 1?
   `was`: the furthest lines of a in round d - 1, by diagonal. */
static bool by_adding(const int32_t *was, int64_t d, int64_t q) {
  return q == -d || (q != d && was[q - 1] < was[q + 1]);
}

static void walk_back(Difference *difference, int32_t *const *rounds, int64_t d, int64_t skip,
                      int64_t q) {
  for (; d > 0; d--) {
    const int32_t *was = rounds[d - 1] + d - 1;
    bool adding = by_adding(was, d, q);
    q += adding ? 1 : -1;
    if (adding) difference->added[skip + was[q] - q] = true;
    else difference->cut[skip + was[q]] = true;
  }
}

static void compare(Difference *difference) {
  int64_t n = difference->a.n, m = difference->b.n, skip = 0;
  while (skip < n && skip < m && same(difference, skip, skip)) skip++;
  while (n > skip && m > skip && same(difference, n - 1, m - 1)) n--, m--;
  n -= skip, m -= skip;
  int32_t **rounds = ARENA_ARRAY(difference->arena, int32_t *, n + m + 1);
  for (int64_t d = 0; d <= n + m; d++) {
    rounds[d] = ARENA_ARRAY(difference->arena, int32_t, 2 * d + 1);
    int32_t *now = rounds[d] + d, *was = d ? rounds[d - 1] + d - 1 : NULL;
    for (int64_t q = -d; q <= d; q += 2) {
      int64_t i = 0;
      if (d) i = by_adding(was, d, q) ? was[q + 1] : was[q - 1] + 1;
      while (i < n && i - q < m && same(difference, skip + i, skip + i - q)) i++;
      now[q] = (int32_t)i;
      if (i >= n && i - q >= m) return walk_back(difference, rounds, d, skip, q);
    }
  }
}

/* ---- the unified form ---- */

static void put_line(FILE *out, char mark, DiffLine l) {
  fprintf(out, "%c%.*s\n", mark, (int)l.n, l.at);
}

/* Equal lines from (i, k) on, until a change or the end. */
static int64_t equal_run(const Difference *difference, int64_t i, int64_t k) {
  int64_t n = 0;
  while (i + n < difference->a.n && k + n < difference->b.n && !difference->cut[i + n] &&
         !difference->added[k + n])
    n++;
  return n;
}

static void put_hunk(FILE *out, const Difference *difference, int64_t i, int64_t k, int64_t i1,
                     int64_t k1) {
  fprintf(out, "@@ -%lld,%lld +%lld,%lld @@\n", (long long)(i + (i1 > i)), (long long)(i1 - i),
          (long long)(k + (k1 > k)), (long long)(k1 - k));
  while (i < i1 || k < k1) {
    if (i < i1 && difference->cut[i]) put_line(out, '-', difference->a.at[i++]);
    else if (k < k1 && difference->added[k]) put_line(out, '+', difference->b.at[k++]);
    else put_line(out, ' ', difference->a.at[i]), i++, k++;
  }
}

static void skip_changes(const Difference *difference, int64_t *i, int64_t *k) {
  while (*i < difference->a.n && difference->cut[*i]) ++*i;
  while (*k < difference->b.n && difference->added[*k]) ++*k;
}

static void put_hunks(FILE *out, const Difference *difference) {
  int64_t i = 0, k = 0, run;
  for (;;) {
    run = equal_run(difference, i, k), i += run, k += run;
    if (i >= difference->a.n && k >= difference->b.n) return;
    int64_t lead = run < CONTEXT ? run : CONTEXT, i0 = i - lead, k0 = k - lead;
    for (;;) { /* changes with at most 2 * CONTEXT lines between them are one hunk */
      skip_changes(difference, &i, &k);
      run = equal_run(difference, i, k);
      bool last = i + run >= difference->a.n && k + run >= difference->b.n;
      if (last || run > 2 * CONTEXT) break;
      i += run, k += run;
    }
    int64_t tail = run < CONTEXT ? run : CONTEXT;
    put_hunk(out, difference, i0, k0, i + tail, k + tail);
    i += tail, k += tail;
  }
}

char *text_diff(Arena *arena, const char *before, const char *after, const char *const names[2],
                size_t *n) {
  Difference difference = {arena, split_lines(arena, before), split_lines(arena, after), NULL,
                           NULL};
  char *text = NULL;
  difference.cut = ARENA_ARRAY(arena, bool, difference.a.n + 1),
  difference.added = ARENA_ARRAY(arena, bool, difference.b.n + 1);
  memset(difference.cut, 0, difference.a.n + 1), memset(difference.added, 0, difference.b.n + 1);
  compare(&difference);
  FILE *out = heap_stream(&text, n);
  if (!out) bug("no memory");
  if (strcmp(before, after)) fprintf(out, "--- %s\n+++ %s\n", names[0], names[1]);
  put_hunks(out, &difference);
  fclose(out);
  char *copy = arena_strndup(arena, text, *n);
  free(text);
  return copy;
}
