/* The schedule of a pipeline as a Gantt chart, SVG: a lane per stage, a bar per turn, by the table
   of the schedule and what a micro-batch costs each stage (cmd_plan_stages.c).

   Turns that an eye can tell apart are bars with the number of their micro-batch. Narrower ones are
   drawn together until they are wide enough: stretches of one kind, or of several kinds in turn.
   Gaps are what the stage waits, if they are half a pixel wide. Must not: draw more bars than there
   are pixels. */
#include "cmd_plan.h"
#include "runtime/chart.h"

enum { WIDTH = 960, LEFT = 72, RIGHT = 16, TOP = 4, NUMBERED = 14 };
static const double SEEN = 2; /* pixels of the narrowest bar */

typedef struct Gantt {
  const Planned *p;
  const PlanGantt *s;
  FILE *out;
  int lane; /* its height */
} Gantt;

typedef struct Stretch { /* turns that are one bar */
  double from, to;
  unsigned kinds; /* 1 << loop */
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
  for (int i = 0; i < TURN_LOOPS; i++)
    if (kinds >> i & 1) text = arena_printf(a, "%s%s%s", text, *text ? ", " : "", words[i]);
  return text;
}

static void put_stretch(const Gantt *gantt, int64_t stage, const Stretch *stretch) {
  double x = at_x(gantt, stretch->from), width = wide(gantt, stretch),
         y = TOP + (double)(stage * gantt->lane);
  fprintf(gantt->out, "<rect x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%d\" fill=\"%s\">", x, y,
          width > 4 ? width - 0.5 : width, gantt->lane - 2, colour_of(stretch->kinds));
  fprintf(gantt->out, "<title>stage %lld, %s", (long long)stage,
          kinds_text(gantt->p->m->arena, stretch->kinds));
  fprintf(gantt->out, stretch->first == stretch->last ? ": %lld" : ": %lld to %lld",
          (long long)stretch->first, (long long)stretch->last);
  fputs("</title></rect>\n", gantt->out);
  if (stretch->first == stretch->last && width >= NUMBERED && gantt->lane >= NUMBERED)
    fprintf(gantt->out,
            "<text class=\"t\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\" "
            "style=\"fill:#fff\">%lld</text>\n",
            x + width / 2, y + gantt->lane / 2 + 3, (long long)stretch->first);
}

static Stretch one_turn(const TurnSpan *t) {
  return (Stretch){t->from, t->to, 1u << t->loop, t->part, t->part};
}

static void join(Stretch *stretch, const Stretch *next) {
  stretch->to = next->to, stretch->kinds |= next->kinds;
  if (next->first < stretch->first) stretch->first = next->first;
  if (next->last > stretch->last) stretch->last = next->last;
}

/* Turns too narrow to be seen, taken together until they are, or until the stage waits. */
static Stretch gather(const Gantt *gantt, const TurnSpan *turn, int64_t *i) {
  Stretch stretch = one_turn(&turn[(*i)++]);
  for (; *i < gantt->s->each && wide(gantt, &stretch) < SEEN; (*i)++) {
    Stretch next = one_turn(&turn[*i]);
    if (at_x(gantt, next.from) - at_x(gantt, stretch.to) > 0.5) break;
    join(&stretch, &next);
  }
  return stretch;
}

static void put_lane(const Gantt *gantt, int64_t stage) {
  const TurnSpan *turn = &gantt->s->span[stage * gantt->s->each];
  Stretch stretch = {0};
  for (int64_t i = 0; i < gantt->s->each;) {
    Stretch next = gather(gantt, turn, &i);
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

static void put_words(const Gantt *gantt, double x, double y, const char *anchor,
                      const char *words) {
  fprintf(gantt->out, "<text class=\"t\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x,
          y, anchor, words);
}

/* Seconds at the machine's peak; nothing if it does not say one. */
static void put_scale(const Gantt *gantt, int bottom) {
  const PlanStep *s = &gantt->p->step;
  double all = s->flop > 0 ? s->time.compute / s->flop * gantt->s->total : 0;
  if (all <= 0) return;
  for (double t = 0, step = plan_scale_step(all); t <= all; t += step)
    put_words(gantt, at_x(gantt, t / all * gantt->s->total), bottom + 14, "middle",
              arena_printf(gantt->p->m->arena, "%.3g s", t));
}

void plan_gantt_svg(FILE *out, const Planned *planned, const PlanGantt *plan_gantt) {
  int64_t stages = plan_gantt->table.stages, every = stages > 16 ? 8 : 1;
  Gantt gantt = {planned, plan_gantt, out, stages > 16 ? 10 : 22};
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
  }
  put_scale(&gantt, bottom);
  fputs("</svg>\n", out);
}
