/* A layout for terminals: a letter per cell, with the numbers of its first blocks next to it. Every
   head whose blocks differ has a picture; the text is the same wherever it is made. */
#include "layout_drawing.h"
#include "ir/support/num.h"
#include <ctype.h>
#include <string.h>

enum { LETTERS = 64, HEADS = 16 };

static const struct {
  const char *name;
  char letter;
} letters[] = {{"window", 'W'},  {"global", 'G'},   {"random", 'R'},  {"table", 'T'},
               {"fixed", 'F'},   {"variable", 'V'}, {"strided", 'S'}, {"dilated", 'D'},
               {"sliding", 'L'}, {"causal", 'C'},   {"all", 'A'}};

static char letter_of(const char *part) {
  for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
    if (!strcmp(letters[i].name, part)) return letters[i].letter;
  return '?';
}

static char sign_of(const Layout *layout, const Cell *c) {
  if (c->part == CELL_NOTHING) return c->blocks ? 'p' : '.';
  char letter = c->part == CELL_PARTIAL ? 'P' : letter_of(layout->parts.at[c->part]);
  return c->blocks == c->of ? letter : (char)tolower(letter);
}

static void put_legend(FILE *out, const Layout *layout, int64_t side) {
  fputs("  ", out);
  for (uint32_t i = 0; i < layout->parts.n; i++)
    fprintf(out, "%c %s, ", letter_of(layout->parts.at[i]), layout->parts.at[i]);
  if (layout_has_partial(layout)) fputs("P partial, ", out);
  fputs(". absent\n", out);
  if (side > 1)
    fprintf(out,
            "  a letter is a square of %lld x %lld blocks, named after most of those listed; "
            "small: not all are listed\n",
            (long long)side, (long long)side);
}

static void put_cells(FILE *out, const Layout *layout, const Cells *x) {
  for (int64_t r = 0; r < x->rows; r++) {
    fprintf(out, "%6lld ", (long long)(r * x->blocks));
    for (int64_t c = 0; c < x->columns; c++) putc(sign_of(layout, &x->at[r * x->columns + c]), out);
    putc('\n', out);
  }
}

static void put_head(FILE *out, Arena *arena, const Layout *layout, const LayoutHead *h,
                     int64_t number) {
  const char *heads = layout_heads(arena, layout, number);
  Cells x = layout_cells(arena, h, LETTERS);
  if (*heads)
    fprintf(out, "\n  %s: %lld full and %lld partial of %lld blocks\n", heads,
            (long long)h->count.full, (long long)h->count.partial,
            (long long)(h->map.rows * h->map.columns));
  put_cells(out, layout, &x);
}

void layout_text(FILE *out, Arena *arena, const Layout *layout) {
  const LayoutFigures *figures = &layout->figures;
  int64_t drawn = 0, different = 0;
  fprintf(out, "layout %s [%s %lld, %s %lld] = %s\n", figures->name, figures->query,
          (long long)figures->queries, figures->key, (long long)figures->keys, layout->text);
  fprintf(out, "  %s\n", layout_words(arena, figures));
  if (!figures->counted)
    fprintf(out, "  drawn in blocks of %lld x %lld: it has no blocks(n)\n",
            (long long)figures->unit, (long long)figures->unit);
  put_legend(out, layout, layout_cells(arena, &layout->heads.at[0], LETTERS).blocks);
  for (uint32_t i = 0; i < layout->heads.n; i++) {
    if (layout->heads.at[i].like != (int64_t)i) continue;
    if (different++ >= HEADS) continue;
    put_head(out, arena, layout, &layout->heads.at[i], i), drawn++;
  }
  if (drawn < different)
    fprintf(out, "\n  %lld other pictures are left out\n", (long long)(different - drawn));
}
