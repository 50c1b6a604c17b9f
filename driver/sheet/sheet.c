/* Building of sheets: templates become pieces of lines, and members of JSON. The words of figures,
   by kind. Must not: write anything. */
#include "sheet_inside.h"
#include "ir/support/diag.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- figures ---- */

static const struct {
  const char *text, *json;
  int digits;
  double times;
} kinds[] = {
    [FIGURE_EXACT] = {"%.*g", "%.17g", 10, 1},      [FIGURE_COUNT] = {"%.*f", "%.0f", 0, 1},
    [FIGURE_NUMBER] = {"%.*g", "%.9g", 3, 1},       [FIGURE_SECONDS] = {"%.*g s", "%.6g", 3, 1},
    [FIGURE_FLOP] = {"%.*g", "%.17g", 4, 1},        [FIGURE_SHARE] = {"%.*f %%", "%.6g", 1, 100},
    [FIGURE_PORTION] = {"%.*g %%", "%.6g", 3, 100}, [FIGURE_MEASURED] = {"%.*g s", "%.9g", 4, 1},
    [FIGURE_BYTES] = {"", "%.17g", 0, 1},
};

const char *figure_text(Arena *arena, const Figure *figure, int digits) {
  if (figure->kind <= FIGURE_FLAG) return figure->text;
  if (figure->kind == FIGURE_BYTES) return arena_amount(arena, figure->number);
  return arena_printf(arena, kinds[figure->kind].text,
                      digits < 0 ? kinds[figure->kind].digits : digits,
                      kinds[figure->kind].times * figure->number);
}

void figure_json(FILE *file, const Figure *figure) {
  switch (figure->kind) {
  case FIGURE_TEXT: json_put_string(file, figure->text); break;
  case FIGURE_JSON: fputs(figure->text, file); break;
  case FIGURE_FLAG: fputs(figure->number ? "true" : "false", file); break;
  default:
    if (!isfinite(figure->number)) fputs("null", file);
    else fprintf(file, kinds[figure->kind].json, figure->number);
  }
}

/* ---- members ---- */

Sheet *sheet_new(Arena *arena) {
  Sheet *sheet = ARENA_NEW(arena, Sheet);
  sheet->arena = arena, sheet->root.kind = MEMBER_OBJECT, sheet->at = &sheet->root;
  return sheet;
}

static SheetMember *add_member(Sheet *sheet, SheetMember *to, const char *key) {
  SheetMember *member = ARENA_NEW(sheet->arena, SheetMember);
  member->key = key;
  if (to->kind == MEMBER_FIGURE) to->kind = *key ? MEMBER_OBJECT : MEMBER_LIST;
  if (to->last) to->last->next = member;
  else to->first = member;
  return to->last = member;
}

static SheetMember *member_of(Sheet *sheet, SheetMember *of, const char *key) {
  for (SheetMember *member = of->first; member; member = member->next)
    if (!strcmp(member->key, key)) return member;
  return add_member(sheet, of, key);
}

static SheetMember *item_of(Sheet *sheet, SheetMember *of, int64_t number) {
  SheetMember *item = of->first;
  for (int64_t i = 0; i < number && item; i++) item = item->next;
  return item ? item : add_member(sheet, of, "");
}

/* A segment of a path: key, key[], 2, *. */
static SheetMember *step_to(Sheet *sheet, SheetMember *from, const char *key,
                            const Figure **figure) {
  size_t n = strlen(key);
  if (!strcmp(key, "*")) {
    const Figure *name = (*figure)++;
    return name->kind == FIGURE_TEXT
               ? member_of(sheet, from, arena_strndup(sheet->arena, name->text, strlen(name->text)))
               : item_of(sheet, from, (int64_t)name->number);
  }
  if (*key >= '0' && *key <= '9') return item_of(sheet, from, atoi(key));
  if (n < 2 || strcmp(key + n - 2, "[]") != 0) return member_of(sheet, from, key);
  return add_member(sheet, member_of(sheet, from, arena_strndup(sheet->arena, key, n - 2)), "");
}

static SheetMember *reach(Sheet *sheet, const char *path, const Figure **figure) {
  SheetMember *member = sheet->at;
  for (size_t n; *path; path += n + (path[n] == '.')) {
    n = strcspn(path, ".");
    member = step_to(sheet, member, arena_strndup(sheet->arena, path, n), figure);
  }
  return member;
}

