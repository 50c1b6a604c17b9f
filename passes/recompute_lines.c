/* recompute: what the lines of a plan make of the stacks (settings plan.recompute.N, written by
   lowering or by hand: `h[0..5], dec keep = auto budget = 1000 over tensor`; then may stand the
   line's position, and that of the axes).

   Later lines win, layer by layer; layers without a line keep all. Layers in a row with one line
   are a segment:

     all     what recompute.c leaves
     input   the layer's inputs
     [names] these and the values of ops with one of the names
     none    nothing: the segment's forward loop runs again, keeping all, before its backward loop
     auto    what costs the fewest operations again within the line's budget of bytes, over all
             stacks of the line; two segments at most (recompute_search.c)

   `over X`: what the segment keeps is split over mesh axis X. The loop carries the word to pass
   `place` (attribute `over`). `offload = host`: it waits in the memory of the host (attribute
   `offload`, for the pass of that name).

   What was decided is written as settings made.recompute.N, for readers. A budget that cannot be
   met is E0710 with the least one that can. */
#include "passes/recompute.h"
#include "ir/count.h"
#include "ir/module_settings.h"
#include <stdlib.h>
#include <string.h>

typedef enum KeepWord { WORD_ALL, WORD_INPUT, WORD_NONE, WORD_NAMES, WORD_AUTO } KeepWord;

typedef struct LinePath {
  Str stack;
  int64_t first, last; /* last -1: to the end */
} LinePath;

typedef struct KeepLine {
  const char *text; /* without its position */
  Loc loc;
  VEC(LinePath) paths;
  KeepWord keep;
  const char *names; /* ", " between, "]" at the end */
  double budget;
  Str over; /* mesh axes; NULL: none */
  bool offload;
} KeepLine;

typedef struct LinePiece { /* layers of a pair with one line */
  uint32_t change;         /* index of its pair's change */
  const KeepLine *line;    /* NULL: keep all */
  int64_t first, count;
} LinePiece;

typedef struct KeepLines {
  Module *m;
  VEC(KeepLine) line;
  VEC(RecomputeChange) changes; /* of all functions, functions in order */
  VEC(LinePiece) pieces;
  VEC(KeepBody *) bodies; /* by change; NULL until somebody asks */
  uint32_t told;
} KeepLines;

/* ---- reading the lines ---- */

static const char *skip(const char *p, const char *any) { return p + strspn(p, any); }

static bool read_path(KeepLines *l, KeepLine *line, const char **at) {
  const char *p = skip(*at, ", ");
  size_t n = strcspn(p, ", [");
  LinePath path = {.last = -1};
  path.stack = intern_n(l->m->ctx->names, p, n);
  p += n;
  if (*p == '[') {
    char *end;
    path.first = strtoll(p + 1, &end, 10);
    if (strncmp(end, "..", 2)) return false;
    path.last = strtoll(end + 2, &end, 10);
    if (*end != ']') return false;
    p = end + 1;
  }
  *at = skip(p, " ");
  vec_push(l->m->arena, line->paths, path);
  return n > 0;
}

static bool read_keep(KeepLine *line, const char *p) {
  static const struct {
    const char *word;
    KeepWord keep;
  } words[] = {{"all", WORD_ALL}, {"input", WORD_INPUT}, {"none", WORD_NONE}, {"auto", WORD_AUTO}};
  if (*p == '[') return line->keep = WORD_NAMES, line->names = p + 1, true;
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (strcspn(p, " ") == strlen(words[i].word) && !strncmp(p, words[i].word, strcspn(p, " "))) {
      line->keep = words[i].keep;
      const char *budget = strstr(p, "budget =");
      line->budget = budget ? strtod(budget + 8, NULL) : 0;
      return true;
    }
  return false;
}

/* Behind `over`, to the end. */
static Str read_over(const KeepLines *l, const char *line) {
  const char *over = strstr(line, " over ");
  return over ? intern(l->m->ctx->names, over + 6) : NULL;
}

