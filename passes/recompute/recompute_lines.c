/* recompute: applies the lines `recompute` of a plan to the stacks (RecomputeLine of ir.h).

   Later lines win, layer by layer; layers without a line keep all. Consecutive layers with one
   line are a segment:

     all     the values that recompute.c keeps
     input   the layer's inputs
     [names] these and the values of ops with one of the names
     none    nothing: the segment's forward loop runs again, keeping all, before its backward loop
     auto    the values that minimise recomputed operations within the line's budget of bytes, over
             all stacks of the line; two segments at most (recompute_search.c)

   `over X`: the values that the segment keeps are split over mesh axis X. The loop passes the name
   on to pass `place` (attribute `saved_axes`). `offload = host`: they wait on the host (attribute
   `offload`, for the pass of that name).

   The decisions are written as settings made.recompute.N, for readers. A budget that cannot be met
   is E0710 with the least one that can. */
#include "passes/simplify/simplify.h"
#include "recompute.h"
#include "ir/cost/count.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/module_settings.h"
#include "ir/support/num.h"
#include <stdlib.h>
#include <string.h>

typedef struct LinePiece {   /* layers of a pair with one line */
  uint32_t change;           /* index of its pair's change */
  const RecomputeLine *line; /* NULL: keep all */
  int64_t first, count;
  KeepBody *body; /* NULL until first needed */
} LinePiece;

typedef struct KeepLines {
  Module *m;
  VEC(RecomputeChange) changes; /* of all functions, functions in order */
  VEC(LinePiece) pieces;
  uint32_t told;
} KeepLines;

/* ---- which layers a line rules ---- */

static const RecomputeLine *line_of(const KeepLines *lines, Str stack, int64_t layer) {
  const RecomputeLine *found = NULL;
  LayerPart part;
  if (layer_part(stack, &part)) stack = layer_whole(lines->m, stack), layer += part.first;
  for (uint32_t i = 0; i < lines->m->recompute.n; i++) {
    const RecomputeLine *line = &lines->m->recompute.at[i];
    for (uint32_t k = 0; k < line->stacks.n; k++) {
      const LayerRange *layers = &line->stacks.at[k];
      if (layers->stack == stack && layer >= layers->first &&
          (layers->last < 0 || layer <= layers->last))
        found = line;
    }
  }
  return found;
}

static bool cut_into_pieces(KeepLines *lines, const Pair *pair, uint32_t change) {
  bool any = false;
  for (int64_t at = 0, end; at < pair->s1.trip; at = end) {
    const RecomputeLine *line = line_of(lines, pair->s1.path, at);
    for (end = at + 1; end < pair->s1.trip && line_of(lines, pair->s1.path, end) == line;) end++;
    vec_push(lines->m->arena, lines->pieces, (LinePiece){change, line, at, end - at, NULL});
    any |= line != NULL;
  }
  return any;
}

/* ---- the kept values of a piece ---- */

static bool has_name(const RecomputeLine *line, Str names, uint32_t result) {
  for (uint32_t i = 0; i < result; i++) {
    names += strcspn(names, ",");
    if (*names) names++;
  }
  size_t n = strcspn(names, ",");
  for (uint32_t i = 0; n && i < line->names.n; i++)
    if (strlen(line->names.at[i]) == n && !strncmp(line->names.at[i], names, n)) return true;
  return false;
}

static bool is_named(const Pair *pair, const RecomputeLine *line, ValueId v) {
  const Op *o = value_def(pair->fwd, v);
  Str names = o ? attr_str(&o->attrs, ATTR_names, NULL) : NULL;
  return names && has_name(line, names, pair->fwd->values.at[v].result) && pair_can_keep(pair, v);
}

static void add_segment(KeepLines *lines, const LinePiece *piece, int64_t first, int64_t count,
                        bool *keep, bool rerun) {
  must(count > 0 && first >= 0, "recompute: %lld layers from layer %lld on", (long long)count,
       (long long)first);
  Segment segment = {.first = first, .count = count, .keep = keep, .rerun = rerun};
  segment.over = piece->line ? piece->line->over : NULL,
  segment.offload = piece->line && piece->line->offload;
  vec_push(lines->m->arena, lines->changes.at[piece->change].segments, segment);
}

