/* Reads the text of a module (docs/ir.md): recursive descent over lines.

   Builds what the text says and checks only what building needs: names are known, operands are
   defined above, counts fit the op table. Everything else is the verifier's. Damaged text of any
   kind gives diagnostics (E1001 syntax, E1002 unknown op or attribute, E1003 unknown value,
   function or global, E1004 wrong count), never a crash. */
#include "parse.h"
#include "ir/loop.h"
#include "ir/phases.h"
#include "ir/shape/placement.h"

static void help_nearest(Report *r, const char *name, const char *const *names, uint32_t n) {
  const char *near = n ? diag_nearest(name, names, n) : NULL;
  if (near) diag_help(r, "a similar name exists: `%s`", near);
}

static _Noreturn void unknown(Parser *p, const char *code, size_t at, const char *what,
                              const char *name, const char *const *names, uint32_t n) {
  Report *r = diag_at(p->m->ctx->diag, code, lex_span(p, at), "no %s named `%s`", what, name);
  help_nearest(r, name, names, n);
  p->failed = p->quiet = true;
  longjmp(p->line, 1);
}

static OpCode read_op_name(Parser *p) {
  lex_blanks(p);
  size_t at = p->at;
  Str name = lex_word(p, "an op");
  OpCode c;
  if (op_find(name, &c)) return c;
  const char *names[OP_COUNT];
  for (int i = 0; i < OP_COUNT; i++) names[i] = op_name((OpCode)i);
  unknown(p, "E1002", at, "op", name, names, OP_COUNT);
}

static Global *read_global(Parser *p, size_t at) {
  Str name = lex_symbol(p);
  Module *m = p->m;
  Global *global = module_global(m, name);
  if (global) return global;
  VEC(const char *) names = {0};
  for (uint32_t i = 0; i < m->globals.n; i++) vec_push(m->arena, names, m->globals.at[i]->name);
  unknown(p, "E1003", at, "global", name, names.at, names.n);
}

static Fn *read_callee(Parser *p, size_t at) {
  Str name = lex_symbol(p);
  Module *m = p->m;
  Fn *f = module_fn(m, name);
  if (f) return f;
  VEC(const char *) names = {0};
  for (uint32_t i = 0; i < m->fns.n; i++) vec_push(m->arena, names, m->fns.at[i]->name);
  unknown(p, "E1003", at, "function above", name, names.at, names.n);
}

/* ---- values ---- */

static uint32_t read_number(Parser *p) {
  lex_expect(p, '%');
  size_t at = p->at;
  uint32_t n = lex_count(p);
  if (n >= MOST_VALUES) lex_fail(p, "E1001", at, "value numbers are below %d", MOST_VALUES);
  return n;
}

static void define(Parser *p, uint32_t number, ValueId v) {
  while (p->known.n <= number) vec_push(p->m->arena, p->known, (KnownValue){0});
  p->known.at[number] = (KnownValue){p->fn_number, v};
}

static bool is_defined(const Parser *p, uint32_t number) {
  return number < p->known.n && p->known.at[number].fn == p->fn_number;
}

static ValueId read_value(Parser *p) {
  lex_blanks(p);
  size_t at = p->at;
  uint32_t n = read_number(p);
  if (is_defined(p, n)) return p->known.at[n].value;
  if (p->quiet) longjmp(p->line, 1); /* its definition is the mistake */
  lex_fail(p, "E1003", at, "no value %%%u is defined above in @%s", n, p->fn->name);
}

/* ---- storage clauses ---- */

static void read_strides(Parser *p, Value *v) {
  lex_expect(p, '(');
  for (int i = 0; i < v->type.rank; i++) {
    if (i) lex_expect(p, ',');
    v->storage.stride[i] = lex_int(p);
  }
  lex_expect(p, ')');
  v->storage.ordered = true;
}

static int64_t read_offset(Parser *p) {
  lex_expect(p, '+');
  return lex_int(p);
}

static void read_view(Parser *p, Storage *storage, ViewKind kind) {
  lex_expect(p, '(');
  storage->view = kind;
  storage->base = read_value(p);
  if (kind == VIEW_OF) storage->offset = read_offset(p);
  lex_expect(p, ')');
}

