/* Finding the places of PTX text that a mutant changes: see mutate.h.
 *
 * The text is that of LLVM's printer: one instruction per line, blanks between operands. An
 * addition counts as a term of an address when its result reaches brackets, itself or through
 * other integer arithmetic. The bytes of a ring's stage are what is added to a register that then
 * goes back to 0 (selp.b32 r, 0, x, p).
 *
 * Must not: parse more than it needs. */
#include "mutate.h"
#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const mutant_names[MUTANT_KINDS] = {
    "barrier dropped",      "wait dropped",    "wait eased",       "commit dropped",
    "fence dropped",        "arrival dropped", "arrivals altered", "bytes altered",
    "test dropped",         "phase altered",   "copy dropped",     "flag kept",
    "flag relaxed",         "count altered",   "guard negated",    "guard dropped",
    "never executed",       "compare shifted", "compare negated",  "select swapped",
    "address term dropped", "offset altered",  "next stage",       "stage before"};

enum { LINES = 100000, NAME = 24, REGS = 12 };

/* One instruction line, in pieces. */
typedef struct Line {
  const char *at, *opcode, *end; /* of the line; the opcode; after the semicolon */
  const char *guard;             /* at the @, NULL: none */
  int number;
} Line;

typedef struct Scan {
  const char *text;
  Mutant *out;
  int n, room;
  char (*addressing)[NAME]; /* registers whose value reaches an address */
  int naddressing;
  int stage; /* bytes of a stage of the ring, 0: there is none */
} Scan;

static bool starts(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }

static bool split(const char *at, int number, Line *l) {
  const char *s = at + strspn(at, " \t");
  const char *stop = s + strcspn(s, "\n");
  const char *semicolon = memchr(s, ';', (size_t)(stop - s));
  if (!semicolon || *s == '.' || *s == '/' || *s == '$' || *s == '}') return false;
  *l = (Line){.at = s, .opcode = s, .end = semicolon + 1, .number = number};
  if (*s == '@') {
    l->guard = s;
    l->opcode = s + strcspn(s, " \t");
    l->opcode += strspn(l->opcode, " \t");
  }
  return l->opcode < semicolon;
}

static void put(Scan *c, MutantKind k, const Line *l, const char *from, const char *to,
                const char *with) {
  if (c->n == c->room) return;
  Mutant *m = &c->out[c->n++];
  *m = (Mutant){
      .kind = k, .line = l->number, .from = (size_t)(from - c->text), .to = (size_t)(to - c->text)};
  snprintf(m->with, sizeof m->with, "%s", with);
}

/* ---- registers of addresses ---- */
static size_t reg_name(const char *s, const char *end, char out[NAME]) {
  size_t n = 0;
  while (s + n < end && n < NAME - 1 && (isalnum((unsigned char)s[n]) || strchr("%_$.", s[n]))) n++;
  memcpy(out, s, n), out[n] = 0;
  return n;
}

static bool is_addressing(const Scan *c, const char *name) {
  for (int i = 0; i < c->naddressing; i++)
    if (!strcmp(c->addressing[i], name)) return true;
  return false;
}

static bool add_addressing(Scan *c, const char *name) {
  if (*name != '%' || is_addressing(c, name) || c->naddressing == LINES) return false;
  strcpy(c->addressing[c->naddressing++], name);
  return true;
}

/* The registers of a line in order, up to REGS; the first is the result. */
static int registers(const Line *l, char out[REGS][NAME]) {
  int n = 0;
  for (const char *s = l->opcode; s < l->end && n < REGS; s++)
    if (*s == '%') s += reg_name(s, l->end, out[n++]) - 1;
  return n;
}

static bool is_arithmetic(const Line *l) {
  static const char *const words[] = {"add.", "sub.", "mad.", "mul.", "shl.", "or.",
                                      "cvt.", "mov.", "cvta", "and.", "xor."};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (starts(l->opcode, words[i])) return true;
  return false;
}

