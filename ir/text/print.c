/* The text of a module (docs/ir.md): one line per op, values numbered in order of definition.

   Prints whatever it is given, also modules that the verifier would refuse: a value without
   definition prints as %?N. The text is a function of the module's contents only, and reading it
   back gives the same text. Storage that follows from the order of the type is left out once
   `order` has run; the parser puts it back. */
#include "ir/ir.h"
#include "ir/shape/placement.h"
#include "ir/word_patterns.h"
#include "ir/schedule/background_order.h"
#include "ir/schedule/pipeline_schedule.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

typedef struct IrPrinter {
  Module *m;
  Fence fence; /* of m */
  Arena *arena;
  char *text;
  size_t n, cap;
  const Fn *fn;
  uint32_t *number; /* of each value of fn */
} IrPrinter;

static void put_n(IrPrinter *printer, const char *s, size_t n) {
  if (printer->n + n + 1 > printer->cap) {
    printer->cap = (printer->n + n + 1) * 2 + 256;
    char *grown = arena_alloc(printer->arena, printer->cap);
    if (printer->n) memcpy(grown, printer->text, printer->n);
    printer->text = grown;
  }
  memcpy(printer->text + printer->n, s, n);
  printer->text[printer->n += n] = 0;
}

static void put_text(IrPrinter *printer, const char *s) { put_n(printer, s, strlen(s)); }

static void put_digits(IrPrinter *printer, uint64_t u, bool negative) {
  char digits[24];
  size_t at = sizeof digits;
  do digits[--at] = (char)('0' + u % 10);
  while (u /= 10);
  if (negative) digits[--at] = '-';
  put_n(printer, digits + at, sizeof digits - at);
}

static void put_signed(IrPrinter *printer, long long i) {
  put_digits(printer, i < 0 ? -(uint64_t)i : (uint64_t)i, i < 0);
}

/* By the C library: conversions that are rare. */
static void put_rest(IrPrinter *printer, const char *format, va_list args) {
  char line[512];
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(line, sizeof line, format, args);
  if ((size_t)n < sizeof line) put_n(printer, line, (size_t)n);
  else put_n(printer, arena_vprintf(printer->arena, format, again), (size_t)n);
  va_end(again);
}

/* As printf. The text of a module consists of names and whole numbers: a general formatter would
   take most of the time in which it is printed. */
