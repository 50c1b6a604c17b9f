/* Readings of nvidia-smi while parts run: clocks, heat, power, and the reasons for reduced clocks.
   It writes a line every half second to OUT/clocks.csv; of the lines of a part those count in which
   the GPU was at work. Without nvidia-smi nothing is reported. Must not: fail a part. */
#include "bundle.h"
#include <stdlib.h>
#include <string.h>

enum { AT_WORK = 10 }; /* percent of the time */

static const char asked[] = "--query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw,"
                            "utilization.gpu,memory.used,clocks_throttle_reasons.active";

static const struct {
  unsigned bit;
  const char *words;
} reasons[] = {{0x2, "application clocks"},
               {0x4, "power"},
               {0x8, "hardware slowdown"},
               {0x20, "heat"},
               {0x40, "heat"},
               {0x80, "power brake"},
               {0x100, "display clock setting"}};

typedef struct Seen {
  int n;
  double low, high, memory, heat, power; /* MHz of the multiprocessors, of the memory; C, W */
  unsigned held;                         /* bits of reasons */
} Seen;

void clocks_start(Bundle *b, const char *gpu) {
  char *log = out_path(b, "clocks.csv"), *where = rt_format("--id=%s", gpu);
  char *words[] = {"nvidia-smi", (char *)asked, "--format=csv,noheader,nounits",
                   "-lms",       "500",         *gpu ? where : NULL,
                   NULL};
  remove(log);
  b->clocks = (Child){0, -1, -1};
  child_start(&b->clocks, words, b->out, log, false);
  free(log), free(where);
}

void clocks_stop(Bundle *b) { child_stop(&b->clocks); }

static void add(Seen *s, const double *x, unsigned held) {
  s->low = !s->n || x[0] < s->low ? x[0] : s->low;
  s->high = x[0] > s->high ? x[0] : s->high, s->memory = x[1] > s->memory ? x[1] : s->memory;
  s->heat = x[2] > s->heat ? x[2] : s->heat, s->power = x[3] > s->power ? x[3] : s->power;
  s->held |= held, s->n++;
}

/* An unsupported reading is 0. False: no line of numbers. */
static bool read_line(char *line, double x[6], unsigned *held) {
  int n = 0;
  char *rest = NULL;
  for (char *word = strtok_r(line, ",", &rest); word; word = strtok_r(NULL, ",", &rest), n++) {
    if (n < 6) x[n] = strtod(word, NULL);
    if (n == 6) *held = (unsigned)strtoul(word, NULL, 0);
  }
  return n == 7 && x[0] > 0;
}

static Seen read_all(Bundle *b) {
  Seen work = {0}, all = {0};
  char line[400], *path = out_path(b, "clocks.csv");
  FILE *f = fopen(path, "r");
  if (f) fseek(f, b->clocks_read, SEEK_SET);
  while (f && fgets(line, sizeof line, f) && strchr(line, '\n')) {
    double x[6] = {0};
    unsigned held = 0;
    b->clocks_read = ftell(f);
    if (!read_line(line, x, &held)) continue;
    add(&all, x, held);
    if (x[4] >= AT_WORK) add(&work, x, held);
  }
  if (f) fclose(f);
  free(path);
  return work.n ? work : all;
}

static void held_by(const Seen *s, char *out, int size) {
  int at = 0;
  *out = 0;
  for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
    if (s->held & reasons[i].bit && !strstr(out, reasons[i].words))
      at += snprintf(out + at, (size_t)(size - at), "%s%s", at ? ", " : "", reasons[i].words);
}

void clocks_since(Bundle *b, char *words, char *members, int size) {
  Seen s = read_all(b);
  char held[160];
  held_by(&s, held, sizeof held);
  *words = *members = 0;
  if (!s.n) return;
  snprintf(words, (size_t)size, "; %.0f .. %.0f MHz, at most %.0f C and %.0f W%s%s", s.low, s.high,
           s.heat, s.power, *held ? ", held back by " : "", held);
  snprintf(members, (size_t)size,
           ", \"mhz_low\": %.0f, \"mhz_high\": %.0f, \"memory_mhz\": %.0f, \"celsius\": %.0f, "
           "\"watts\": %.1f, \"held_back_by\": \"%s\"",
           s.low, s.high, s.memory, s.heat, s.power, held);
}
