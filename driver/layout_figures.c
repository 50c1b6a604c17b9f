/* Figures of layouts in words and as JSON. The counts are those of frontend/layout.h; what is
   derived here are shares: density is listed blocks over blocks; the share of FLOP is listed scores
   over scores, because that is what kernels compute that skip whole blocks. */
#include "driver/layout_drawing.h"
#include "ir/lists.h"
#include "ir/support/num.h"
#include <string.h>

static double share(double part, double of) { return of > 0 ? part / of : 0; }

static double listed_blocks(const LayoutFigures *f) {
  return (double)f->sum.full + (double)f->sum.partial;
}

double layout_density(const LayoutFigures *f) {
  return f->counted ? share(listed_blocks(f), f->blocks) : share(f->sum.admitted, f->scores);
}

/* 14.8, 0.031: three digits that say something */
static const char *percent(Arena *a, double x) {
  return arena_printf(a, x >= .01 || x == 0 ? "%.1f %%" : "%.2g %%", 100 * x);
}

const char *layout_words(Arena *a, const LayoutFigures *f) {
  const char *text = "", *admitted = percent(a, share(f->sum.admitted, f->scores));
  if (f->counted)
    text = arena_printf(a,
                        "%.0f of %.0f blocks of %lld x %lld (%s): %lld full, %lld partial; %s of "
                        "dense FLOP, %s admitted",
                        listed_blocks(f), f->blocks, (long long)f->unit, (long long)f->unit,
                        percent(a, layout_density(f)), (long long)f->sum.full,
                        (long long)f->sum.partial, percent(a, share(f->sum.listed, f->scores)),
                        admitted);
  else text = arena_printf(a, "%s of scores admitted", admitted);
  if (f->heads > 1) text = arena_printf(a, "%s; over %lld heads", text, (long long)f->heads);
  if (!f->sum.blind) return text;
  return arena_printf(a, "%s; %lld quer%s nothing", text, (long long)f->sum.blind,
                      f->sum.blind == 1 ? "y sees" : "ies see");
}

void layout_json(FILE *out, const LayoutFigures *f, const char *model) {
  fputs("{\"name\":", out), json_put_string(out, f->name);
  if (model) fputs(",\"model\":", out), json_put_string(out, model);
  fprintf(out, ",\"queries\":%lld,\"keys\":%lld,\"heads\":%lld,", (long long)f->queries,
          (long long)f->keys, (long long)f->heads);
  if (f->counted)
    fprintf(out,
            "\"block\":%lld,\"blocks\":{\"full\":%lld,\"partial\":%lld,\"listed\":%.0f,"
            "\"total\":%.0f},\"scores\":{\"listed\":%.0f,\"admitted\":%.0f,\"total\":%.0f},"
            "\"flop_share\":%.9g",
            (long long)f->unit, (long long)f->sum.full, (long long)f->sum.partial, listed_blocks(f),
            f->blocks, f->sum.listed, f->sum.admitted, f->scores, share(f->sum.listed, f->scores));
  else
    fprintf(out, "\"block\":null,\"blocks\":null,\"scores\":{\"admitted\":%.0f,\"total\":%.0f}",
            f->sum.admitted, f->scores);
  fprintf(out, ",\"density\":%.9g,\"blind_queries\":%lld}", layout_density(f),
          (long long)f->sum.blind);
}

typedef struct RankShares { /* of their blocks, what ranks list */
  double least, most, mean;
} RankShares;

static RankShares rank_shares(const BlockLists *l) {
  RankShares x = {.least = 1};
  int64_t n = lists_shape(l).ranks;
  for (int64_t r = 0; r < n; r++) {
    double s = lists_share_of(l, r);
    x.least = s < x.least ? s : x.least, x.most = s > x.most ? s : x.most;
    x.mean += s / (double)n;
  }
  return x;
}

const char *lists_words(Arena *a, const BlockLists *l) {
  ListsShape s = lists_shape(l);
  RankShares x = rank_shares(l);
  if (s.ranks == 1) return NULL;
  return arena_printf(a, "lists of a rank's %lld x %lld: %s to %s of its blocks, %s in the mean",
                      (long long)s.queries, (long long)s.keys, percent(a, x.least),
                      percent(a, x.most), percent(a, x.mean));
}

void lists_json(FILE *out, const Module *m) {
  fputs("\"lists\":[", out);
  for (uint32_t i = 0; i < m->lists.n; i++) {
    ListsShape s = lists_shape(&m->lists.at[i]);
    RankShares x = rank_shares(&m->lists.at[i]);
    fprintf(
        out,
        "%s{\"queries\":%lld,\"keys\":%lld,\"differing_ranks\":%lld,\"density\":{\"least\":%.9g,"
        "\"mean\":%.9g,\"most\":%.9g}}",
        i ? "," : "", (long long)s.queries, (long long)s.keys, (long long)s.ranks, x.least, x.mean,
        x.most);
  }
  fputs("]", out);
}

LayoutList module_layouts(const Module *m) {
  static const char prefix[] = "layout.";
  LayoutList list = {0};
  for (uint32_t i = 0; i < m->settings.n; i++) {
    LayoutFigures f;
    const Setting *s = &m->settings.at[i];
    if (strncmp(s->key, prefix, sizeof prefix - 1) != 0 || !layout_read(s->value, &f)) continue;
    f.name = s->key + sizeof prefix - 1;
    vec_push(m->arena, list, f);
  }
  return list;
}
