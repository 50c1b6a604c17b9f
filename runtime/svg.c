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

static double px(const ChartFrame *a, double x) {
  return LEFT + (x - a->x0) / (a->x1 - a->x0) * (WIDE - LEFT - RIGHT);
}
static double py(const ChartFrame *a, double y) {
  return HIGH - BOTTOM - (y - a->y0) / (a->y1 - a->y0) * (HIGH - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten, so that about `n` of them fill the span. */
static double round_step(double span, int n) {
  double raw = span / n, power = pow(10, floor(log10(raw))), lead = raw / power;
  return (lead < 1.5 ? 1 : lead < 3.5 ? 2 : lead < 7.5 ? 5 : 10) * power;
}

static void widen(ChartFrame *a, const Curve *c) {
  for (int i = 0; i < c->n; i++) {
    a->x1 = fmax(a->x1, c->step[i]);
    a->y0 = fmin(a->y0, c->value[i]), a->y1 = fmax(a->y1, c->value[i]);
  }
}

static ChartFrame frame(const Series *s, int n) {
  ChartFrame a = {0, 1, INFINITY, -INFINITY, 1, 1};
  for (int i = 0; i < n; i++) widen(&a, s[i].curve);
  if (!(a.y0 <= a.y1)) a.y0 = 0, a.y1 = 1;
  if (a.y1 - a.y0 < 1e-6 * (1 + fabs(a.y1))) a.y0 -= 0.5, a.y1 += 0.5;
  a.dx = fmax(1, round_step(a.x1 - a.x0, 8)), a.dy = round_step(a.y1 - a.y0, 6);
  a.y0 = floor(a.y0 / a.dy) * a.dy, a.y1 = ceil(a.y1 / a.dy) * a.dy;
  return a;
}

void rt_put_escaped(FILE *o, const char *s) {
  for (; *s; s++) {
    if (*s == '<') fputs("&lt;", o);
    else if (*s == '&') fputs("&amp;", o);
    else if (*s == '"') fputs("&quot;", o);
    else if ((unsigned char)*s >= ' ') fputc(*s, o);
  }
}

static void text(FILE *o, double x, double y, const char *anchor, const char *s) {
  fprintf(o, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">", x, y, anchor);
  rt_put_escaped(o, s);
  fprintf(o, "</text>\n");
}

/* Ticks from `from` to `to`: counted, because a step may be too small to change a large number. */
static int ticks(double from, double to, double step) {
  double n = floor((to - from) / step + 0.01);
  return n > 0 && n < MOST_TICKS ? (int)n : 0;
}

static void axes(FILE *o, const ChartFrame *a, const char *unit) {
  char number[32];
  double dx = a->dx, dy = a->dy;
  int nx = ticks(0, a->x1, dx), ny = ticks(a->y0, a->y1, dy);
  fprintf(o, "<g stroke=\"#ddd\">\n");
  for (int i = 0; i <= ny; i++)
    fprintf(o, "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n", LEFT, WIDE - RIGHT,
            py(a, a->y0 + i * dy), py(a, a->y0 + i * dy));
  for (int i = 0; i <= nx; i++)
    fprintf(o, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>\n", px(a, i * dx),
            px(a, i * dx), TOP, HIGH - BOTTOM);
  fprintf(o, "</g>\n<g fill=\"#333\">\n");
  for (int i = 0; i <= ny; i++) {
    double y = a->y0 + i * dy;
    snprintf(number, sizeof number, "%.6g", fabs(y) < dy / 1e6 ? 0 : y);
    text(o, LEFT - 8, py(a, y) + 4, "end", number);
  }
  for (int i = 0; i <= nx; i++) {
    double x = i * dx;
    snprintf(number, sizeof number, "%.9g", x);
    text(o, px(a, x), HIGH - BOTTOM + 20, "middle", number);
  }
  text(o, (LEFT + WIDE - RIGHT) / 2.0, HIGH - 12, "middle", "step");
  fprintf(
      o,
      "<text transform=\"translate(16 %d) rotate(-90)\" text-anchor=\"middle\">%s</text>\n</g>\n",
      (TOP + HIGH - BOTTOM) / 2, unit);
}

static void line(FILE *o, const ChartFrame *a, const Curve *c, const char *colour, double width) {
  if (!c->n) return;
  fprintf(o, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%g\" points=\"", colour, width);
  for (int i = 0; i < c->n; i++)
    fprintf(o, "%s%.1f,%.1f", i ? " " : "", px(a, c->step[i]), py(a, c->value[i]));
  fprintf(o, "\"/>\n");
}

static void dots(FILE *o, const ChartFrame *a, const Curve *c, const char *colour) {
  for (int i = 0; i < c->n && c->n <= 100; i++)
    fprintf(o, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n", px(a, c->step[i]),
            py(a, c->value[i]), colour);
}

static void legend(FILE *o, int row, const Series *s) {
  char label[160];
  double y = TOP + 18 + 20 * row;
  snprintf(label, sizeof label, "%.100s: %.5g", s->name, s->curve->value[s->curve->n - 1]);
  fprintf(o,
          "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"3\"/>\n",
          WIDE - RIGHT - 38, WIDE - RIGHT - 8, y - 4, y - 4, s->colour);
  text(o, WIDE - RIGHT - 46, y, "end", label);
}

void rt_chart(FILE *o, const char *title, const char *unit, const Series *s, int n) {
  ChartFrame a = frame(s, n);
  int row = 0;
  fprintf(o,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
          "font-family=\"sans-serif\" font-size=\"13\" role=\"img\">\n<title>",
          WIDE, HIGH);
  rt_put_escaped(o, title);
  fprintf(o, "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n<g font-size=\"16\">",
          WIDE, HIGH);
  text(o, LEFT, 28, "start", title);
  fprintf(o, "</g>\n");
  axes(o, &a, unit);
  for (int i = 0; i < n; i++) {
    line(o, &a, s[i].curve, s[i].colour, s[i].dots ? 2 : 1.5);
    if (s[i].dots) dots(o, &a, s[i].curve, s[i].colour);
  }
  for (int i = 0; i < n; i++)
    if (s[i].curve->n && row < 12) legend(o, row++, &s[i]);
  fprintf(o, "</svg>\n");
}

char *rt_loss_svg(const Metrics *m, const char *title, size_t *n) {
  char *out = NULL;
  FILE *o = open_memstream(&out, n);
  if (!o) rt_fail(701, "no memory for loss.svg");
  Series s[] = {{&m->train, "training", "#0072B2", false},
                {&m->valid, "validation", "#D55E00", true}};
  rt_chart(o, title, "loss", s, 2);
  fclose(o);
  return out;
}
