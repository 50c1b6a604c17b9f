/* The schedule of a pipeline as a Gantt chart, SVG: a lane per stage, a bar per turn, by the table
   of the schedule and the cost of a micro-batch on each stage (ir/cost/step.h), or as measured
   (plan_measured.c). High lanes show messages below the bars. Turns that are wide enough are bars
   with the number of their micro-batch. Narrower turns are merged until they are wide enough:
   stretches of one kind, or of several kinds in turn. Gaps of at least half a pixel are the stage's
   waiting time. Must not: draw more bars or messages than pixels. */
#include "plan_report.h"

enum { WIDTH = 960, LEFT = 72, RIGHT = 16, TOP = 4, NUMBERED = 14, STRIP = 4 };
static const double SEEN = 2; /* pixels of the narrowest bar */

typedef struct Gantt {
  const Planned *p;
  const PlanGantt *s;
  FILE *out;
  int lane, bar; /* heights; what a bar leaves of a lane is for messages and for a gap */
} Gantt;

typedef struct Stretch { /* turns that are one bar */
  double from, to;
  unsigned kinds; /* 1 << kind */
  char chunk;     /* a, b, ..; 0: of several, or there is one */
  int64_t first, last;
} Stretch;

static double at_x(const Gantt *gantt, double time) {
  return LEFT + (WIDTH - LEFT - RIGHT) * time / gantt->s->total;
}

static double wide(const Gantt *gantt, const Stretch *stretch) {
  return at_x(gantt, stretch->to) - at_x(gantt, stretch->from);
}

static const char *colour_of(unsigned kinds) {
  switch (kinds) {
  case 1 << TURN_FORWARD: return "#0072B2";
  case 1 << TURN_BACKWARD: return "#E69F00";
  case 1 << TURN_WEIGHTS: return "#009E73";
  default: return "#CC79A7";
  }
}

static const char *kinds_text(Arena *a, unsigned kinds) {
  static const char *const words[] = {"forward", "backward", "gradients of weights"};
  const char *text = "";
  for (int i = 0; i < TURN_KINDS; i++)
    if (kinds >> i & 1) text = arena_list(a, text, "%s", words[i]);
  return text;
}

/* 3, of chunks 3b; 3 to 7 */
static const char *parts_text(Arena *a, const Stretch *stretch) {
  const char chunk[] = {stretch->chunk, 0};
  if (stretch->first == stretch->last)
    return arena_printf(a, "%lld%s", (long long)stretch->first, chunk);
  return arena_printf(a, "%lld to %lld", (long long)stretch->first, (long long)stretch->last);
}

static void put_stretch(const Gantt *gantt, int64_t stage, const Stretch *stretch) {
  double x = at_x(gantt, stretch->from), width = wide(gantt, stretch),
         y = TOP + (double)(stage * gantt->lane);
  Arena *arena = gantt->p->m->arena;
  const char *parts = parts_text(arena, stretch);
  fprintf(gantt->out,
          "<rect x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%d\" fill=\"%s\">"
          "<title>stage %lld, %s: %s</title></rect>\n",
          x, y, width > 4 ? width - 0.5 : width, gantt->bar, colour_of(stretch->kinds),
          (long long)stage, kinds_text(arena, stretch->kinds), parts);
  if (stretch->first == stretch->last && gantt->bar >= NUMBERED &&
      width >= NUMBERED * (stretch->chunk ? 1.5 : 1))
    fprintf(gantt->out,
            "<text class=\"t\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\" "
            "style=\"fill:#fff\">%s</text>\n",
            x + width / 2, y + gantt->bar / 2 + 4, parts);
}

static Stretch one_turn(const Gantt *gantt, const TurnSpan *t) {
  const ScheduleTable *table = &gantt->s->table;
  char chunk = schedule_has_chunks(table) ? (char)('a' + schedule_loop_chunk(table, t->loop)) : 0;
  return (Stretch){t->from, t->to,   1u << schedule_loop_kind(table, t->loop),
                   chunk,   t->part, t->part};
}

static void join(Stretch *stretch, const Stretch *next) {
  stretch->to = next->to, stretch->kinds |= next->kinds;
  if (stretch->chunk != next->chunk) stretch->chunk = 0;
  if (next->first < stretch->first) stretch->first = next->first;
  if (next->last > stretch->last) stretch->last = next->last;
}

