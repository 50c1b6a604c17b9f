/* Settings from the command line, `--set train.optim.lr=1e-4`, as lines of the blocks that they are
   about. What comes out is a block like one that was read from a file, with places that point into
   the option, so the same code checks both (settings_check.c, sema*.c) and nothing passes here that
   a file may not say. Nothing is checked here but what an option can name: a line that may stand
   several times, or that takes several values, is written in a file. */
#include "settings.h"
#include "ir/renamed.h"

typedef struct SettingChange {
  Ctx *c;
  AstItemKind block;
  const SettingRow *row; /* of the line, NULL: there is none */
  Str word, key;         /* key NULL: the line's own value */
  const char *value;
  uint32_t file; /* of the option's text, in the diagnostics */
  Span word_at, key_at, value_at, whole;
} SettingChange;

/* ---- reading KEY=VALUE ---- */

static const SettingRow *line_row(AstItemKind block, const char *word) {
  uint32_t n;
  const SettingRow *rows = settings_table(&n);
  for (uint32_t i = 0; i < n; i++)
    if (rows[i].kind == ROW_LINE && rows[i].block == block && !strcmp(rows[i].word, word))
      return &rows[i];
  return NULL;
}

static const SettingRow *option_row(const SettingChange *s, const char *choice) {
  uint32_t n;
  const SettingRow *rows = settings_table(&n);
  size_t length = strlen(s->word);
  for (uint32_t i = 0; s->key && i < n; i++) {
    const SettingRow *r = &rows[i];
    if (r->kind != ROW_OPTION || r->block != s->block || strcmp(r->key, s->key)) continue;
    if (strncmp(r->word, s->word, length)) continue;
    if (!r->word[length]) return r;
    if (r->word[length] == '.' && (!choice || !strcmp(r->word + length + 1, choice))) return r;
  }
  return NULL;
}

bool settings_block_of(const char *text, AstItemKind *block) {
  static const struct {
    const char *prefix;
    AstItemKind block;
  } blocks[] = {{"train.", ITEM_TRAIN},
                {"data.", ITEM_TRAIN},
                {"plan.", ITEM_PLAN},
                {"machine.", ITEM_MACHINE}};
  for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
    if (!strncmp(text, blocks[i].prefix, strlen(blocks[i].prefix)))
      return *block = blocks[i].block, true;
  return false;
}

static Span part(const SettingChange *s, const char *text, const char *at, size_t n) {
  return (Span){s->file, (uint32_t)(at - text), (uint32_t)n};
}

/* An option by today's word. */
static void rename_key(SettingChange *s) {
  const char *block = ast_item_word(s->block);
  Str above = intern_printf(s->c->names, "%s.%s", block, s->word);
  Str old = intern_printf(s->c->names, "%s.%s", above, s->key);
  const char *new = renamed_word(RENAMED_SETTING, old);
  if (new == old) return;
  new += strlen(above) + 1;
  Report *note = NULL;
  renamed_note(s->c, &note, s->key_at, s->key, new);
  s->key = intern(s->c->names, new);
}

/* train.optim.lr: block, word, key. data.format is short for train.data.format, data.train for
   train.data. */
static void read_key(SettingChange *s, const char *text) {
  size_t n = strcspn(text, "=");
  const char *end = text + n, *word = text;
  if (strncmp(text, "data.", 5)) word = memchr(text, '.', n), word++;
  size_t length = strcspn(word, ".=");
  const char *key = word[length] == '.' ? word + length + 1 : NULL;
  if (word == text && key && end - key == 5 && !strncmp(key, "train", 5)) key = NULL;
  s->word = intern_n(s->c->names, word, length), s->word_at = part(s, text, word, length);
  if (key) s->key = intern_n(s->c->names, key, (size_t)(end - key));
  if (key) s->key_at = part(s, text, key, (size_t)(end - key));
  if (key) rename_key(s);
  s->value = end + 1, s->value_at = part(s, text, end + 1, strlen(end + 1));
  s->whole = part(s, text, text, strlen(text));
  s->row = line_row(s->block, s->word);
}

/* ---- values ---- */

/* From the text in which a value was read to its place in the option; what was never written there
   is at its value as a whole. */
typedef struct Move {
  Span value;
  int64_t shift;
  bool written;
} Move;

static void move_value(AstValue *v, const Move *m);

