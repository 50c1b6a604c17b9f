/* A sheet as text, and as JSON. */
#include "sheet_inside.h"
#include "ir/support/diag.h"
#include "ir/support/columns.h"
#include "ir/support/heap.h"
#include "ir/support/output.h"
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* The width of a terminal, or COLUMNS; 0: other programs read the lines, which are not cut. */
static size_t width_of(FILE *file) {
  const char *said = getenv("COLUMNS");
  struct winsize size;
  if (said && atoi(said) > 0) return (size_t)atoi(said);
  if (!isatty(fileno(file))) return 0;
  return ioctl(fileno(file), TIOCGWINSZ, &size) || !size.ws_col ? TEXT_WIDTH : size.ws_col;
}

/* Cut at blanks; what follows the first part is indented by four more. */
static void put_line(FILE *file, const char *text, size_t width) {
  size_t indent = strspn(text, " "), room = width, n;
  if (width < indent + 24 || strlen(text) <= width) {
    fprintf(file, "%s\n", text);
    return;
  }
  for (const char *rest = text; *rest; rest += n + strspn(rest + n, " ")) {
    n = columns_fit(rest, room);
    fprintf(file, "%*s%.*s\n", rest == text ? 0 : (int)indent + 4, "", (int)n, rest);
    room = width - indent - 4;
  }
}

void sheet_text(FILE *file, const Sheet *sheet) {
  size_t width = width_of(file), n;
  for (uint32_t i = 0; i < sheet->line.n; i++) {
    const SheetLine *line = &sheet->line.at[i];
    char *text = NULL;
    if (line->page) continue;
    FILE *whole = heap_stream(&text, &n);
    for (uint32_t k = 0; k < line->piece.n; k++) {
      const SheetPiece *piece = &line->piece.at[k];
      output_say(whole, "%*s", piece->width,
                 figure_text(sheet->arena, &piece->figure, piece->digits));
    }
    fclose(whole);
    put_line(file, text, width);
    free(text);
  }
}

static void put_member(FILE *file, const SheetMember *member) {
  bool list = member->kind == MEMBER_LIST;
  if (member->kind == MEMBER_FIGURE) {
    figure_json(file, &member->figure);
    return;
  }
  putc(list ? '[' : '{', file);
  for (const SheetMember *inner = member->first; inner; inner = inner->next) {
    if (inner != member->first) putc(',', file);
    if (!list) json_put_string(file, inner->key), putc(':', file);
    put_member(file, inner);
  }
  putc(list ? ']' : '}', file);
}

void sheet_json(FILE *file, const Sheet *sheet) {
  put_member(file, &sheet->root);
  putc('\n', file);
}

void sheet_show(const Sheet *sheet, bool json) {
  if (json) sheet_json(stdout, sheet);
  else sheet_text(stdout, sheet);
  fflush(stdout);
}
