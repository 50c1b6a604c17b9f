/* A sheet as a part of a page: lines as paragraphs, tables with bars for amounts of
   bytes, pictures. The words before a column of a table are a part of its cells. */
#include "sheet_inside.h"
#include "runtime/chart.h"
#include <string.h>

typedef struct TableCell {
  const char *text;
  const SheetPiece *column; /* NULL: none, words over the whole row */
} TableCell;

typedef struct TableRow {
  VEC(TableCell) cell;
} TableRow;

typedef struct SheetTable { /* the lines of a sheet from first on */
  const Sheet *sheet;
  TableRow *row;
  uint32_t n, columns, left; /* left: columns before the first that is aligned to the right */
} SheetTable;

static const char *words_of(const Sheet *sheet, const SheetPiece *piece) {
  return figure_text(sheet->arena, &piece->figure, piece->digits);
}

/* ", over" as the start of a cell is "over". */
static const char *trimmed(const char *words) { return words + strspn(words, " ,;="); }

static void add_cell(const Sheet *sheet, TableRow *row, const char *words,
                     const SheetPiece *piece) {
  const char *text =
      piece ? arena_printf(sheet->arena, "%s%s", trimmed(words), words_of(sheet, piece)) : words;
  vec_push(sheet->arena, row->cell, (TableCell){text, piece});
}

static void extend_cell(const Sheet *sheet, TableRow *row, const char *words, const char *more) {
  if (!row->cell.n) add_cell(sheet, row, "", NULL);
  TableCell *cell = &vec_last(row->cell);
  cell->text = arena_printf(sheet->arena, "%s%s%s", cell->text, words, more);
}

static TableRow row_of(const Sheet *sheet, const SheetLine *line) {
  TableRow row = {0};
  const char *words = "";
  for (uint32_t i = 0; i < line->piece.n; i++) {
    const SheetPiece *piece = &line->piece.at[i];
    if (piece->words) words = arena_printf(sheet->arena, "%s%s", words, piece->figure.text);
    else if (piece->column) add_cell(sheet, &row, words, piece), words = "";
    else extend_cell(sheet, &row, words, words_of(sheet, piece)), words = "";
  }
  extend_cell(sheet, &row, words, "");
  return row;
}

static bool is_row(const SheetLine *line) {
  return line->kind == LINE_PLAIN && line->piece.n && line->piece.at[0].words &&
         !strncmp(line->piece.at[0].figure.text, "  ", 2);
}

static SheetTable table_of(const Sheet *sheet, uint32_t first) {
  SheetTable table = {.sheet = sheet};
  while (first + table.n < sheet->line.n && is_row(&sheet->line.at[first + table.n])) table.n++;
  table.row = ARENA_ARRAY(sheet->arena, TableRow, table.n);
  for (uint32_t i = 0; i < table.n; i++) {
    TableRow *row = &table.row[i];
    *row = row_of(sheet, &sheet->line.at[first + i]);
    if (row->cell.n <= table.columns) continue;
    table.columns = row->cell.n, table.left = 0;
    while (table.left < row->cell.n && row->cell.at[table.left].column &&
           row->cell.at[table.left].column->width <= 0)
      table.left++;
  }
  return table;
}

static void put(FILE *file, const char *before, const char *text, const char *after) {
  fputs(before, file), rt_put_escaped(file, text), fputs(after, file);
}

/* `each rank sends   elements   bytes`: the first is over the columns to the left, as long as the
   others have columns. */
static void put_heads(FILE *file, const SheetTable *table, const char *heads) {
  VEC(const char *) head = {0};
  for (heads += strspn(heads, " "); *heads;) {
    const char *end = strstr(heads, "  ");
    size_t n = end ? (size_t)(end - heads) : strlen(heads);
    vec_push(table->sheet->arena, head, arena_strndup(table->sheet->arena, heads, n));
    heads += n + strspn(heads + n, " ");
  }
  uint32_t over = table->left ? table->left : 1;
  if (over + head.n - 1 > table->columns) over = table->columns + 1 - head.n;
  for (uint32_t i = 0; i < head.n; i++) {
    if (!i) fprintf(file, "<table><tr><th colspan=\"%u\">", over);
    else fputs(over + i - 1 < table->left ? "<th>" : "<th class=\"n\">", file);
    put(file, "", head.at[i], "</th>");
  }
  fputs("</tr>\n", file);
}

static double most_bytes(const SheetTable *table, uint32_t column) {
  double most = 0;
  for (uint32_t i = 0; i < table->n; i++) {
    const SheetPiece *piece =
        column < table->row[i].cell.n ? table->row[i].cell.at[column].column : NULL;
    if (piece && piece->figure.kind == FIGURE_BYTES && piece->figure.number > most)
      most = piece->figure.number;
  }
  return most;
}

static void put_cell(FILE *file, const SheetTable *table, const TableCell *cell, uint32_t column) {
  const SheetPiece *piece = cell->column;
  if (!piece) fprintf(file, "<td colspan=\"%u\">", table->columns);
  else if (piece->width > 0 && piece->figure.kind == FIGURE_BYTES && piece->figure.number > 0)
    fprintf(file, "<td class=\"n b\" style=\"--part:%.1f%%\">",
            100 * piece->figure.number / most_bytes(table, column));
  else if (piece->figure.kind == FIGURE_FLAG && !piece->figure.number)
    fputs("<td class=\"no\">", file);
  else fputs(piece->width > 0 ? "<td class=\"n\">" : "<td>", file);
  put(file, "", cell->text + strspn(cell->text, " "), "</td>");
}

static void put_table(FILE *file, const SheetTable *table, const char *heads) {
  put_heads(file, table, heads);
  for (uint32_t i = 0; i < table->n; i++) {
    fputs("<tr>", file);
    for (uint32_t k = 0; k < table->row[i].cell.n; k++)
      put_cell(file, table, &table->row[i].cell.at[k], k);
    fputs("</tr>\n", file);
  }
  fputs("</table>\n", file);
}

static void put_line(FILE *file, const Sheet *sheet, const SheetLine *line) {
  fputs(is_row(line) ? "<p class=\"more\">" : "<p>", file);
  for (uint32_t i = 0; i < line->piece.n; i++) {
    const SheetPiece *piece = &line->piece.at[i];
    bool no = piece->figure.kind == FIGURE_FLAG && !piece->figure.number;
    put(file, no ? "<span class=\"no\">" : "", words_of(sheet, piece), no ? "</span>" : "");
  }
  fputs("</p>\n", file);
}

void sheet_html(FILE *file, const Sheet *sheet) {
  for (uint32_t i = 0; i < sheet->line.n; i++) {
    const SheetLine *line = &sheet->line.at[i];
    const char *text = line->piece.n ? line->piece.at[0].figure.text : "";
    if (line->kind == LINE_DRAWING)
      fputs("<div class=\"wide\">", file), line->draw(file, line->what), fputs("</div>\n", file);
    else if (line->kind == LINE_TITLE) put(file, "<h2>", text, "</h2>\n");
    else if (line->kind == LINE_HEADING) put(file, "<h3>", text, "</h3>\n");
    else if (line->kind == LINE_PLAIN) put_line(file, sheet, line);
    else {
      SheetTable table = table_of(sheet, i + 1);
      put_table(file, &table, text), i += table.n;
    }
  }
}
