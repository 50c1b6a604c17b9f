/* A dialogue as tokens. Marks of the template and texts of messages follow each other; the names of
   special tokens in marks cut this text into stretches, each encoded as a whole, as the Python
   package `transformers` does. Such a name in a message is plain text, so that no message can end
   its own turn. A stretch has learned and ignored parts: of its tokens, those belong to the first k
   bytes that the tokens of these bytes alone begin with, so a token across a border belongs to what
   follows. Must not: read data files. */
#include "chat.h"
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const char *mark_text(const ChatTemplate *chat, const char *word) { /* NULL: no such line */
  for (uint32_t i = 0; i < chat->n; i++)
    if (!strcmp(chat->at[i].word, word)) return chat->at[i].text[0];
  return NULL;
}

static const ChatMark *role_mark(const ChatTemplate *chat, const char *role) {
  static const char *const words[] = {"begin", "tokens", "trim", "default_system",
                                      "system_in_user"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    if (!strcmp(role, words[i])) return NULL;
  for (uint32_t i = 0; i < chat->n; i++)
    if (!strcmp(chat->at[i].word, role)) return &chat->at[i];
  return NULL;
}

/* ---- reading templates ---- */

static const struct {
  const char *name;
  ChatMark mark;
} known[] = {
#define CHAT(name, word, a, b, c) {#name, {#word, {a, b, c}}},
#include "chat_templates.def"
#undef CHAT
};
enum { KNOWN = sizeof known / sizeof *known };

/* of the table */
static const char *chat_names(Arena *arena) {
  const char *names = known[0].name;
  for (size_t i = 1; i < KNOWN; i++)
    if (strcmp(known[i].name, known[i - 1].name))
      names = arena_printf(arena, "%s %s", names, known[i].name);
  return names;
}

/* A line of a file: a word, then up to three strings of JSON. */
static bool read_mark(Arena *arena, const char *at, int64_t n, ChatMark *mark) {
  int64_t word = 0;
  while (word < n && (isalnum((unsigned char)at[word]) || at[word] == '_')) word++;
  *mark = (ChatMark){arena_strndup(arena, at, (size_t)word), {"", "", ""}};
  Json json = rt_json(at + word, n - word);
  for (int i = 0; i < 3 && rt_json_peek(&json) >= 0; i++) {
    char *text = arena_alloc(arena, (size_t)n);
    if (!rt_json_string(&json, text, (size_t)n)) return false;
    mark->text[i] = text;
  }
  return word > 0 && rt_json_peek(&json) < 0 && !json.error;
}

static bool read_template(Bytes file, Arena *arena, ChatTemplate *out, Fault *f) {
  const char *at = (const char *)file.at, *end = at + file.n;
  for (int64_t line = 1; at < end; line++) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    if (!stop) stop = end;
    while (at < stop && isspace((unsigned char)*at)) at++;
    ChatMark mark;
    if (at < stop && *at != '#') {
      if (!read_mark(arena, at, stop - at, &mark)) {
        rt_fault(f, 202, "line %lld is not a word and up to three strings", (long long)line);
        return rt_help(f, "such as: user \"<|im_start|>user\\n\" \"<|im_end|>\" \"\\n\"");
      }
      vec_push(arena, *out, mark);
    }
    at = stop + 1;
  }
  return role_mark(out, "assistant") || rt_fault(f, 202, "the template has no line `assistant`");
}

static bool has_tokens(const ChatTemplate *chat, const char *name, const Tokenizer *tokenizer,
                       Fault *f) {
  for (uint32_t i = 0; i < chat->n; i++)
    for (int k = 0; k < 3 && !strcmp(chat->at[i].word, "tokens"); k++)
      if (*chat->at[i].text[k] && rt_tokenizer_id(tokenizer, chat->at[i].text[k]) < 0) {
        rt_fault(f, 202, "template `%s` needs the token `%s`, which the tokenizer does not have",
                 name, chat->at[i].text[k]);
        return rt_help(f, "the template must be that of the tokenizer's model");
      }
  return true;
}

bool chat_open(const char *name, Arena *arena, const Tokenizer *tokenizer, ChatTemplate *out,
               Fault *f) {
  Bytes file;
  for (size_t i = 0; i < KNOWN; i++)
    if (!strcmp(known[i].name, name)) vec_push(arena, *out, known[i].mark);
  if (out->n) return has_tokens(out, name, tokenizer, f);
  if (!rt_map_file(name, 201, &file, f))
    return rt_help(f, "`--chat` takes a file or one of: %s", chat_names(arena));
  bool ok = read_template(file, arena, out, f) || rt_at(f, name, "", -1);
  rt_unmap_file(&file);
  return ok && has_tokens(out, name, tokenizer, f);
}

/* ---- a dialogue as text ---- */

typedef struct Border { /* up to here the bytes of a stretch are learned or not */
  int64_t at;
  bool learned;
} Border;

typedef struct ChatText { /* text between two special tokens */
  char *text;
  int64_t n, room;
  VEC(Border) borders;
} ChatText;

typedef struct Writing {
  const ChatTemplate *chat;
  Tokenizer *tokenizer;
  Arena *arena;
  ChatText stretch;
  Ids *ids, *labels, part;
  bool special;
} Writing;

static void encode(const Writing *writing, int64_t n, Ids *out) {
  Encoding encoding;
  out->n = 0;
  rt_encode_start(&encoding, writing->tokenizer, (Bytes){(uint8_t *)writing->stretch.text, n},
                  writing->special);
  encoding.first = !writing->ids->n;
  while (rt_encode_some(&encoding, writing->tokenizer, INT64_MAX, out)) {}
}