static void move_span(Span *s, const Move *m) {
  if (!m->written) *s = m->value;
  else s->file = m->value.file, s->offset = (uint32_t)(s->offset + m->shift);
}

static void move_path(AstPath *p, const Move *m) {
  if (!p) return;
  move_span(&p->span, m);
  for (uint32_t i = 0; i < p->parts.n; i++) move_span(&p->parts.at[i].span, m);
}

static void move_pairs(AstPairs *l, const Move *m) {
  for (uint32_t i = 0; i < l->n; i++) {
    move_span(&l->at[i].span, m);
    move_path(l->at[i].key, m), move_value(l->at[i].value, m);
  }
}

static void move_value(AstValue *v, const Move *m) {
  move_span(&v->span, m), move_span(&v->number.span, m);
  move_path(v->path, m), move_pairs(&v->args, m), move_pairs(&v->to, m);
  for (uint32_t i = 0; i < v->items.n; i++) move_value(v->items.at[i], m);
}

/* The words behind the first of a line; mistakes go nowhere. n 0: they are none. */
static AstPairs parse_words(const SettingChange *s, const char *before, const char *text) {
  const char *head = arena_printf(s->c->arena, "train set { set %s", before);
  Ctx quiet = *s->c;
  quiet.diag = diag_new(s->c->arena);
  const char *line = arena_printf(s->c->arena, "%s%s\n}", head, text);
  const AstFile *f = ast_parse(&quiet, "--set", line, strlen(line));
  if (!f || diag_errors(quiet.diag) || f->items.n != 1 || f->items.at[0]->block->settings.n != 1)
    return (AstPairs){0};
  AstSetting *set = f->items.at[0]->block->settings.at[0];
  if (set->paren || set->arrow != ARROW_NONE || set->block) return (AstPairs){0};
  Move m = {s->value_at, (int64_t)s->value_at.offset - (int64_t)strlen(head), text == s->value};
  move_pairs(&set->values, &m);
  return set->values;
}

static AstValue *string_value(const SettingChange *s) {
  AstValue *v = ARENA_NEW(s->c->arena, AstValue);
  v->kind = VALUE_STRING, v->span = s->value_at, v->string = intern(s->c->names, s->value);
  return v;
}

/* File names need no quotes. What cannot be read as a value is a string, which the check refuses
   where none is wanted. */
static AstValue *read_value(const SettingChange *s, SettingType type) {
  AstPairs l = parse_words(s, "value = ", s->value);
  AstValue *v = l.n == 1 ? l.at[0].value : NULL;
  bool file = type == TYPE_SOURCE || type == TYPE_VALID || type == TYPE_STRING;
  if (!v || (file && v->kind != VALUE_STRING && v->kind != VALUE_CALL &&
             (type != TYPE_VALID || v->kind != VALUE_NUMBER)))
    return string_value(s);
  return v;
}

static AstPath *path_of(const SettingChange *s, Str name, Span at) {
  AstPath *p = ARENA_NEW(s->c->arena, AstPath);
  p->text = name, p->span = at;
  vec_push(s->c->arena, p->parts, ((AstPart){.kind = PART_NAME, .name = name, .span = at}));
  return p;
}

/* ---- the line ---- */

static bool is_bare(const AstPair *p) { return !p->key; }

static bool is_word(const AstPair *p, const char *word) {
  return is_bare(p) && p->value->kind == VALUE_PATH && !strcmp(p->value->path->text, word);
}

/* What the line says without the setting. A new choice leaves behind the options of the old one. */
static void keep_others(const SettingChange *s, AstSetting *line, const AstPairs *had,
                        const char *choice) {
  bool over = false;
  for (uint32_t i = 0; i < had->n; i++) {
    const AstPair *p = &had->at[i];
    SettingChange other = *s;
    over |= is_word(p, "over");
    if (s->key && !strcmp(s->key, "over") && over && is_bare(p)) continue;
    if (s->key && p->key && p->key->text == s->key) continue;
    if (!s->key && is_bare(p) && !over) continue;
    if (p->key) other.key = p->key->text;
    if (!s->key && p->key && choice && !option_row(&other, choice)) continue;
    vec_push(s->c->arena, line->values, *p);
  }
}

/* over a, b */
static void put_names(const SettingChange *s, AstSetting *line) {
  AstPairs l = parse_words(s, "over ", s->value);
  for (uint32_t i = 0; i < l.n; i++) vec_push(s->c->arena, line->values, l.at[i]);
}