static void keep_by_line(KeepLines *lines, const LinePiece *piece) {
  const Pair *pair = &lines->changes.at[piece->change].pair;
  KeepWord word = piece->line ? piece->line->keep : KEEPS_ALL;
  bool *keep = ARENA_ARRAY(lines->m->arena, bool, pair->fwd->values.n + 1);
  for (ValueId v = 0; v < pair->fwd->values.n; v++) {
    bool before = pair->kept[v] != NO_VALUE;
    if (word == KEEPS_ALL || word == KEEPS_NONE) keep[v] = before;
    else
      keep[v] = (before && pair->outside[v]) || pair_is_carried(pair, v) ||
                (word == KEEPS_NAMES && is_named(pair, piece->line, v));
  }
  add_segment(lines, piece, piece->first, piece->count, keep, word == KEEPS_NONE);
}

/* ---- auto ---- */

static const Pair *pair_for(const KeepLines *lines, const LinePiece *piece) {
  return &lines->changes.at[piece->change].pair;
}

static const KeepBody *body_of(KeepLines *lines, LinePiece *piece) {
  if (!piece->body)
    piece->body = recompute_body(pair_for(lines, piece), piece->line ? piece->line->over : NULL);
  return piece->body;
}

/* The layers of one rank. */
static int64_t layers_of(const KeepLines *lines, const LinePiece *piece) {
  return ceil_div(piece->count, kept_share(pair_for(lines, piece)).stages);
}

static void too_small(KeepLines *lines, const RecomputeLine *line, double least) {
  const char *rank = lines->m->mesh.n ? " of a rank" : "";
  Report *r = diag_at(lines->m->ctx->diag, "E0710", span_of(lines->m, line->loc),
                      "the values that layers keep exceed the budget of %s%s",
                      arena_amount(lines->m->arena, line->budget), rank);
  if (!line->loc.file) diag_fact(r, "recompute %s", recompute_text(lines->m->arena, line));
  diag_help(r, "the least possible is budget = %s; `keep = none` keeps nothing of a layer",
            arena_least(lines->m->arena, least));
}

/* Refuses a budget if a decision after this pass changes the bytes that a stage holds. */
static bool refuses_stages(KeepLines *lines, const RecomputeLine *line) {
  const Module *m = lines->m;
  bool weights = !strcmp(plan_schedule(m), "zero_bubble");
  const char *word = weights ? "pipeline zero_bubble" : "pipeline .. uneven";
  if (!weights && !plan_uneven(m)) return false;
  for (uint32_t i = 0; i < lines->pieces.n; i++) {
    const LinePiece *piece = &lines->pieces.at[i];
    if (piece->line != line || kept_share(pair_for(lines, piece)).stages < 2) continue;
    Report *r = diag_at(m->ctx->diag, "E0602", span_of(m, line->loc),
                        "`keep = auto` cannot hold a budget under `%s`", word);
    diag_fact(r, weights ? "recomputed values also wait for the gradients of weights"
                         : "the number of layers of a stage depends on their recomputation");
    diag_help(r, "`keep = input`, or names of values; `plan` has the bytes");
    return true;
  }
  return false;
}

static bool *all_kept(const Pair *pair) {
  bool *keep = ARENA_ARRAY(pair->m->arena, bool, pair->fwd->values.n + 1);
  for (ValueId v = 0; v < pair->fwd->values.n; v++) keep[v] = pair->kept[v] != NO_VALUE;
  return keep;
}

static double bytes_kept(KeepLines *lines, LinePiece *piece, const bool *keep) {
  KeepCost cost;
  keep_cost(lines->m->arena, body_of(lines, piece), keep, &cost);
  return cost.bytes;
}