static void read_place(Parser *p, Storage *storage) {
  lex_expect(p, '(');
  size_t at = p->at;
  if (lex_keyword(p, "frame")) storage->place = PLACE_FRAME;
  else if (lex_keyword(p, "global"))
    storage->place = PLACE_GLOBAL, storage->slot = global_index(p->m, read_global(p, p->at));
  else if (lex_keyword(p, "arg")) storage->place = PLACE_ARG, storage->slot = lex_count(p);
  else if (lex_keyword(p, "result")) storage->place = PLACE_RESULT, storage->slot = lex_count(p);
  else if (lex_keyword(p, "ring")) storage->place = PLACE_RING, storage->slot = lex_count(p);
  else lex_fail(p, "E1001", at, "a place is frame, global, arg, result or ring");
  storage->at = read_offset(p);
  lex_expect(p, ')');
}

/* The inside of the braces. */
static void read_storage(Parser *p, Value *v) {
  while (!lex_take(p, '}')) {
    size_t at = p->at;
    if (lex_keyword(p, "strides")) read_strides(p, v);
    else if (lex_keyword(p, "view")) read_view(p, &v->storage, VIEW_OF);
    else if (lex_keyword(p, "inplace")) read_view(p, &v->storage, VIEW_INPLACE);
    else if (lex_new_keyword(p, "assembled")) v->storage.view = VIEW_ASSEMBLED;
    else if (lex_keyword(p, "at")) read_place(p, &v->storage);
    else lex_fail(p, "E1001", at, "a storage clause is strides, view, inplace, assembled or at");
  }
}

/* ---- ops ---- */

enum { MOST_OPERANDS = 1 << 16 };

typedef struct TextLine { /* an op line as far as it is read */
  Op op;
  size_t start;
  VEC(uint32_t) results; /* numbers in the text */
  VEC(ValueId) in;
  VEC(Type) types;
  VEC(Placement) placed;
} TextLine;

static void read_results(Parser *p, TextLine *line) {
  if (!lex_is(p, '%')) return;
  do {
    lex_blanks(p);
    size_t at = p->at;
    uint32_t n = read_number(p);
    bool again = is_defined(p, n);
    for (uint32_t i = 0; i < line->results.n; i++) again |= line->results.at[i] == n;
    if (again) lex_fail(p, "E1001", at, "value %%%u is defined twice", n);
    vec_push(p->m->arena, line->results, n);
  } while (lex_take(p, ','));
  lex_expect(p, '=');
}

static void read_groups(Parser *p, Op *op) {
  if (!lex_take(p, '[')) return;
  do {
    if (op->ngroups == MAX_GROUPS)
      lex_fail(p, "E1001", p->at, "an op has at most %d groups", MAX_GROUPS);
    op_add_group(p->m, op, lex_group(p));
  } while (lex_take(p, ';'));
  lex_expect(p, ']');
}

static bool read_symbol(Parser *p, Op *op) {
  if (!lex_is(p, '@')) return false;
  size_t at = p->at;
  OpFamily family = op_family(op->code);
  if (family == FAMILY_GLOBAL) op->global = read_global(p, at);
  else if (family == FAMILY_CALL) op->callee = read_callee(p, at);
  else lex_fail(p, "E1001", at, "op %s takes no symbol", op_name(op->code));
  return true;
}

static void read_operands(Parser *p, TextLine *line, bool after_symbol) {
  if (after_symbol ? !lex_take(p, ',') : !lex_is(p, '%')) return;
  do vec_push(p->m->arena, line->in, read_value(p));
  while (lex_take(p, ','));
}

static void check_count(Parser *p, const TextLine *line, const char *what, uint32_t have,
                        int want) {
  if (want < 0 ? have > MOST_OPERANDS : have != (uint32_t)want)
    lex_fail(p, "E1004", line->start, "%s has %u %s, expected %d", op_name(line->op.code), have,
             what, want < 0 ? MOST_OPERANDS : want);
}

