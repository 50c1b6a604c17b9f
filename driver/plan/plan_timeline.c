/* The lanes of a rank over a step, as SVG: kernels above, below them the streams of the host's
   memory, operations outside of entries, and a lane per mesh axis with the messages over it
   (timeline.h). An arrow is a token, from the operation that is waited for to the one that waits; a
   short dashed one comes from the round, or the step, before.

   With times, waiting times of the kernels are marked in their lane. A loop shows the rounds that
   the list of events has; a dashed line has the number of omitted rounds. Spans too short to be
   visible are merged with their neighbours; arrows too close to tell apart are drawn once.

   Without times every operation is a box with its name, and a loop is a bracket around one round.
 */
#include "plan_timeline.h"
#include "plan_report.h"
#include "ir/schedule/stream_order.h"
#include "runtime/chart.h"
#include <string.h>

enum { WIDTH = 960, LEFT = 80, RIGHT = 16, TOP = 24, LANE = 26, BAR = 18, UNITS = 5 };
enum { BOX = 84, GAP = 8, LETTERS = 10, BRACKET = 20 }; /* without times */

typedef struct Drawing {
  const Module *m;
  const Machine *machine; /* NULL: without times */
  const Lanes *lanes;
  FILE *out;
} Drawing;

static double at_x(const Drawing *drawing, double time) {
  if (!drawing->machine) return LEFT + BOX * time;
  return LEFT + (WIDTH - LEFT - RIGHT) * time / drawing->lanes->shown;
}

static int deepest(const Drawing *drawing) {
  int depth = 0;
  for (uint32_t i = 0; i < drawing->lanes->loop.n; i++)
    if (drawing->lanes->loop.at[i].depth >= depth) depth = drawing->lanes->loop.at[i].depth + 1;
  return depth;
}

static bool has_lane(const Drawing *drawing, int axis) {
  if (axis == LANE_KERNELS || (drawing->machine && axis >= 0)) return true;
  for (uint32_t i = 0; i < drawing->lanes->span.n; i++)
    if (drawing->lanes->span.at[i].axis == axis) return true;
  return false;
}

static int lane_y(const Drawing *drawing, int axis) {
  int row = 0;
  for (int above = 0; above < axis; above++) row += has_lane(drawing, above);
  for (int above = LANE_KERNELS; above >= LANE_LOWEST && (axis >= 0 || above > axis); above--)
    row += has_lane(drawing, above);
  return TOP + BRACKET * deepest(drawing) + LANE * row;
}

static void put_bar(const Drawing *drawing, int axis, double from, double to, const char *colour,
                    const char *what) {
  double x = at_x(drawing, from), width = at_x(drawing, to) - x;
  width -= !drawing->machine ? GAP : width > 2 ? 0.6 : 0; /* neighbours stay apart */
  fprintf(drawing->out,
          "<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"><title>", x,
          lane_y(drawing, axis), width < 0.4 ? 0.4 : width, BAR, colour);
  rt_put_escaped(drawing->out, what);
  fputs("</title></rect>\n", drawing->out);
}

static const char *span_name(const LaneSpan *span) {
  if (!span->event) return span->name;
  const Op *o = event_op(span->event);
  return o->callee ? o->callee->name : op_name(o->code);
}

static const char *said(const Drawing *drawing, const LaneSpan *span) {
  const char *of = span_name(span);
  const char *where = span->event ? span->event->f->name : "the background";
  if (!drawing->machine) return arena_printf(drawing->m->arena, "%s in %s", of, where);
  return arena_printf(drawing->m->arena, "%s in %s: %.3g s", of, where, span->to - span->from);
}

static const char *lane_colour(const Drawing *drawing, int axis) {
  if (axis == LANE_KERNELS) return "#0072B2";
  if (axis < 0) return axis > stream_lane(STREAMS) ? "#56B4E9" : "#CC79A7";
  if (!drawing->machine) return "#009E73";
  return axis_crosses(drawing->m, drawing->machine, axis) ? "#D55E00" : "#009E73";
}

