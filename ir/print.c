/* The text of a module (docs/ir.md): one line per op, values numbered in order of definition.

   Prints whatever it is given, also modules that the verifier would refuse: a value without
   definition prints as %?N. The text is a function of the module's contents only, and reading it
   back gives the same text. Storage that follows from the order of the type is left out once
   `order` has run; the parser puts it back. */
#include "count.h"
#include "ir.h"
#include "placement.h"
#include "text.h"
#include "turns.h"
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

static void put_n(IrPrinter *p, const char *s, size_t n) {
  if (p->n + n + 1 > p->cap) {
    p->cap = (p->n + n + 1) * 2 + 256;
    char *grown = arena_alloc(p->arena, p->cap);
    if (p->n) memcpy(grown, p->text, p->n);
    p->text = grown;
  }
  memcpy(p->text + p->n, s, n);
  p->text[p->n += n] = 0;
}

static void put(IrPrinter *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(IrPrinter *p, const char *format, ...) {
  char line[512];
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = vsnprintf(line, sizeof line, format, args);
  if ((size_t)n < sizeof line) put_n(p, line, (size_t)n);
  else put_n(p, arena_vprintf(p->arena, format, again), (size_t)n);
  va_end(again);
  va_end(args);
}

static void put_int(IrPrinter *p, int64_t i) { put(p, "%lld", (long long)i); }

/* The fewest digits that read back to the same number. */
static void put_float(IrPrinter *p, double f) {
  char digits[40];
  if (isnan(f)) put(p, "nan");
  else if (isinf(f)) put(p, f < 0 ? "-inf" : "inf");
  else {
    for (int n = 1; n <= 17; n++) {
      snprintf(digits, sizeof digits, "%.*g", n, f);
      if (strtod(digits, NULL) == f) break;
    }
    put(p, "%s", digits);
  }
}

static void put_quoted(IrPrinter *p, const char *s) {
  put(p, "\"");
  for (; *s; s++) {
    const char *plain = "\n\t\"\\", *letters = "nt\"\\", *found = strchr(plain, *s);
    if (found) put(p, "\\%c", letters[found - plain]);
    else if ((unsigned char)*s < 32 || *s == 127) put(p, "\\x%02x", (unsigned char)*s);
    else put_n(p, s, 1);
  }
  put(p, "\"");
}

static void put_word(IrPrinter *p, const char *s) {
  if (text_is_key(s)) put(p, "%s", s);
  else put_quoted(p, s);
}

/* /node/data: the mesh axes that cut a dim, the coarsest first */
static void put_cuts(IrPrinter *p, const Placement *placed, Str dim) {
  int axes[MAX_MESH], n = mesh_order(p->m, axes);
  for (int i = 0; i < n; i++)
    if (placed->on[axes[i]] == dim) put(p, "/%s", p->m->mesh.at[axes[i]].name);
}

static void put_partial(IrPrinter *p, const Placement *placed) {
  bool first = true;
  for (uint32_t i = 0; i < p->m->mesh.n; i++) {
    if (!is_partial(placed->on[i])) continue;
    put(p, "%s%s%s", first ? " partial(" : ", ", placed->on[i] == PARTIAL_MAX ? "max " : "",
        p->m->mesh.at[i].name);
    first = false;
  }
  if (!first) put(p, ")");
}

static void put_type(IrPrinter *p, const Type *t, const Placement *placed) {
  put(p, "%s%s%s[", t->tier ? tier_name(t->tier) : "", t->tier ? " " : "", elem_name(t->elem));
  for (int i = 0; i < t->rank; i++) {
    put(p, "%s%s", i ? ", " : "", t->axis[i].dim);
    if (p->m->mesh.n) put_cuts(p, placed, t->axis[i].dim);
    put(p, ":%lld", (long long)t->axis[i].size);
  }
  put(p, "]");
  put_partial(p, placed);
}

static void put_value_type(IrPrinter *p, const Fn *f, ValueId v) {
  put_type(p, value_type(f, v), &f->values.at[v].placed);
}

static void put_loc(IrPrinter *p, Loc l) {
  if (l.file) put(p, "  loc(f%u:%u:%u+%u)", l.file, l.line, l.column, l.length);
}

static void put_value(IrPrinter *p, ValueId v) {
  if (v < p->fn->values.n && p->number[v] != NO_VALUE) put(p, "%%%u", p->number[v]);
  else put(p, "%%?%u", v);
}

static void put_values(IrPrinter *p, const char *before, uint32_t n, const ValueId *v) {
  for (uint32_t i = 0; i < n; i++) {
    put(p, "%s", i ? ", " : before);
    put_value(p, v[i]);
  }
}

static void put_names(IrPrinter *p, int n, const Str *names) {
  for (int i = 0; i < n; i++) put(p, "%s%s", i ? ", " : "", names[i]);
}

static void put_groups(IrPrinter *p, const Op *op) {
  for (int i = 0; i < op->ngroups; i++) {
    const Group *g = &op->group[i];
    put(p, i ? "; " : "[");
    put_names(p, g->nfrom, g->from);
    if (g->arrow) put(p, g->nfrom ? " -> " : "-> ");
    put_names(p, g->nto, g->to);
  }
  if (op->ngroups) put(p, "]");
}

static void put_attr(IrPrinter *p, const Attr *a) {
  put(p, "%s = ", attr_name(a->key));
  switch (attr_kind(a->key)) {
  case ATTR_INT: put_int(p, a->i); break;
  case ATTR_FLOAT: put_float(p, a->f); break;
  case ATTR_STR: put_quoted(p, a->s); break;
  case ATTR_INTS:
    put(p, "[");
    for (int64_t i = 0; i < a->i; i++) put(p, i ? ", %lld" : "%lld", (long long)a->list[i]);
    put(p, "]");
  }
}

static void put_attrs(IrPrinter *p, const AttrList *l) {
  for (uint32_t i = 0; i < l->n; i++) {
    put(p, i ? ", " : " {");
    put_attr(p, &l->at[i]);
  }
  if (l->n) put(p, "}");
}

static void put_strides(IrPrinter *p, const Value *v) {
  put(p, " strides(");
  for (int i = 0; i < v->type.rank; i++)
    put(p, i ? ", %lld" : "%lld", (long long)v->storage.stride[i]);
  put(p, ")");
}

static void put_place(IrPrinter *p, const Storage *s) {
  switch (s->place) {
  case PLACE_NONE: return;
  case PLACE_GLOBAL:
    put(p, " at(global @%s", s->slot < p->m->globals.n ? p->m->globals.at[s->slot]->name : "?");
    break;
  case PLACE_FRAME: put(p, " at(frame"); break;
  case PLACE_ARG: put(p, " at(arg %u", s->slot); break;
  case PLACE_RESULT: put(p, " at(result %u", s->slot); break;
  case PLACE_RING: put(p, " at(ring %u", s->slot); break;
  }
  put(p, " + %lld)", (long long)s->at);
}

static void put_storage(IrPrinter *p, const Value *v, int result) {
  const Storage *s = &v->storage;
  bool strides = s->ordered && (p->fence < FENCE_ORDERED || !value_is_dense(v));
  if (!strides && s->view == VIEW_NONE && s->place == PLACE_NONE) return;
  put(p, " {");
  if (result >= 0) put(p, "%d:", result);
  size_t start = p->n;
  if (strides) put_strides(p, v);
  if (s->view == VIEW_LAID) put(p, " laid");
  if (storage_has_base(s)) {
    put(p, s->view == VIEW_OF ? " view(" : " inplace(");
    put_value(p, s->base);
    if (s->view == VIEW_OF) put(p, " + %lld", (long long)s->offset);
    put(p, ")");
  }
  put_place(p, s);
  if (result < 0)
    memmove(p->text + start, p->text + start + 1, p->n-- - start); /* no blank after { */
  put(p, "}");
}

enum { SHOWN_STAGES = 16, SHOWN_TURNS = 24 };

/* The table of a schedule as it runs: a comment. */
static void put_turns(IrPrinter *p, OpId id) {
  TurnLoops t;
  if (!turns_begin(p->fn, id, &t)) return;
  for (int64_t s = 0; s < t.table.stages && s < SHOWN_STAGES; s++)
    put(p, "  # stage %lld: %s\n", (long long)s, turns_text(p->arena, &t.table, s, SHOWN_TURNS));
}

static void put_op(IrPrinter *p, const Op *op) {
  put(p, "  ");
  for (uint32_t i = 0; i < op->nout; i++) put_values(p, i ? ", " : "", 1, &(ValueId){op->out + i});
  put(p, "%s%s", op->nout ? " = " : "", op_name(op->code));
  put_groups(p, op);
  if (op->global) put(p, " @%s", op->global->name);
  if (op->callee) put(p, " @%s", op->callee->name);
  put_values(p, op->global || op->callee ? ", " : " ", op->nin, op->in);
  put_attrs(p, &op->attrs);
  for (uint32_t i = 0; i < op->nout; i++) {
    put(p, i ? ", " : " : ");
    put_value_type(p, p->fn, op->out + i);
  }
  for (uint32_t i = 0; i < op->nout; i++) put_storage(p, &p->fn->values.at[op->out + i], (int)i);
  put_loc(p, op->loc);
  put(p, "\n");
}

static void number_values(IrPrinter *p, const Fn *f) {
  uint32_t n = 0;
  p->fn = f, p->number = ARENA_ARRAY(p->arena, uint32_t, f->values.n + 1);
  for (uint32_t i = 0; i < f->values.n; i++) p->number[i] = NO_VALUE;
  for (uint32_t i = 0; i < f->args.n; i++) p->number[f->args.at[i]] = n++;
  for (uint32_t i = 0; i < f->ops.n; i++)
    for (uint32_t r = 0; r < f->ops.at[i].nout; r++) p->number[f->ops.at[i].out + r] = n++;
}

static void put_fn(IrPrinter *p, const Fn *f) {
  number_values(p, f);
  put(p, "%s @%s", text_fn_kinds[f->kind], f->name);
  if (f->args.n || f->kind != FN_ENTRY) {
    put(p, "(");
    for (uint32_t i = 0; i < f->args.n; i++) {
      put_values(p, i ? ", " : "", 1, &f->args.at[i]);
      put(p, " : ");
      put_value_type(p, f, f->args.at[i]);
      put_storage(p, &f->values.at[f->args.at[i]], -1);
    }
    put(p, ")");
  }
  put_attrs(p, &f->attrs);
  put_loc(p, f->loc);
  put(p, " {\n");
  for (OpId i = 0; i < f->ops.n; i++) put_turns(p, i), put_op(p, &f->ops.at[i]);
  if (f->results.n) {
    put_values(p, "  return ", f->results.n, f->results.at);
    put(p, "\n");
  }
  put(p, "}\n");
}

static void put_marks(IrPrinter *p, const Global *g) {
  const struct {
    bool is;
    const char *word;
  } marks[] = {{g->decay, "decay"},
               {g->frozen, "frozen"},
               {g->derived, "derived"},
               {(g->stages & STAGES_FIRST) != 0, "first"},
               {(g->stages & STAGES_LAST) != 0, "last"}};
  int n = 0;
  for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
    if (marks[i].is) put(p, n++ ? ", %s" : " {%s", marks[i].word);
  if (n) put(p, "}");
}

static void put_global(IrPrinter *p, const Global *g) {
  put(p, "%s @%s : ", text_global_kinds[g->kind], g->name);
  put_type(p, &g->type, &g->placed);
  if (g->of) put(p, " of %s", g->of);
  put_marks(p, g);
  if (g->within) put(p, " in @%s from %lld", g->within->name, (long long)g->begin);
  if (g->storage.place != PLACE_NONE) put(p, " at(%lld)", (long long)g->storage.at);
  put_loc(p, g->loc);
  put(p, "\n");
}

static void put_dim(IrPrinter *p, const Dim *d) {
  put(p, "dim %s = ", d->name);
  if (d->size) put_int(p, d->size);
  else put(p, "open");
  if (d->stored != d->size) put(p, " pad %lld", (long long)d->stored);
  if (d->like) put(p, " like %s", d->like);
  put(p, "\n");
}

static void put_mesh(IrPrinter *p, const Module *m) {
  for (uint32_t i = 0; i < m->mesh.n; i++)
    put(p, "%s%s = %lld", i ? ", " : "mesh ", m->mesh.at[i].name, (long long)m->mesh.at[i].size);
  if (m->mesh.n) put(p, "\n");
}

static void put_rule(IrPrinter *p, const PlaceRule *r) {
  put(p, "place ");
  put_names(p, (int)r->dims.n, r->dims.at);
  if (r->dims.n && r->paths.n) put(p, ", ");
  for (uint32_t i = 0; i < r->paths.n; i++) put(p, "%s@%s", i ? ", " : "", r->paths.at[i]);
  put(p, " -> %s", r->axes.n ? "" : "none");
  put_names(p, (int)r->axes.n, r->axes.at);
  if (r->otherwise.n) put(p, " else ");
  put_names(p, (int)r->otherwise.n, r->otherwise.at);
  put_loc(p, r->loc);
  put(p, "\n");
}

static void put_was(IrPrinter *p, const IrCount *c) {
  put(p, "was ");
  put_float(p, c->flop), put(p, " "), put_float(p, c->bytes);
  put(p, " %lld %u\n", (long long)c->peak, c->kernels);
}

static void put_fact(IrPrinter *p, const TargetFacts *t, TargetFact f) {
  int64_t value = target_get(t, f);
  put(p, "%s = ", target_fact_name(f));
  switch (target_fact_type(f)) {
  case TARGET_TYPE_FLAG: put(p, value ? "true" : "false"); break;
  case TARGET_TYPE_DEVICE: put(p, "%s", device_name((DeviceKind)value)); break;
  case TARGET_TYPE_COUNT:
  case TARGET_TYPE_POWER: put_int(p, value);
  }
}

/* A target with a name has every fact of its device, unless `..` stands for some that nobody has
   filled in yet; of one without a name, those are told that differ from the table's. */
static void put_target(IrPrinter *p, const char *word, const TargetFacts *t) {
  int n = 0;
  for (TargetFact f = 0; f < TARGET_FACTS; f++) {
    bool told = t->name && !t->rest ? target_fact_of(f, t->device)
                : t->name           ? t->given >> f & 1
                                    : target_get(t, f) != target_get(&target_none, f);
    if (!told) continue;
    put(p, "%s", n++ ? ", " : word);
    if (n == 1 && t->name) put_word(p, t->name), put(p, " ");
    if (n == 1) put(p, "{");
    put_fact(p, t, f);
  }
  if (n) put(p, t->name && !t->rest ? "}\n" : ", ..}\n");
  else if (t->name) put(p, "%s", word), put_word(p, t->name), put(p, " {..}\n");
}

static void put_head(IrPrinter *p, const Module *m, bool counts) {
  put(p, "shardc-ir 1\n");
  if (counts) put(p, "%s\n", ir_head(m));
  put(p, "model ");
  put_word(p, m->model);
  put(p, "\nafter ");
  put_word(p, m->after);
  put(p, "\n");
  if (m->was_known) put_was(p, &m->was);
  for (uint32_t i = 0; i < m->sources.n; i++) {
    put(p, "source f%u ", i + 1);
    put_quoted(p, m->sources.at[i].name);
    put(p, " ");
    put_quoted(p, m->sources.at[i].text);
    put(p, "\n");
  }
  for (uint32_t i = 0; i < m->dims.n; i++) put_dim(p, &m->dims.at[i]);
  put_mesh(p, m);
  for (uint32_t i = 0; i < m->rules.n; i++) put_rule(p, &m->rules.at[i]);
  put_target(p, "target ", &m->target);
  put_target(p, "beside ", &m->beside);
  for (uint32_t i = 0; i < m->settings.n; i++) {
    put(p, "set ");
    put_word(p, m->settings.at[i].key);
    put(p, " = ");
    put_quoted(p, m->settings.at[i].value);
    put(p, "\n");
  }
  for (uint32_t i = 0; i < m->lists.n; i++) {
    put(p, "lists @%s", m->lists.at[i].name);
    put_attrs(p, &m->lists.at[i].attrs);
    put(p, "\n");
  }
  for (uint32_t i = 0; i < m->globals.n; i++) put_global(p, m->globals.at[i]);
}

static char *print_module(Module *m, size_t *length, bool counts) {
  IrPrinter p = {.m = m, .fence = module_fence(m), .arena = m->arena};
  put_head(&p, m, counts);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    put(&p, "\n");
    put_fn(&p, m->fns.at[i]);
  }
  if (length) *length = p.n;
  return p.text;
}

char *ir_print(Module *m, size_t *length) { return print_module(m, length, false); }

char *ir_dump(Module *m, size_t *length) { return print_module(m, length, true); }

char *ir_print_fn(Module *m, const Fn *f) {
  IrPrinter p = {.m = m, .fence = module_fence(m), .arena = m->arena};
  put_fn(&p, f);
  return p.text;
}

const char *type_text(Module *m, const Type *t) { return placed_text(m, t, &(Placement){0}); }

const char *placed_text(Module *m, const Type *t, const Placement *placed) {
  IrPrinter p = {.m = m, .fence = module_fence(m), .arena = m->arena};
  put_type(&p, t, placed);
  return p.text;
}