static void check_counts(Parser *p, const TextLine *line) {
  check_count(p, line, "operands", line->in.n, op_arity(line->op.code));
  check_count(p, line, "results", line->results.n, op_results(line->op.code));
  check_count(p, line, "result types", line->types.n, (int)line->results.n);
  if (line->results.n > MAX_RESULTS &&
      op_family(line->op.code) != FAMILY_CALL) /* loops may have many */
    check_count(p, line, "results", line->results.n, MAX_RESULTS);
  bool named = line->op.global || line->op.callee;
  OpFamily family = op_family(line->op.code);
  if (!named && (family == FAMILY_GLOBAL || family == FAMILY_CALL))
    lex_fail(p, "E1001", line->start, "op %s needs a symbol", op_name(line->op.code));
}

/* Strides that the text leaves out follow from the type. Inside of a kernel only arguments and
 * results have any. */
static void default_order(Parser *p, Value *v) {
  if (module_fence(p->m) >= FENCE_ORDERED && !v->storage.ordered) value_dense(v);
}

static void append_op(Parser *p, const TextLine *line) {
  Op *op = fn_op(p->m, p->fn, line->op.code, line->in.n, line->in.at, line->types.n, line->types.at,
                 (Loc){0});
  if (line->op.ngroups) op->ngroups = line->op.ngroups, op->group = line->op.group;
  op->attrs = line->op.attrs;
  op->callee = line->op.callee, op->global = line->op.global;
  for (uint32_t i = 0; i < op->nout; i++) {
    define(p, line->results.at[i], op->out + i);
    p->fn->values.at[op->out + i].type = line->types.at[i]; /* as written, right or wrong */
    p->fn->values.at[op->out + i].placed = line->placed.at[i];
    if (p->fn->kind != FN_KERNEL) default_order(p, &p->fn->values.at[op->out + i]);
  }
}

static void read_op_tail(Parser *p, size_t start) {
  uint32_t last = p->fn->ops.n - 1;
  Op *op = &p->fn->ops.at[last];
  while (lex_take(p, '{')) {
    size_t at = p->at;
    uint32_t result = lex_count(p);
    lex_expect(p, ':');
    if (result >= op->nout)
      lex_fail(p, "E1004", at, "%s has no result %u", op_name(op->code), result);
    read_storage(p, &p->fn->values.at[op->out + result]);
  }
  lex_blanks(p);
  size_t end = p->at;
  while (end > start && (p->text[end - 1] == ' ' || p->text[end - 1] == '\t')) end--;
  op->span = (Span){p->file, (uint32_t)start, (uint32_t)(end - start)};
  lex_loc(p, "loc", &op->loc);
  lex_end(p);
}

static void read_type(Parser *p, TextLine *line) {
  Placement placed;
  vec_push(p->m->arena, line->types, lex_type(p, &placed));
  vec_push(p->m->arena, line->placed, placed);
}

static void read_op(Parser *p) {
  TextLine line = {.start = p->at};
  read_results(p, &line);
  line.op.code = read_op_name(p);
  read_groups(p, &line.op);
  read_operands(p, &line, read_symbol(p, &line.op));
  lex_attrs(p, &line.op.attrs);
  if (lex_take(p, ':')) do
      read_type(p, &line);
    while (lex_take(p, ','));
  check_counts(p, &line);
  append_op(p, &line);
  read_op_tail(p, line.start);
}

/* ---- functions ---- */

static void read_args(Parser *p) {
  if (!lex_take(p, '(')) return;
  if (lex_take(p, ')')) return;
  do {
    lex_blanks(p);
    size_t at = p->at;
    uint32_t n = read_number(p);
    if (is_defined(p, n)) lex_fail(p, "E1001", at, "value %%%u is defined twice", n);
    lex_expect(p, ':');
    Placement placed;
    ValueId v = fn_arg(p->m, p->fn, lex_type(p, &placed));
    p->fn->values.at[v].placed = placed;
    define(p, n, v);
    default_order(p, &p->fn->values.at[v]);
    if (lex_take(p, '{')) read_storage(p, &p->fn->values.at[v]);
  } while (lex_take(p, ','));
  lex_expect(p, ')');
}

/* A brace before the one that ends the line holds attributes. */
static bool opens_body(Parser *p) {
  if (!lex_is(p, '{')) return false;
  size_t at = p->at++;
  bool end = lex_at_end(p);
  if (!end) p->at = at;
  return end;
}