void sheet_open(Sheet *sheet, const char *path) {
  const Figure *none = NULL;
  SheetMember *member = reach(sheet, path, &none);
  if (member->kind == MEMBER_FIGURE) member->kind = MEMBER_OBJECT;
  vec_push(sheet->arena, sheet->around, sheet->at);
  sheet->at = member;
}

void sheet_close(Sheet *sheet) { sheet->at = sheet->around.at[--sheet->around.n]; }

void sheet_object(Sheet *sheet, const char *path) { sheet_open(sheet, path), sheet_close(sheet); }

void sheet_list(Sheet *sheet, const char *path) {
  const Figure *none = NULL;
  reach(sheet, path, &none)->kind = MEMBER_LIST;
}

/* ---- lines ---- */

static SheetLine *add_line(Sheet *sheet, LineKind kind, bool page) {
  vec_push(sheet->arena, sheet->line, (SheetLine){.kind = kind, .page = page});
  return &vec_last(sheet->line);
}

static void add_piece(Sheet *sheet, SheetPlace place, SheetPiece piece) {
  if (place == IN_JSON) return;
  if (!sheet->open) add_line(sheet, LINE_PLAIN, place == ON_PAGE);
  sheet->open = true;
  vec_push(sheet->arena, vec_last(sheet->line).piece, piece);
}

static void add_words(Sheet *sheet, SheetPlace place, const char *words, size_t n) {
  if (n)
    add_piece(
        sheet, place,
        (SheetPiece){.figure = as_text(arena_strndup(sheet->arena, words, n)), .words = true});
}

/* {key:12.4}, without its braces */
static const Figure *add_figure(Sheet *sheet, SheetPlace place, const char *hole,
                                const Figure *figure) {
  if (*hole == '!') place = IN_JSON, hole++;
  size_t n = strcspn(hole, ":");
  const char *format = hole + n + (hole[n] == ':'), *dot = strchr(format, '.');
  SheetMember *member = n ? reach(sheet, arena_strndup(sheet->arena, hole, n), &figure) : NULL;
  Figure own = *figure;
  if (own.text) own.text = arena_strndup(sheet->arena, own.text, strlen(own.text));
  if (member) member->figure = own;
  add_piece(sheet, place,
            (SheetPiece){.figure = own,
                         .width = atoi(format),
                         .digits = dot ? atoi(dot + 1) : -1,
                         .column = *format && format != dot});
  return figure + 1;
}

void sheet_add(Sheet *sheet, SheetPlace place, const char *template, const Figure *figure,
               size_t n) {
  const Figure *end = figure + n;
  bool item = *template == '[';
  if (item) {
    size_t to = strcspn(template, "]");
    sheet_open(sheet, arena_printf(sheet->arena, "%.*s[]", (int)to - 1, template + 1));
    template += to + 1;
  }
  for (size_t to; *template; template += to + 1) {
    to = strcspn(template, "{\n");
    add_words(sheet, place, template, to);
    if (!template[to]) break;
    if (template[to] == '\n') {
      if (place != IN_JSON) sheet->open = false;
      continue;
    }
    template += to + 1, to = strcspn(template, "}");
    if (figure == end) bug("a template of a sheet has more holes than figures");
    figure = add_figure(sheet, place, arena_strndup(sheet->arena, template, to), figure);
  }
  if (figure != end) bug("a template of a sheet has %d holes too few", (int)(end - figure));
  if (item) sheet_close(sheet);
}

static void add_whole(Sheet *sheet, LineKind kind, bool page, const char *text) {
  SheetLine *line = add_line(sheet, kind, page);
  const char *copy = arena_strndup(sheet->arena, text, strlen(text));
  vec_push(sheet->arena, line->piece, (SheetPiece){.figure = as_text(copy), .words = true});
}

void sheet_title(Sheet *sheet, const char *text) { add_whole(sheet, LINE_TITLE, false, text); }

void sheet_heading(Sheet *sheet, const char *text) { add_whole(sheet, LINE_HEADING, true, text); }

void sheet_heads(Sheet *sheet, SheetPlace place, const char *text) {
  if (place != IN_JSON) add_whole(sheet, LINE_HEADS, place == ON_PAGE, text);
}

void sheet_draw(Sheet *sheet, SheetDraw *draw, const void *what) {
  SheetLine *line = add_line(sheet, LINE_DRAWING, true);
  line->draw = draw, line->what = what;
}