static bool note_line(Scan *c, const Line *l) {
  bool more = false;
  char name[NAME], regs[REGS][NAME];
  for (const char *s = l->opcode; (s = memchr(s, '[', (size_t)(l->end - s))); s++) {
    reg_name(s + 1, l->end, name);
    more |= add_addressing(c, name);
  }
  int n = registers(l, regs);
  if (n > 1 && is_arithmetic(l) && is_addressing(c, regs[0]))
    for (int i = 1; i < n; i++) more |= add_addressing(c, regs[i]);
  return more;
}

/* ---- mutants of one line ---- */
static void find_sync(Scan *c, const Line *l) {
  if (starts(l->opcode, "bar.") || starts(l->opcode, "barrier."))
    put(c, DROP_BARRIER, l, l->at, l->end, ";");
  bool product = starts(l->opcode, "wgmma.");
  bool leaves = starts(l->opcode, "cp.async.bulk.wait");
  if (starts(l->opcode, "cp.async.commit") || starts(l->opcode, "wgmma.commit") ||
      starts(l->opcode, "cp.async.bulk.commit"))
    put(c, DROP_COMMIT, l, l->at, l->end, ";");
  if (starts(l->opcode, "fence.proxy.async") || starts(l->opcode, "fence.mbarrier_init"))
    put(c, DROP_FENCE, l, l->at, l->end, ";");
  if (!starts(l->opcode, "cp.async.wait") && !product && !leaves) return;
  if (product && !starts(l->opcode, "wgmma.wait")) return;
  put(c, DROP_WAIT, l, l->at, l->end, ";");
  const char *digit = l->opcode + strcspn(l->opcode, " \t;");
  char with[80];
  snprintf(with, sizeof with, "%s %d;",
           product  ? "wgmma.wait_group.sync.aligned"
           : leaves ? "cp.async.bulk.wait_group.read"
                    : "cp.async.wait_group",
           *digit == ';' ? 1 : atoi(digit + 1) + 1);
  put(c, EASE_WAIT, l, l->at, l->end, with);
}

/* Operands i of the line: from and to, without blanks. */
static bool operand(const Line *l, int i, const char **from, const char **to) {
  const char *s = l->opcode + strcspn(l->opcode, " \t");
  for (int k = 0; k <= i; k++) {
    s += strspn(s, " \t");
    const char *stop = s + strcspn(s, ",;");
    if (k == i) {
      *from = s, *to = stop;
      return stop > s;
    }
    if (*stop == ';') return false;
    s = stop + 1;
  }
  return false;
}

/* Operand i becomes the number. */
static void put_number(Scan *c, MutantKind k, const Line *l, int i, int number) {
  const char *from, *to;
  char with[20];
  if (!operand(l, i, &from, &to)) return;
  snprintf(with, sizeof with, "%d", number);
  put(c, k, l, from, to, with);
}

static int number_of(const Line *l, int i) {
  const char *from, *to;
  return operand(l, i, &from, &to) ? atoi(from) : 0;
}

static void find_signal(Scan *c, const Line *l) {
  char regs[REGS][NAME], with[80];
  if (starts(l->opcode, "cp.async.bulk.tensor")) put(c, DROP_COPY, l, l->at, l->end, ";");
  if (starts(l->opcode, "mbarrier.arrive")) put(c, DROP_ARRIVAL, l, l->at, l->end, ";");
  for (int more = -1; more <= 1; more += 2) {
    if (starts(l->opcode, "mbarrier.init"))
      put_number(c, MORE_ARRIVALS, l, 1, number_of(l, 1) + more);
    if (starts(l->opcode, "mbarrier.arrive.expect_tx"))
      put_number(c, OTHER_BYTES, l, 2, number_of(l, 2) + 16 * more);
    if (starts(l->opcode, "mbarrier.try_wait")) put_number(c, OTHER_PHASE, l, 2, more > 0);
  }
  if (!starts(l->opcode, "mbarrier.try_wait") || !registers(l, regs)) return;
  snprintf(with, sizeof with, "mov.pred %s, -1;", regs[0]);
  put(c, DROP_TEST, l, l->opcode, l->end, with);
}

