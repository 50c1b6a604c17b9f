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

static const char *task_setting(const rt_program *p, const char *key) {
  char name[RT_NAME];
  snprintf(name, sizeof name, "data.task.%s", key);
  return rt_setting_of(p, name);
}

static int64_t id_setting(const rt_program *p, const char *key) {
  const char *v = rt_setting_of(p, key);
  return v ? strtoll(v, NULL, 10) : -1;
}

static double share_setting(const rt_program *p, const char *key, double otherwise) {
  const char *v = task_setting(p, key);
  return v ? strtod(v, NULL) : otherwise;
}

static void read_special(Task *t, const char *text) {
  enum { MOST = sizeof t->special / sizeof *t->special };
  for (char *end; text && *text && t->nspecial < MOST; text = end + strspn(end, " ,")) {
    long long id = strtoll(text, &end, 10);
    if (end == text) return;
    t->special[t->nspecial++] = id;
  }
}

const char *rt_task_tokenizer(const rt_program *p) { return rt_setting_of(p, "data.tokenizer"); }

/* What is not written comes from the tokenizer: BERT's names. */
static bool ask_tokenizer(Task *t, const rt_program *p, Fault *f) {
  const char *path = rt_task_tokenizer(p);
  Tokenizer *k;
  if (!path || !(t->mlm || t->documents)) return true;
  if (!rt_tokenizer_open(path, &k, NULL, f)) return false;
  if (t->mask_id < 0) t->mask_id = rt_tokenizer_id(k, "[MASK]");
  if (t->pad_id < 0) t->pad_id = rt_tokenizer_id(k, "[PAD]");
  static const char *const names[] = {"[PAD]", "[CLS]", "[SEP]", "[MASK]"};
  for (size_t i = 0; !t->nspecial && i < sizeof names / sizeof *names; i++)
    t->special[i] = rt_tokenizer_id(k, names[i]); /* -1 is no token */
  if (!t->nspecial) t->nspecial = sizeof names / sizeof *names;
  rt_tokenizer_close(k);
  return true;
}

bool rt_task_read(Task *t, const rt_program *p, Fault *f) {
  const char *name = rt_setting_of(p, "data.task"), *pack = rt_setting_of(p, "data.pack");
  *t = (Task){.mlm = name && !strcmp(name, "mlm"), .documents = pack && !strcmp(pack, "off")};
  if (name && !t->mlm && strcmp(name, "next"))
    return rt_fault(f, 205, "data task `%s` is not known here", name);
  t->eot = id_setting(p, "data.eot");
  t->mask_id = id_setting(p, "data.mask_id");
  t->pad_id = id_setting(p, "data.pad_id");
  t->rate = share_setting(p, "rate", 0.15);
  t->mask = share_setting(p, "mask", 0.8);
  t->random = share_setting(p, "random", 0.1);
  read_special(t, rt_setting_of(p, "data.special"));
  if (!ask_tokenizer(t, p, f)) return false;
  if (!t->mlm || t->mask_id >= 0) return true;
  rt_fault(f, 205, "task `mlm` has no mask token");
  return rt_help(f,
                 "`mask_id = ID` in the data line, or `tokenizer = \"FILE\"` with a token [MASK]");
}

/* ---- inputs ---- */

static const rt_tensor *input_named(const rt_program *p, const char *name) {
  for (int i = 0; name && i < p->ntensors; i++) {
    const rt_tensor *t = &p->tensors[i];
    if (rt_is_data(t) && !strcmp(t->name, name)) return t;
  }
  return NULL;
}

/* The n-th input of the model, or NULL. */
static const rt_tensor *input_at(const rt_program *p, int n) {
  for (int i = 0; i < p->ntensors; i++) {
    const rt_tensor *t = &p->tensors[i];
    if (rt_is_data(t) && n-- == 0) return t;
  }
  return NULL;
}

static bool add_feed(const Task *t, const rt_program *p, DataSet *s, const rt_tensor *input,
                     Role role, Fault *f) {
  Feed *e = &s->feed[s->nfeeds];
  bool label = s->nfeeds == 1 && role == ROLE_NUMBERS; /* `next`: the tokens one further */
  if (!rt_feed_of(p, input, 0, label ? 1 : 0, e, f)) return false;
  e->role = role;
  e->pad = label || role == ROLE_LABELS ? e->ignore : t->pad_id >= 0 ? t->pad_id : 0;
  if (s->nfeeds && e->count != s->feed[0].count)
    return rt_fault(f, 205, "inputs %s and %s of one task differ in shape", s->feed[0].input->name,
                    input->name);
  s->nfeeds++;
  bool counter = input->elem == RT_I32 || input->elem == RT_I64;
  bool good = role == ROLE_VALID ? input->elem == RT_BOOL : counter;
  return good || rt_fault(f, 205, "input %s has a type that this task cannot feed", input->name);
}

