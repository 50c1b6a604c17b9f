/* The task of a data set of tokens: `next` (windows of Seq + 1 tokens, one input gets the first
   Seq, the other the last) or `mlm` (windows of Seq, some positions masked, the labels elsewhere
   left out). Here its settings are read, every input gets its role, and documents are found where
   they are samples; data_window.c makes the numbers. Settings: data.task.from, .to, and an input's
   name in .doc, .pos, .types, .valid. Must not: look for documents unless they are samples (that
   reads every token). */
#include "data.h"
#include "runtime/base/file.h"
#include "runtime/text/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *task_setting(const rt_program *program, const char *key) {
  char name[RT_NAME];
  snprintf(name, sizeof name, "data.task.%s", key);
  return rt_setting_of(program, name);
}

static int64_t id_setting(const rt_program *program, const char *key) {
  const char *v = rt_setting_of(program, key);
  return v ? strtoll(v, NULL, 10) : -1;
}

static double share_setting(const rt_program *program, const char *key, double otherwise) {
  const char *v = task_setting(program, key);
  return v ? strtod(v, NULL) : otherwise;
}

static void read_special(Task *task, const char *text) {
  enum { MOST = sizeof task->special / sizeof *task->special };
  for (char *end; text && *text && task->nspecial < MOST; text = end + strspn(end, " ,")) {
    long long id = strtoll(text, &end, 10);
    if (end == text) return;
    task->special[task->nspecial++] = id;
  }
}

const char *rt_task_tokenizer(const rt_program *program) {
  return rt_setting_of(program, "data.tokenizer");
}

/* Takes special ids that the data line does not set from the tokenizer, by BERT's names. */
static bool ask_tokenizer(Task *task, const rt_program *program, Fault *f) {
  const char *path = rt_task_tokenizer(program);
  Tokenizer *tokenizer;
  if (!path || !(task->mlm || task->documents)) return true;
  if (!rt_tokenizer_open(path, &tokenizer, NULL, f)) return false;
  if (task->mask_id < 0) task->mask_id = rt_tokenizer_id(tokenizer, "[MASK]");
  if (task->pad_id < 0) task->pad_id = rt_tokenizer_id(tokenizer, "[PAD]");
  static const char *const names[] = {"[PAD]", "[CLS]", "[SEP]", "[MASK]"};
  for (size_t i = 0; !task->nspecial && i < sizeof names / sizeof *names; i++)
    task->special[i] = rt_tokenizer_id(tokenizer, names[i]); /* -1 is no token */
  if (!task->nspecial) task->nspecial = sizeof names / sizeof *names;
  rt_tokenizer_close(tokenizer);
  return true;
}

bool rt_task_read(Task *task, const rt_program *program, Fault *f) {
  const char *name = rt_setting_of(program, "data.task"),
             *pack = rt_setting_of(program, "data.pack");
  *task = (Task){.mlm = name && !strcmp(name, "mlm"), .documents = pack && !strcmp(pack, "off")};
  if (name && !task->mlm && strcmp(name, "next"))
    return rt_fault(f, 205, "data task `%s` is unknown to this executable", name);
  task->eot = id_setting(program, "data.eot");
  task->mask_id = id_setting(program, "data.mask_id");
  task->pad_id = id_setting(program, "data.pad_id");
  task->rate = share_setting(program, "rate", 0.15);
  task->mask = share_setting(program, "mask", 0.8);
  task->random = share_setting(program, "random", 0.1);
  read_special(task, rt_setting_of(program, "data.special"));
  if (!ask_tokenizer(task, program, f)) return false;
  if (!task->mlm || task->mask_id >= 0) return true;
  rt_fault(f, 205, "task `mlm` has no mask token");
  return rt_help(f,
                 "`mask_id = ID` in the data line, or `tokenizer = \"FILE\"` with a token [MASK]");
}

/* ---- inputs ---- */

static const rt_tensor *input_named(const rt_program *program, const char *name) {
  for (int i = 0; name && i < program->ntensors; i++) {
    const rt_tensor *tensor = &program->tensors[i];
    if (rt_is_data(tensor) && !strcmp(tensor->name, name)) return tensor;
  }
  return NULL;
}

/* The n-th input of the model, or NULL. */
static const rt_tensor *input_at(const rt_program *program, int n) {
  for (int i = 0; i < program->ntensors; i++) {
    const rt_tensor *tensor = &program->tensors[i];
    if (rt_is_data(tensor) && n-- == 0) return tensor;
  }
  return NULL;
}

