/* Builders of settings blocks: paths, values, lines. See ast.h for what they hold. */
#include "ast_reading.h"
#include "ir/text/renamed.h"

/* ---- paths ---- */

static AstPath *path_add(Parse *p, AstPath *a, AstPart part, Str text, Span whole) {
  vec_push(p->c->arena, a->parts, part);
  a->text = text, a->span = whole;
  return a;
}

AstPath *ast_path_new(Parse *p, AstName n) {
  AstPart part = {.kind = PART_NAME, .name = n.text, .span = n.span};
  return path_add(p, ARENA_NEW(p->c->arena, AstPath), part, n.text, n.span);
}

AstPath *ast_path_quoted(Parse *p, Str text, Span s) {
  AstPath *path = ARENA_NEW(p->c->arena, AstPath);
  path->text = text, path->span = s;
  return path;
}

AstPath *ast_path_name(Parse *p, AstPath *a, AstName n, Span whole) {
  AstPart part = {.kind = PART_NAME, .name = n.text, .span = n.span};
  return path_add(p, a, part, intern_printf(p->c->names, "%s.%s", a->text, n.text), whole);
}

/* The number of a layer, counted from 0. */
static void check_layer(Parse *p, const AstNumber *number) {
  if (number->integer && number->unit == UNIT_NONE) return;
  Report *r =
      diag_at(p->c->diag, "E0102", number->span, "`%s` is not the number of a layer", number->text);
  diag_label(r, "layers are counted 0, 1, 2, ..");
  p->bad = true;
}

AstPath *ast_path_index(Parse *p, AstPath *a, AstNumber *i, Span whole) {
  check_layer(p, i);
  AstPart part = {.kind = PART_INDEX, .first = i->integral, .last = i->integral, .span = i->span};
  return path_add(p, a, part, intern_printf(p->c->names, "%s.%s", a->text, i->text), whole);
}

AstPath *ast_path_any(Parse *p, AstPath *a, Span any, Span whole) {
  AstPart part = {.kind = PART_ANY, .span = any};
  return path_add(p, a, part, intern_printf(p->c->names, "%s.*", a->text), whole);
}

AstPath *ast_path_range(Parse *p, AstPath *a, AstNumber *first, AstNumber *last, Span whole) {
  check_layer(p, first), check_layer(p, last);
  AstPart part = {.kind = PART_RANGE, .first = first->integral, .last = last->integral};
  part.span = span_join(first->span, last->span);
  Str text = intern_printf(p->c->names, "%s[%s..%s]", a->text, first->text, last->text);
  return path_add(p, a, part, text, whole);
}

/* h[3], which other languages have: read as h.3, and refused. */
AstPath *ast_path_bracket(Parse *p, AstPath *a, AstNumber *i, Span open, Span close, Span whole) {
  Report *r = diag_at(p->c->diag, "E0101", close, "expected `..` in a range, found `]`");
  diag_help(r, "one layer is `%s.%s`, several are `%s[%s..%s]`", a->text, i->text, a->text, i->text,
            i->text);
  diag_edit(r, span_join(open, close), ".%s", i->text);
  p->bad = true;
  return ast_path_index(p, a, i, whole);
}

/* ---- values ---- */

static AstValue *value_new(Parse *p, AstValueKind kind, Span s) {
  AstValue *v = ARENA_NEW(p->c->arena, AstValue);
  v->kind = kind, v->span = s;
  return v;
}

AstValue *ast_value_number(Parse *p, AstNumber *n) {
  AstValue *v = value_new(p, VALUE_NUMBER, n->span);
  v->number = *n;
  return v;
}

AstValue *ast_value_string(Parse *p, Str text, Span s) {
  AstValue *v = value_new(p, VALUE_STRING, s);
  v->string = text;
  return v;
}

AstValue *ast_value_path(Parse *p, AstPath *a) {
  AstValue *v = value_new(p, VALUE_PATH, a->span);
  v->path = a;
  return v;
}