/* Words that CTAs set and wait for, and the number of those that have begun. */
static void find_flag(Scan *c, const Line *l) {
  bool sets = starts(l->opcode, "st.release.gpu") || starts(l->opcode, "st.relaxed.gpu"),
       waits = starts(l->opcode, "ld.acquire.gpu");
  if (sets) put(c, KEEP_FLAG, l, l->at, l->end, ";");
  if (waits || starts(l->opcode, "st.release.gpu"))
    put(c, RELAX_FLAG, l, l->opcode + 3, l->opcode + 10, "relaxed");
  for (int more = -1; more <= 1 && starts(l->opcode, "atom."); more += 2)
    put_number(c, OTHER_COUNT, l, 2, number_of(l, 2) + more);
}

static void find_guard(Scan *c, const Line *l) {
  if (!l->guard) return;
  const char *p = l->guard + 1;
  char name[NAME], with[NAME + 4];
  reg_name(*p == '!' ? p + 1 : p, l->opcode, name);
  snprintf(with, sizeof with, "@%s%s ", *p == '!' ? "" : "!", name);
  put(c, NEGATE_GUARD, l, l->guard, l->opcode, with);
  put(c, DROP_GUARD, l, l->guard, l->opcode, "");
  put(c, NEVER_GUARD, l, l->at, l->end, ";");
}

static void find_compare(Scan *c, const Line *l) {
  /* the comparison, the one a step away, its opposite */
  static const char *const rows[][3] = {
      {".lt.", ".le.", ".ge."},   {".le.", ".lt.", ".gt."},   {".gt.", ".ge.", ".le."},
      {".ge.", ".gt.", ".lt."},   {".eq.", NULL, ".ne."},     {".ne.", NULL, ".eq."},
      {".ltu.", ".leu.", ".ge."}, {".leu.", ".ltu.", ".gt."}, {".gtu.", ".geu.", ".le."},
      {".geu.", ".gtu.", ".lt."}, {".lo.", ".ls.", ".hs."},   {".ls.", ".lo.", ".hi."},
      {".hi.", ".hs.", ".ls."},   {".hs.", ".hi.", ".lo."},   {".equ.", NULL, ".ne."},
      {".neu.", NULL, ".eq."}};
  const char *at = l->opcode + 4;
  if (!starts(l->opcode, "setp.")) return;
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    if (!starts(at, rows[i][0])) continue;
    const char *to = at + strlen(rows[i][0]);
    if (rows[i][1]) put(c, SHIFT_COMPARE, l, at, to, rows[i][1]);
    put(c, NEGATE_COMPARE, l, at, to, rows[i][2]);
  }
}

static void find_select(Scan *c, const Line *l) {
  const char *a, *ae, *b, *be;
  char with[100];
  if (!starts(l->opcode, "selp.") || !operand(l, 1, &a, &ae) || !operand(l, 2, &b, &be)) return;
  snprintf(with, sizeof with, "%.*s, %.*s", (int)(be - b), b, (int)(ae - a), a);
  put(c, SWAP_SELECT, l, a, be, with);
}

static void find_term(Scan *c, const Line *l) {
  char regs[REGS][NAME], with[100];
  const char *a, *ae;
  bool mad = starts(l->opcode, "mad.");
  if (!(starts(l->opcode, "add.s") || starts(l->opcode, "or.b") || mad) ||
      memchr(l->opcode, '|', 20))
    return;
  if (!registers(l, regs) || !is_addressing(c, regs[0]) || strstr(regs[0], "%f")) return;
  if (!operand(l, mad ? 3 : 1, &a, &ae)) return;
  bool wide = strstr(regs[0], "%rd") != NULL;
  snprintf(with, sizeof with, "mov.b%d %s, %.*s;", wide ? 64 : 32, regs[0], (int)(ae - a), a);
  put(c, DROP_TERM, l, l->opcode, l->end, with);
}

