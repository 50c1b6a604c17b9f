/* The memory of a rank over the ops of a step, as SVG: what stays is at the bottom, what the step
   itself needs is stacked on it, in steps, because memory changes between ops only. The bodies of
   loops stand once, with how often they run below. Bytes that are allocated are a dashed line, what
   the machine has a red one. Colours are those of Okabe and Ito, which colour-blind people tell
   apart. The text says nothing of time or machine: the same plan gives the same bytes. */
#include "cmd_plan.h"
#include "ir/placement.h"
#include "runtime/chart.h"

enum {
  WIDTH = 960,
  HEIGHT = 345,
  LEFT = 80,
  RIGHT = 16,
  TOP = 30,
  BASE = 250,
  COLUMNS = 220,
  NAMED = 3
};
enum { BANDS = 7 };

typedef struct Band {
  const char *name, *colour;
  int64_t fixed; /* bytes that stay */
  int use;       /* of the frame; -1: none */
} Band;

typedef struct Picture {
  const Planned *p;
  FILE *out;
  Band band[BANDS];
  const Moment *column[COLUMNS]; /* of some neighbours the largest */
  uint32_t n, peak;
  double top; /* bytes at the upper edge */
} Picture;

static const char *const colours[PLAN_PARTS] = {"#0072B2", "#E69F00", "#009E73", "#CC79A7",
                                                "#56B4E9", "#D55E00", "#999999"};
const char *plan_colour(int part) { return colours[part]; }

/* ---- what is drawn ---- */

static int64_t frame_bytes(const Moment *t) {
  int64_t sum = 0;
  for (int u = 0; u < USE_COUNT; u++) sum += t->alive[u];
  return sum;
}

/* Bytes of arenas that are neither weights nor states nor the frame: inputs, outputs. */
static int64_t other_bytes(const Planned *p) {
  const Budget *b = &p->need;
  return b->total - b->weights - b->optimizer - p->frame;
}

static void set_bands(Picture *x) {
  const Budget *b = &x->p->need;
  const Band bands[BANDS] = {{"weights", colours[0], b->weights, -1},
                             {"optimizer", colours[2], b->optimizer, -1},
                             {"inputs, outputs", "#777777", other_bytes(x->p), -1},
                             {"gradients", colours[1], 0, USE_GRADIENT},
                             {"saved", colours[3], 0, USE_SAVED},
                             {"buffers", colours[5], 0, USE_BUFFER},
                             {"working", colours[4], 0, USE_WORKING}};
  memcpy(x->band, bands, sizeof bands);
}

static void set_columns(Picture *x) {
  const Timeline *t = &x->p->timeline;
  x->n = t->moment.n < COLUMNS ? t->moment.n : COLUMNS;
  for (uint32_t i = 0; i < t->moment.n; i++) {
    uint32_t c = (uint32_t)((uint64_t)i * x->n / t->moment.n);
    const Moment *now = &t->moment.at[i];
    if (!x->column[c] || frame_bytes(now) > frame_bytes(x->column[c])) x->column[c] = now;
    if (i == t->peak) x->peak = c;
  }
}

static void set_scale(Picture *x) {
  double all = (double)x->p->need.total, has = (double)plan_capacity(&x->p->machine);
  x->top = 1.06 * (has > 0 && has < 3 * all && has > all ? has : all);
}

static int at_x(const Picture *x, uint32_t column) {
  return LEFT + (int)((WIDTH - LEFT - RIGHT) * (int64_t)column / (x->n ? x->n : 1));
}

static int at_y(const Picture *x, double bytes) {
  return BASE - (int)((BASE - TOP) * bytes / x->top + 0.5);
}

/* Bytes up to the top of a band. */
static double height(const Picture *x, const Moment *t, int band) {
  double sum = 0;
  for (int i = 0; i <= band; i++)
    sum += (double)x->band[i].fixed + (x->band[i].use < 0 ? 0 : (double)t->alive[x->band[i].use]);
  return sum;
}

/* ---- shapes ---- */

static bool is_empty(const Picture *x, int band) {
  int64_t most = x->band[band].fixed;
  for (uint32_t i = 0; i < x->n && x->band[band].use >= 0; i++)
    if (x->column[i]->alive[x->band[band].use] > most)
      most = x->column[i]->alive[x->band[band].use];
  return !most;
}

/* Along the top from left to right, back along the top of the band below. */
static void put_band(const Picture *x, int band) {
  if (is_empty(x, band) || !x->n) return;
  int last = -1;
  fprintf(x->out, "<path fill=\"%s\" d=\"M%d %d", x->band[band].colour, LEFT, BASE);
  for (uint32_t i = 0; i < x->n; i++) {
    int y = at_y(x, height(x, x->column[i], band));
    if (y != last && i) fprintf(x->out, "H%dV%d", at_x(x, i), y);
    else if (!i) fprintf(x->out, "V%d", y);
    last = y;
  }
  fprintf(x->out, "H%d", at_x(x, x->n));
  last = -1;
  for (uint32_t i = x->n; i-- > 0;) {
    int y = band ? at_y(x, height(x, x->column[i], band - 1)) : BASE;
    if (y != last) fprintf(x->out, "V%dH%d", y, at_x(x, i));
    else fprintf(x->out, "H%d", at_x(x, i));
    last = y;
  }
  fprintf(x->out, "z\"><title>%s</title></path>\n", x->band[band].name);
}