/* Turns too narrow to be seen, taken together until they are, or until the stage waits. */
static Stretch gather(const Gantt *gantt, const GanttLane *lane, uint32_t *i) {
  Stretch stretch = one_turn(gantt, &lane->span.at[(*i)++]);
  for (; *i < lane->span.n && wide(gantt, &stretch) < SEEN; (*i)++) {
    Stretch next = one_turn(gantt, &lane->span.at[*i]);
    if (wide(gantt, &next) >= SEEN) break; /* it is seen by itself */
    if (at_x(gantt, next.from) - at_x(gantt, stretch.to) > 0.5) break;
    join(&stretch, &next);
  }
  return stretch;
}

static void put_lane(const Gantt *gantt, int64_t stage) {
  const GanttLane *lane = &gantt->s->lane[stage];
  Stretch stretch = {0};
  for (uint32_t i = 0; i < lane->span.n;) {
    Stretch next = gather(gantt, lane, &i);
    bool narrow = wide(gantt, &next) < 2 * SEEN,
         near = at_x(gantt, next.from) - at_x(gantt, stretch.to) <= 0.5;
    if (stretch.kinds == next.kinds && narrow && near) join(&stretch, &next);
    else {
      if (stretch.kinds) put_stretch(gantt, stage, &stretch);
      stretch = next;
    }
  }
  if (stretch.kinds) put_stretch(gantt, stage, &stretch);
}

/* Those to neighbours or those from them; of several on one pixel one. */
static void put_marks(const Gantt *gantt, int64_t stage, bool sends) {
  const GanttLane *lane = &gantt->s->lane[stage];
  double free = 0, y = TOP + (double)(stage * gantt->lane) + gantt->bar + (sends ? 0 : STRIP);
  for (uint32_t i = 0; i < lane->mark.n; i++) {
    const GanttMark *mark = &lane->mark.at[i];
    double x = at_x(gantt, mark->from), width = at_x(gantt, mark->to) - x;
    if (mark->sends != sends || x < free) continue;
    width = width < 1.5 ? 1.5 : width, free = x + width;
    fprintf(gantt->out,
            "<rect x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%d\" fill=\"%s\">"
            "<title>stage %lld %s %s %lld</title></rect>\n",
            sends && mark->from == mark->to ? x - width : x, y, width, STRIP,
            sends ? "#D55E00" : "#56B4E9", (long long)stage, sends ? "sends" : "receives",
            kinds_text(gantt->p->m->arena, 1u << mark->kind), (long long)mark->part);
  }
}

static void put_words(const Gantt *gantt, double x, double y, const char *anchor,
                      const char *words) {
  fprintf(gantt->out, "<text class=\"t\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x,
          y, anchor, words);
}

/* Seconds, by a table at the machine's peak; nothing if it does not say one. */
static void put_scale(const Gantt *gantt, int bottom) {
  double all = gantt->s->second * gantt->s->total;
  if (all <= 0) return;
  for (double t = 0, step = plan_scale_step(all); t <= all; t += step)
    put_words(gantt, at_x(gantt, t / all * gantt->s->total), bottom + 14, "middle",
              arena_printf(gantt->p->m->arena, "%.3g s", t));
}

void plan_gantt_svg(FILE *out, const Planned *planned, const PlanGantt *plan_gantt) {
  int64_t stages = plan_gantt->table.stages, every = stages > 16 ? 8 : 1;
  bool high = stages <= 16;
  Gantt gantt = {planned, plan_gantt, out, high ? 30 : 10, high ? 20 : 8};
  int bottom = TOP + (int)stages * gantt.lane;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
          "aria-label=\"the schedule of the stages\">\n",
          WIDTH, bottom + 20);
  for (int64_t i = 0; i < stages; i++) {
    if (i % every == 0 || i + 1 == stages)
      put_words(&gantt, LEFT - 8, TOP + (double)(i * gantt.lane) + gantt.lane / 2.0 + 3, "end",
                arena_printf(planned->m->arena, "stage %lld", (long long)i));
    put_lane(&gantt, i);
    for (int sends = 0; sends < 2 && high; sends++) put_marks(&gantt, i, sends);
  }
  put_scale(&gantt, bottom);
  fputs("</svg>\n", out);
}
