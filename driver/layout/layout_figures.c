/* Figures of layouts in words and as JSON. The counts are those of frontend/layout.h; this file
   derives shares: density is listed blocks over blocks; the share of FLOP is listed scores over
   scores, because kernels that skip whole blocks compute exactly the listed ones. */
#include "layout_drawing.h"
#include "ir/mask/lists.h"
#include "ir/support/num.h"
#include <string.h>

static double share(double part, double of) { return of > 0 ? part / of : 0; }

static double listed_blocks(const LayoutFigures *figures) {
  return (double)figures->sum.full + (double)figures->sum.partial;
}

double layout_density(const LayoutFigures *figures) {
  return figures->counted ? share(listed_blocks(figures), figures->blocks)
                          : share(figures->sum.admitted, figures->scores);
}

/* 14.8, 0.031: three digits that say something */
static const char *percent(Arena *arena, double x) {
  return arena_printf(arena, x >= .01 || x == 0 ? "%.1f %%" : "%.2g %%", 100 * x);
}

const char *layout_words(Arena *arena, const LayoutFigures *figures) {
  const char *text = "", *admitted = percent(arena, share(figures->sum.admitted, figures->scores));
  if (figures->counted)
    text = arena_printf(arena,
                        "%.0f of %.0f blocks of %lld x %lld (%s): %lld full, %lld partial; %s of "
                        "dense FLOP, %s admitted",
                        listed_blocks(figures), figures->blocks, (long long)figures->unit,
                        (long long)figures->unit, percent(arena, layout_density(figures)),
                        (long long)figures->sum.full, (long long)figures->sum.partial,
                        percent(arena, share(figures->sum.listed, figures->scores)), admitted);
  else text = arena_printf(arena, "%s of scores admitted", admitted);
  if (figures->heads > 1)
    text = arena_printf(arena, "%s; over %lld heads", text, (long long)figures->heads);
  if (!figures->sum.blind) return text;
  return arena_printf(arena, "%s; %lld quer%s nothing", text, (long long)figures->sum.blind,
                      figures->sum.blind == 1 ? "y sees" : "ies see");
}

void layout_json(FILE *out, const LayoutFigures *figures, const char *model) {
  fputs("{\"name\":", out), json_put_string(out, figures->name);
  if (model) fputs(",\"model\":", out), json_put_string(out, model);
  fprintf(out, ",\"queries\":%lld,\"keys\":%lld,\"heads\":%lld,", (long long)figures->queries,
          (long long)figures->keys, (long long)figures->heads);
  if (figures->counted)
    fprintf(out,
            "\"block\":%lld,\"blocks\":{\"full\":%lld,\"partial\":%lld,\"listed\":%.0f,"
            "\"total\":%.0f},\"scores\":{\"listed\":%.0f,\"admitted\":%.0f,\"total\":%.0f},"
            "\"flop_share\":%.9g",
            (long long)figures->unit, (long long)figures->sum.full, (long long)figures->sum.partial,
            listed_blocks(figures), figures->blocks, figures->sum.listed, figures->sum.admitted,
            figures->scores, share(figures->sum.listed, figures->scores));
  else
    fprintf(out, "\"block\":null,\"blocks\":null,\"scores\":{\"admitted\":%.0f,\"total\":%.0f}",
            figures->sum.admitted, figures->scores);
  fprintf(out, ",\"density\":%.9g,\"blind_queries\":%lld}", layout_density(figures),
          (long long)figures->sum.blind);
}

typedef struct RankShares { /* of their blocks, what ranks list */
  double least, most, mean;
} RankShares;

static RankShares rank_shares(const BlockLists *lists) {
  RankShares shares = {.least = 1};
  int64_t n = lists_shape(lists).ranks;
  for (int64_t r = 0; r < n; r++) {
    double s = lists_share_of(lists, r);
    shares.least = s < shares.least ? s : shares.least,
    shares.most = s > shares.most ? s : shares.most;
    shares.mean += s / (double)n;
  }
  return shares;
}

const char *lists_words(Arena *arena, const BlockLists *lists) {
  ListsShape shape = lists_shape(lists);
  RankShares shares = rank_shares(lists);
  if (shape.ranks == 1) return NULL;
  return arena_printf(arena,
                      "lists of a rank's %lld x %lld: %s to %s of its blocks, %s in the mean",
                      (long long)shape.queries, (long long)shape.keys, percent(arena, shares.least),
                      percent(arena, shares.most), percent(arena, shares.mean));
}

void lists_json(FILE *out, const Module *m) {
  fputs("[", out);
  for (uint32_t i = 0; i < m->lists.n; i++) {
    ListsShape shape = lists_shape(&m->lists.at[i]);
    RankShares shares = rank_shares(&m->lists.at[i]);
    fprintf(
        out,
        "%s{\"queries\":%lld,\"keys\":%lld,\"differing_ranks\":%lld,\"density\":{\"least\":%.9g,"
        "\"mean\":%.9g,\"most\":%.9g}}",
        i ? "," : "", (long long)shape.queries, (long long)shape.keys, (long long)shape.ranks,
        shares.least, shares.mean, shares.most);
  }
  fputs("]", out);
}

LayoutList module_layouts(const Module *m) {
  static const char prefix[] = "layout.";
  LayoutList list = {0};
  for (uint32_t i = 0; i < m->settings.n; i++) {
    LayoutFigures figures;
    const Setting *setting = &m->settings.at[i];
    if (strncmp(setting->key, prefix, sizeof prefix - 1) != 0 ||
        !layout_read(setting->value, &figures))
      continue;
    figures.name = setting->key + sizeof prefix - 1;
    vec_push(m->arena, list, figures);
  }
  return list;
}
