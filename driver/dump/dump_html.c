/* `shardc dump --format html`: one page about all passes over a model, made of page.html and data.

   The module runs through the passes that are left; the page gets the text after each of them, the
   host program, the assembly of every kernel, and every buffer of every frame with its life. Lines
   that texts share are written once: after the passes most lines are those of before, and assembly
   repeats itself. The page holds everything that it shows: it needs no network and no other file.
 */
#include "driver/cmd.h"
#include "codegen/codegen.h"
#include "driver/layout/layout_drawing.h"
#include "driver/plan/plan_timeline.h"
#include "frontend/syntax/ast.h"
#include "frontend/lower.h"
#include "ir/bytes.h"
#include "ir/cost/count.h"
#include "passes/pass.h"
#include <stdlib.h>

typedef struct Page {
  Cli *o;
  Module *m;
  FILE *lines, *stages; /* two lists that grow together */
  Str *slot;            /* lines by their text: a table with open places */
  uint32_t *number, cap, n;
  uint32_t nstages;
  char *before; /* the text of the stage before, without its head */
} Page;

/* ---- JSON inside of a script: < must not close it ---- */

static void put_string(FILE *out, const char *text) {
  char *quoted = NULL;
  size_t n;
  FILE *file = heap_stream(&quoted, &n);
  if (!file) bug("no memory");
  json_put_string(file, text);
  fclose(file);
  for (size_t i = 0; i < n; i++)
    if (quoted[i] == '<') fputs("\\u003c", out);
    else putc(quoted[i], out);
  free(quoted);
}

static void put_member(FILE *out, const char *name, const char *text) {
  fprintf(out, "\"%s\":", name);
  put_string(out, text);
}

/* ---- stages ---- */

static uint32_t find_slot(const Page *page, Str line) {
  uint32_t h = 2166136261u;
  for (const char *c = line; *c; c++) h = (h ^ (unsigned char)*c) * 16777619u;
  for (h &= page->cap - 1; page->slot[h] && page->slot[h] != line; h = (h + 1) & (page->cap - 1)) {}
  return h;
}

static void grow(Page *page) {
  Page old = *page;
  page->cap *= 2;
  page->slot = ARENA_ARRAY(page->m->arena, Str, page->cap);
  page->number = ARENA_ARRAY(page->m->arena, uint32_t, page->cap);
  for (uint32_t i = 0; i < old.cap; i++) {
    if (!old.slot[i]) continue;
    uint32_t h = find_slot(page, old.slot[i]);
    page->slot[h] = old.slot[i], page->number[h] = old.number[i];
  }
}

static uint32_t line_number(Page *page, Str line) {
  uint32_t h = find_slot(page, line);
  if (page->slot[h]) return page->number[h];
  if (page->n) putc(',', page->lines);
  put_string(page->lines, line);
  page->slot[h] = line, page->number[h] = page->n++;
  uint32_t given = page->number[h];
  if (page->n * 2 > page->cap) grow(page);
  return given;
}

/* Lines that say nothing about the program, and sources, are left out. */
static bool of_head(const char *line) {
  static const char *const left_out[] = {"# ", "after ", "was ", "source "};
  for (int i = 0; i < 4; i++)
    if (!strncmp(line, left_out[i], strlen(left_out[i]))) return true;
  return false;
}

static void put_lines(Page *page, FILE *out, const char *text, bool (*left_out)(const char *line)) {
  bool first = true;
  for (size_t n; *text; text += n + (text[n] == '\n')) {
    n = strcspn(text, "\n");
    if (left_out(text)) continue;
    fprintf(out, first ? "%u" : ",%u", line_number(page, intern_n(page->m->ctx->names, text, n)));
    first = false;
  }
}

static const char *body_of(const char *text) {
  while (*text &&
         (of_head(text) || !strncmp(text, "shardc-ir ", 10) || !strncmp(text, "model ", 6)))
    text += strcspn(text, "\n") + 1;
  return text;
}

static void put_counts(Page *page, FILE *out) {
  IrCount c = module_count(page->m);
  uint32_t ops = 0;
  for (uint32_t i = 0; i < page->m->fns.n; i++) ops += page->m->fns.at[i]->ops.n;
  fprintf(out, ",\"flop\":%.0f,\"bytes\":%.0f,\"peak\":%lld,\"kernels\":%u,\"ops\":%u", c.flop,
          c.bytes, (long long)c.peak, c.kernels, ops);
}

static void add_stage(Page *page) {
  const Pass *pass = pass_find(page->m->after);
  size_t n;
  char *text = ir_print(page->m, &n);
  bool changed = !page->before || strcmp(body_of(page->before), body_of(text));
  fputs(page->nstages++ ? ",\n{" : "{", page->stages);
  put_member(page->stages, "name", page->m->after);
  putc(',', page->stages);
  put_member(page->stages, "help", pass ? pass->help : "the model as it was written");
  putc(',', page->stages);
  put_member(page->stages, "head", ir_head(page->m));
  put_counts(page, page->stages);
  fprintf(page->stages, ",\"changed\":%s,\"lines\":[", changed ? "true" : "false");
  put_lines(page, page->stages, text, of_head);
  fputs("]}", page->stages);
  page->before = text;
}

