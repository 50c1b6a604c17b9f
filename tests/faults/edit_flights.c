/* Edits of messages in flight in a dump's text (edit_text.h): starts and waits are dropped, moved,
   exchanged, doubled, or say something else; rings have one buffer less, move to another place, or
   get other numbers. Which edit follows from the seed, modulo the number of edits; where, from all
   of it. */
#include "edit_text.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Lines {
  Arena *a;
  VEC(const char *) at;
  uint64_t random;
} Lines;

static uint64_t below(Lines *l, uint64_t n) {
  l->random = l->random * 6364136223846793005u + 1442695040888963407u;
  return n ? (l->random >> 33) % n : 0;
}

static Lines lines_of(Arena *a, const char *text, uint64_t seed) {
  Lines l = {.a = a, .random = seed * 2862933555777941757u + 3037000493u};
  for (const char *end; *text; text = *end ? end + 1 : end) {
    end = text + strcspn(text, "\n");
    vec_push(a, l.at, arena_strndup(a, text, (size_t)(end - text)));
  }
  return l;
}

static Text text_of(const Lines *l) {
  Text t = {"", 0};
  for (uint32_t i = 0; i < l->at.n; i++) t.n += strlen(l->at.at[i]) + 1;
  t.at = arena_alloc(l->a, t.n + 1), t.n = 0;
  for (uint32_t i = 0; i < l->at.n; i++) t.n += (size_t)sprintf(t.at + t.n, "%s\n", l->at.at[i]);
  return t;
}

typedef bool IsLine(const char *line);

static bool is_op(const char *line) { return line[0] == ' ' && strstr(line, " = "); }
static bool is_start(const char *line) { return is_op(line) && strstr(line, "flight = "); }
static bool is_wait(const char *line) { return is_op(line) && strstr(line, " = wait "); }
static bool has_ring(const char *line) { return is_op(line) && strstr(line, "ring "); }
static bool has_rings(const char *line) { return is_op(line) && strstr(line, "ring = ["); }
static bool in_ring(const char *line) { return is_op(line) && strstr(line, "at(ring "); }
static bool is_message(const char *line) {
  return is_op(line) && strstr(line, "ranks = ") && strstr(line, "axis = ");
}

/* One of these lines; the number of lines if there is none. */
static uint32_t any(Lines *l, IsLine *is) {
  uint32_t n = 0, of = 0;
  for (uint32_t i = 0; i < l->at.n; i++) n += is(l->at.at[i]);
  uint64_t k = below(l, n);
  for (; n && of < l->at.n; of++)
    if (is(l->at.at[of]) && !k--) return of;
  return l->at.n;
}

/* Another line of the function, a few lines away. */
static uint32_t near(Lines *l, uint32_t i) {
  uint32_t from = i, to = i;
  while (from && is_op(l->at.at[from - 1]) && i - from < 12) from--;
  while (to + 1 < l->at.n && is_op(l->at.at[to + 1]) && to - i < 12) to++;
  return from + (uint32_t)below(l, to - from + 1);
}

static void move(Lines *l, uint32_t from, uint32_t to) {
  const char *line = l->at.at[from];
  for (; from < to; from++) l->at.at[from] = l->at.at[from + 1];
  for (; from > to; from--) l->at.at[from] = l->at.at[from - 1];
  l->at.at[to] = line;
}

static void insert(Lines *l, uint32_t at, const char *line) {
  vec_push(l->a, l->at, line);
  move(l, l->at.n - 1, at);
}

/* The first value of a line, as `%12`. */
static const char *first_value(Lines *l, const char *line) {
  const char *at = strchr(line, '%');
  return at ? arena_strndup(l->a, at, 1 + strspn(at + 1, "0123456789")) : "%0";
}

/* Every `from` of a line becomes `to`. */
static const char *renamed(Lines *l, const char *line, const char *from, const char *to) {
  const char *at = line, *done = "";
  for (const char *hit; (hit = strstr(at, from)); at = hit + strlen(from)) {
    bool whole = !isdigit((unsigned char)hit[strlen(from)]);
    done = arena_printf(l->a, "%s%.*s%s", done, (int)(hit - at), at, whole ? to : from);
  }
  return arena_printf(l->a, "%s%s", done, at);
}

static void rename_below(Lines *l, uint32_t i, const char *from, const char *to) {
  for (; i < l->at.n && l->at.at[i][0] != '}'; i++) l->at.at[i] = renamed(l, l->at.at[i], from, to);
}

/* Does the line name the value? */
static bool names(const char *line, const char *value) {
  size_t n = strlen(value);
  for (const char *at = line; (at = strstr(at, value)); at += n)
    if (!isdigit((unsigned char)at[n])) return true;
  return false;
}

/* Does a line name what the other one makes? */
static bool reads(Lines *l, const char *line, const char *made) {
  const char *out = first_value(l, made);
  return names(strstr(line, " = "), out);
}

/* Its legal places: after the ops that it reads, before its readers; one in eight times another
   place. */
static uint32_t elsewhere(Lines *l, uint32_t i) {
  uint32_t from = i, to = i;
  if (!below(l, 8)) return near(l, i);
  while (from && is_op(l->at.at[from - 1]) && !reads(l, l->at.at[i], l->at.at[from - 1])) from--;
  while (to + 1 < l->at.n && is_op(l->at.at[to + 1]) && !reads(l, l->at.at[to + 1], l->at.at[i]))
    to++;
  return from + (uint32_t)below(l, to - from + 1);
}

