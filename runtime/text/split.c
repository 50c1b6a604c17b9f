/* The pre-tokenizers of GPT-2, Llama 3 (cl100k) and their kin by hand instead of by a general
   regular expression: the expressions of split.def, alternative by alternative, leftmost first.
   Bytes that are no UTF-8 count as neither letter, number nor space. A piece ends after 16 MiB at
   the latest, so memory stays bounded on any input. Must not: read before p. */
#include "split.h"
#include "unicode.h"
#include <string.h>

enum { LONGEST = 1 << 24 };

static int class_at(const SplitText *text, const uint8_t *p, int *bytes) {
  int32_t c = rt_utf8_next(p, text->end, bytes);
  return c < 0 ? 0 : text->classes[c] & (RT_LETTER | RT_NUMBER | RT_SPACE);
}

/* Behind the characters of this class at p; 0: none of letter, number, space. */
static const uint8_t *run(const SplitText *text, const uint8_t *p, int class) {
  const uint8_t *start = p;
  for (int n; p < text->end && p - start < LONGEST && class_at(text, p, &n) == class;) p += n;
  return p;
}

static bool is_newline(const uint8_t *p) { return *p == '\n' || *p == '\r'; }

/* 's|'t|'re|'ve|'m|'ll|'d; fold: in any case, and then the long s is an s too. */
static const uint8_t *contraction(const SplitText *text, const uint8_t *p, bool fold) {
  static const char *const ends[] = {"s", "t", "re", "ve", "m", "ll", "d"};
  if (*p != '\'' || ++p == text->end) return NULL;
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    ptrdiff_t n = (ptrdiff_t)strlen(ends[i]), k = 0;
    while (k < n && p + k < text->end && (fold ? p[k] | 32 : p[k]) == ends[i][k]) k++;
    if (k == n) return p + n;
  }
  return fold && text->end - p > 1 && p[0] == 0xc5 && p[1] == 0xbf ? p + 2 : NULL;
}

/* \s+(?!\S)|\s+: all of the spaces at p, but the last one where something follows. */
static const uint8_t *spaces(const SplitText *text, const uint8_t *p) {
  const uint8_t *start = p, *last = p;
  for (int n; p < text->end && p - start < LONGEST && class_at(text, p, &n) == RT_SPACE; p += n)
    last = p;
  return p == text->end || last == start ? p : last;
}

static const uint8_t *split_gpt2(const SplitText *text, const uint8_t *p) {
  const uint8_t *end = contraction(text, p, false), *q = p + (*p == ' ');
  int n;
  if (end) return end;
  int class = q < text->end ? class_at(text, q, &n) : RT_SPACE;
  return class == RT_SPACE ? spaces(text, p) : run(text, q, class);
}

/* \s*[\r\n]+: to the last newline among the spaces at p; NULL: there is none. */
static const uint8_t *lines(const SplitText *text, const uint8_t *p) {
  const uint8_t *found = NULL, *end = run(text, p, RT_SPACE);
  for (; p < end; p++)
    if (is_newline(p)) found = p + 1;
  return found;
}

static const uint8_t *numbers(const SplitText *text, const uint8_t *p, int most) {
  for (int n; most-- && p < text->end && class_at(text, p, &n) == RT_NUMBER;) p += n;
  return p;
}

static const uint8_t *by_letters(const SplitText *text, const uint8_t *p, int digits) {
  const uint8_t *end = contraction(text, p, true);
  int n, m, class = class_at(text, p, &n);
  if (end) return end;
  if (class == RT_LETTER) return run(text, p, RT_LETTER);
  if (class == RT_NUMBER) return numbers(text, p, digits);
  if (!is_newline(p) && p + n < text->end && class_at(text, p + n, &m) == RT_LETTER)
    return run(text, p + n, RT_LETTER);
  const uint8_t *q = p + (*p == ' ');
  if (q < text->end && class_at(text, q, &n) == 0) {
    for (q = run(text, q, 0); q < text->end && is_newline(q);) q++;
    return q;
  }
  end = lines(text, p);
  return end ? end : spaces(text, p);
}

static const uint8_t *split_llama3(const SplitText *text, const uint8_t *p) {
  return by_letters(text, p, 3);
}
static const uint8_t *split_qwen2(const SplitText *text, const uint8_t *p) {
  return by_letters(text, p, 1);
}

/* ---- o200k: words end where a capital follows a small letter ---- */

static int bits_at(const SplitText *text, const uint8_t *p, int *bytes) {
  int32_t c = rt_utf8_next(p, text->end, bytes);
  return c < 0 ? 0 : text->classes[c];
}

/* The end of the run of characters at p that have this bit; last: the end of the last of them that
   has `other`. */
static const uint8_t *run_of(const SplitText *text, const uint8_t *p, int bit, int other,
                             const uint8_t **last) {
  const uint8_t *start = p;
  *last = NULL;
  for (int n, bits; p < text->end && p - start < LONGEST && (bits = bits_at(text, p, &n)) & bit;) {
    p += n;
    if (bits & other) *last = p;
  }
  return p;
}

/* UPPER* LOWER+: a character that may be either is given back where no small letter follows. */
static const uint8_t *word_with_small(const SplitText *text, const uint8_t *p) {
  const uint8_t *last, *unused, *capitals = run_of(text, p, RT_UPPER, RT_LOWER, &last),
                                *end = run_of(text, capitals, RT_LOWER, 0, &unused);
  return end > capitals ? end : last;
}

/* UPPER+ LOWER* */
static const uint8_t *word_of_capitals(const SplitText *text, const uint8_t *p) {
  const uint8_t *unused, *capitals = run_of(text, p, RT_UPPER, 0, &unused);
  return capitals > p ? run_of(text, capitals, RT_LOWER, 0, &unused) : NULL;
}

static const uint8_t *cased_word(const SplitText *text, const uint8_t *p) {
  int n, bits = bits_at(text, p, &n);
  bool leads = !is_newline(p) && !(bits & (RT_LETTER | RT_NUMBER)) && p + n < text->end;
  const uint8_t *end = leads ? word_with_small(text, p + n) : NULL;
  if (!end) end = word_with_small(text, p);
  if (!end && leads) end = word_of_capitals(text, p + n);
  if (!end) end = word_of_capitals(text, p);
  const uint8_t *after = end && end < text->end ? contraction(text, end, true) : NULL;
  return after ? after : end;
}

static const uint8_t *split_o200k(const SplitText *text, const uint8_t *p) {
  const uint8_t *end = cased_word(text, p), *q = p + (*p == ' ');
  int n;
  if (end) return end;
  if (class_at(text, p, &n) == RT_NUMBER) return numbers(text, p, 3);
  if (q < text->end && class_at(text, q, &n) == 0) {
    for (q = run(text, q, 0); q < text->end && (is_newline(q) || *q == '/');) q++;
    return q;
  }
  end = lines(text, p);
  return end ? end : spaces(text, p);
}

Split *rt_split_gpt2(void) { return split_gpt2; }

Split *rt_split_find(const char *pattern) {
  static const struct {
    const char *pattern;
    Split *split;
  } rows[] = {
#define SPLIT(name, pattern) {pattern, split_##name},
#include "split.def"
#undef SPLIT
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!strcmp(rows[i].pattern, pattern)) return rows[i].split;
  return NULL;
}