static void put(IrPrinter *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(IrPrinter *printer, const char *format, ...) {
  va_list args;
  va_start(args, format);
  while (*format) {
    size_t plain = (size_t)(strchrnul(format, '%') - format);
    if (plain) put_n(printer, format, plain);
    format += plain;
    if (!*format) break;
    if (format[1] == '%') put_n(printer, "%", 1), format += 2;
    else if (format[1] == 's') put_text(printer, va_arg(args, const char *)), format += 2;
    else if (format[1] == 'u') put_digits(printer, va_arg(args, unsigned), false), format += 2;
    else if (format[1] == 'd') put_signed(printer, va_arg(args, int)), format += 2;
    else if (!strncmp(format, "%lld", 4)) put_signed(printer, va_arg(args, long long)), format += 4;
    else {
      put_rest(printer, format, args);
      break;
    }
  }
  va_end(args);
}

static void put_int(IrPrinter *printer, int64_t i) { put_signed(printer, i); }

/* The fewest digits that read back to the same number. */
static void put_float(IrPrinter *printer, double f) {
  char digits[40];
  if (isnan(f)) put(printer, "nan");
  else if (isinf(f)) put(printer, f < 0 ? "-inf" : "inf");
  else {
    for (int n = 1; n <= 17; n++) {
      snprintf(digits, sizeof digits, "%.*g", n, f);
      if (strtod(digits, NULL) == f) break;
    }
    put(printer, "%s", digits);
  }
}

/* Does a terminal obey it? ASCII, or U+0080 .. U+009F by the second of its two bytes. */
static bool is_obeyed(const char *text, const char *at) {
  unsigned char c = (unsigned char)*at;
  bool high = c >= 0x80 && c < 0xa0 && at > text && (unsigned char)at[-1] == 0xc2;
  return c < 32 || c == 127 || high;
}

static void put_quoted(IrPrinter *printer, const char *s) {
  put(printer, "\"");
  for (const char *text = s; *s; s++) {
    const char *plain = "\n\t\"\\", *letters = "nt\"\\", *found = strchr(plain, *s);
    if (found) put(printer, "\\%c", letters[found - plain]);
    else if (is_obeyed(text, s)) put(printer, "\\x%02x", (unsigned char)*s);
    else put_n(printer, s, 1);
  }
  put(printer, "\"");
}

static void put_word(IrPrinter *printer, const char *s) {
  if (text_is_key(s)) put(printer, "%s", s);
  else put_quoted(printer, s);
}

/* /node/data: the mesh axes that cut a dim, the coarsest first */
static void put_cuts(IrPrinter *printer, const Placement *placed, Str dim) {
  int axes[MAX_MESH], n = mesh_order(printer->m, axes);
  for (int i = 0; i < n; i++)
    if (placed->on[axes[i]] == dim) put(printer, "/%s", printer->m->mesh.at[axes[i]].name);
}

static void put_partial(IrPrinter *printer, const Placement *placed) {
  bool first = true;
  for (uint32_t i = 0; i < printer->m->mesh.n; i++) {
    if (!is_partial(placed->on[i])) continue;
    put(printer, "%s%s%s", first ? " partial(" : ", ", placed->on[i] == PARTIAL_MAX ? "max " : "",
        printer->m->mesh.at[i].name);
    first = false;
  }
  if (!first) put(printer, ")");
}

static void put_type(IrPrinter *printer, const Type *t, const Placement *placed) {
  put(printer, "%s%s%s[", t->tier ? tier_name(t->tier) : "", t->tier ? " " : "",
      elem_name(t->elem));
  for (int i = 0; i < t->rank; i++) {
    put(printer, "%s%s", i ? ", " : "", t->axis[i].dim);
    if (printer->m->mesh.n) put_cuts(printer, placed, t->axis[i].dim);
    put(printer, ":%lld", (long long)t->axis[i].size);
  }
  put(printer, "]");
  put_partial(printer, placed);
}

static void put_value_type(IrPrinter *printer, const Fn *f, ValueId v) {
  put_type(printer, value_type(f, v), &f->values.at[v].placed);
}

static void put_loc(IrPrinter *printer, Loc l) {
  if (l.file) put(printer, "  loc(f%u:%u:%u+%u)", l.file, l.line, l.column, l.length);
}

static void put_value(IrPrinter *printer, ValueId v) {
  if (v < printer->fn->values.n && printer->number[v] != NO_VALUE)
    put(printer, "%%%u", printer->number[v]);
  else put(printer, "%%?%u", v);
}

static void put_values(IrPrinter *printer, const char *before, uint32_t n, const ValueId *v) {
  for (uint32_t i = 0; i < n; i++) {
    put(printer, "%s", i ? ", " : before);
    put_value(printer, v[i]);
  }
}

static void put_names(IrPrinter *printer, int n, const Str *names) {
  for (int i = 0; i < n; i++) put(printer, "%s%s", i ? ", " : "", names[i]);
}

static void put_groups(IrPrinter *printer, const Op *op) {
  for (int i = 0; i < op->ngroups; i++) {
    const Group *group = &op->group[i];
    put(printer, i ? "; " : "[");
    put_names(printer, group->nfrom, group->from);
    if (group->arrow) put(printer, group->nfrom ? " -> " : "-> ");
    put_names(printer, group->nto, group->to);
  }
  if (op->ngroups) put(printer, "]");
}

static void put_attr(IrPrinter *printer, const Attr *attr) {
  put(printer, "%s = ", attr_name(attr->key));
  switch (attr_kind(attr->key)) {
  case ATTR_INT: put_int(printer, attr->i); break;
  case ATTR_FLOAT: put_float(printer, attr->f); break;
  case ATTR_STR: put_quoted(printer, attr->s); break;
  case ATTR_INTS:
    put(printer, "[");
    for (int64_t i = 0; i < attr->i; i++)
      put(printer, i ? ", %lld" : "%lld", (long long)attr->list[i]);
    put(printer, "]");
  }
}

static void put_attrs(IrPrinter *printer, const AttrList *l) {
  for (uint32_t i = 0; i < l->n; i++) {
    put(printer, i ? ", " : " {");
    put_attr(printer, &l->at[i]);
  }
  if (l->n) put(printer, "}");
}

static void put_strides(IrPrinter *printer, const Value *v) {
  put(printer, " strides(");
  for (int i = 0; i < v->type.rank; i++)
    put(printer, i ? ", %lld" : "%lld", (long long)v->storage.stride[i]);
  put(printer, ")");
}

static void put_place(IrPrinter *printer, const Storage *storage) {
  switch (storage->place) {
  case PLACE_NONE: return;
  case PLACE_GLOBAL:
    put(printer, " at(global @%s",
        storage->slot < printer->m->globals.n ? printer->m->globals.at[storage->slot]->name : "?");
    break;
  case PLACE_FRAME: put(printer, " at(frame"); break;
  case PLACE_ARG: put(printer, " at(arg %u", storage->slot); break;
  case PLACE_RESULT: put(printer, " at(result %u", storage->slot); break;
  case PLACE_RING: put(printer, " at(ring %u", storage->slot); break;
  }
  put(printer, " + %lld)", (long long)storage->at);
}

static void put_storage(IrPrinter *printer, const Value *v, int result) {
  const Storage *storage = &v->storage;
  bool strides = storage->ordered && (printer->fence < FENCE_ORDERED || !value_is_dense(v));
  if (!strides && storage->view == VIEW_NONE && storage->place == PLACE_NONE) return;
  put(printer, " {");
  if (result >= 0) put(printer, "%d:", result);
  size_t start = printer->n;
  if (strides) put_strides(printer, v);
  if (storage->view == VIEW_ASSEMBLED) put(printer, " assembled");
  if (storage_has_base(storage)) {
    put(printer, storage->view == VIEW_OF ? " view(" : " inplace(");
    put_value(printer, storage->base);
    if (storage->view == VIEW_OF) put(printer, " + %lld", (long long)storage->offset);
    put(printer, ")");
  }
  put_place(printer, storage);
  if (result < 0)
    memmove(printer->text + start, printer->text + start + 1,
            printer->n-- - start); /* no blank after { */
  put(printer, "}");
}

enum { SHOWN_STAGES = 16, SHOWN_TURNS = 24 };

/* The table of a schedule as it runs: a comment. */
static void put_turns(IrPrinter *printer, OpId id) {
  ScheduleLoops t;
  if (!schedule_find(printer->fn, id, &t)) return;
  for (int64_t s = 0; s < t.table.stages && s < SHOWN_STAGES; s++)
    put(printer, "  # stage %lld: %s\n", (long long)s,
        schedule_text(printer->arena, &t.table, s, SHOWN_TURNS));
}

static void put_op(IrPrinter *printer, const Op *op) {
  put(printer, "  ");
  for (uint32_t i = 0; i < op->nout; i++)
    put_values(printer, i ? ", " : "", 1, &(ValueId){op->out + i});
  put(printer, "%s%s", op->nout ? " = " : "", op_name(op->code));
  put_groups(printer, op);
  if (op->global) put(printer, " @%s", op->global->name);
  if (op->callee) put(printer, " @%s", op->callee->name);
  put_values(printer, op->global || op->callee ? ", " : " ", op->nin, op->in);
  put_attrs(printer, &op->attrs);
  for (uint32_t i = 0; i < op->nout; i++) {
    put(printer, i ? ", " : " : ");
    put_value_type(printer, printer->fn, op->out + i);
  }
  for (uint32_t i = 0; i < op->nout; i++)
    put_storage(printer, &printer->fn->values.at[op->out + i], (int)i);
  put_loc(printer, op->loc);
  put(printer, "\n");
}

static void number_values(IrPrinter *printer, const Fn *f) {
  uint32_t n = 0;
  printer->fn = f, printer->number = ARENA_ARRAY(printer->arena, uint32_t, f->values.n + 1);
  for (uint32_t i = 0; i < f->values.n; i++) printer->number[i] = NO_VALUE;
  for (uint32_t i = 0; i < f->args.n; i++) printer->number[f->args.at[i]] = n++;
  for (uint32_t i = 0; i < f->ops.n; i++)
    for (uint32_t r = 0; r < f->ops.at[i].nout; r++) printer->number[f->ops.at[i].out + r] = n++;
}

static void put_fn(IrPrinter *printer, const Fn *f) {
  number_values(printer, f);
  put(printer, "%s @%s", text_fn_kinds[f->kind], f->name);
  if (f->args.n || f->kind != FN_ENTRY) {
    put(printer, "(");
    for (uint32_t i = 0; i < f->args.n; i++) {
      put_values(printer, i ? ", " : "", 1, &f->args.at[i]);
      put(printer, " : ");
      put_value_type(printer, f, f->args.at[i]);
      put_storage(printer, &f->values.at[f->args.at[i]], -1);
    }
    put(printer, ")");
  }
  put_attrs(printer, &f->attrs);
  put_loc(printer, f->loc);
  put(printer, " {\n");
  for (OpId i = 0; i < f->ops.n; i++) put_turns(printer, i), put_op(printer, &f->ops.at[i]);
  if (f->results.n) {
    put_values(printer, "  return ", f->results.n, f->results.at);
    put(printer, "\n");
  }
  put(printer, "}\n");
}

static void put_marks(IrPrinter *printer, const Global *global) {
  const struct {
    bool is;
    const char *word;
  } marks[] = {{global->decay, "decay"},
               {global->frozen, "frozen"},
               {global->ruled, "ruled"},
               {global->derived, "derived"},
               {(global->stages & STAGES_FIRST) != 0, "first"},
               {(global->stages & STAGES_LAST) != 0, "last"}};
  int n = 0;
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
    if (marks[i].is) put(printer, n++ ? ", %s" : " {%s", marks[i].word);
  if (n) put(printer, "}");
}

static void put_global(IrPrinter *printer, const Global *global) {
  put(printer, "%s @%s : ", text_global_kinds[global->kind], global->name);
  put_type(printer, &global->type, &global->placed);
  if (global->of) put(printer, " of %s", global->of);
  put_marks(printer, global);
  if (global->within)
    put(printer, " in @%s from %lld", global->within->name, (long long)global->begin);
  if (global->storage.place != PLACE_NONE) put(printer, " at(%lld)", (long long)global->storage.at);
  put_loc(printer, global->loc);
  put(printer, "\n");
}

static void put_dim(IrPrinter *printer, const Dim *d) {
  put(printer, "dim %s = ", d->name);
  if (d->size) put_int(printer, d->size);
  else put(printer, "open");
  if (d->stored != d->size) put(printer, " pad %lld", (long long)d->stored);
  if (d->like) put(printer, " like %s", d->like);
  if (d->part) put(printer, " of %s from %lld", d->part, (long long)d->first);
  put(printer, "\n");
}

static void put_mesh(IrPrinter *printer, const Module *m) {
  for (uint32_t i = 0; i < m->mesh.n; i++)
    put(printer, "%s%s = %lld", i ? ", " : "mesh ", m->mesh.at[i].name,
        (long long)m->mesh.at[i].size);
  if (m->mesh.n) put(printer, "\n");
}

static void put_rule(IrPrinter *printer, const PlaceRule *rule) {
  put(printer, "place ");
  put_names(printer, (int)rule->dims.n, rule->dims.at);
  if (rule->dims.n && rule->paths.n) put(printer, ", ");
  for (uint32_t i = 0; i < rule->paths.n; i++)
    put(printer, "%s@%s", i ? ", " : "", rule->paths.at[i]);
  put(printer, " -> %s", rule->axes.n ? "" : "none");
  put_names(printer, (int)rule->axes.n, rule->axes.at);
  if (rule->pieces) put(printer, " balanced %lld", (long long)rule->pieces);
  if (rule->ring) put(printer, " ring");
  if (rule->activations) put(printer, " activations");
  if (rule->otherwise.n) put(printer, " else ");
  put_names(printer, (int)rule->otherwise.n, rule->otherwise.at);
  put_loc(printer, rule->loc);
  put(printer, "\n");
}

/* Positions of parts of a line, `over(f1:23:33+6)`. */
static void put_part_loc(IrPrinter *printer, const char *part, Loc l) {
  if (l.file) put(printer, " %s(f%u:%u:%u+%u)", part, l.file, l.line, l.column, l.length);
}

static void put_recompute(IrPrinter *printer, const RecomputeLine *line) {
  put(printer, "recompute %s", recompute_text(printer->arena, line));
  put_loc(printer, line->loc);
  put_part_loc(printer, "over", line->over_loc);
  put_part_loc(printer, "offload", line->offload_loc);
  put(printer, "\n");
}

static void put_offload(IrPrinter *printer, const OffloadLine *line) {
  put(printer, "offload %s", offload_word(line->word));
  put_part_loc(printer, "loc", line->loc);
  if (line->path) put(printer, " of %s", line->path), put_part_loc(printer, "loc", line->path_loc);
  put(printer, "\n");
}

static void put_background(IrPrinter *printer, const Module *m, BackgroundOp op) {
  const Background *background = &m->background[op];
  const char *before = " after ";
  if (!background->there) return;
  put(printer, "background %s on %s", background_name(op), background_stream(op));
  for (BackgroundOp other = 0; other < BACKGROUNDS; other++)
    if (background->after >> other & 1)
      put(printer, "%s%s", before, background_name(other)), before = ", ";
  for (OpStream stream = STREAM_down; stream < STREAMS; stream++)
    if (background->streams >> stream & 1)
      put(printer, "%s%s", before, stream_name(stream)), before = ", ";
  put(printer, "\n");
}

static void put_was(IrPrinter *printer, const IrCount *c) {
  put(printer, "was ");
  put_float(printer, c->flop), put(printer, " "), put_float(printer, c->bytes);
  put(printer, " %lld %u\n", (long long)c->peak, c->kernels);
}

static void put_fact(IrPrinter *printer, const TargetFacts *facts, TargetFact f) {
  int64_t value = target_get(facts, f);
  put(printer, "%s = ", target_fact_name(f));
  switch (target_fact_type(f)) {
  case TARGET_TYPE_FLAG: put(printer, value ? "true" : "false"); break;
  case TARGET_TYPE_DEVICE: put(printer, "%s", device_name((DeviceKind)value)); break;
  case TARGET_TYPE_COUNT:
  case TARGET_TYPE_POWER: put_int(printer, value);
  }
}

/* A target with a name is printed with every fact of its device, unless `..` stands for facts that
   have not been filled in yet; for one without a name only the facts that differ from the
   table's. */
static void put_target(IrPrinter *printer, const char *word, const TargetFacts *facts) {
  int n = 0;
  for (TargetFact f = 0; f < TARGET_FACTS; f++) {
    bool told = facts->name && !facts->rest ? target_fact_of(f, facts->device)
                : facts->name               ? facts->given >> f & 1
                                            : target_get(facts, f) != target_get(&target_none, f);
    if (!told) continue;
    put(printer, "%s", n++ ? ", " : word);
    if (n == 1 && facts->name) put_word(printer, facts->name), put(printer, " ");
    if (n == 1) put(printer, "{");
    put_fact(printer, facts, f);
  }
  if (n) put(printer, facts->name && !facts->rest ? "}\n" : ", ..}\n");
  else if (facts->name)
    put(printer, "%s", word), put_word(printer, facts->name), put(printer, " {..}\n");
}

static void put_head(IrPrinter *printer, const Module *m, const char *comment) {
  put(printer, "shardc-ir 1\n");
  if (comment) put(printer, "%s\n", comment);
  put(printer, "model ");
  put_word(printer, m->model);
  put(printer, "\nafter ");
  put_word(printer, m->after);
  put(printer, "\n");
  if (m->was_known) put_was(printer, &m->was);
  for (uint32_t i = 0; i < m->sources.n; i++) {
    put(printer, "source f%u ", i + 1);
    put_quoted(printer, m->sources.at[i].name);
    put(printer, " ");
    put_quoted(printer, m->sources.at[i].text);
    put(printer, "\n");
  }
  for (uint32_t i = 0; i < m->dims.n; i++) put_dim(printer, &m->dims.at[i]);
  put_mesh(printer, m);
  for (uint32_t i = 0; i < m->rules.n; i++) put_rule(printer, &m->rules.at[i]);
  put_target(printer, "target ", &m->target);
  put_target(printer, "host_target ", &m->host_target);
  for (uint32_t i = 0; i < m->settings.n; i++) {
    put(printer, "set ");
    put_word(printer, m->settings.at[i].key);
    put(printer, " = ");
    put_quoted(printer, m->settings.at[i].value);
    put(printer, "\n");
  }
  for (uint32_t i = 0; i < m->recompute.n; i++) put_recompute(printer, &m->recompute.at[i]);
  for (uint32_t i = 0; i < m->offload.n; i++) put_offload(printer, &m->offload.at[i]);
  for (uint32_t i = 0; i < m->lists.n; i++) {
    put(printer, "lists @%s", m->lists.at[i].name);
    put_attrs(printer, &m->lists.at[i].attrs);
    put(printer, "\n");
  }
  for (uint32_t i = 0; i < m->globals.n; i++) put_global(printer, m->globals.at[i]);
  for (BackgroundOp op = 0; op < BACKGROUNDS; op++) put_background(printer, m, op);
}

char *ir_print_commented(Module *m, const char *comment, size_t *length) {
  IrPrinter printer = {.m = m, .fence = module_fence(m), .arena = m->arena};
  put_head(&printer, m, comment);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    put(&printer, "\n");
    put_fn(&printer, m->fns.at[i]);
  }
  if (length) *length = printer.n;
  return printer.text;
}

char *ir_print(Module *m, size_t *length) { return ir_print_commented(m, NULL, length); }

char *ir_print_fn(Module *m, const Fn *f) {
  IrPrinter printer = {.m = m, .fence = module_fence(m), .arena = m->arena};
  put_fn(&printer, f);
  return printer.text;
}

const char *type_text(Module *m, const Type *t) { return placed_text(m, t, &(Placement){0}); }

const char *placed_text(Module *m, const Type *t, const Placement *placed) {
  IrPrinter printer = {.m = m, .fence = module_fence(m), .arena = m->arena};
  put_type(&printer, t, placed);
  return printer.text;
}