static void read_line(KeepLines *l, Str text) {
  const char *p = text, *at = strstr(text, " loc(");
  KeepLine line = {.text = at ? arena_printf(l->m->arena, "%.*s", (int)(at - text), text) : text};
  bool good = !at || sscanf(at, " loc(f%u:%u:%u+%u)", &line.loc.file, &line.loc.line,
                            &line.loc.column, &line.loc.length) == 4;
  while (good && (p == text || *p == ',')) good = read_path(l, &line, &p);
  good = good && !strncmp(p, "keep = ", 7) && read_keep(&line, p + 7);
  line.over = read_over(l, line.text), line.offload = strstr(line.text, " offload = host") != NULL;
  if (good) vec_push(l->m->arena, l->line, line);
  else diag_at(l->m->ctx->diag, "E0602", (Span){0}, "not a line of `recompute`: `%s`", text);
}

static void read_lines(KeepLines *l) {
  for (uint32_t i = 0; i < l->m->settings.n; i++) {
    const Setting *s = &l->m->settings.at[i];
    if (plan_keeps(s)) read_line(l, s->value);
    if (!strncmp(s->key, "made.recompute.", 15)) l->told++;
  }
}

/* ---- which layers a line rules ---- */

static const KeepLine *line_of(const KeepLines *l, Str stack, int64_t layer) {
  const KeepLine *found = NULL;
  for (uint32_t i = 0; i < l->line.n; i++)
    for (uint32_t k = 0; k < l->line.at[i].paths.n; k++) {
      const LinePath *p = &l->line.at[i].paths.at[k];
      if (p->stack == stack && layer >= p->first && (p->last < 0 || layer <= p->last))
        found = &l->line.at[i];
    }
  return found;
}

static bool cut_into_pieces(KeepLines *l, const Pair *p, uint32_t change) {
  bool any = false;
  for (int64_t at = 0, end; at < p->s1.trip; at = end) {
    const KeepLine *line = line_of(l, p->s1.path, at);
    for (end = at + 1; end < p->s1.trip && line_of(l, p->s1.path, end) == line;) end++;
    vec_push(l->m->arena, l->pieces, (LinePiece){change, line, at, end - at});
    any |= line != NULL;
  }
  return any;
}

/* ---- what a piece keeps ---- */

static bool has_name(const KeepLine *line, Str names, uint32_t result) {
  for (uint32_t i = 0; i < result; i++) {
    names += strcspn(names, ",");
    if (*names) names++;
  }
  size_t n = strcspn(names, ",");
  for (const char *p = line->names; n && *p && *p != ']'; p = skip(p + strcspn(p, ",]"), ", "))
    if (strcspn(p, ",]") == n && !strncmp(p, names, n)) return true;
  return false;
}

static bool is_named(const Pair *p, const KeepLine *line, ValueId v) {
  const Op *o = value_def(p->fwd, v);
  Str names = o ? attr_str(&o->attrs, ATTR_names, NULL) : NULL;
  return names && has_name(line, names, p->fwd->values.at[v].result) && pair_can_keep(p, v);
}

static void add_segment(KeepLines *l, const LinePiece *x, int64_t first, int64_t count, bool *keep,
                        bool rerun) {
  must(count > 0 && first >= 0, "recompute: %lld layers from layer %lld on", (long long)count,
       (long long)first);
  Segment g = {.first = first, .count = count, .keep = keep, .rerun = rerun};
  g.over = x->line ? x->line->over : NULL, g.offload = x->line && x->line->offload;
  vec_push(l->m->arena, l->changes.at[x->change].segments, g);
}

static void keep_by_line(KeepLines *l, const LinePiece *x) {
  const Pair *p = &l->changes.at[x->change].pair;
  KeepWord word = x->line ? x->line->keep : WORD_ALL;
  bool *keep = ARENA_ARRAY(l->m->arena, bool, p->fwd->values.n + 1);
  for (ValueId v = 0; v < p->fwd->values.n; v++) {
    bool before = p->kept[v] != NO_VALUE;
    if (word == WORD_ALL || word == WORD_NONE) keep[v] = before;
    else
      keep[v] = (before && p->outside[v]) || pair_is_carried(p, v) ||
                (word == WORD_NAMES && is_named(p, x->line, v));
  }
  add_segment(l, x, x->first, x->count, keep, word == WORD_NONE);
}

/* ---- auto ---- */

static KeepBody *body_of(KeepLines *l, uint32_t change) {
  if (!l->bodies.at[change]) l->bodies.at[change] = recompute_body(&l->changes.at[change].pair);
  return l->bodies.at[change];
}