static const struct {
  const char *key;
  Role role;
} extras[] = {{"doc", ROLE_DOC}, {"pos", ROLE_POS}, {"types", ROLE_TYPES}, {"valid", ROLE_VALID}};

static bool no_input(const rt_program *p, Fault *f) {
  const char *task = rt_setting_of(p, "data.task");
  return rt_fault(f, 205,
                  "task `%s` feeds two inputs: it must name them, or the model have just two",
                  task ? task : "next");
}

static int count_inputs(const rt_program *p) {
  int n = 0;
  while (input_at(p, n)) n++;
  return n;
}

bool rt_task_feeds(const Task *t, const rt_program *p, DataSet *s, Fault *f) {
  const char *from = task_setting(p, "from"), *to = task_setting(p, "to");
  bool named = from && to, two = count_inputs(p) == 2;
  const rt_tensor *a = named ? input_named(p, from)
                       : two ? input_at(p, 0)
                             : NULL,
                  *b = named ? input_named(p, to)
                       : two ? input_at(p, 1)
                             : NULL;
  if (!a || !b) return no_input(p, f);
  s->feed = rt_alloc(sizeof(Feed) * 6);
  s->stream = rt_alloc(sizeof(Stream));
  s->nstreams = 1;
  if (!add_feed(t, p, s, a, t->mlm ? ROLE_MASKED : ROLE_NUMBERS, f) ||
      !add_feed(t, p, s, b, t->mlm ? ROLE_LABELS : ROLE_NUMBERS, f))
    return false;
  for (size_t i = 0; i < sizeof extras / sizeof *extras; i++) {
    const char *name = task_setting(p, extras[i].key);
    const rt_tensor *input = input_named(p, name);
    if (name && !input) return no_input(p, f);
    if (input && !add_feed(t, p, s, input, extras[i].role, f)) return false;
  }
  s->stream->stride = s->feed[0].count, s->stream->length = s->stream->stride + !t->mlm;
  s->stream->windows = true;
  return true;
}

/* ---- documents ---- */

static void push_document(DataFile *p, int64_t *room, Document d) {
  if (p->ndocuments == *room) {
    *room = *room ? *room * 2 : 1024;
    Document *more = rt_alloc(sizeof(Document) * (size_t)*room);
    if (p->ndocuments) memcpy(more, p->document, sizeof(Document) * (size_t)p->ndocuments);
    free(p->document);
    p->document = more;
  }
  p->document[p->ndocuments++] = d;
}

/* A document keeps the token that ends it: it is the last thing to predict. One that holds nothing
   to predict is no sample. */
static void find_documents(const Task *t, DataFile *p) {
  int64_t room = 0, begin = 0, least = t->mlm ? 1 : 2;
  for (int64_t i = 0; i < p->array.count; i++) {
    bool last = i + 1 == p->array.count;
    if (!last && rt_array_int(&p->array, i) != t->eot) continue;
    if (i + 1 - begin >= least) push_document(p, &room, (Document){begin, i + 1 - begin});
    begin = i + 1;
  }
  if (!p->document) p->document = rt_alloc(sizeof(Document));
}

/* The same from Megatron's index. */
static void list_documents(const Task *t, DataFile *p) {
  int64_t room = 0, least = t->mlm ? 1 : 2;
  for (int64_t d = 0; d + 1 < p->array.documents; d++) {
    int64_t begin = rt_array_document(&p->array, d), end = rt_array_document(&p->array, d + 1);
    if (end - begin >= least) push_document(p, &room, (Document){begin, end - begin});
  }
  if (!p->document) p->document = rt_alloc(sizeof(Document));
}

static bool all_listed(const Stream *s) {
  for (int i = 0; i < s->nparts; i++)
    if (s->part[i].array.documents < 2) return false;
  return true;
}

bool rt_task_documents(const Task *t, Stream *s, Fault *f) {
  bool listed = all_listed(s);
  if (!t->documents) return true;
  if (t->eot < 0 && !listed) {
    rt_fault(f, 205, "`pack = off` needs to know where documents end");
    return rt_help(f, "`eot = ID` in the data line: the token that ends a document");
  }
  for (int i = 0; i < s->nparts; i++) (listed ? list_documents : find_documents)(t, &s->part[i]);
  return true;
}
