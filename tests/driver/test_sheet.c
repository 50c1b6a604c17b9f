/* A sheet as text, JSON and HTML: every kind of figure, paths of keys, lines made by parts, tables,
   and other people's bytes in names. */
#include "driver/sheet/sheet.h"
#include "ir/support/heap.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

typedef void Render(FILE *file, const Sheet *sheet);

static void assert_shows(const Sheet *sheet, Render *render, const char *wanted) {
  char *text = NULL;
  size_t n;
  FILE *file = heap_stream(&text, &n);
  render(file, sheet);
  fclose(file);
  assert_string_equal(text, wanted);
  free(text);
}

static void test_figures(void **state) {
  Arena *arena = arena_new();
  Sheet *sheet = sheet_new(arena);
  (void)state;
  sheet_say(sheet, "{n} of {b}, {t:.2}; {p} {q:.1} {w}\n", as_count(3), as_bytes(2048),
            as_seconds(0.1234567), as_share(0.125), as_portion(0.0423), as_number(1. / 3));
  sheet_say(sheet, "{name} {yes}{no}{!raw}{!none}\n", as_text("a\"b\033"),
            as_flag(true, "fits", ""), as_flag(false, "", ", not"), as_json("[1]"),
            as_seconds(1. / 0.));
  assert_shows(sheet, sheet_text, "3 of 2.00 KiB, 0.12 s; 12.5 % 4 % 0.333\na\"b? fits, not\n");
  assert_shows(sheet, sheet_json,
               "{\"n\":3,\"b\":2048,\"t\":0.123457,\"p\":0.125,\"q\":0.0423,\"w\":0.333333333,"
               "\"name\":\"a\\\"b\\u001b\",\"yes\":true,\"no\":false,\"raw\":[1],\"none\":null}\n");
  arena_free(arena);
}

/* Columns of a table that are classes in JSON, lists in lists, and what stays empty. */
static void test_paths(void **state) {
  Arena *arena = arena_new();
  Sheet *sheet = sheet_new(arena);
  (void)state;
  for (int row = 0; row < 2; row++)
    for (int i = 0; i < 2; i++)
      sheet_say(sheet, i ? " {classes.*.bytes.*:3}\n" : "{classes.*.bytes.*}", as_count(i),
                as_text(row ? "b" : "a"), as_count(10 * row + i));
  sheet_open(sheet, "axes[]");
  sheet_list(sheet, "from"), sheet_object(sheet, "none");
  for (int i = 0; i < 2; i++) sheet_put(sheet, "[from]{x}{y.z}", as_count(i), as_count(i));
  sheet_close(sheet);
  sheet_list(sheet, "axes"), sheet_open(sheet, "classes.1"),
      sheet_put(sheet, "{last}", as_text("c"));
  sheet_close(sheet);
  assert_shows(sheet, sheet_text, "0   1\n10  11\n");
  assert_shows(sheet, sheet_json,
               "{\"classes\":[{\"bytes\":{\"a\":0,\"b\":10}},{\"bytes\":{\"a\":1,\"b\":11},"
               "\"last\":\"c\"}],\"axes\":[{\"from\":[{\"x\":0,\"y\":{\"z\":0}},{\"x\":1,\"y\":"
               "{\"z\":1}}],\"none\":{}}]}\n");
  arena_free(arena);
}

static void draw(FILE *file, const void *what) {
  fprintf(file, "<svg>%s</svg>\n", (const char *)what);
}

static void test_page(void **state) {
  Arena *arena = arena_new();
  Sheet *sheet = sheet_new(arena);
  (void)state;
  sheet_title(sheet, "plan a<b");
  sheet_draw(sheet, draw, "x");
  sheet_heads(sheet, EVERYWHERE, "each sends     bytes");
  sheet_say(sheet, "[sends]  over {axis:-4} {kind:-4} {bytes:9}\n", as_text("data"), as_text("sum"),
            as_bytes(10));
  sheet_say(sheet, "  over {:-4} {:-4} {:9}; {:-}\n", as_text("pipe"), as_text("send"), as_bytes(5),
            as_flag(false, "", "no"));
  sheet_say(sheet, "  and {} more\n", as_count(2));
  sheet_page(sheet, "only here\n");
  sheet_say_if(sheet, false, "never {hidden}\n", as_count(1));
  assert_shows(sheet, sheet_text,
               "plan a<b\neach sends     bytes\n  over data sum       10 B\n"
               "  over pipe send       5 B; no\n  and 2 more\n");
  assert_shows(sheet, sheet_json,
               "{\"sends\":[{\"axis\":\"data\",\"kind\":\"sum\",\"bytes\":10}],\"hidden\":1}\n");
  assert_shows(
      sheet, sheet_html,
      "<h2>plan a&lt;b</h2>\n<div class=\"wide\"><svg>x</svg>\n</div>\n<table><tr><th "
      "colspan=\"2\">each sends</th>"
      "<th class=\"n\">bytes</th></tr>\n"
      "<tr><td>over data</td><td>sum</td><td class=\"n b\" style=\"--part:100.0%\">10 B</td>"
      "</tr>\n<tr><td>over pipe</td><td>send</td>"
      "<td class=\"n b\" style=\"--part:50.0%\">5 B</td><td class=\"no\">no</td></tr>\n"
      "<tr><td colspan=\"4\">and 2 more</td></tr>\n</table>\n<p>only here</p>\n");
  arena_free(arena);
}

/* As wide as COLUMNS says: cut at blanks, but a number keeps its unit; long words stay whole. */
static void test_width(void **state) {
  Arena *arena = arena_new();
  Sheet *sheet = sheet_new(arena);
  (void)state;
  sheet_say(sheet, "  {} sends of its own to other nodes {} in a step\n", as_text("each node"),
            as_bytes(3 << 20));
  sheet_say(sheet, "short, and {}\n", as_text("a-name-that-is-much-longer-than-the-whole-line-is"));
  setenv("COLUMNS", "40", 1);
  assert_shows(sheet, sheet_text,
               "  each node sends of its own to other\n      nodes 3.00 MiB in a step\n"
               "short, and\n    a-name-that-is-much-longer-than-the-whole-line-is\n");
  setenv("COLUMNS", "45", 1);
  assert_shows(sheet, sheet_text,
               "  each node sends of its own to other nodes\n      3.00 MiB in a step\n"
               "short, and\n    a-name-that-is-much-longer-than-the-whole-line-is\n");
  unsetenv("COLUMNS");
  arena_free(arena);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_figures), cmocka_unit_test(test_paths),
                                     cmocka_unit_test(test_page), cmocka_unit_test(test_width)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