static void put_value(const SettingChange *s, AstSetting *line, const AstPairs *had) {
  const SettingRow *r = s->key ? option_row(s, NULL) : s->row;
  AstPair p = {.value = read_value(s, r ? r->type : TYPE_WORD), .span = s->whole};
  bool chosen = !s->key && s->row && s->row->type == TYPE_WORD && p.value->kind == VALUE_PATH;
  if (s->key) p.key = path_of(s, s->key, s->key_at);
  if (!s->key) vec_push(s->c->arena, line->values, p);
  keep_others(s, line, had, chosen ? p.value->path->text : NULL);
  if (s->key && r && r->type == TYPE_NAMES) put_names(s, line);
  else if (s->key) vec_push(s->c->arena, line->values, p);
}

/* An option of a line that is not written stands behind the line's default. */
static AstPairs default_values(const SettingChange *s) {
  if (!s->key || !s->row || !*s->row->otherwise) return (AstPairs){0};
  return parse_words(s, "", s->row->otherwise);
}

static AstSetting *edited_line(const SettingChange *s, const AstSetting *old) {
  AstSetting *line = ARENA_NEW(s->c->arena, AstSetting);
  if (old) *line = *old;
  else *line = (AstSetting){.path = path_of(s, s->word, s->word_at), .span = s->whole};
  AstPairs had = old ? old->values : default_values(s);
  line->values = (AstPairs){0};
  put_value(s, line, &had);
  return line;
}

/* ---- the block ---- */

/* Lines of several values, and lines that may stand several times, are written in a file. */
static bool has_one_value(const SettingChange *s) {
  if (!s->row) return true;
  if (s->row->flags & SETTING_KEYS) return s->key != NULL;
  if (s->row->flags & (SETTING_ARROW | SETTING_MANY)) return false;
  return s->key || s->row->type != TYPE_NOTHING;
}

static void refuse(const SettingChange *s) {
  const char *block = ast_item_word(s->block);
  Report *r =
      diag_at(s->c->diag, "E0602", s->word_at, "`--set` cannot give the line `%s`", s->word);
  if (s->row->flags & SETTING_KEYS) diag_help(r, "`--set %s.%s.NAME=N`", block, s->word);
  else if (s->row->type == TYPE_NOTHING) diag_help(r, "`--set %s.%s.OPTION=VALUE`", block, s->word);
  else diag_help(r, "write it into the %s block: it may stand more than once", block);
}

static void refuse_planned(const SettingChange *s, const PlannedRow *p) {
  Report *r = diag_at(s->c->diag, "E0901", s->value_at, "%s is not built yet", p->what);
  diag_label(r, "in the language, for later");
}

static AstItem *copy_of(Ctx *c, const AstItem *item, AstItemKind block) {
  AstItem *copy = ARENA_NEW(c->arena, AstItem);
  AstBlock *b = ARENA_NEW(c->arena, AstBlock);
  if (item) *copy = *item;
  else copy->kind = block, copy->name.text = "";
  if (item && item->block) b->span = item->block->span;
  for (uint32_t i = 0; item && item->block && i < item->block->settings.n; i++)
    vec_push(c->arena, b->settings, item->block->settings.at[i]);
  copy->block = b;
  return copy;
}

static uint32_t place_of(const AstBlock *b, Str word) {
  uint32_t at = b->settings.n;
  for (uint32_t i = 0; i < b->settings.n; i++)
    if (b->settings.at[i]->path->text == word && b->settings.at[i]->arrow != ARROW_LEFT) at = i;
  return at;
}

const AstItem *settings_edit(Ctx *c, const AstItem *item, AstItemKind block, const char *text) {
  SettingChange s = {.c = c, .block = block};
  s.file = diag_add_source(c->diag, "--set", arena_printf(c->arena, "%s", text), strlen(text));
  read_key(&s, text);
  const PlannedRow *later = settings_planned_row(block, s.word, s.key);
  if (later && !later->value) return refuse_planned(&s, later), NULL;
  if (!has_one_value(&s)) return refuse(&s), NULL;
  AstItem *copy = copy_of(c, item, block);
  uint32_t at = place_of(copy->block, s.word);
  AstSetting *old = at < copy->block->settings.n ? copy->block->settings.at[at] : NULL;
  AstSetting *line = edited_line(&s, old);
  if (old) copy->block->settings.at[at] = line;
  else vec_push(c->arena, copy->block->settings, line);
  return copy;
}
