/* The lanes of a rank over a step, as SVG: kernels above, below them a lane per mesh axis with the
   messages over it (timeline.h). Waiting times of the kernels are marked in their lane. A loop
   shows the rounds that the list of events has; a dashed line has the number of omitted rounds.
   Spans too short to be visible are merged with their neighbours. */
#include "plan_report.h"
#include "runtime/chart.h"

enum { WIDTH = 960, LEFT = 80, RIGHT = 16, TOP = 24, LANE = 26, BAR = 18, UNITS = 5 };

typedef struct Drawing {
  const Planned *p;
  const Lanes *lanes;
  FILE *out;
} Drawing;

static double at_x(const Drawing *drawing, double seconds) {
  return LEFT + (WIDTH - LEFT - RIGHT) * seconds / drawing->lanes->shown;
}

static int lane_y(int axis) { return TOP + LANE * (axis + 1); }

static void put_bar(const Drawing *drawing, int axis, double from, double to, const char *colour,
                    const char *what) {
  double x = at_x(drawing, from), width = at_x(drawing, to) - x;
  if (width > 2) width -= 0.6; /* neighbours stay apart */
  fprintf(drawing->out,
          "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>", x,
          lane_y(axis), width < 0.4 ? 0.4 : width, BAR, colour);
  rt_put_escaped(drawing->out, what);
  fputs("</title></rect>\n", drawing->out);
}

static const char *said(const Drawing *drawing, const LaneSpan *span) {
  const Op *o = event_op(span->event);
  const char *of = o->callee ? o->callee->name : op_name(o->code);
  return arena_printf(drawing->p->m->arena, "%s in %s: %.3g s", of, span->event->f->name,
                      span->to - span->from);
}

/* Spans of one lane from left to right; those that no eye tells apart as one. */
static void put_lane(const Drawing *drawing, int axis) {
  const char *colour = axis < 0                                                  ? "#0072B2"
                       : axis_crosses(drawing->p->m, &drawing->p->machine, axis) ? "#D55E00"
                                                                                 : "#009E73";
  double from = 0, to = -1;
  for (uint32_t i = 0; i < drawing->lanes->span.n; i++) {
    const LaneSpan *span = &drawing->lanes->span.at[i];
    double wide = at_x(drawing, span->to) - at_x(drawing, span->from);
    if (span->axis != axis) continue;
    bool joins = wide < 1 && to >= 0 && at_x(drawing, span->from) - at_x(drawing, to) < 0.5;
    if (!joins && to >= 0) put_bar(drawing, axis, from, to, colour, "short ones"), to = -1;
    if (wide >= 1) put_bar(drawing, axis, span->from, span->to, colour, said(drawing, span));
    else from = to < 0 ? span->from : from, to = span->to;
  }
  if (to >= 0) put_bar(drawing, axis, from, to, colour, "short ones");
}

static void put_waiting(const Drawing *drawing) {
  double free = 0;
  for (uint32_t i = 0; i < drawing->lanes->span.n; i++) {
    const LaneSpan *span = &drawing->lanes->span.at[i];
    if (span->axis >= 0) continue;
    if (at_x(drawing, span->from) - at_x(drawing, free) > 0.4)
      put_bar(drawing, -1, free, span->from, "#E69F0066", "kernels wait for messages");
    free = span->to;
  }
  if (at_x(drawing, drawing->lanes->shown) - at_x(drawing, free) > 0.4)
    put_bar(drawing, -1, free, drawing->lanes->shown, "#E69F0066", "kernels wait for messages");
}

static void put_words(const Drawing *drawing, double x, int y, const char *anchor,
                      const char *words) {
  fprintf(drawing->out, "<text class=\"t\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">", x, y, anchor);
  rt_put_escaped(drawing->out, words);
  fputs("</text>\n", drawing->out);
}

static void put_cuts(const Drawing *drawing, int bottom) {
  double last = 0;
  for (uint32_t i = 0; i < drawing->lanes->cut.n; i++) {
    const LaneBreak *lane_break = &drawing->lanes->cut.at[i];
    double x = at_x(drawing, lane_break->at);
    fprintf(drawing->out, "<path class=\"c\" d=\"M%.1f %dV%d\"/>\n", x, TOP - 4, bottom);
    if (x - last < 90) continue;
    put_words(drawing, x, TOP - 8, "middle",
              arena_printf(drawing->p->m->arena, "+ %lld rounds", (long long)lane_break->rounds));
    last = x;
  }
}

double plan_scale_step(double all) {
  double step = 1e-9;
  while (all / step > UNITS * 10) step *= 10;
  while (all / step > UNITS) step *= all / step > 2 * UNITS ? 5 : 2;
  return step;
}

static void put_scale(const Drawing *drawing, int bottom) {
  double step = plan_scale_step(drawing->lanes->shown);
  for (double t = 0; t <= drawing->lanes->shown; t += step) {
    fprintf(drawing->out, "<path class=\"g\" d=\"M%.1f %dV%d\"/>\n", at_x(drawing, t), TOP, bottom);
    put_words(drawing, at_x(drawing, t), bottom + 14, "middle",
              arena_printf(drawing->p->m->arena, "%.3g s", t));
  }
}

void plan_lanes_svg(FILE *out, const Planned *planned) {
  Drawing drawing = {planned, &planned->step.lanes, out};
  int axes = (int)planned->m->mesh.n, bottom = lane_y(axes);
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
          "aria-label=\"kernels and messages of a rank over a step\">\n"
          "<style>.g{stroke:#8884}.c{stroke:#888;stroke-dasharray:4 3}</style>\n",
          WIDTH, bottom + 20);
  put_scale(&drawing, bottom);
  for (int axis = -1; axis < axes; axis++) {
    put_words(&drawing, LEFT - 8, lane_y(axis) + 14, "end",
              axis < 0 ? "kernels" : planned->m->mesh.at[axis].name);
    put_lane(&drawing, axis);
  }
  put_waiting(&drawing);
  put_cuts(&drawing, bottom);
  fputs("</svg>\n", out);
}