static Exit run_stages(Page *page) {
  uint32_t n;
  const Pass *table = pass_table(&n), *last = pass_find(page->m->after);
  Exit e =
      describe_target(page->o, page->m); /* before the first text, as in the folder of --dump-ir */
  if (e != EXIT_FINE) return e;
  add_stage(page);
  for (uint32_t i = last ? (uint32_t)(last - table) + 1 : 0; i < n; i++) {
    if (!table[i].run) continue;
    e = run_pipeline(page->o, page->m, table[i].name);
    if (e != EXIT_FINE) return e;
    add_stage(page);
  }
  return EXIT_FINE;
}

/* ---- assembly ---- */

/* Lines without information for a reader: debug tables, symbol sizes. */
static bool of_assembler(const char *line) {
  static const char *const left_out[] = {"\t.cfi_",   "\t.size\t",           "\t.type\t",
                                         "\t.file\t", "\t.section\t\".note", "\n"};
  for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
    if (!strncmp(line, left_out[i], strlen(left_out[i]))) return true;
  return false;
}

static void put_assembly(Page *page, FILE *out) {
  bool first = true;
  EACH_FN (page->m, k) {
    if (k->kind != FN_KERNEL) continue;
    fputs(first ? "{" : ",\n{", out), first = false;
    put_member(out, "name", k->name);
    putc(',', out);
    put_member(out, "symbol", kernel_symbol(page->m, k));
    fputs(",\"lines\":[", out);
    put_lines(page, out, kernel_text(page->m, k, true), of_assembler);
    fputs("]}", out);
  }
}

/* ---- memory ---- */

static void outlast(uint32_t *last, ValueId v, uint32_t when) {
  if (last[v] < when) last[v] = when;
}

/* The last op that touches each value; what touches a view touches its base, and what touches a
   concat all that is laid into it. */
static uint32_t *last_uses(Arena *arena, const Fn *f) {
  uint32_t *last = ARENA_ARRAY(arena, uint32_t, f->values.n + 1);
  for (uint32_t i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    for (uint32_t k = 0; k < o->nout; k++) last[o->out + k] = i;
    for (uint32_t k = 0; k < o->nin; k++) last[o->in[k]] = i;
  }
  for (uint32_t i = 0; i < f->results.n; i++) last[f->results.at[i]] = f->ops.n;
  for (ValueId v = f->values.n; v-- > 0;) {
    const Value *x = &f->values.at[v];
    const Op *o = value_def(f, v);
    if (storage_has_base(&x->storage)) outlast(last, x->storage.base, last[v]);
    for (uint32_t k = 0; o && op_lays(f, o) && k < o->nin; k++) outlast(last, o->in[k], last[v]);
  }
  return last;
}

static void put_block(FILE *out, const char *name, int64_t at, int64_t bytes, uint32_t from,
                      uint32_t to) {
  putc('[', out);
  put_string(out, name);
  fprintf(out, ",%lld,%lld,%u,%u],", (long long)at, (long long)bytes, from, to);
}

/* Memory of an op other than its results: workspace of a kernel, frame of a body, second buffers of
   a loop.
 */
static void put_work(FILE *out, Module *m, const Fn *f, uint32_t i, const char *what) {
  const Op *o = &f->ops.at[i];
  const Attr *work = attr_get(&o->attrs, ATTR_work_at), *slots = attr_get(&o->attrs, ATTR_slots);
  AttrKey size = o->code == OP_loop ? ATTR_frame : ATTR_workspace;
  int64_t bytes = work ? attr_int(&o->callee->attrs, size, 0) : 0;
  if (bytes) put_block(out, arena_printf(m->arena, "work of %s", what), work->i, bytes, i, i);
  for (int64_t k = 0; slots && k < slots->i; k++)
    if (slots->list[k] >= 0)
      put_block(out, arena_printf(m->arena, "second buffer of %s", what), slots->list[k],
                value_span_bytes(&f->values.at[o->out + k]), i, i);
}

static void put_results(FILE *out, Module *m, const Fn *f, uint32_t i, const char *what,
                        const uint32_t *last) {
  const Op *o = &f->ops.at[i];
  for (ValueId v = o->out; v < o->out + o->nout; v++) {
    const Value *x = &f->values.at[v];
    if (x->storage.place != PLACE_FRAME || x->storage.view != VIEW_NONE) continue;
    const char *name = arena_printf(m->arena, "%s: %s", what, type_text(m, &x->type));
    put_block(out, name, x->storage.at, value_room(f, v), i, last[v]);
  }
}