static const char *bytes_text(Module *m, double bytes) {
  static const char *const units[] = {"GiB", "MiB", "KiB"};
  double size = 1024. * 1024 * 1024;
  for (int i = 0; i < 3; i++, size /= 1024)
    if (bytes >= 10 * size) return arena_printf(m->arena, "%.1f %s", bytes / size, units[i]);
  return arena_printf(m->arena, "%.0f bytes", bytes);
}

static void too_small(KeepLines *l, const KeepLine *line, double least) {
  Report *r =
      diag_at(l->m->ctx->diag, "E0710", span_of(l->m, line->loc),
              "what layers keep does not fit the budget of %s", bytes_text(l->m, line->budget));
  if (!line->loc.file) diag_fact(r, "recompute %s", line->text);
  diag_help(r, "the least possible is budget = %.0f; `keep = none` keeps nothing of a layer",
            least);
}

static bool *all_kept(const Pair *p) {
  bool *keep = ARENA_ARRAY(p->m->arena, bool, p->fwd->values.n + 1);
  for (ValueId v = 0; v < p->fwd->values.n; v++) keep[v] = p->kept[v] != NO_VALUE;
  return keep;
}

static double bytes_kept(KeepLines *l, uint32_t change, const bool *keep) {
  KeepCost c;
  keep_cost(l->m->arena, body_of(l, change), keep, &c);
  return c.bytes;
}

/* Everything fits: nothing is computed again. */
static bool all_fits(KeepLines *l, const KeepLine *line) {
  double sum = 0;
  for (uint32_t i = 0; i < l->pieces.n; i++) {
    const LinePiece *x = &l->pieces.at[i];
    if (x->line == line)
      sum += (double)x->count * bytes_kept(l, x->change, all_kept(&l->changes.at[x->change].pair));
  }
  return sum <= line->budget;
}

/* The layers that keep less come first: the others' backward runs while most is in memory. */
static void add_found(KeepLines *l, const LinePiece *x, const KeepStack *k) {
  bool swap = k->cost[0].bytes > k->cost[1].bytes, whole = k->before == k->layers;
  int64_t n = swap && !whole ? k->layers - k->before : k->before;
  int less = swap && !whole ? 1 : 0;
  add_segment(l, x, x->first, n, k->set[less], false);
  if (n < k->layers) add_segment(l, x, x->first + n, k->layers - n, k->set[!less], false);
}

static void search_line(KeepLines *l, const KeepLine *line) {
  VEC(KeepStack) stacks = {0};
  double least;
  for (uint32_t i = 0; i < l->pieces.n; i++)
    if (l->pieces.at[i].line == line)
      vec_push(
          l->m->arena, stacks,
          (KeepStack){.body = body_of(l, l->pieces.at[i].change), .layers = l->pieces.at[i].count});
  KeepFound found = keep_search(l->m->arena, stacks.at, stacks.n, line->budget, &least);
  if (found == KEEP_TOO_SMALL) {
    too_small(l, line, least);
    return;
  }
  if (found == KEEP_NOT_PROVEN)
    module_set(l->m, arena_printf(l->m->arena, "made.recompute.%u", ++l->told),
               "%s: good, not proven to be the best", line->text);
  for (uint32_t i = 0, k = 0; i < l->pieces.n; i++)
    if (l->pieces.at[i].line == line) add_found(l, &l->pieces.at[i], &stacks.at[k++]);
}

static void keep_auto(KeepLines *l, const KeepLine *line) {
  if (!all_fits(l, line)) {
    search_line(l, line);
    return;
  }
  for (uint32_t i = 0; i < l->pieces.n; i++) {
    const LinePiece *x = &l->pieces.at[i];
    if (x->line == line)
      add_segment(l, x, x->first, x->count, all_kept(&l->changes.at[x->change].pair), false);
  }
}

/* ---- what was decided ---- */

static double runs_of(const Module *m, const Fn *f) {
  double n = f->kind == FN_ENTRY;
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++) {
      const Op *o = &m->fns.at[i]->ops.at[k];
      if (o->callee == f) n += runs_of(m, m->fns.at[i]) * (double)attr_int(&o->attrs, ATTR_trip, 1);
    }
  return n;
}

static const char *list_kept(const Pair *p, const bool *keep) {
  const char *text = "";
  for (ValueId v = 0; v < p->fwd->values.n; v++) {
    const Op *o = value_def(p->fwd, v);
    if (!keep[v]) continue;
    const char *one =
        o ? arena_printf(p->m->arena, "%s %u:%u", op_name(o->code), o->loc.line, o->loc.column)
          : "input";
    text = arena_printf(p->m->arena, "%s%s%s", text, *text ? ", " : "", one);
  }
  return *text ? text : "nothing";
}

