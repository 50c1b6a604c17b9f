/* The memory of a rank over the ops of a step, as SVG: persistent data is at the bottom, the
   working memory of the step is stacked on it, as a step function, because memory changes only
   between ops. Bodies of loops are drawn once, with the number of their rounds below. A dashed line
   is the allocated memory, a red one that of the machine. Colours are those of Okabe and Ito, which
   colour-blind people can distinguish. The text is independent of time and machine: the same plan
   gives the same bytes. */
#include "plan_report.h"
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
enum { BANDS = 8 };

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

const char *plan_buffer(const Planned *planned, const Alive *alive) {
  const Op *def = alive->value == NO_VALUE ? NULL : value_def(alive->f, alive->value);
  const char *of = !def ? alive->f->name : def->callee ? def->callee->name : op_name(def->code);
  if (alive->value == NO_VALUE) return arena_printf(planned->m->arena, "workspace in %s", of);
  Loc at = def ? def->loc : (Loc){0};
  const char *where =
      at.file && at.file <= planned->m->sources.n ? planned->m->sources.at[at.file - 1].name : NULL;
  const char *file = where && strrchr(where, '/') ? strrchr(where, '/') + 1 : where;
  return arena_printf(planned->m->arena, "%s of %s%s",
                      type_text(planned->m, value_type(alive->f, alive->value)), of,
                      file ? arena_printf(planned->m->arena, " (%s:%u)", file, at.line) : "");
}

/* ---- what is drawn ---- */

static int64_t frame_bytes(const Moment *moment) {
  int64_t sum = 0;
  for (int u = 0; u < USE_COUNT; u++) sum += moment->alive[u];
  return sum;
}

/* Bytes of arenas that are neither weights nor states, slots nor the frame: inputs, outputs. */
static int64_t other_bytes(const Planned *planned) {
  const Budget *budget = &planned->need;
  return budget->total - budget->weights - budget->optimizer - module_slots(planned->m) -
         planned->frame;
}

static void set_bands(Picture *picture) {
  const Budget *budget = &picture->p->need;
  const Band bands[BANDS] = {{"weights", colours[0], budget->weights, -1},
                             {"optimizer", colours[2], budget->optimizer, -1},
                             {"inputs, outputs", "#777777", other_bytes(picture->p), -1},
                             {"slots of copies", "#F0E442", module_slots(picture->p->m), -1},
                             {"gradients", colours[1], 0, USE_GRADIENT},
                             {"saved", colours[3], 0, USE_SAVED},
                             {"buffers", colours[5], 0, USE_BUFFER},
                             {"working", colours[4], 0, USE_WORKING}};
  memcpy(picture->band, bands, sizeof bands);
}

static void set_columns(Picture *picture) {
  const Timeline *timeline = &picture->p->timeline;
  picture->n = timeline->moment.n < COLUMNS ? timeline->moment.n : COLUMNS;
  for (uint32_t i = 0; i < timeline->moment.n; i++) {
    uint32_t c = (uint32_t)((uint64_t)i * picture->n / timeline->moment.n);
    const Moment *now = &timeline->moment.at[i];
    if (!picture->column[c] || frame_bytes(now) > frame_bytes(picture->column[c]))
      picture->column[c] = now;
    if (i == timeline->peak) picture->peak = c;
  }
}

static void set_scale(Picture *picture) {
  double all = (double)picture->p->need.total, has = (double)plan_capacity(&picture->p->machine);
  picture->top = 1.06 * (has > 0 && has < 3 * all && has > all ? has : all);
}

static int at_x(const Picture *picture, uint32_t column) {
  return LEFT + (int)((WIDTH - LEFT - RIGHT) * (int64_t)column / (picture->n ? picture->n : 1));
}

static int at_y(const Picture *picture, double bytes) {
  return BASE - (int)((BASE - TOP) * bytes / picture->top + 0.5);
}

/* Bytes up to the top of a band. */
static double height(const Picture *picture, const Moment *moment, int band) {
  double sum = 0;
  for (int i = 0; i <= band; i++)
    sum += (double)picture->band[i].fixed +
           (picture->band[i].use < 0 ? 0 : (double)moment->alive[picture->band[i].use]);
  return sum;
}

/* ---- shapes ---- */

static bool is_empty(const Picture *picture, int band) {
  int64_t most = picture->band[band].fixed;
  for (uint32_t i = 0; i < picture->n && picture->band[band].use >= 0; i++)
    if (picture->column[i]->alive[picture->band[band].use] > most)
      most = picture->column[i]->alive[picture->band[band].use];
  return !most;
}

/* Along the top from left to right, back along the top of the band below. */
static void put_band(const Picture *picture, int band) {
  if (is_empty(picture, band) || !picture->n) return;
  int last = -1;
  fprintf(picture->out, "<path fill=\"%s\" d=\"M%d %d", picture->band[band].colour, LEFT, BASE);
  for (uint32_t i = 0; i < picture->n; i++) {
    int y = at_y(picture, height(picture, picture->column[i], band));
    if (y != last && i) fprintf(picture->out, "H%dV%d", at_x(picture, i), y);
    else if (!i) fprintf(picture->out, "V%d", y);
    last = y;
  }
  fprintf(picture->out, "H%d", at_x(picture, picture->n));
  last = -1;
  for (uint32_t i = picture->n; i-- > 0;) {
    int y = band ? at_y(picture, height(picture, picture->column[i], band - 1)) : BASE;
    if (y != last) fprintf(picture->out, "V%dH%d", y, at_x(picture, i));
    else fprintf(picture->out, "H%d", at_x(picture, i));
    last = y;
  }
  fprintf(picture->out, "z\"><title>%s</title></path>\n", picture->band[band].name);
}