static void put_text(const Picture *x, int at, int y, const char *more, const char *text) {
  fprintf(x->out, "<text x=\"%d\" y=\"%d\"%s>", at, y, more);
  rt_put_escaped(x->out, text);
  fputs("</text>\n", x->out);
}

static const char *bytes_text(const Picture *x, double bytes) {
  return plan_amount(x->p->m->arena, bytes);
}

static void put_scale(const Picture *x) {
  double step = 1;
  while (x->top / step > 5) step *= 2;
  for (double v = 0; v <= x->top; v += step) {
    fprintf(x->out, "<path class=\"g\" d=\"M%d %dH%d\"/>\n", LEFT, at_y(x, v), WIDTH - RIGHT);
    put_text(x, LEFT - 6, at_y(x, v) + 4, " class=\"t\" text-anchor=\"end\"", bytes_text(x, v));
  }
}

static void put_level(const Picture *x, double bytes, const char *colour, const char *what) {
  const char *text = arena_printf(x->p->m->arena, "%s %s", what, bytes_text(x, bytes));
  if (bytes > x->top) return;
  fprintf(x->out, "<path stroke=\"%s\" stroke-dasharray=\"6 4\" d=\"M%d %dH%d\"/>\n", colour, LEFT,
          at_y(x, bytes), WIDTH - RIGHT);
  put_text(x, WIDTH - RIGHT, at_y(x, bytes) - 4, " class=\"t l\" text-anchor=\"end\"", text);
}

/* h.fwd x 12, below the columns of a body. */
static void put_bodies(const Picture *x) {
  for (uint32_t i = 0, j; i < x->n; i = j) {
    const Moment *t = x->column[i];
    for (j = i + 1; j < x->n && x->column[j]->f == t->f; j++) {}
    if (t->f->kind == FN_ENTRY) continue;
    int a = at_x(x, i) + 1, b = at_x(x, j) - 1;
    fprintf(x->out, "<path class=\"b\" d=\"M%d %dv5H%dv-5\"/>\n", a, BASE + 3, b);
    if (b - a < 40) continue;
    const char *name = arena_printf(x->p->m->arena, "%s × %.0f", t->f->name, t->times);
    if ((b - a) < 6 * (int)strlen(name)) name = arena_printf(x->p->m->arena, "× %.0f", t->times);
    put_text(x, (a + b) / 2, BASE + 20, " class=\"t\" text-anchor=\"middle\"", name);
  }
}

static void put_peak(const Picture *x) {
  const Timeline *t = &x->p->timeline;
  if (!t->moment.n) return;
  int at = (at_x(x, x->peak) + at_x(x, x->peak + 1)) / 2;
  int y = at_y(x, height(x, x->column[x->peak], BANDS - 1));
  fprintf(x->out, "<path class=\"b\" d=\"M%d %dV%d\"/>\n", at, y, BASE);
  const char *text =
      arena_printf(x->p->m->arena, "the line marks the largest moment, %s; its largest buffers:",
                   bytes_text(x, height(x, x->column[x->peak], BANDS - 1)));
  put_text(x, LEFT, BASE + 40, " class=\"t\"", text);
  for (uint32_t i = 0; i < t->alive.n && i < NAMED; i++) {
    const Alive *b = &t->alive.at[i];
    text = arena_printf(x->p->m->arena, "%s, %s", bytes_text(x, (double)b->bytes),
                        plan_buffer(x->p, b));
    put_text(x, LEFT + 12, BASE + 56 + 16 * (int)i, " class=\"t\"", text);
  }
}

static void put_legend(const Picture *x) {
  int at = LEFT;
  for (int i = 0; i < BANDS; i++) {
    if (is_empty(x, i)) continue;
    fprintf(x->out, "<rect x=\"%d\" y=\"6\" width=\"10\" height=\"10\" fill=\"%s\"/>", at,
            x->band[i].colour);
    put_text(x, at + 14, 15, " class=\"t\"", x->band[i].name);
    at += 34 + 7 * (int)strlen(x->band[i].name);
  }
}

void plan_svg(FILE *out, const Planned *p) {
  static const char style[] =
      "<style>.t{font:12px system-ui,sans-serif;fill:#666}.g{stroke:#8884}.b{stroke:#666;fill:none}"
      ".l{fill:#222;stroke:#fffc;stroke-width:3px;paint-order:stroke}"
      "@media(prefers-color-scheme:dark){.t{fill:#aaa}.b{stroke:#aaa}}</style>\n";
  Picture x = {.p = p, .out = out};
  set_bands(&x), set_columns(&x), set_scale(&x);
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
          "aria-label=\"memory of a rank over a step\">\n%s",
          WIDTH, HEIGHT, style);
  put_legend(&x);
  for (int i = 0; i < BANDS; i++) put_band(&x, i);
  put_scale(&x);
  put_level(&x, (double)p->need.total, "#666666", "allocated");
  if (p->machine.memory) put_level(&x, (double)plan_capacity(&p->machine), "#d00000", "capacity");
  put_bodies(&x), put_peak(&x);
  fputs("</svg>\n", out);
}