/* Bytes that one lane moves: by v2 or v4 and the type. */
static int moved(const Line *l) {
  if (starts(l->opcode, "cp.async") || starts(l->opcode, "ldmatrix") ||
      starts(l->opcode, "stmatrix"))
    return 16;
  const char *stop = l->opcode + strcspn(l->opcode, " \t");
  int bits = 0, n = 1;
  for (const char *s = l->opcode; s < stop; s++) {
    if (starts(s, ".v2")) n = 2;
    if (starts(s, ".v4")) n = 4;
    if (*s == '.' && strchr("bufs", s[1]) && isdigit((unsigned char)s[2])) bits = atoi(s + 2);
  }
  return bits / 8 * n;
}

static void put_offset(Scan *c, MutantKind k, const Line *l, const char *s, int by) {
  const char *close = memchr(s, ']', (size_t)(l->end - s));
  if (!close || s[1] != '%' || memchr(s, ',', (size_t)(close - s))) return;
  const char *plus = memchr(s, '+', (size_t)(close - s));
  char with[40];
  snprintf(with, sizeof with, "+%d", (plus ? atoi(plus + 1) : 0) + by);
  put(c, k, l, plus ? plus : close, close, with);
}

static void find_offset(Scan *c, const Line *l) {
  int size = moved(l);
  if (!size || starts(l->opcode, "ld.param")) return;
  for (const char *s = l->opcode; (s = memchr(s, '[', (size_t)(l->end - s))); s++)
    put_offset(c, ALTER_OFFSET, l, s, size);
}

/* The address that a fragment is read from, or a copy written to: the first brackets. */
static void find_stage(Scan *c, const Line *l) {
  bool reads = starts(l->opcode, "ldmatrix") || starts(l->opcode, "ld.shared");
  if (!c->stage || !(reads || starts(l->opcode, "cp.async.c"))) return;
  const char *s = memchr(l->opcode, '[', (size_t)(l->end - l->opcode));
  if (!s) return;
  put_offset(c, NEXT_STAGE, l, s, c->stage);
  put_offset(c, LAST_STAGE, l, s, -c->stage);
}

static void note_stage(Scan *c) {
  for (const char *s = c->text; (s = strstr(s, "selp.b32 \t")); s++) {
    char result[NAME], next[NAME], from[NAME], add[2 * NAME + 40];
    if (sscanf(s, "selp.b32 %23[^,], 0, %23[^,],", result, next) != 2) continue;
    snprintf(add, sizeof add, "add.s32 \t%s, ", next);
    const char *a = strstr(c->text, add);
    int by;
    if (a && sscanf(a + strlen(add), "%23[^,], %d;", from, &by) == 2 && !strcmp(from, result))
      c->stage = by;
  }
}

/* ---- the whole text ---- */
static bool walk(Scan *c, bool find) {
  int number = 1;
  bool more = false;
  Line l;
  for (const char *s = c->text; s; number++) {
    if (split(s, number, &l)) {
      if (!find) more |= note_line(c, &l);
      else
        find_sync(c, &l), find_signal(c, &l), find_flag(c, &l), find_guard(c, &l),
            find_compare(c, &l), find_select(c, &l), find_term(c, &l), find_offset(c, &l),
            find_stage(c, &l);
    }
    s = strchr(s, '\n');
    if (s) s++;
  }
  return more;
}

int mutants_find(const char *text, Mutant *out, int room) {
  Scan c = {.text = text, .out = out, .room = room};
  c.addressing = malloc(sizeof *c.addressing * LINES);
  while (walk(&c, false)) {}
  note_stage(&c);
  walk(&c, true);
  free(c.addressing);
  return c.n;
}

char *mutant_apply(const char *text, const Mutant *m) {
  size_t n = strlen(text), with = strlen(m->with);
  char *s = malloc(n + with + 1);
  memcpy(s, text, m->from);
  memcpy(s + m->from, m->with, with);
  strcpy(s + m->from + with, text + m->to);
  return s;
}
