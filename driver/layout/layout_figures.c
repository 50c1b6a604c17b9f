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

/* Listed blocks, or admitted scores without blocks. */
static double layout_density(const LayoutFigures *figures) {
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

void layout_figures(Sheet *sheet, const LayoutFigures *figures) {
  sheet_put(sheet, "{name}{queries}{keys}{heads}{density}{blind_queries}", as_text(figures->name),
            as_count((double)figures->queries), as_count((double)figures->keys),
            as_count((double)figures->heads), as_number(layout_density(figures)),
            as_count((double)figures->sum.blind));
  sheet_put(sheet, "{scores.admitted}{scores.total}", as_count(figures->sum.admitted),
            as_count(figures->scores));
  if (!figures->counted) sheet_put(sheet, "{block}{blocks}", as_json("null"), as_json("null"));
  else
    sheet_put(sheet,
              "{block}{blocks.full}{blocks.partial}{blocks.listed}{blocks.total}{scores.listed}"
              "{flop_share}",
              as_count((double)figures->unit), as_count((double)figures->sum.full),
              as_count((double)figures->sum.partial), as_count(listed_blocks(figures)),
              as_count(figures->blocks), as_count(figures->sum.listed),
              as_number(share(figures->sum.listed, figures->scores)));
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

void lists_figures(Sheet *sheet, Arena *arena, const BlockLists *lists) {
  ListsShape shape = lists_shape(lists);
  RankShares shares = rank_shares(lists);
  sheet_put(
      sheet, "[lists]{queries}{keys}{differing_ranks}{density.least}{density.mean}{density.most}",
      as_count((double)shape.queries), as_count((double)shape.keys), as_count((double)shape.ranks),
      as_number(shares.least), as_number(shares.mean), as_number(shares.most));
  sheet_say_if(sheet, shape.ranks > 1,
               "lists of a rank's {} x {}: {} to {} of its blocks, {} in the mean\n",
               as_count((double)shape.queries), as_count((double)shape.keys),
               as_text(percent(arena, shares.least)), as_text(percent(arena, shares.most)),
               as_text(percent(arena, shares.mean)));
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
