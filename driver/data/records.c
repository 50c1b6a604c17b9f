/* Reading JSONL: `{"text": ..}`, `{"messages": [{"role": .., "content": ..}, ..]}`, or
   `{"prompt": .., "completion": ..}`, whose values are texts or lists of messages. Other members
   are passed over; an object without these, or with several of them, is refused. Must not: know
   templates or tokens. */
#include "records.h"
#include "runtime/base/json.h"
#include <stdlib.h>
#include <string.h>

typedef struct RecordLine { /* that is read */
  Records *records;
  Json json;
  size_t used; /* of the text */
  int texts, messages, prompts, completions;
} RecordLine;

bool records_are_in(Bytes file) {
  Json json = rt_json(file.at, file.n);
  return rt_json_peek(&json) == '{' && rt_json_object(&json) && rt_json_member(&json, NULL, 0);
}

/* Strings of a line fit into its own length: each ends in a zero, and had two quotes. */
static bool read_text(RecordLine *line, const char **text) {
  char *to = line->records->text + line->used;
  if (rt_json_peek(&line->json) != '"')
    return rt_json_fail(&line->json, "expected a text as content");
  if (!rt_json_string(&line->json, to, line->records->room - line->used)) return false;
  line->used += strlen(to) + 1;
  *text = to;
  return true;
}

static void add_turn(RecordLine *line, const char *role, const char *text, bool learned) {
  Records *records = line->records;
  vec_push(records->arena, records->turns, ((ChatTurn){role, text, learned}));
}

/* The next member's name, where the next string will be: to be compared before that is read. */
static const char *next_member(RecordLine *line) {
  char *key = line->records->text + line->used;
  return rt_json_member(&line->json, key, line->records->room - line->used) ? key : NULL;
}

static bool read_message(RecordLine *line, bool may_learn) {
  const char *role = NULL, *content = NULL;
  if (!rt_json_object(&line->json)) return false;
  for (const char *key; (key = next_member(line));)
    if (!strcmp(key, "role")) read_text(line, &role);
    else if (!strcmp(key, "content")) read_text(line, &content);
    else rt_json_skip(&line->json);
  if (line->json.error) return false;
  if (!role || !content) return rt_json_fail(&line->json, "a message without `role` or `content`");
  add_turn(line, role, content, may_learn && !strcmp(role, "assistant"));
  return true;
}

static bool read_messages(RecordLine *line, bool may_learn) {
  if (!rt_json_array(&line->json)) return false;
  while (rt_json_element(&line->json))
    if (!read_message(line, may_learn)) return false;
  return !line->json.error;
}

/* A text, a prompt or a completion. */
static bool read_part(RecordLine *line, bool learned) {
  const char *text = NULL;
  if (rt_json_peek(&line->json) == '[') return read_messages(line, learned);
  if (!read_text(line, &text)) return false;
  add_turn(line, NULL, text, learned);
  return true;
}

static bool read_members(RecordLine *line) {
  if (!rt_json_object(&line->json)) return false;
  for (const char *key; (key = next_member(line));)
    if (!strcmp(key, "text")) line->texts++, read_part(line, true);
    else if (!strcmp(key, "messages")) line->messages++, read_messages(line, true);
    else if (!strcmp(key, "prompt")) line->prompts++, read_part(line, false);
    else if (!strcmp(key, "completion")) {
      if (!line->prompts) return rt_json_fail(&line->json, "a `completion` before its `prompt`");
      line->completions++, read_part(line, true);
    } else rt_json_skip(&line->json);
  return rt_json_done(&line->json);
}

static bool mixes_roles(const ChatTurns *turns) {
  for (uint32_t i = 1; i < turns->n; i++)
    if (!turns->at[i].role != !turns->at[0].role) return true;
  return false;
}

static bool read_line(Records *records, Bytes text, Fault *f) {
  RecordLine line = {.records = records, .json = rt_json(text.at, text.n)};
  records->turns.n = 0;
  if (!read_members(&line)) {
    rt_fault(f, 202, "line %lld: %s", (long long)records->line, line.json.error);
    return rt_at(f, "", "byte of the line", line.json.p - line.json.begin);
  }
  bool pair = line.prompts == 1 && line.completions == 1;
  bool one = line.texts + line.messages + line.prompts == 1 && line.prompts == line.completions;
  if (one && records->turns.n && !(pair && mixes_roles(&records->turns))) return true;
  rt_fault(f, 202, "line %lld: needs one of `text`, `messages`, or `prompt` and `completion`",
           (long long)records->line);
  return rt_help(f, "each line is one object, such as {\"messages\": [{\"role\": \"user\", "
                    "\"content\": \"..\"}, ..]}");
}

bool records_next(Records *records, Fault *f) {
  while (records->rest.n > 0) {
    const uint8_t *end = memchr(records->rest.at, '\n', (size_t)records->rest.n);
    Bytes line = {records->rest.at, end ? end - records->rest.at : records->rest.n};
    int64_t taken = line.n + (end != NULL);
    records->rest = (Bytes){records->rest.at + taken, records->rest.n - taken};
    records->line++;
    Json json = rt_json(line.at, line.n);
    if (rt_json_peek(&json) < 0) continue;
    if (records->room < (size_t)line.n + 1) {
      free(records->text);
      records->room = 2 * (size_t)line.n + 1, records->text = rt_alloc(records->room);
    }
    return read_line(records, line, f);
  }
  return false;
}

void records_close(Records *records) {
  free(records->text);
  records->text = NULL;
}