static bool add_feed(const Task *task, const rt_program *program, DataSet *data,
                     const rt_tensor *input, Role role, Fault *f) {
  Feed *feed = &data->feed[data->nfeeds];
  bool label = data->nfeeds == 1 && role == ROLE_NUMBERS; /* `next`: the tokens one further */
  if (!rt_feed_of(program, input, 0, label ? 1 : 0, feed, f)) return false;
  feed->role = role;
  feed->pad = label || role == ROLE_LABELS ? feed->ignore : task->pad_id >= 0 ? task->pad_id : 0;
  if (data->nfeeds && feed->count != data->feed[0].count)
    return rt_fault(f, 205, "inputs %s and %s of one task differ in shape",
                    data->feed[0].input->name, input->name);
  data->nfeeds++;
  bool counter = input->elem == RT_I32 || input->elem == RT_I64;
  bool good = role == ROLE_VALID ? input->elem == RT_BOOL : counter;
  return good || rt_fault(f, 205, "input %s has a type that this task cannot feed", input->name);
}

static const struct {
  const char *key;
  Role role;
} extras[] = {{"doc", ROLE_DOC}, {"pos", ROLE_POS}, {"types", ROLE_TYPES}, {"valid", ROLE_VALID}};

static bool no_input(const rt_program *program, Fault *f) {
  const char *task = rt_setting_of(program, "data.task");
  return rt_fault(f, 205,
                  "task `%s` feeds two inputs: it must name them, or the model have just two",
                  task ? task : "next");
}

static int count_inputs(const rt_program *program) {
  int n = 0;
  while (input_at(program, n)) n++;
  return n;
}

bool rt_task_feeds(const Task *task, const rt_program *program, DataSet *data, Fault *f) {
  const char *from = task_setting(program, "from"), *to = task_setting(program, "to");
  bool named = from && to, two = count_inputs(program) == 2;
  const rt_tensor *a = named ? input_named(program, from)
                       : two ? input_at(program, 0)
                             : NULL,
                  *b = named ? input_named(program, to)
                       : two ? input_at(program, 1)
                             : NULL;
  if (!a || !b) return no_input(program, f);
  data->feed = rt_alloc(sizeof(Feed) * 6);
  data->stream = rt_alloc(sizeof(Stream));
  data->nstreams = 1;
  if (!add_feed(task, program, data, a, task->mlm ? ROLE_MASKED : ROLE_NUMBERS, f) ||
      !add_feed(task, program, data, b, task->mlm ? ROLE_LABELS : ROLE_NUMBERS, f))
    return false;
  for (size_t i = 0; i < sizeof extras / sizeof *extras; i++) {
    const char *name = task_setting(program, extras[i].key);
    const rt_tensor *input = input_named(program, name);
    if (name && !input) return no_input(program, f);
    if (input && !add_feed(task, program, data, input, extras[i].role, f)) return false;
  }
  data->stream->stride = data->feed[0].count,
  data->stream->length = data->stream->stride + !task->mlm;
  data->stream->windows = true;
  return true;
}

/* ---- documents ---- */

static void push_document(DataFile *file, int64_t *room, Document document) {
  if (file->ndocuments == *room) {
    *room = *room ? *room * 2 : 1024;
    Document *more = rt_alloc(sizeof(Document) * (size_t)*room);
    if (file->ndocuments) memcpy(more, file->document, sizeof(Document) * (size_t)file->ndocuments);
    free(file->document);
    file->document = more;
  }
  file->document[file->ndocuments++] = document;
}

/* A document keeps the token that ends it: it is the last thing to predict. One that holds nothing
   to predict is no sample. */
static void find_documents(const Task *task, DataFile *file) {
  int64_t room = 0, begin = 0, least = task->mlm ? 1 : 2;
  for (int64_t i = 0; i < file->array.count; i++) {
    bool last = i + 1 == file->array.count;
    if (!last && rt_array_int(&file->array, i) != task->eot) continue;
    if (i + 1 - begin >= least) push_document(file, &room, (Document){begin, i + 1 - begin});
    begin = i + 1;
  }
  if (!file->document) file->document = rt_alloc(sizeof(Document));
}

/* The same from Megatron's index. */
static void list_documents(const Task *task, DataFile *file) {
  int64_t room = 0, least = task->mlm ? 1 : 2;
  for (int64_t d = 0; d + 1 < file->array.documents; d++) {
    int64_t begin = rt_array_document(&file->array, d),
            end = rt_array_document(&file->array, d + 1);
    if (end - begin >= least) push_document(file, &room, (Document){begin, end - begin});
  }
  if (!file->document) file->document = rt_alloc(sizeof(Document));
}

static bool all_listed(const Stream *stream) {
  for (int i = 0; i < stream->nparts; i++)
    if (stream->part[i].array.documents < 2) return false;
  return true;
}

bool rt_task_documents(const Task *task, Stream *stream, Fault *f) {
  bool listed = all_listed(stream);
  if (!task->documents) return true;
  if (task->eot < 0 && !listed) {
    rt_fault(f, 205, "`pack = off` needs to know where documents end");
    return rt_help(f, "`eot = ID` in the data line: the token that ends a document");
  }
  for (int i = 0; i < stream->nparts; i++)
    (listed ? list_documents : find_documents)(task, &stream->part[i]);
  return true;
}
