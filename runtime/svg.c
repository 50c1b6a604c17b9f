/* Charts over steps, drawn by hand: axes with round numbers, grid, legend, text as text. Colours
   are from the Okabe-Ito palette, which colour-blind readers can tell apart. loss.svg is one of
   them. */
#include "chart.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WIDE = 800, HIGH = 480, LEFT = 70, RIGHT = 24, TOP = 46, BOTTOM = 54, MOST_TICKS = 100 };

typedef struct ChartFrame {
  double x0, x1, y0, y1; /* what the axes span */
  double dx, dy;         /* between two lines of the grid */
} ChartFrame;

static double px(const ChartFrame *chart_frame, double x) {
  return LEFT + (x - chart_frame->x0) / (chart_frame->x1 - chart_frame->x0) * (WIDE - LEFT - RIGHT);
}
static double py(const ChartFrame *chart_frame, double y) {
  return HIGH - BOTTOM -
         (y - chart_frame->y0) / (chart_frame->y1 - chart_frame->y0) * (HIGH - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten, so that about `n` of them fill the span. */
static double round_step(double span, int n) {
  double raw = span / n, power = pow(10, floor(log10(raw))), lead = raw / power;
  return (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10) * power;
}

static void widen(ChartFrame *chart_frame, const Curve *c) {
  for (int i = 0; i < c->n; i++) {
    chart_frame->x1 = fmax(chart_frame->x1, c->step[i]);
    chart_frame->y0 = fmin(chart_frame->y0, c->value[i]),
    chart_frame->y1 = fmax(chart_frame->y1, c->value[i]);
  }
}

static ChartFrame frame(const Series *series, int n) {
  ChartFrame chart_frame = {0, 1, INFINITY, -INFINITY, 1, 1};
  for (int i = 0; i < n; i++) widen(&chart_frame, series[i].curve);
  if (!(chart_frame.y0 <= chart_frame.y1)) chart_frame.y0 = 0, chart_frame.y1 = 1;
  if (chart_frame.y1 - chart_frame.y0 < 1e-6 * (1 + fabs(chart_frame.y1)))
    chart_frame.y0 -= 0.5, chart_frame.y1 += 0.5;
  chart_frame.dx = fmax(1, round_step(chart_frame.x1 - chart_frame.x0, 8)),
  chart_frame.dy = round_step(chart_frame.y1 - chart_frame.y0, 6);
  chart_frame.y0 = floor(chart_frame.y0 / chart_frame.dy) * chart_frame.dy,
  chart_frame.y1 = ceil(chart_frame.y1 / chart_frame.dy) * chart_frame.dy;
  return chart_frame;
}

void rt_put_escaped(FILE *file, const char *s) {
  for (; *s; s++) {
    if (*s == '<') fputs("&lt;", file);
    else if (*s == '&') fputs("&amp;", file);
    else if (*s == '"') fputs("&quot;", file);
    else if ((unsigned char)*s >= ' ') fputc(*s, file);
  }
}

static void text(FILE *file, double x, double y, const char *anchor, const char *s) {
  fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
  rt_put_escaped(file, s);
  fprintf(file, "</text>\n");
}

/* Ticks from `from` to `to`: counted, because a step may be too small to change a large number. */
static int ticks(double from, double to, double step) {
  double n = floor((to - from) / step + 0.01);
  return n > 0 && n < MOST_TICKS ? (int)n : 0;
}

static void axes(FILE *file, const ChartFrame *chart_frame, const char *unit) {
  char number[32];
  double dx = chart_frame->dx, dy = chart_frame->dy;
  int nx = ticks(0, chart_frame->x1, dx), ny = ticks(chart_frame->y0, chart_frame->y1, dy);
  fprintf(file, "<g stroke=\"#ddd\">\n");
  for (int i = 0; i <= ny; i++)
    fprintf(file, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n", LEFT, WIDE - RIGHT,
            py(chart_frame, chart_frame->y0 + i * dy), py(chart_frame, chart_frame->y0 + i * dy));
  for (int i = 0; i <= nx; i++)
    fprintf(file, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n", px(chart_frame, i * dx),
            px(chart_frame, i * dx), TOP, HIGH - BOTTOM);
  fprintf(file, "</g>\n<g fill=\"#333\">\n");
  for (int i = 0; i <= ny; i++) {
    double y = chart_frame->y0 + i * dy;
    snprintf(number, sizeof number, "%.6g", fabs(y) < dy / 1e6 ? 0 : y);
    text(file, LEFT - 8, py(chart_frame, y) + 4, "end", number);
  }
  for (int i = 0; i <= nx; i++) {
    double x = i * dx;
    snprintf(number, sizeof number, "%.9g", x);
    text(file, px(chart_frame, x), HIGH - BOTTOM + 20, "middle", number);
  }
  text(file, (LEFT + WIDE - RIGHT) / 2.0, HIGH - 12, "middle", "step");
  fprintf(
      file,
      "<text transform=\"translate(16 %d) rotate(-90)\" text-anchor=\"middle\">%s</text>\n</g>\n",
      (TOP + HIGH - BOTTOM) / 2, unit);
}

static void line(FILE *file, const ChartFrame *chart_frame, const Curve *c, const char *colour,
                 double width) {
  if (!c->n) return;
  fprintf(file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%g\" points=\"", colour,
          width);
  for (int i = 0; i < c->n; i++)
    fprintf(file, "%s%.1f,%.1f", i ? " " : "", px(chart_frame, c->step[i]),
            py(chart_frame, c->value[i]));
  fprintf(file, "\"/>\n");
}

static void dots(FILE *file, const ChartFrame *chart_frame, const Curve *c, const char *colour) {
  for (int i = 0; i < c->n && c->n <= 100; i++)
    fprintf(file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
            px(chart_frame, c->step[i]), py(chart_frame, c->value[i]), colour);
}

static void legend(FILE *file, int row, const Series *series) {
  char label[160];
  double y = TOP + 18 + 20 * row;
  snprintf(label, sizeof label, "%.100s: %.5g", series->name,
           series->curve->value[series->curve->n - 1]);
  fprintf(file,
          "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"3\"/>\n",
          WIDE - RIGHT - 38, WIDE - RIGHT - 8, y - 4, y - 4, series->colour);
  text(file, WIDE - RIGHT - 46, y, "end", label);
}

void rt_chart(FILE *file, const char *title, const char *unit, const Series *series, int n) {
  ChartFrame chart_frame = frame(series, n);
  int row = 0;
  fprintf(file,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
          "font-family=\"sans-serif\" font-size=\"13\" role=\"img\">\n<title>",
          WIDE, HIGH);
  rt_put_escaped(file, title);
  fprintf(file, "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n<g font-size=\"16\">",
          WIDE, HIGH);
  text(file, LEFT, 28, "start", title);
  fprintf(file, "</g>\n");
  axes(file, &chart_frame, unit);
  for (int i = 0; i < n; i++) {
    line(file, &chart_frame, series[i].curve, series[i].colour, series[i].dots ? 2 : 1.5);
    if (series[i].dots) dots(file, &chart_frame, series[i].curve, series[i].colour);
  }
  for (int i = 0; i < n; i++)
    if (series[i].curve->n && row < 12) legend(file, row++, &series[i]);
  fprintf(file, "</svg>\n");
}

char *rt_loss_svg(const Metrics *metrics, const char *title, size_t *n) {
  char *out = NULL;
  FILE *file = open_memstream(&out, n);
  if (!file) rt_fail(701, "no memory for loss.svg");
  Series series[] = {{&metrics->train, "training", "#0072B2", false},
                     {&metrics->valid, "validation", "#D55E00", true}};
  rt_chart(file, title, "loss", series, 2);
  fclose(file);
  return out;
}