static void put_text(const Picture *picture, int at, int y, const char *more, const char *text) {
  fprintf(picture->out, "<text x=\"%d\" y=\"%d\"%s>", at, y, more);
  rt_put_escaped(picture->out, text);
  fputs("</text>\n", picture->out);
}

static const char *bytes_text(const Picture *picture, double bytes) {
  return arena_amount(picture->p->m->arena, bytes);
}

static void put_scale(const Picture *picture) {
  double step = 1;
  while (picture->top / step > 5) step *= 2;
  for (double v = 0; v <= picture->top; v += step) {
    fprintf(picture->out, "<path class=\"g\" d=\"M%d %dH%d\"/>\n", LEFT, at_y(picture, v),
            WIDTH - RIGHT);
    put_text(picture, LEFT - 6, at_y(picture, v) + 4, " class=\"t\" text-anchor=\"end\"",
             bytes_text(picture, v));
  }
}

static void put_level(const Picture *picture, double bytes, const char *colour, const char *what) {
  const char *text = arena_printf(picture->p->m->arena, "%s %s", what, bytes_text(picture, bytes));
  if (bytes > picture->top) return;
  fprintf(picture->out, "<path stroke=\"%s\" stroke-dasharray=\"6 4\" d=\"M%d %dH%d\"/>\n", colour,
          LEFT, at_y(picture, bytes), WIDTH - RIGHT);
  put_text(picture, WIDTH - RIGHT, at_y(picture, bytes) - 4, " class=\"t l\" text-anchor=\"end\"",
           text);
}

/* h.fwd x 12, below the columns of a body. */
static void put_bodies(const Picture *picture) {
  for (uint32_t i = 0, j; i < picture->n; i = j) {
    const Moment *moment = picture->column[i];
    for (j = i + 1; j < picture->n && picture->column[j]->f == moment->f; j++) {}
    if (moment->f->kind == FN_ENTRY) continue;
    int a = at_x(picture, i) + 1, b = at_x(picture, j) - 1;
    fprintf(picture->out, "<path class=\"b\" d=\"M%d %dv5H%dv-5\"/>\n", a, BASE + 3, b);
    if (b - a < 40) continue;
    const char *name =
        arena_printf(picture->p->m->arena, "%s × %.0f", moment->f->name, moment->times);
    if ((b - a) < 6 * (int)strlen(name))
      name = arena_printf(picture->p->m->arena, "× %.0f", moment->times);
    put_text(picture, (a + b) / 2, BASE + 20, " class=\"t\" text-anchor=\"middle\"", name);
  }
}

static void put_peak(const Picture *picture) {
  const Timeline *timeline = &picture->p->timeline;
  if (!timeline->moment.n) return;
  int at = (at_x(picture, picture->peak) + at_x(picture, picture->peak + 1)) / 2;
  int y = at_y(picture, height(picture, picture->column[picture->peak], BANDS - 1));
  fprintf(picture->out, "<path class=\"b\" d=\"M%d %dV%d\"/>\n", at, y, BASE);
  const char *text =
      arena_printf(picture->p->m->arena, "the line marks the peak, %s; its largest buffers:",
                   bytes_text(picture, height(picture, picture->column[picture->peak], BANDS - 1)));
  put_text(picture, LEFT, BASE + 40, " class=\"t\"", text);
  for (uint32_t i = 0; i < timeline->alive.n && i < NAMED; i++) {
    const Alive *alive = &timeline->alive.at[i];
    text = arena_printf(picture->p->m->arena, "%s, %s", bytes_text(picture, (double)alive->bytes),
                        plan_buffer(picture->p, alive));
    put_text(picture, LEFT + 12, BASE + 56 + 16 * (int)i, " class=\"t\"", text);
  }
}

static void put_legend(const Picture *picture) {
  int at = LEFT;
  for (int i = 0; i < BANDS; i++) {
    if (is_empty(picture, i)) continue;
    fprintf(picture->out, "<rect x=\"%d\" y=\"6\" width=\"10\" height=\"10\" fill=\"%s\"/>", at,
            picture->band[i].colour);
    put_text(picture, at + 14, 15, " class=\"t\"", picture->band[i].name);
    at += 34 + 7 * (int)strlen(picture->band[i].name);
  }
}

void plan_svg(FILE *out, const Planned *planned) {
  static const char style[] =
      "<style>.t{font:12px system-ui,sans-serif;fill:#666}.g{stroke:#8884}.b{stroke:#666;fill:none}"
      ".l{fill:#222;stroke:#fffc;stroke-width:3px;paint-order:stroke}"
      "@media(prefers-color-scheme:dark){.t{fill:#aaa}.b{stroke:#aaa}.l{fill:#eee;stroke:#181818cc}"
      "}"
      "</style>\n";
  Picture picture = {.p = planned, .out = out};
  set_bands(&picture), set_columns(&picture), set_scale(&picture);
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
          "aria-label=\"memory of a rank over a step\">\n%s",
          WIDTH, HEIGHT, style);
  put_legend(&picture);
  for (int i = 0; i < BANDS; i++) put_band(&picture, i);
  put_scale(&picture);
  put_level(&picture, (double)planned->need.total, "#666666", "allocated");
  if (planned->machine.memory)
    put_level(&picture, (double)plan_capacity(&planned->machine), "#d00000", "capacity");
  put_bodies(&picture), put_peak(&picture);
  fputs("</svg>\n", out);
}