static void put_words(const Drawing *drawing, double x, int y, const char *anchor,
                      const char *words) {
  fprintf(drawing->out, "<text class=\"t\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">", x, y, anchor);
  rt_put_escaped(drawing->out, words);
  fputs("</text>\n", drawing->out);
}

/* sum1 of h.fwd.sum1 in h.fwd */
static const char *short_name(const LaneSpan *span) {
  const char *name = span_name(span);
  size_t n = span->event ? strlen(span->event->f->name) : 0;
  return n && !strncmp(name, span->event->f->name, n) && name[n] == '.' ? name + n + 1 : name;
}

/* With its name; where that is too long, with the end of it. */
static void put_span(const Drawing *drawing, int axis, const LaneSpan *span, const char *colour) {
  put_bar(drawing, axis, span->from, span->to, colour, said(drawing, span));
  if (drawing->machine) return;
  const char *name = short_name(span);
  int n = (int)strlen(name);
  fprintf(drawing->out, "<text class=\"boxed\" x=\"%.1f\" y=\"%d\">%s",
          at_x(drawing, span->from) + 4, lane_y(drawing, axis) + BAR - 5, n > LETTERS ? "…" : "");
  rt_put_escaped(drawing->out, n > LETTERS ? name + n - LETTERS + 1 : name);
  fputs("</text>\n", drawing->out);
}

/* Spans of one lane from left to right; those too close to tell apart are merged. */
static void put_lane(const Drawing *drawing, int axis) {
  const char *colour = lane_colour(drawing, axis);
  double from = 0, to = -1;
  for (uint32_t i = 0; i < drawing->lanes->span.n; i++) {
    const LaneSpan *span = &drawing->lanes->span.at[i];
    double wide = at_x(drawing, span->to) - at_x(drawing, span->from);
    if (span->axis != axis) continue;
    bool joins = wide < 1 && to >= 0 && at_x(drawing, span->from) - at_x(drawing, to) < 0.5;
    if (!joins && to >= 0) put_bar(drawing, axis, from, to, colour, "short ones"), to = -1;
    if (wide >= 1) put_span(drawing, axis, span, colour);
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

static void put_cuts(const Drawing *drawing, int bottom) {
  double last = 0;
  for (uint32_t i = 0; i < drawing->lanes->cut.n; i++) {
    const LaneBreak *lane_break = &drawing->lanes->cut.at[i];
    double x = at_x(drawing, lane_break->at);
    fprintf(drawing->out, "<path class=\"c\" d=\"M%.1f %dV%d\"/>\n", x, TOP - 4, bottom);
    if (x - last < 90) continue;
    put_words(drawing, x, TOP - 8, "middle",
              arena_printf(drawing->m->arena, "+ %lld rounds", (long long)lane_break->rounds));
    last = x;
  }
}

static const char *arrow_said(const Drawing *drawing, const LaneArrow *arrow) {
  return arena_printf(drawing->m->arena, "%s waits for %s%s", lane_name(drawing->m, arrow->to),
                      lane_name(drawing->m, arrow->from),
                      arrow->before ? ", the round or step before" : "");
}

static void put_arrow(const Drawing *drawing, const LaneArrow *arrow) {
  double to = at_x(drawing, arrow->right), x = at_x(drawing, arrow->left);
  int y = lane_y(drawing, arrow->from), down = lane_y(drawing, arrow->to);
  if (arrow->before) x = to - 2 * GAP, y = down > y ? down - LANE : down + LANE;
  else if (!drawing->machine) x -= GAP;
  fprintf(drawing->out,
          "<path class=\"%s\" marker-end=\"url(#tip)\" d=\"M%.1f %dL%.1f %d\"><title>",
          arrow->before ? "w c" : "w", x, down > y ? y + BAR : y, to, down > y ? down : down + BAR);
  rt_put_escaped(drawing->out, arrow_said(drawing, arrow));
  fputs("</title></path>\n", drawing->out);
}

static void put_arrows(const Drawing *drawing) {
  enum { NEAR = 4 };
  double last[-LANE_LOWEST][-LANE_LOWEST] = {{0}}; /* x of the latest one between two lanes */
  for (uint32_t i = 0; i < drawing->lanes->arrow.n; i++) {
    const LaneArrow *arrow = &drawing->lanes->arrow.at[i];
    if (!has_lane(drawing, arrow->from) || !has_lane(drawing, arrow->to)) continue;
    if (drawing->machine) {
      double *before = &last[-1 - arrow->from][-1 - arrow->to], to = at_x(drawing, arrow->right);
      if (to - *before < NEAR) continue;
      *before = to;
    }
    put_arrow(drawing, arrow);
  }
}

/* h.fwd × 12, a bracket above the boxes of its round. */
static void put_loops(const Drawing *drawing) {
  for (uint32_t i = 0; i < drawing->lanes->loop.n; i++) {
    const LaneLoop *loop = &drawing->lanes->loop.at[i];
    double from = at_x(drawing, loop->from), to = at_x(drawing, loop->to) - GAP;
    int y = TOP + BRACKET * loop->depth - 6;
    fprintf(drawing->out, "<path class=\"w\" d=\"M%.1f %dv-6H%.1fv6\"/>\n", from, y, to);
    put_words(
        drawing, from + 4, y - 9, "start",
        arena_printf(drawing->m->arena, "%s × %lld", loop->body->name, (long long)loop->rounds));
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
              arena_printf(drawing->m->arena, "%.3g s", t));
  }
}

void lanes_svg(FILE *out, const LanesPicture *picture) {
  Drawing drawing = {picture->m, picture->machine, picture->lanes, out};
  int axes = (int)drawing.m->mesh.n, bottom = lane_y(&drawing, axes);
  double width = drawing.machine ? WIDTH : at_x(&drawing, drawing.lanes->shown) + RIGHT;
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" viewBox=\"0 0 %.0f %d\" "
          "role=\"img\" aria-label=\"kernels, copies and messages of a rank over a step\">\n"
          "<style>.g{stroke:#8884}.c{stroke:#888;stroke-dasharray:4 3}"
          ".w{stroke:#888;fill:none}.h{fill:#888}.boxed{font:11px "
          "system-ui,sans-serif;fill:#fff}</style>\n"
          "<marker id=\"tip\" viewBox=\"0 0 6 6\" refX=\"6\" refY=\"3\" markerWidth=\"6\" "
          "markerHeight=\"6\" orient=\"auto\"><path class=\"h\" d=\"M0 0L6 3L0 6z\"/></marker>\n",
          width, width, bottom + (drawing.machine ? 20 : 4));
  if (drawing.machine) put_scale(&drawing, bottom);
  for (int axis = LANE_LOWEST; axis < axes; axis++) {
    if (!has_lane(&drawing, axis)) continue;
    put_words(&drawing, LEFT - 8, lane_y(&drawing, axis) + 14, "end", lane_name(drawing.m, axis));
    put_lane(&drawing, axis);
  }
  if (drawing.machine) put_waiting(&drawing);
  put_arrows(&drawing), put_cuts(&drawing, bottom), put_loops(&drawing);
  fputs("</svg>\n", out);
}