/* Everything fits: nothing is computed again. */
static bool all_fits(KeepLines *lines, const RecomputeLine *line) {
  double sum = 0;
  for (uint32_t i = 0; i < lines->pieces.n; i++) {
    LinePiece *piece = &lines->pieces.at[i];
    if (piece->line == line)
      sum += (double)layers_of(lines, piece) *
             bytes_kept(lines, piece, all_kept(pair_for(lines, piece)));
  }
  return sum <= line->budget;
}

/* The layers that keep less come first: the backward pass of the others runs while most is in
   memory. */
static void add_found(KeepLines *lines, const LinePiece *piece, const KeepStack *stack) {
  bool swap = stack->cost[0].bytes > stack->cost[1].bytes, whole = stack->before == stack->layers;
  if (whole) {
    add_segment(lines, piece, piece->first, piece->count, stack->set[0], false);
    return;
  }
  int64_t n = swap ? stack->layers - stack->before : stack->before;
  add_segment(lines, piece, piece->first, n, stack->set[swap], false);
  add_segment(lines, piece, piece->first + n, stack->layers - n, stack->set[!swap], false);
}

static void search_line(KeepLines *lines, const RecomputeLine *line) {
  VEC(KeepStack) stacks = {0};
  double least;
  for (uint32_t i = 0; i < lines->pieces.n; i++)
    if (lines->pieces.at[i].line == line)
      vec_push(lines->m->arena, stacks,
               (KeepStack){.body = body_of(lines, &lines->pieces.at[i]),
                           .layers = layers_of(lines, &lines->pieces.at[i]),
                           .alike = kept_share(pair_for(lines, &lines->pieces.at[i])).stages > 1});
  KeepFound found = keep_search(lines->m->arena, stacks.at, stacks.n, line->budget, &least);
  if (found == KEEP_TOO_SMALL) {
    too_small(lines, line, least);
    return;
  }
  if (found == KEEP_NOT_PROVEN)
    module_set(lines->m, arena_printf(lines->m->arena, "made.recompute.%u", ++lines->told),
               "%s: good, not proven to be the best", recompute_text(lines->m->arena, line));
  for (uint32_t i = 0, k = 0; i < lines->pieces.n; i++)
    if (lines->pieces.at[i].line == line) add_found(lines, &lines->pieces.at[i], &stacks.at[k++]);
}

static void keep_auto(KeepLines *lines, const RecomputeLine *line) {
  if (refuses_stages(lines, line)) return;
  if (!all_fits(lines, line)) {
    search_line(lines, line);
    return;
  }
  for (uint32_t i = 0; i < lines->pieces.n; i++) {
    const LinePiece *piece = &lines->pieces.at[i];
    if (piece->line == line)
      add_segment(lines, piece, piece->first, piece->count, all_kept(pair_for(lines, piece)),
                  false);
  }
}

/* ---- reported decisions ---- */

static double runs_of(const Module *m, const Fn *f) {
  double n = f->kind == FN_ENTRY;
  for (uint32_t i = 0; i < m->fns.n; i++)
    EACH_OP (m->fns.at[i], o)
      if (o->callee == f) n += runs_of(m, m->fns.at[i]) * (double)attr_int(&o->attrs, ATTR_trip, 1);
  return n;
}

static const char *list_kept(const Pair *pair, const bool *keep) {
  const char *text = "";
  for (ValueId v = 0; v < pair->fwd->values.n; v++) {
    const Op *o = value_def(pair->fwd, v);
    if (!keep[v]) continue;
    const char *one =
        o ? arena_printf(pair->m->arena, "%s %u:%u", op_name(o->code), o->loc.line, o->loc.column)
          : "input";
    text = arena_list(pair->m->arena, text, "%s", one);
  }
  return *text ? text : "nothing";
}