static void tell(KeepLines *l, uint32_t change, const Segment *g) {
  const Pair *p = &l->changes.at[change].pair;
  KeepCost cost;
  keep_cost(l->m->arena, body_of(l, change), g->keep, &cost);
  double flop = g->rerun ? ir_count(l->m, p->fwd).flop : cost.flop, n = (double)g->count;
  module_set(l->m, arena_printf(l->m->arena, "made.recompute.%u", ++l->told),
             "%s[%lld..%lld] keeps %s: %.0f bytes%s%s%s, %.6g FLOP again per step", p->s1.path,
             (long long)g->first, (long long)(g->first + g->count - 1),
             g->rerun ? "nothing" : list_kept(p, g->keep), g->rerun ? 0 : n * cost.bytes,
             g->over ? " split over " : "", g->over ? g->over : "",
             g->offload ? " on the host" : "", n * flop * runs_of(l->m, p->f));
}

/* ---- all of it ---- */

static void find_changes(KeepLines *l, const Fn *f) {
  Pair p;
  for (uint32_t j = 0; j < f->ops.n; j++)
    for (uint32_t i = 0; i < j; i++) {
      if (!pair_of(l->m, f, &f->ops.at[i], &f->ops.at[j], &p)) continue;
      if (!p.s1.path || pair_judged(&p)) continue;
      uint32_t pieces = l->pieces.n;
      if (cut_into_pieces(l, &p, l->changes.n)) {
        vec_push(l->m->arena, l->changes, (RecomputeChange){.pair = p});
        vec_push(l->m->arena, l->bodies, NULL);
      } else {
        l->pieces.n = pieces;
      }
    }
}

static bool possible(const KeepLines *l, const RecomputeChange *c) {
  const Pair *p = &c->pair;
  for (uint32_t i = 0; i < p->s1.carry; i++)
    if (!pair_can_keep(p, p->fwd->args.at[i + 1])) {
      Report *r = diag_at(l->m->ctx->diag, "E0901", span_of(l->m, p->l1->loc),
                          "recomputation of layers whose input has the stack's own dim is not "
                          "built yet");
      diag_label(r, "`%s` runs over `%s`", p->s1.path, p->s1.axis.dim);
      return false;
    }
  return true;
}

static int by_first(const void *a, const void *b) {
  const Segment *x = a, *y = b;
  return x->first < y->first ? -1 : x->first > y->first;
}

static void decide(KeepLines *l) {
  for (uint32_t i = 0; i < l->pieces.n; i++)
    if (!l->pieces.at[i].line || l->pieces.at[i].line->keep != WORD_AUTO)
      keep_by_line(l, &l->pieces.at[i]);
  for (uint32_t i = 0; i < l->line.n; i++)
    if (l->line.at[i].keep == WORD_AUTO) keep_auto(l, &l->line.at[i]);
}

static void rewrite(KeepLines *l) {
  for (uint32_t i = 0; i < l->changes.n; i++) {
    RecomputeChange *c = &l->changes.at[i];
    qsort(c->segments.at, c->segments.n, sizeof *c->segments.at, by_first);
    for (uint32_t k = 0; k < c->segments.n; k++) tell(l, i, &c->segments.at[k]);
  }
  for (uint32_t i = 0, n; i < l->changes.n; i += n) {
    const Fn *f = l->changes.at[i].pair.f;
    for (n = 1; i + n < l->changes.n && l->changes.at[i + n].pair.f == f;) n++;
    module_replace(l->m, (Fn *)f, pair_rewrite(l->m, f, &l->changes.at[i], n, true));
  }
}

bool recompute_lines(Module *m) {
  KeepLines l = {.m = m};
  read_lines(&l);
  if (!l.line.n || diag_errors(m->ctx->diag)) return false;
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind != FN_KERNEL) find_changes(&l, m->fns.at[i]);
  for (uint32_t i = 0; i < l.changes.n; i++)
    if (!possible(&l, &l.changes.at[i])) return false;
  decide(&l);
  if (!l.changes.n || diag_errors(m->ctx->diag)) return false;
  rewrite(&l);
  module_collect(m);
  simplify_module(m, true);
  return true;
}
