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

static double at_x(const Gantt *g, double time) {
  return LEFT + (WIDTH - LEFT - RIGHT) * time / g->s->total;
}

static double wide(const Gantt *g, const Stretch *b) { return at_x(g, b->to) - at_x(g, b->from); }

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

static void put_stretch(const Gantt *g, int64_t stage, const Stretch *b) {
  double x = at_x(g, b->from), width = wide(g, b), y = TOP + (double)(stage * g->lane);
  fprintf(g->out, "<rect x=\"%.1f\" y=\"%.0f\" width=\"%.1f\" height=\"%d\" fill=\"%s\">", x, y,
          width > 4 ? width - 0.5 : width, g->lane - 2, colour_of(b->kinds));
  fprintf(g->out, "<title>stage %lld, %s", (long long)stage, kinds_text(g->p->m->arena, b->kinds));
  fprintf(g->out, b->first == b->last ? ": %lld" : ": %lld to %lld", (long long)b->first,
          (long long)b->last);
  fputs("</title></rect>\n", g->out);
  if (b->first == b->last && width >= NUMBERED && g->lane >= NUMBERED)
    fprintf(g->out,
            "<text class=\"t\" x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\" "
            "style=\"fill:#fff\">%lld</text>\n",
            x + width / 2, y + g->lane / 2 + 3, (long long)b->first);
}

static Stretch one_turn(const TurnSpan *t) {
  return (Stretch){t->from, t->to, 1u << t->loop, t->part, t->part};
}

static void join(Stretch *b, const Stretch *next) {
  b->to = next->to, b->kinds |= next->kinds;
  if (next->first < b->first) b->first = next->first;
  if (next->last > b->last) b->last = next->last;
}

/* Turns too narrow to be seen, taken together until they are, or until the stage waits. */
static Stretch gather(const Gantt *g, const TurnSpan *turn, int64_t *i) {
  Stretch b = one_turn(&turn[(*i)++]);
  for (; *i < g->s->each && wide(g, &b) < SEEN; (*i)++) {
    Stretch next = one_turn(&turn[*i]);
    if (at_x(g, next.from) - at_x(g, b.to) > 0.5) break;
    join(&b, &next);
  }
  return b;
}

static void put_lane(const Gantt *g, int64_t stage) {
  const TurnSpan *turn = &g->s->span[stage * g->s->each];
  Stretch b = {0};
  for (int64_t i = 0; i < g->s->each;) {
    Stretch next = gather(g, turn, &i);
    bool narrow = wide(g, &next) < 2 * SEEN, near = at_x(g, next.from) - at_x(g, b.to) <= 0.5;
    if (b.kinds == next.kinds && narrow && near) join(&b, &next);
    else {
      if (b.kinds) put_stretch(g, stage, &b);
      b = next;
    }
  }
  if (b.kinds) put_stretch(g, stage, &b);
}

static void put_words(const Gantt *g, double x, double y, const char *anchor, const char *words) {
  fprintf(g->out, "<text class=\"t\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y,
          anchor, words);
}

/* Seconds at the machine's peak; nothing if it does not say one. */
static void put_scale(const Gantt *g, int bottom) {
  const PlanStep *s = &g->p->step;
  double all = s->flop > 0 ? s->time.compute / s->flop * g->s->total : 0;
  if (all <= 0) return;
  for (double t = 0, step = plan_scale_step(all); t <= all; t += step)
    put_words(g, at_x(g, t / all * g->s->total), bottom + 14, "middle",
              arena_printf(g->p->m->arena, "%.3g s", t));
}

void plan_gantt_svg(FILE *out, const Planned *p, const PlanGantt *s) {
  int64_t stages = s->table.stages, every = stages > 16 ? 8 : 1;
  Gantt g = {p, s, out, stages > 16 ? 10 : 22};
  int bottom = TOP + (int)stages * g.lane;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
          "aria-label=\"the schedule of the stages\">\n",
          WIDTH, bottom + 20);
  for (int64_t i = 0; i < stages; i++) {
    if (i % every == 0 || i + 1 == stages)
      put_words(&g, LEFT - 8, TOP + (double)(i * g.lane) + g.lane / 2.0 + 3, "end",
                arena_printf(p->m->arena, "stage %lld", (long long)i));
    put_lane(&g, i);
  }
  put_scale(&g, bottom);
  fputs("</svg>\n", out);
}