static void read_fn_head(Parser *p, FnKind kind) {
  lex_blanks(p);
  size_t at = p->at;
  p->quiet = true; /* until the head is whole */
  p->fn_number++;
  Str name = lex_symbol(p);
  p->fn = fn_new(p->m, kind, name);
  p->fn->span = lex_span(p, at);
  bool again = module_fn(p->m, name);
  if (!again) module_add(p->m, p->fn);
  if (again) lex_fail(p, "E1001", at, "function @%s is defined twice", name);
  read_args(p);
  bool body = opens_body(p);
  if (!body) lex_attrs(p, &p->fn->attrs);
  lex_loc(p, "loc", &p->fn->loc);
  if (!body && !opens_body(p)) lex_expect(p, '{'), lex_end(p);
  p->quiet = false;
}

static void read_return(Parser *p) {
  size_t at = p->at;
  if (p->fn->results.n) lex_fail(p, "E1001", at, "@%s returns twice", p->fn->name);
  if (lex_at_end(p)) return;
  do fn_result(p->m, p->fn, read_value(p));
  while (lex_take(p, ','));
  lex_end(p);
}

static void read_fn_line(Parser *p) {
  if (lex_take(p, '}')) {
    for (uint32_t i = 0; i < p->fn->results.n; i++)
      default_order(p, &p->fn->values.at[p->fn->results.at[i]]);
    p->fn = NULL;
    lex_end(p);
  } else if (lex_keyword(p, "return")) {
    read_return(p);
  } else if (p->fn->results.n) {
    lex_fail(p, "E1001", p->at, "an op after return");
  } else {
    read_op(p);
  }
}

/* ---- declarations ---- */

static void read_source(Parser *p) {
  lex_blanks(p);
  size_t at = p->at;
  lex_expect(p, 'f');
  if (lex_count(p) != p->m->sources.n + 1)
    lex_fail(p, "E1001", at, "sources are numbered f1, f2, ..");
  Str name = lex_quoted(p);
  vec_push(p->m->arena, p->m->sources, (IrSource){.name = name, .text = lex_quoted(p)});
}

static void read_was(Parser *p) {
  IrCount *c = &p->m->was;
  c->flop = lex_float(p), c->bytes = lex_float(p);
  c->peak = lex_int(p), c->kernels = lex_count(p);
  p->m->was_known = true;
}

static void read_dim(Parser *p) {
  lex_blanks(p);
  size_t at = p->at;
  Dim dim = {.name = lex_word(p, "a dim")};
  for (uint32_t i = 0; i < p->m->dims.n; i++)
    if (p->m->dims.at[i].name == dim.name)
      lex_fail(p, "E1001", at, "dim %s is declared twice", dim.name);
  lex_expect(p, '=');
  if (!lex_keyword(p, "open")) dim.size = lex_int(p);
  dim.stored = lex_keyword(p, "pad") ? lex_int(p) : dim.size;
  if (lex_keyword(p, "like")) dim.like = lex_word(p, "a dim");
  if (lex_keyword(p, "of")) {
    dim.part = lex_word(p, "a dim");
    if (lex_keyword(p, "from")) dim.first = lex_int(p);
  }
  if (dim.size < 0 || dim.stored < dim.size)
    lex_fail(p, "E1001", at, "dim %s has a size out of range", dim.name);
  vec_push(p->m->arena, p->m->dims, dim);
}

static void read_mesh(Parser *p) {
  do {
    lex_blanks(p);
    size_t at = p->at;
    MeshAxis axis = {.name = lex_word(p, "a mesh axis")};
    lex_expect(p, '=');
    axis.size = lex_int(p);
    if (mesh_find(p->m, axis.name) >= 0)
      lex_fail(p, "E1001", at, "axis %s is declared twice", axis.name);
    if (p->m->mesh.n == MAX_MESH) lex_fail(p, "E1001", at, "a mesh has at most %d axes", MAX_MESH);
    if (axis.size < 1 || axis.size > MOST_RANKS / mesh_ranks(p->m))
      lex_fail(p, "E1001", at, "axis %s has a size out of range", axis.name);
    vec_push(p->m->arena, p->m->mesh, axis);
  } while (lex_take(p, ','));
}

/* `name = value`, or a final `..`: the facts that are not given are those of the compiler's table
   for that target. */