static void tell(KeepLines *lines, uint32_t change, const Segment *segment) {
  const Pair *pair = &lines->changes.at[change].pair;
  KeepCost cost;
  keep_cost(lines->m->arena, recompute_body(pair, segment->over), segment->keep, &cost);
  double flop = segment->rerun ? ir_count(lines->m, pair->fwd).flop : cost.flop,
         n = (double)segment->count,
         own = (double)ceil_div(segment->count, kept_share(pair).stages);
  module_set(lines->m, arena_printf(lines->m->arena, "made.recompute.%u", ++lines->told),
             "%s keeps %s: %.0f bytes on a rank%s%s%s, %.6g FLOP again per step of all ranks",
             layer_range(lines->m, pair->s1.path, segment->first, segment->count),
             segment->rerun ? "nothing" : list_kept(pair, segment->keep),
             segment->rerun ? 0 : own * cost.bytes, segment->over ? " split over " : "",
             segment->over ? segment->over : "", segment->offload ? " on the host" : "",
             n * flop * runs_of(lines->m, pair->f));
}

/* ---- all of it ---- */

static void find_changes(KeepLines *lines, const Fn *f) {
  Pair pair;
  for (uint32_t j = 0; j < f->ops.n; j++)
    for (uint32_t i = 0; i < j; i++) {
      if (!pair_of(lines->m, f, &f->ops.at[i], &f->ops.at[j], &pair)) continue;
      if (!pair.s1.path || pair_judged(&pair)) continue;
      uint32_t pieces = lines->pieces.n;
      if (cut_into_pieces(lines, &pair, lines->changes.n)) {
        vec_push(lines->m->arena, lines->changes, (RecomputeChange){.pair = pair});
      } else {
        lines->pieces.n = pieces;
      }
    }
}

static bool possible(const KeepLines *lines, const RecomputeChange *change) {
  const Pair *pair = &change->pair;
  for (uint32_t i = 0; i < pair->s1.carry; i++)
    if (!pair_can_keep(pair, pair->fwd->args.at[i + 1])) {
      Report *r = diag_at(lines->m->ctx->diag, "E0901", span_of(lines->m, pair->l1->loc),
                          "recomputation of layers whose input has the stack's own dim is not "
                          "built yet");
      diag_label(r, "`%s` runs over `%s`", pair->s1.path, pair->s1.axis.dim);
      return false;
    }
  return true;
}

static int by_first(const void *a, const void *b) {
  const Segment *x = a, *y = b;
  return x->first < y->first ? -1 : x->first > y->first;
}

static void decide(KeepLines *lines) {
  for (uint32_t i = 0; i < lines->pieces.n; i++)
    if (!lines->pieces.at[i].line || lines->pieces.at[i].line->keep != KEEPS_AUTO)
      keep_by_line(lines, &lines->pieces.at[i]);
  for (uint32_t i = 0; i < lines->m->recompute.n; i++)
    if (lines->m->recompute.at[i].keep == KEEPS_AUTO) keep_auto(lines, &lines->m->recompute.at[i]);
}

static void rewrite(KeepLines *lines) {
  for (uint32_t i = 0; i < lines->changes.n; i++) {
    RecomputeChange *change = &lines->changes.at[i];
    qsort(change->segments.at, change->segments.n, sizeof *change->segments.at, by_first);
    for (uint32_t k = 0; k < change->segments.n; k++) tell(lines, i, &change->segments.at[k]);
  }
  for (uint32_t i = 0, n; i < lines->changes.n; i += n) {
    const Fn *f = lines->changes.at[i].pair.f;
    for (n = 1; i + n < lines->changes.n && lines->changes.at[i + n].pair.f == f;) n++;
    module_replace(lines->m, (Fn *)f, pair_rewrite(lines->m, f, &lines->changes.at[i], n, true));
  }
}

bool recompute_lines(Module *m) {
  KeepLines lines = {.m = m};
  if (!m->recompute.n || diag_errors(m->ctx->diag)) return false;
  for (uint32_t i = 0; i < m->settings.n; i++)
    lines.told += !strncmp(m->settings.at[i].key, "made.recompute.", 15);
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind != FN_KERNEL) find_changes(&lines, m->fns.at[i]);
  for (uint32_t i = 0; i < lines.changes.n; i++)
    if (!possible(&lines, &lines.changes.at[i])) return false;
  decide(&lines);
  if (!lines.changes.n || diag_errors(m->ctx->diag)) return false;
  rewrite(&lines);
  module_collect(m);
  simplify_module(m, true);
  return true;
}
