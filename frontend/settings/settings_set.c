/* Settings from the command line, `--set train.optim.lr=1e-4`, as lines of the blocks that they are
   about. The result is a block like one that was read from a file, with positions that point into
   the option, so the same code checks both (settings_check.c, sema*.c) and an option accepts
   nothing that a file may not say. This file checks only that an option can name the line: a line
   that may occur several times, or that takes several values, must be written in a file. */
#include "settings.h"
#include "ir/text/renamed.h"

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

static const SettingRow *option_row(const SettingChange *change, const char *choice) {
  uint32_t n;
  const SettingRow *rows = settings_table(&n);
  size_t length = strlen(change->word);
  for (uint32_t i = 0; change->key && i < n; i++) {
    const SettingRow *row = &rows[i];
    if (row->kind != ROW_OPTION || row->block != change->block || strcmp(row->key, change->key))
      continue;
    if (strncmp(row->word, change->word, length)) continue;
    if (!row->word[length]) return row;
    if (row->word[length] == '.' && (!choice || !strcmp(row->word + length + 1, choice)))
      return row;
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

static Span part(const SettingChange *change, const char *text, const char *at, size_t n) {
  return (Span){change->file, (uint32_t)(at - text), (uint32_t)n};
}

/* An option by today's word. */
static void rename_key(SettingChange *change) {
  const char *block = ast_item_word(change->block);
  Str above = intern_printf(change->c->names, "%s.%s", block, change->word);
  Str old = intern_printf(change->c->names, "%s.%s", above, change->key);
  const char *new = renamed_word(RENAMED_SETTING, old);
  if (new == old) return;
  new += strlen(above) + 1;
  Report *note = NULL;
  renamed_note(change->c, &note, change->key_at, change->key, new);
  change->key = intern(change->c->names, new);
}

/* train.optim.lr: block, word, key. data.format is short for train.data.format, data.train for
   train.data. */
static void read_key(SettingChange *change, const char *text) {
  size_t n = strcspn(text, "=");
  const char *end = text + n, *word = text;
  if (strncmp(text, "data.", 5)) word = memchr(text, '.', n), word++;
  size_t length = strcspn(word, ".=");
  const char *key = word[length] == '.' ? word + length + 1 : NULL;
  if (word == text && key && end - key == 5 && !strncmp(key, "train", 5)) key = NULL;
  change->word = intern_n(change->c->names, word, length),
  change->word_at = part(change, text, word, length);
  if (key) change->key = intern_n(change->c->names, key, (size_t)(end - key));
  if (key) change->key_at = part(change, text, key, (size_t)(end - key));
  if (key) rename_key(change);
  change->value = end + 1, change->value_at = part(change, text, end + 1, strlen(end + 1));
  change->whole = part(change, text, text, strlen(text));
  change->row = line_row(change->block, change->word);
}

/* ---- values ---- */

/* Maps a place in the text that was read to a place in the option. Text that the option does not
   contain maps to its whole value. */
typedef struct Move {
  Span value;
  int64_t shift;
  bool written;
} Move;

static void move_value(AstValue *v, const Move *m);

static void move_span(Span *s, const Move *move) {
  if (!move->written) *s = move->value;
  else s->file = move->value.file, s->offset = (uint32_t)(s->offset + move->shift);
}

static void move_path(AstPath *path, const Move *move) {
  if (!path) return;
  move_span(&path->span, move);
  for (uint32_t i = 0; i < path->parts.n; i++) move_span(&path->parts.at[i].span, move);
}

static void move_pairs(AstPairs *pairs, const Move *move) {
  for (uint32_t i = 0; i < pairs->n; i++) {
    move_span(&pairs->at[i].span, move);
    move_path(pairs->at[i].key, move), move_value(pairs->at[i].value, move);
  }
}

static void move_value(AstValue *value, const Move *move) {
  move_span(&value->span, move), move_span(&value->number.span, move);
  move_path(value->path, move), move_pairs(&value->args, move), move_pairs(&value->to, move);
  for (uint32_t i = 0; i < value->items.n; i++) move_value(value->items.at[i], move);
}

/* The words after the first of a line; mistakes are not reported. n 0: not valid. */
static AstPairs parse_words(const SettingChange *change, const char *before, const char *text) {
  const char *head = arena_printf(change->c->arena, "train set { set %s", before);
  Ctx quiet = *change->c;
  quiet.diag = diag_new(change->c->arena);
  const char *line = arena_printf(change->c->arena, "%s%s\n}", head, text);
  const AstFile *file = ast_parse(&quiet, "--set", line, strlen(line));
  if (!file || diag_errors(quiet.diag) || file->items.n != 1 ||
      file->items.at[0]->block->settings.n != 1)
    return (AstPairs){0};
  AstSetting *set = file->items.at[0]->block->settings.at[0];
  if (set->paren || set->arrow != ARROW_NONE || set->block) return (AstPairs){0};
  Move move = {change->value_at, (int64_t)change->value_at.offset - (int64_t)strlen(head),
               text == change->value};
  move_pairs(&set->values, &move);
  return set->values;
}

static AstValue *string_value(const SettingChange *change) {
  AstValue *value = ARENA_NEW(change->c->arena, AstValue);
  value->kind = VALUE_STRING, value->span = change->value_at,
  value->string = intern(change->c->names, change->value);
  return value;
}

/* File names need no quotes. Text that cannot be read as a value is a string, which the check
   refuses if no string is expected. */
static AstValue *read_value(const SettingChange *change, SettingType type) {
  AstPairs pairs = parse_words(change, "value = ", change->value);
  AstValue *value = pairs.n == 1 ? pairs.at[0].value : NULL;
  bool file = type == TYPE_SOURCE || type == TYPE_VALID || type == TYPE_STRING;
  if (!value || (file && value->kind != VALUE_STRING && value->kind != VALUE_CALL &&
                 (type != TYPE_VALID || value->kind != VALUE_NUMBER)))
    return string_value(change);
  return value;
}

static AstPath *path_of(const SettingChange *change, Str name, Span at) {
  AstPath *path = ARENA_NEW(change->c->arena, AstPath);
  path->text = name, path->span = at;
  vec_push(change->c->arena, path->parts, ((AstPart){.kind = PART_NAME, .name = name, .span = at}));
  return path;
}

/* ---- the line ---- */

static bool is_bare(const AstPair *pair) { return !pair->key; }

static bool is_word(const AstPair *pair, const char *word) {
  return is_bare(pair) && pair->value->kind == VALUE_PATH && !strcmp(pair->value->path->text, word);
}

/* Keeps the other settings of the line, and puts `now` where the key was: axes of a mesh have an
   order. A new choice drops the options of the old one. True: the key was in the line. */
static bool keep_others(const SettingChange *change, AstSetting *line, const AstPairs *had,
                        const char *choice, const AstPair *now) {
  bool over = false, found = false;
  for (uint32_t i = 0; i < had->n; i++) {
    const AstPair *pair = &had->at[i];
    SettingChange other = *change;
    over |= is_word(pair, "over");
    if (change->key && !strcmp(change->key, "over") && over && is_bare(pair)) continue;
    if (change->key && pair->key && pair->key->text == change->key) {
      if (!found) vec_push(change->c->arena, line->values, *now);
      found = true;
      continue;
    }
    if (!change->key && is_bare(pair) && !over) continue;
    if (pair->key) other.key = pair->key->text;
    if (!change->key && pair->key && choice && !option_row(&other, choice)) continue;
    vec_push(change->c->arena, line->values, *pair);
  }
  return found;
}

/* over a, b */
static void put_names(const SettingChange *change, AstSetting *line) {
  AstPairs pairs = parse_words(change, "over ", change->value);
  for (uint32_t i = 0; i < pairs.n; i++) vec_push(change->c->arena, line->values, pairs.at[i]);
}

static void put_value(const SettingChange *change, AstSetting *line, const AstPairs *had) {
  const SettingRow *row = change->key ? option_row(change, NULL) : change->row;
  AstPair pair = {.value = read_value(change, row ? row->type : TYPE_WORD), .span = change->whole};
  bool chosen = !change->key && change->row && change->row->type == TYPE_WORD &&
                pair.value->kind == VALUE_PATH;
  if (change->key) pair.key = path_of(change, change->key, change->key_at);
  if (!change->key) vec_push(change->c->arena, line->values, pair);
  bool found = keep_others(change, line, had, chosen ? pair.value->path->text : NULL, &pair);
  if (change->key && row && row->type == TYPE_NAMES) put_names(change, line);
  else if (change->key && !found) vec_push(change->c->arena, line->values, pair);
}

/* An option of a line that is not written is added to the line's default. */
static AstPairs default_values(const SettingChange *change) {
  if (!change->key || !change->row || !*change->row->otherwise) return (AstPairs){0};
  return parse_words(change, "", change->row->otherwise);
}

static AstSetting *edited_line(const SettingChange *change, const AstSetting *old) {
  AstSetting *line = ARENA_NEW(change->c->arena, AstSetting);
  if (old) *line = *old;
  else
    *line =
        (AstSetting){.path = path_of(change, change->word, change->word_at), .span = change->whole};
  AstPairs had = old ? old->values : default_values(change);
  line->values = (AstPairs){0};
  put_value(change, line, &had);
  return line;
}

/* ---- the block ---- */

/* Lines of several values, and lines that may occur several times, must be written in a file. */
static bool has_one_value(const SettingChange *change) {
  if (!change->row) return true;
  if (change->row->flags & SETTING_KEYS) return change->key != NULL;
  if (change->row->flags & (SETTING_ARROW | SETTING_MANY)) return false;
  return change->key || change->row->type != TYPE_NOTHING;
}

static void refuse(const SettingChange *change) {
  const char *block = ast_item_word(change->block);
  Report *r = diag_at(change->c->diag, "E0602", change->word_at,
                      "`--set` cannot give the line `%s`", change->word);
  if (change->row->flags & SETTING_KEYS) diag_help(r, "`--set %s.%s.NAME=N`", block, change->word);
  else if (change->row->type == TYPE_NOTHING)
    diag_help(r, "`--set %s.%s.OPTION=VALUE`", block, change->word);
  else diag_help(r, "write it into the %s block: it may be written more than once", block);
}

static void refuse_planned(const SettingChange *change, const PlannedRow *row) {
  Report *r = diag_at(change->c->diag, "E0901", change->value_at, "%s is not built yet", row->what);
  diag_label(r, "planned for a later version");
}

static AstItem *copy_of(Ctx *c, const AstItem *item, AstItemKind block) {
  AstItem *copy = ARENA_NEW(c->arena, AstItem);
  AstBlock *ast_block = ARENA_NEW(c->arena, AstBlock);
  if (item) *copy = *item;
  else copy->kind = block, copy->name.text = "";
  if (item && item->block) ast_block->span = item->block->span;
  for (uint32_t i = 0; item && item->block && i < item->block->settings.n; i++)
    vec_push(c->arena, ast_block->settings, item->block->settings.at[i]);
  copy->block = ast_block;
  return copy;
}

static uint32_t place_of(const AstItem *item, Str word) {
  const AstBlock *block = item->block;
  uint32_t at = block->settings.n;
  for (uint32_t i = 0; i < block->settings.n; i++)
    if (block->settings.at[i]->path->text == word && block->settings.at[i]->arrow != ARROW_LEFT &&
        !setting_is_group(item, block->settings.at[i]))
      at = i;
  return at;
}

const AstItem *settings_edit(Ctx *c, const AstItem *item, AstItemKind block, const char *text) {
  SettingChange change = {.c = c, .block = block};
  change.file = diag_add_source(c->diag, "--set", arena_printf(c->arena, "%s", text), strlen(text));
  read_key(&change, text);
  const PlannedRow *later = settings_planned_row(block, change.word, change.key);
  if (later && !later->value) return refuse_planned(&change, later), NULL;
  if (!has_one_value(&change)) return refuse(&change), NULL;
  AstItem *copy = copy_of(c, item, block);
  uint32_t at = place_of(copy, change.word);
  AstSetting *old = at < copy->block->settings.n ? copy->block->settings.at[at] : NULL;
  AstSetting *line = edited_line(&change, old);
  if (old) copy->block->settings.at[at] = line;
  else vec_push(c->arena, copy->block->settings, line);
  return copy;
}