static void put_frame(FILE *out, Module *m, const Fn *f) {
  const uint32_t *last = last_uses(m->arena, f);
  fprintf(out, "{\"name\":\"%s\",\"bytes\":%lld,\"ops\":%u,\"blocks\":[", f->name,
          (long long)attr_int(&f->attrs, ATTR_frame, 0), f->ops.n);
  for (uint32_t i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    const char *what = o->callee ? o->callee->name : op_name(o->code);
    put_results(out, m, f, i, what, last);
    if (o->callee) put_work(out, m, f, i, what);
  }
  fputs("null],\"names\":[", out); /* the end of the list: every block ends with a comma */
  for (uint32_t i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (i) putc(',', out);
    put_string(out, o->callee ? o->callee->name : op_name(o->code));
  }
  fputs("]}", out);
}

/* The main entry first, then callers before their bodies. */
static void put_frames(FILE *out, Module *m) {
  const Fn *first = ir_main_entry(m);
  if (first) put_frame(out, m, first);
  for (uint32_t i = m->fns.n; i-- > 0;) {
    const Fn *f = m->fns.at[i];
    if (f->kind == FN_KERNEL || f == first) continue;
    fputs(",\n", out);
    put_frame(out, m, f);
  }
}

/* ---- layouts ---- */

static void put_layouts(FILE *out, const Page *page) {
  const LayoutDrawings *drawings = page->o->layouts;
  for (uint32_t i = 0; drawings && i < drawings->drawn.n; i++) {
    fputs(i ? ",{" : "{", out);
    put_member(out, "name", drawings->drawn.at[i]->figures.name);
    putc(',', out);
    put_member(out, "svg", layout_picture(page->m->arena, drawings->drawn.at[i]));
    putc('}', out);
  }
}

/* ---- streams ---- */

static void put_picture(FILE *out, const Module *m, const Fn *entry) {
  char *svg = NULL;
  size_t n;
  FILE *file = heap_stream(&svg, &n);
  if (!file) bug("no memory");
  Lanes lanes = lanes_in_order(m, entry);
  lanes_svg(file, &(LanesPicture){m, NULL, &lanes});
  fclose(file);
  putc('{', out);
  put_member(out, "name", entry->name);
  putc(',', out);
  put_member(out, "svg", svg);
  putc('}', out);
  free(svg);
}

/* The main entry first. */
static void put_streams(FILE *out, const Module *m) {
  const Fn *first = ir_main_entry(m);
  if (first) put_picture(out, m, first);
  EACH_FN (m, f) {
    if (f->kind != FN_ENTRY || f == first) continue;
    if (first) putc(',', out);
    put_picture(out, m, f);
  }
}

/* ---- the page ---- */

static void put_data(Page *page, FILE *out, const char *lines, const char *stages,
                     const char *assembly) {
  Module *m = page->m;
  putc('{', out);
  put_member(out, "model", m->model);
  fputs(",\"sources\":[", out);
  for (uint32_t i = 0; i < m->sources.n; i++) {
    fputs(i ? ",{" : "{", out);
    put_member(out, "name", m->sources.at[i].name);
    putc(',', out);
    put_member(out, "text", m->sources.at[i].text);
    putc('}', out);
  }
  fprintf(out, "],\n\"lines\":[%s],\n\"stages\":[%s],\n\"kernels\":[%s],\n\"frames\":[", lines,
          stages, assembly);
  put_frames(out, m);
  fputs("],\n\"streams\":[", out);
  put_streams(out, m);
  fputs("],\n\"layouts\":[", out);
  put_layouts(out, page);
  fputs("],\n", out);
  put_member(out, "host", host_write(m));
  putc('}', out);
}

static char *put_page(Page *p, const char *lines, const char *stages, const char *assembly,
                      size_t *n) {
  static const char mark[] = "@DATA@";
  size_t length;
  const char *page = page_html_text(&length), *at = strstr(page, mark);
  char *text = NULL;
  FILE *out = heap_stream(&text, n);
  if (!out || !at) bug("no page");
  fwrite(page, 1, (size_t)(at - page), out);
  put_data(p, out, lines, stages, assembly);
  at += sizeof mark - 1;
  fwrite(at, 1, length - (size_t)(at - page), out);
  fclose(out);
  return text;
}

Exit dump_html(Cli *o, Module *m, const char *output) {
  Page page = {.o = o, .m = m, .cap = 1024};
  char *lines = NULL, *stages = NULL, *assembly = NULL, *text = NULL;
  size_t n, lengths[3];
  page.slot = ARENA_ARRAY(m->arena, Str, page.cap),
  page.number = ARENA_ARRAY(m->arena, uint32_t, page.cap);
  page.lines = heap_stream(&lines, &lengths[0]), page.stages = heap_stream(&stages, &lengths[1]);
  FILE *kernels = heap_stream(&assembly, &lengths[2]);
  if (!page.lines || !page.stages || !kernels) bug("no memory");
  Exit e = run_stages(&page);
  if (e == EXIT_FINE) put_assembly(&page, kernels);
  fclose(page.lines), fclose(page.stages), fclose(kernels);
  if (e == EXIT_FINE) {
    text = put_page(&page, lines, stages, assembly, &n);
    e = write_text(o->c, output, text, n);
  }
  free(text), free(lines), free(stages), free(assembly);
  return e;
}