AstValue *ast_value_call(Parse *p, AstPath *a, AstPairs *args, AstPairs *to, Span s) {
  AstValue *v = value_new(p, VALUE_CALL, s);
  v->path = a, v->args = *args, v->arrow = to != NULL;
  if (to) v->to = *to;
  return v;
}

AstValue *ast_value_expr(Parse *p, AstExpr *e, Span s) {
  AstValue *v = value_new(p, VALUE_EXPR, s);
  v->expr = e;
  return v;
}

AstValue *ast_value_list_add(Parse *p, AstValue *list, AstValue *item) {
  if (!list) list = value_new(p, VALUE_LIST, item->span);
  vec_push(p->c->arena, list->items, item);
  return list;
}

AstValue *ast_value_list(AstValue *list, Span s) {
  list->span = s;
  return list;
}

AstValue *ast_value_object(Parse *p, AstPairs *members, Span s) {
  AstValue *v = value_new(p, VALUE_OBJECT, s);
  v->args = *members;
  return v;
}

AstPairs *ast_pairs_add(Parse *p, AstPairs *l, AstPath *key, AstValue *v, Span s) {
  if (!l) l = ARENA_NEW(p->c->arena, AstPairs);
  vec_push(p->c->arena, *l, ((AstPair){.key = key, .value = v, .span = s}));
  return l;
}

/* ---- lines and blocks ---- */

AstSetting *ast_setting_head(Parse *p, AstExpr *paren, AstPairs *values) {
  AstSetting *setting = ARENA_NEW(p->c->arena, AstSetting);
  setting->paren = paren;
  if (values) setting->values = *values;
  return setting;
}

AstSetting *ast_setting_list(Parse *p, AstValue *list, AstSetting *head) {
  AstPairs values = {0};
  vec_push(p->c->arena, values, ((AstPair){.value = list, .span = list->span}));
  for (uint32_t i = 0; i < head->values.n; i++) vec_push(p->c->arena, values, head->values.at[i]);
  head->values = values;
  return head;
}

AstSetting *ast_setting_tail(Parse *p, AstArrow arrow, Span at, AstPairs *target, AstAxes *as) {
  AstSetting *setting = ARENA_NEW(p->c->arena, AstSetting);
  setting->arrow = arrow, setting->arrow_span = at, setting->target = *target, setting->as = as;
  return setting;
}

AstSetting *ast_setting_join(AstPath *path, AstSetting *head, const AstSetting *tail,
                             AstBlock *block, Span s) {
  head->path = path, head->block = block, head->span = s;
  if (!tail) return head;
  head->arrow = tail->arrow, head->arrow_span = tail->arrow_span;
  head->target = tail->target, head->as = tail->as;
  return head;
}

AstBlock *ast_block_add(Parse *p, AstBlock *block, AstSetting *setting) {
  if (!block) block = ARENA_NEW(p->c->arena, AstBlock);
  vec_push(p->c->arena, block->settings, setting);
  return block;
}

/* The path of a line or option by today's word. */
static void rename_path(Parse *p, const char *above, AstPath *a) {
  Str old = intern_printf(p->c->names, "%s.%s", above, a->text);
  const char *new = renamed_word(RENAMED_SETTING, old);
  if (new == old || a->parts.n != 1) return;
  new += strlen(above) + 1;
  Report *note = NULL;
  renamed_note(p->c, &note, a->span, a->text, new);
  a->text = a->parts.at[0].name = intern(p->c->names, new);
}

void ast_rename_settings(Parse *p, const char *block, AstBlock *ast_block) {
  for (uint32_t i = 0; i < ast_block->settings.n; i++) {
    AstSetting *setting = ast_block->settings.at[i];
    if (setting->arrow == ARROW_LEFT) continue;
    rename_path(p, block, setting->path);
    Str line = intern_printf(p->c->names, "%s.%s", block, setting->path->text);
    for (uint32_t k = 0; k < setting->values.n; k++)
      if (setting->values.at[k].key) rename_path(p, line, setting->values.at[k].key);
  }
}

AstBlock *ast_block_close(Parse *p, AstBlock *block, Span s) {
  if (!block) block = ARENA_NEW(p->c->arena, AstBlock);
  block->span = s;
  return block;
}
