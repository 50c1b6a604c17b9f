/* `shardc dump FILE --layout NAME`: the picture of one layout, as text or SVG. */
#include "driver/cmd.h"
#include "driver/fit/fit.h"
#include "layout_drawing.h"
#include "frontend/lower.h"
#include <stdlib.h>
#include <string.h>

typedef void LayoutDraw(FILE *out, Arena *a, const Layout *l);

static char *drawn_by(LayoutDraw *draw, Arena *a, const Layout *l, size_t *n) {
  char *text = NULL;
  FILE *out = heap_stream(&text, n);
  if (!out) bug("no memory");
  draw(out, a, l);
  fclose(out);
  return text;
}

static Exit unknown_layout(const LayoutDrawings *drawings) {
  const char *near = drawings->names.n
                         ? diag_nearest(drawings->name, drawings->names.at, drawings->names.n)
                         : NULL;
  if (!drawings->names.n) return cli_usage("no layout `%s`: the file has none", drawings->name);
  if (near) return cli_usage("no layout `%s`; did you mean `%s`?", drawings->name, near);
  return cli_usage("no layout `%s`; there is `%s`", drawings->name, drawings->names.at[0]);
}

Exit dump_layout(Cli *o, bool svg, const char *output) {
  const char *path = o->operands.at[0];
  LayoutDrawings drawings = {.name = o->value[OPT_LAYOUT]};
  FileKind kind = file_kind(o->c, path);
  if (kind == FILE_IR) return cli_usage("`%s` is IR: layouts are drawn from model files", path);
  o->layouts = &drawings;
  if (!load_shard(o, path))
    return cli_report(o, diag_errors(o->c->diag) ? EXIT_INPUT : EXIT_ENVIRONMENT);
  if (!drawings.drawn.n) return unknown_layout(&drawings);
  size_t n;
  char *text = drawn_by(svg ? layout_svg : layout_text, o->c->arena, drawings.drawn.at[0], &n);
  Exit e = write_text(o->c, output, text, n);
  free(text);
  return cli_report(o, e);
}

const char *layout_picture(Arena *a, const Layout *l) {
  size_t n;
  char *text = drawn_by(layout_svg, a, l, &n);
  const char *copy = arena_strndup(a, text, n);
  return free(text), copy;
}