static bool read_fact(Parser *p, TargetFacts *facts) {
  if (lex_rest(p)) return false;
  lex_blanks(p);
  size_t at = p->at;
  Str name = lex_renamed(p, RENAMED_FACT, at, lex_word(p, "a fact of a target"));
  TargetFact f;
  int64_t value;
  if (!target_fact_find(name, &f))
    lex_fail(p, "E1002", at, "targets have no fact named `%s`", name);
  if (facts->given >> f & 1) lex_fail(p, "E1001", at, "fact `%s` is given twice", name);
  lex_expect(p, '=');
  lex_blanks(p);
  at = p->at;
  Str text = lex_value(p);
  if (!target_fact_read(f, text, &value))
    lex_fail(p, "E1001", at, "`%s` is %s, not `%s`", name, target_type_words(target_fact_type(f)),
             text);
  target_set(facts, f, value);
  return true;
}

static void read_target(Parser *p, TargetFacts *to) {
  lex_blanks(p);
  size_t at = p->at;
  TargetFacts facts = target_none;
  if (to->name || to->given || to->rest)
    lex_fail(p, "E1001", at, "a module has one line `target` and at most one line `host_target`");
  if (!lex_is(p, '{')) facts.name = lex_key(p, "a target");
  lex_expect(p, '{');
  if (!lex_is(p, '}')) do
      facts.rest = !read_fact(p, &facts);
    while (!facts.rest && lex_take(p, ','));
  lex_expect(p, '}');
  facts.span = lex_span(p, at);
  *to = facts;
}

static void read_set(Parser *p) {
  lex_blanks(p);
  size_t at = p->at;
  Setting setting = {.key = lex_renamed(p, RENAMED_SETTING, at, lex_key(p, "a setting"))};
  if (!strncmp(setting.key, "target.", 7))
    lex_fail(p, "E1001", at,
             "facts of a target are a line of their own: `target NAME {%s = .., ..}`",
             setting.key + 7);
  lex_expect(p, '=');
  if (read_old_line(p, setting.key)) return;
  note_group(p, setting.key);
  setting.value = lex_quoted(p);
  for (uint32_t i = 0; i < p->m->settings.n; i++)
    if (p->m->settings.at[i].key == setting.key)
      lex_fail(p, "E1001", at, "%s is set twice", setting.key);
  vec_push(p->m->arena, p->m->settings, setting);
}

static void read_marks(Parser *p, Global *global) {
  if (!lex_take(p, '{')) return;
  do {
    if (lex_keyword(p, "decay")) global->decay = 1;
    else if (lex_keyword(p, "frozen")) global->frozen = 1;
    else if (lex_keyword(p, "ruled")) global->ruled = 1;
    else if (lex_keyword(p, "derived")) global->derived = true;
    else if (lex_keyword(p, "first")) global->stages |= STAGES_FIRST;
    else if (lex_keyword(p, "last")) global->stages |= STAGES_LAST;
    else
      lex_fail(p, "E1001", p->at,
               "a global is marked decay, frozen, ruled, derived, first or last");
  } while (lex_take(p, ','));
  lex_expect(p, '}');
}

static void read_global_line(Parser *p, GlobalKind kind) {
  lex_blanks(p);
  size_t at = p->at;
  Str name = lex_symbol(p);
  Span span = lex_span(p, at);
  if (module_global(p->m, name)) lex_fail(p, "E1001", at, "global @%s is declared twice", name);
  lex_expect(p, ':');
  Placement placed;
  Global *global = module_add_global(p->m, kind, name, lex_type(p, &placed), (Loc){0});
  global->span = span, global->placed = placed;
  if (lex_keyword(p, "of")) global->of = lex_word(p, "a dim");
  read_marks(p, global);
  if (lex_keyword(p, "in")) {
    global->within = read_global(p, p->at);
    if (lex_keyword(p, "from")) global->begin = lex_int(p);
  }
  if (lex_keyword(p, "at")) {
    lex_expect(p, '(');
    global->storage.place = PLACE_GLOBAL, global->storage.slot = p->m->globals.n - 1;
    global->storage.at = lex_int(p);
    lex_expect(p, ')');
  }
  lex_loc(p, "loc", &global->loc);
}

