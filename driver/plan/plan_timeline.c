/* The lanes of a rank over a step, as SVG: kernels above, below them the streams of the host's
   memory and a lane per mesh axis with the messages over it (timeline.h). Waiting times of the
   kernels are marked in their lane; an arrow is a token, from the operation that is waited for to
   the one that waits. A loop shows the rounds that the list of events has; a dashed line has the
   number of omitted rounds. Spans too short to be visible are merged with their neighbours; arrows
   too close to tell apart are drawn once. */
#include "plan_report.h"
#include "ir/schedule/stream_order.h"
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

static bool has_lane(const Drawing *drawing, int axis) {
  for (uint32_t i = 0; i < drawing->lanes->span.n; i++)
    if (drawing->lanes->span.at[i].axis == axis) return true;
  return false;
}

/* Kernels, streams, axes. */
static int lane_row(const Drawing *drawing, int axis) {
  int row = axis == -1 ? 0 : 1;
  for (OpStream stream = STREAM_down; stream < STREAMS; stream++)
    if (axis != -1 && (axis >= 0 || -1 - axis > (int)stream))
      row += has_lane(drawing, -1 - (int)stream);
  return row + (axis > 0 ? axis : 0);
}

static int lane_y(const Drawing *drawing, int axis) { return TOP + LANE * lane_row(drawing, axis); }

static void put_bar(const Drawing *drawing, int axis, double from, double to, const char *colour,
                    const char *what) {
  double x = at_x(drawing, from), width = at_x(drawing, to) - x;
  if (width > 2) width -= 0.6; /* neighbours stay apart */
  fprintf(drawing->out,
          "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>", x,
          lane_y(drawing, axis), width < 0.4 ? 0.4 : width, BAR, colour);
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
  const char *colour = axis == -1                                                ? "#0072B2"
                       : axis < -1                                               ? "#56B4E9"
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
  static const char waits[] = "kernels wait";
  double free = 0;
  for (uint32_t i = 0; i < drawing->lanes->span.n; i++) {
    const LaneSpan *span = &drawing->lanes->span.at[i];
    if (span->axis != -1) continue;
    if (at_x(drawing, span->from) - at_x(drawing, free) > 0.4)
      put_bar(drawing, -1, free, span->from, "#E69F0066", waits);
    free = span->to;
  }
  if (at_x(drawing, drawing->lanes->shown) - at_x(drawing, free) > 0.4)
    put_bar(drawing, -1, free, drawing->lanes->shown, "#E69F0066", waits);
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

static void put_arrows(const Drawing *drawing) {
  enum { NEAR = 4 };
  double last[STREAMS][STREAMS] = {{0}}; /* x of the latest one between two lanes */
  for (uint32_t i = 0; i < drawing->lanes->arrow.n; i++) {
    const LaneArrow *arrow = &drawing->lanes->arrow.at[i];
    double x = at_x(drawing, arrow->left), to = at_x(drawing, arrow->right),
           *before = &last[-1 - arrow->from][-1 - arrow->to];
    int y = lane_y(drawing, arrow->from), down = lane_y(drawing, arrow->to);
    if (!has_lane(drawing, arrow->from) || !has_lane(drawing, arrow->to)) continue;
    if (to - *before < NEAR) continue;
    *before = to;
    fprintf(
        drawing->out,
        "<path class=\"w\" marker-end=\"url(#head)\" d=\"M%.1f %dL%.1f %d\"><title>%s waits for "
        "%s</title></path>\n",
        x, down > y ? y + BAR : y, to, down > y ? down : down + BAR,
        stream_name((OpStream)(-1 - arrow->to)), stream_name((OpStream)(-1 - arrow->from)));
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

/* The name of a lane; NULL: the program does not have it. */
static const char *lane_name(const Drawing *drawing, int axis) {
  if (axis == -1) return "kernels";
  if (axis >= 0) return drawing->p->m->mesh.at[axis].name;
  return has_lane(drawing, axis) ? stream_name((OpStream)(-1 - axis)) : NULL;
}

void plan_lanes_svg(FILE *out, const Planned *planned) {
  Drawing drawing = {planned, &planned->step.lanes, out};
  int axes = (int)planned->m->mesh.n, bottom = lane_y(&drawing, axes);
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
          "aria-label=\"kernels, copies and messages of a rank over a step\">\n"
          "<style>.g{stroke:#8884}.c{stroke:#888;stroke-dasharray:4 3}"
          ".w{stroke:#888;fill:none}.h{fill:#888}</style>\n"
          "<marker id=\"head\" viewBox=\"0 0 6 6\" refX=\"6\" refY=\"3\" markerWidth=\"6\" "
          "markerHeight=\"6\" orient=\"auto\"><path class=\"h\" d=\"M0 0L6 3L0 6z\"/></marker>\n",
          WIDTH, bottom + 20);
  put_scale(&drawing, bottom);
  for (int axis = -(int)STREAMS; axis < axes; axis++) {
    const char *name = lane_name(&drawing, axis);
    if (!name) continue;
    put_words(&drawing, LEFT - 8, lane_y(&drawing, axis) + 14, "end", name);
    put_lane(&drawing, axis);
  }
  put_waiting(&drawing), put_arrows(&drawing);
  put_cuts(&drawing, bottom);
  fputs("</svg>\n", out);
}
