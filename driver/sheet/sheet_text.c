/* A sheet as text, and as JSON. */
#include "sheet_inside.h"
#include "ir/support/diag.h"
#include "ir/support/output.h"

void sheet_text(FILE *file, const Sheet *sheet) {
  for (uint32_t i = 0; i < sheet->line.n; i++) {
    const SheetLine *line = &sheet->line.at[i];
    if (line->page) continue;
    for (uint32_t k = 0; k < line->piece.n; k++) {
      const SheetPiece *piece = &line->piece.at[k];
      output_say(file, "%*s", piece->width,
                 figure_text(sheet->arena, &piece->figure, piece->digits));
    }
    putc('\n', file);
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