static void drop_wait(Lines *l, uint32_t i) {
  const char *line = l->at.at[i], *operand = strstr(line, "wait %") + 5;
  const char *out = first_value(l, line), *in = first_value(l, operand);
  move(l, i, l->at.n - 1), l->at.n--;
  rename_below(l, i, out, in);
}

/* Changes the number after `word`. */
static const char *other_number(Lines *l, const char *line, const char *word) {
  static const char *const numbers[] = {"0", "1", "-1", "-2", "-3", "2", "64", "128", "3"};
  const char *at = strstr(line, word);
  if (!at) return line;
  at += strlen(word);
  for (uint64_t skip = below(l, 6); skip && strstr(at, ", "); skip--) {
    const char *next = strstr(at, ", ") + 2;
    if (!isdigit((unsigned char)*next) || strcspn(at, "]})") < strcspn(at, ",")) break;
    at = next;
  }
  size_t n = (at[0] == '-') + strspn(at + (at[0] == '-'), "0123456789");
  return arena_printf(l->a, "%.*s%s%s", (int)(at - line), line,
                      numbers[below(l, sizeof numbers / sizeof *numbers)], at + n);
}

/* Adds that to number `which` of one ring of a loop, `ring = [at, bytes, buffers, ..]`. */
static const char *ring_by(Lines *l, const char *line, int which, long by) {
  const char *at = strstr(line, "ring = [") + strlen("ring = ["), *end = strchr(at, ']');
  uint64_t numbers = 1;
  for (const char *p = at; p < end; p++) numbers += *p == ',';
  for (uint64_t k = 3 * below(l, numbers / 3) + (uint64_t)which; k; k--) at = strchr(at, ',') + 1;
  at += *at == ' ';
  char *behind;
  long n = strtol(at, &behind, 10);
  return arena_printf(l->a, "%.*s%ld%s", (int)(at - line), line, n + by, behind);
}

static const char *other_slot(Lines *l, const char *line) {
  const char *at = strstr(line, "at(ring ") + strlen("at(ring ");
  char *behind;
  long n = strtol(at, &behind, 10);
  return arena_printf(l->a, "%.*s%ld%s", (int)(at - line), line, n ? n - 1 : 1, behind);
}

static const char *without(Lines *l, const char *line, const char *word) {
  const char *at = strstr(line, word);
  if (!at) return line;
  size_t n = strlen(word) + strspn(at + strlen(word), "-0123456789");
  return arena_printf(l->a, "%.*s%s", (int)(at - line), line, at + n);
}

static void swap(Lines *l, uint32_t i, uint32_t k) {
  const char *line = l->at.at[i];
  l->at.at[i] = l->at.at[k], l->at.at[k] = line;
}

static void twice(Lines *l, uint32_t i) {
  const char *line = l->at.at[i], *out = first_value(l, line);
  const char *other = arena_printf(l->a, "  %%9000%s", strstr(line, out) + strlen(out));
  uint32_t at = near(l, i);
  insert(l, at > i ? at : i + 1, other);
}

static void edit(Lines *l, const char *what, uint32_t i) {
  uint32_t k;
  if (!strcmp(what, "drop wait")) drop_wait(l, i);
  else if (!strcmp(what, "drop flight")) l->at.at[i] = without(l, l->at.at[i], ", flight = ");
  else if (!strncmp(what, "move", 4)) move(l, i, elsewhere(l, i));
  else if (!strncmp(what, "twice", 5)) twice(l, i);
  else if (!strcmp(what, "other flight")) l->at.at[i] = other_number(l, l->at.at[i], "flight = ");
  else if (!strcmp(what, "other ring"))
    l->at.at[i] =
        other_number(l, l->at.at[i], strstr(l->at.at[i], "ring = [") ? "ring = [" : "ring ");
  else if (!strcmp(what, "less buffers")) l->at.at[i] = ring_by(l, l->at.at[i], 2, -1);
  else if (!strcmp(what, "ring elsewhere"))
    l->at.at[i] = ring_by(l, l->at.at[i], 0, below(l, 2) ? 16 : -16);
  else if (!strcmp(what, "other slot")) l->at.at[i] = other_slot(l, l->at.at[i]);
  else if ((k = any(l, !strcmp(what, "swap starts")  ? is_start
                       : !strcmp(what, "swap waits") ? is_wait
                                                     : is_message)) < l->at.n)
    swap(l, i, k);
}

Text edit_flight(Arena *a, const char *text, uint64_t seed, Piece *p) {
  static const struct {
    const char *what;
    IsLine *of;
  } edits[] = {
      {"drop wait", is_wait},        {"drop flight", is_start},     {"move start", is_start},
      {"move wait", is_wait},        {"move message", is_message},  {"twice start", is_start},
      {"twice wait", is_wait},       {"swap starts", is_start},     {"swap waits", is_wait},
      {"swap messages", is_message}, {"other flight", is_start},    {"other ring", has_ring},
      {"less buffers", has_rings},   {"ring elsewhere", has_rings}, {"other slot", in_ring}};
  Lines l = lines_of(a, text, seed);
  size_t k = seed % (sizeof edits / sizeof *edits);
  uint32_t i = any(&l, edits[k].of);
  if (i == l.at.n) return (Text){0};
  snprintf(p->key, EDIT_KEY, "%s", edits[k].what);
  edit(&l, edits[k].what, i);
  return text_of(&l);
}