static void add_token(Writing *writing, int32_t id, bool learned) {
  rt_ids_add(writing->ids, id);
  rt_ids_add(writing->labels, learned ? id : CHAT_IGNORED);
}

/* Number of tokens that both begin with. */
static int64_t common(const Ids *a, const Ids *b) {
  int64_t n = 0;
  while (n < a->n && n < b->n && a->at[n] == b->at[n]) n++;
  return n;
}

static void end_stretch(Writing *writing) {
  ChatText *stretch = &writing->stretch;
  Ids whole = {0};
  int64_t done = 0;
  if (stretch->n) encode(writing, stretch->n, &whole);
  for (uint32_t i = 0; i < stretch->borders.n; i++) {
    int64_t to = whole.n;
    if (i + 1 < stretch->borders.n) {
      encode(writing, stretch->borders.at[i].at, &writing->part);
      to = common(&whole, &writing->part);
    }
    for (; done < to; done++) add_token(writing, whole.at[done], stretch->borders.at[i].learned);
  }
  free(whole.at);
  stretch->n = 0, stretch->borders.n = 0;
}

static void add_bytes(Writing *writing, const uint8_t *at, int64_t n, bool learned) {
  ChatText *stretch = &writing->stretch;
  if (!n) return;
  if (stretch->n + n > stretch->room) {
    stretch->room = 2 * (stretch->n + n);
    char *more = rt_alloc((size_t)stretch->room);
    if (stretch->n) memcpy(more, stretch->text, (size_t)stretch->n);
    free(stretch->text), stretch->text = more;
  }
  memcpy(stretch->text + stretch->n, at, (size_t)n);
  stretch->n += n;
  Border *last = stretch->borders.n ? &stretch->borders.at[stretch->borders.n - 1] : NULL;
  if (last && last->learned == learned) last->at = stretch->n;
  else vec_push(writing->arena, stretch->borders, ((Border){stretch->n, learned}));
}

/* A mark of the template: special tokens by their names. */
static void add_mark(Writing *writing, const char *text, bool learned) {
  Bytes rest = {(const uint8_t *)text, (int64_t)strlen(text)};
  for (Bytes name; rest.n;) {
    int32_t id = rt_tokenizer_next_name(writing->tokenizer, rest, &name);
    add_bytes(writing, rest.at, name.at - rest.at, learned);
    if (id >= 0) end_stretch(writing), add_token(writing, id, learned);
    const uint8_t *end = name.at + name.n;
    rest = (Bytes){end, rest.n - (end - rest.at)};
  }
}

static void add_message(Writing *writing, const char *text, bool learned) {
  size_t n = strlen(text);
  if (mark_text(writing->chat, "trim")) {
    while (n && isspace((unsigned char)text[n - 1])) n--;
    while (n && isspace((unsigned char)*text)) text++, n--;
  }
  add_bytes(writing, (const uint8_t *)text, (int64_t)n, learned);
}

static bool add_turns(Writing *writing, const Records *records, Fault *f) {
  const char *joint = mark_text(writing->chat, "system_in_user"), *system = NULL;
  const char *begin = mark_text(writing->chat, "begin");
  const char *told = mark_text(writing->chat, "default_system");
  ChatTurns turns = records->turns;
  if (begin) add_mark(writing, begin, false);
  if (told && strcmp(turns.at[0].role, "system")) {
    const ChatMark *mark = role_mark(writing->chat, "system");
    add_mark(writing, mark->text[0], false), add_mark(writing, told, false);
    add_mark(writing, mark->text[1], false), add_mark(writing, mark->text[2], false);
  }
  for (uint32_t i = 0; i < turns.n; i++) {
    const ChatTurn *turn = &turns.at[i];
    const ChatMark *mark = role_mark(writing->chat, turn->role);
    if (joint && i == 0 && turns.n > 1 && !strcmp(turn->role, "system") &&
        !strcmp(turns.at[1].role, "user")) {
      system = turn->text;
      continue;
    }
    if (!mark)
      return rt_fault(f, 202, "line %lld: the chat template has no role `%.40s`",
                      (long long)records->line, turn->role);
    add_mark(writing, mark->text[0], false);
    if (system) add_bytes(writing, (const uint8_t *)system, (int64_t)strlen(system), false);
    if (system) add_mark(writing, joint, false), system = NULL;
    add_message(writing, turn->text, turn->learned);
    add_mark(writing, mark->text[1], turn->learned), add_mark(writing, mark->text[2], false);
  }
  return true;
}

bool chat_tokens(const ChatTemplate *chat, Tokenizer *tokenizer, const Records *records,
                 bool special, Ids *ids, Ids *labels, Fault *f) {
  Writing writing = {.chat = chat,
                     .tokenizer = tokenizer,
                     .arena = records->arena,
                     .ids = ids,
                     .labels = labels,
                     .special = special};
  const ChatTurns *turns = &records->turns;
  bool ok = true;
  ids->n = labels->n = 0;
  if (!turns->at[0].role) {
    for (uint32_t i = 0; i < turns->n; i++)
      add_bytes(&writing, (const uint8_t *)turns->at[i].text, (int64_t)strlen(turns->at[i].text),
                turns->at[i].learned);
  } else if (chat) {
    ok = add_turns(&writing, records, f);
  } else {
    ok = rt_fault(f, 202, "line %lld has messages, whose marks a chat template says",
                  (long long)records->line);
    rt_help(f, "`--chat` with a file or one of: %s", chat_names(records->arena));
  }
  end_stretch(&writing);
  free(writing.stretch.text), free(writing.part.at);
  return ok;
}