static void read_lists(Parser *p) {
  lex_blanks(p);
  size_t at = p->at;
  BlockLists l = {.name = lex_symbol(p)};
  l.span = lex_span(p, at);
  lex_attrs(p, &l.attrs);
  vec_push(p->m->arena, p->m->lists, l);
}

static bool read_declaration(Parser *p) {
  if (lex_keyword(p, "model")) p->m->model = lex_key(p, "a name");
  else if (lex_keyword(p, "after")) p->m->after = lex_key(p, "a pass");
  else if (lex_keyword(p, "was")) read_was(p);
  else if (lex_keyword(p, "source")) read_source(p);
  else if (lex_keyword(p, "dim")) read_dim(p);
  else if (lex_keyword(p, "mesh")) read_mesh(p);
  else if (lex_keyword(p, "place")) read_rule(p);
  else if (lex_keyword(p, "target")) read_target(p, &p->m->target);
  else if (lex_new_keyword(p, "host_target")) read_target(p, &p->m->host_target);
  else if (lex_keyword(p, "set")) read_set(p);
  else if (lex_keyword(p, "recompute")) read_recompute(p);
  else if (lex_keyword(p, "offload")) read_offload(p);
  else if (lex_keyword(p, "lists")) read_lists(p);
  else if (lex_keyword(p, "background")) read_background(p);
  else {
    for (int k = 0; k < 5; k++)
      if (lex_keyword(p, text_global_kinds[k])) return read_global_line(p, (GlobalKind)k), true;
    return false;
  }
  return true;
}

static void read_top_line(Parser *p) {
  lex_blanks(p);
  size_t at = p->at;
  for (int k = 0; k < 3; k++)
    if (lex_keyword(p, text_fn_kinds[k])) return read_fn_head(p, (FnKind)k);
  if (!read_declaration(p)) {
    lex_word(p, "a declaration or a function");
    lex_fail(p, "E1001", at, "not a declaration or a function");
  }
  lex_end(p);
}

static void read_line(Parser *p) {
  if (setjmp(p->line)) return;
  if (lex_at_end(p)) return;
  if (p->fn) read_fn_line(p);
  else read_top_line(p);
}

bool ir_parse_line(Module *m, const char *line) {
  Parser p = {.m = m, .n = strlen(line), .text = line};
  p.file = diag_add_source(m->ctx->diag, "line", line, p.n);
  read_line(&p);
  return !p.failed;
}

static void next_line(Parser *p) {
  while (p->at < p->n && p->text[p->at] != '\n') p->at++;
  if (p->at < p->n) p->at++;
}

static void read_first_line(Parser *p) {
  if (setjmp(p->line)) return;
  while (lex_at_end(p) && p->at < p->n) next_line(p);
  size_t at = p->at;
  static const char head[] = "shardc-ir";
  if (strncmp(p->text + at, head, sizeof head - 1))
    lex_fail(p, "E1001", at, "the text does not begin with `shardc-ir 1`");
  p->at += sizeof head - 1;
  if (lex_int(p) != 1) lex_fail(p, "E1001", at, "only version 1 of the text is known");
  lex_end(p);
}

Module *ir_parse(Ctx *c, const char *name, const char *text, size_t n) {
  Parser p = {.m = module_new(c), .n = n, .text = arena_strndup(c->arena, text, n)};
  p.file = diag_add_source(c->diag, name, p.text, n);
  read_first_line(&p);
  if (p.failed) return NULL;
  for (next_line(&p); p.at < n && !diag_full(c->diag); next_line(&p)) read_line(&p);
  if (p.fn && !p.failed)
    diag_at(c->diag, "E1001", p.fn->span, "function @%s has no end", p.fn->name), p.failed = true;
  if (!p.failed) check_plan_names(&p), phases_of_names(p.m), loops_of_names(p.m);
  return p.failed ? NULL : p.m;
}

Module *ir_copy(Module *m, const char *name) {
  size_t n;
  const char *text = ir_print(m, &n);
  Module *copy = ir_parse(m->ctx, name, text, n);
  must(copy, "%s: the module after `%s` cannot be read back", name, m->after);
  copy->written = m->written;
  return copy;
}
