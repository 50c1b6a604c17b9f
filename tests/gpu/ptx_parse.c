/* A module: directives, variables and functions at the outermost level.
 *
 * Two walks: the first takes variables and notes where each function's body starts, the second
 * reads the bodies of kernels (bodies of .func are read where they are called, see ptx_call.c), so
 * that order does not matter.
 *
 * Must not: keep a pointer into the caller's text after ptx_parse. */
#include "ptx_read.h"
#include <stdlib.h>
#include <string.h>

static void skip_to(Reader *r, char mark) {
  while (r->t.kind != T_END && !is_mark(r, mark)) next_token(r);
  need_mark(r, mark);
}

static void skip_braces(Reader *r) {
  int line = r->t.line;
  need_mark(r, '{');
  for (int depth = 1; depth;) {
    if (r->t.kind == T_END) read_error(r, line, "`{` without its `}`");
    depth += is_mark(r, '{') - is_mark(r, '}');
    next_token(r);
  }
}

/* ---- small directives ---- */
static void read_target(Reader *r) {
  do {
    const char *word = need_word(r);
    if (strncmp(word, "sm_", 3)) continue;
    int sm = atoi(word + 3), mine = r->m->device->o.sm;
    bool alone = word[strlen(word) - 1] == 'a'; /* sm_90a: for that one and no newer one */
    if (sm > mine || (alone && sm != mine))
      read_error(r, r->t.line, "the text is for %s, this device is sm_%d", word, mine);
  } while (take_mark(r, ','));
}

static void read_file(Reader *r) {
  need_int(r);
  if (r->t.kind == T_STRING) next_token(r);
  while (take_mark(r, ',')) need_int(r);
}

static void read_address_size(Reader *r) {
  int line = r->t.line;
  if (need_int(r) != 64) read_error(r, line, "only .address_size 64 is known");
}

/* ---- functions ---- */
/* `.param .u64 .ptr .global .align 16 name` or `.param .align 4 .b8 name[16]` */
static Symbol *read_param(Reader *r) {
  Symbol *s = get(r, sizeof *s);
  int64_t align = 0, width = 0;
  int line = r->t.line;
  if (!take_word(r, ".param")) read_error(r, line, "expected .param");
  while (r->t.kind == T_WORD && *r->t.text == '.') {
    const char *word = need_word(r);
    if (!strcmp(word, ".align")) align = need_int(r);
    else if (type_bytes(word + 1)) width = type_bytes(word + 1);
  }
  s->name = need_word(r), s->bytes = width, s->align = width;
  if (width == 0) read_error(r, line, "parameter `%s` has no type", s->name);
  if (take_mark(r, '[')) {
    int64_t n = is_mark(r, ']') ? 0 : need_int(r);
    if (n < 0 || n > 32768) read_error(r, line, "parameter `%s`: size out of range", s->name);
    s->bytes = n * width, s->align = align ? align : width;
    need_mark(r, ']');
  }
  if (s->align < 1 || s->align > 128 || (s->align & (s->align - 1)))
    read_error(r, line, "parameter `%s`: bad alignment", s->name);
  return s;
}

static Symbol *read_params(Reader *r) {
  Symbol *first = NULL, **last = &first;
  if (!take_mark(r, '(')) return NULL;
  if (!is_mark(r, ')')) do {
      *last = read_param(r);
      last = &(*last)->next;
    } while (take_mark(r, ','));
  need_mark(r, ')');
  return first;
}

static void read_extent(Reader *r, uint32_t out[3]) {
  for (int i = 0; i < 3; i++) out[i] = 1;
  for (int i = 0; i < 3; i++) {
    int64_t v = need_int(r);
    if (v < 1 || v > 65536) read_error(r, r->t.line, "a size of threads is 1 to 65536");
    out[i] = (uint32_t)v;
    if (!take_mark(r, ',')) break;
  }
}

static void read_attributes(Reader *r, Text *x) {
  while (r->t.kind == T_WORD && *r->t.text == '.') {
    if (take_word(r, ".maxntid")) read_extent(r, x->max);
    else if (take_word(r, ".reqntid")) read_extent(r, x->need);
    else if (take_word(r, ".minnctapersm") || take_word(r, ".maxnreg") ||
             take_word(r, ".maxnctapersm"))
      need_int(r);
    else if (take_word(r, ".noreturn")) continue;
    else if (take_word(r, ".pragma")) skip_to(r, ';');
    else read_error(r, r->t.line, "unknown directive `%s` of a function", text_of(r, &r->t));
  }
}

static void read_function(Reader *r, bool entry) {
  Text *x = get(r, sizeof *x);
  x->entry = entry;
  if (!entry) x->results = read_params(r);
  x->name = need_word(r);
  x->params = read_params(r);
  read_attributes(r, x);
  x->line = r->t.line;
  if (!take_mark(r, ';')) {
    if (!is_mark(r, '{')) read_error(r, r->t.line, "expected the body of `%s`", x->name);
    x->body = true, x->at = r->t.text;
    skip_braces(r);
  }
  for (Text *o = r->texts; o; o = o->next)
    if (o->body && x->body && !strcmp(o->name, x->name))
      read_error(r, x->line, "`%s` is there twice", x->name);
  x->next = r->texts, r->texts = x;
}

/* ---- the first walk ---- */
static bool read_linkage(Reader *r) {
  return take_word(r, ".visible") || take_word(r, ".extern") || take_word(r, ".weak") ||
         take_word(r, ".common");
}

static void read_statement(Reader *r) {
  while (read_linkage(r)) {}
  if (take_word(r, ".version")) next_token(r);
  else if (take_word(r, ".target")) read_target(r);
  else if (take_word(r, ".address_size")) read_address_size(r);
  else if (take_word(r, ".file")) read_file(r);
  else if (take_word(r, ".section")) need_word(r), skip_braces(r);
  else if (take_word(r, ".entry")) read_function(r, true);
  else if (take_word(r, ".func")) read_function(r, false);
  else if (is_word(r, ".global") || is_word(r, ".const") || is_word(r, ".shared")) {
    const char *space = need_word(r);
    read_variable(r, space);
  } else if (take_mark(r, ';')) return;
  else if (r->t.kind == T_WORD)
    read_error(r, r->t.line, "unknown directive `%s`", text_of(r, &r->t));
  else read_error(r, r->t.line, "expected a directive");
}

/* ---- the second walk ---- */
static void lay_out_params(Reader *r, const Text *x) {
  int n = 0, at = 0;
  for (const Symbol *s = x->params; s; s = s->next) n++;
  Param *params = get(r, sizeof *params * (size_t)(n + 1));
  n = 0;
  for (const Symbol *s = x->params; s; s = s->next) {
    at = (int)((at + s->align - 1) & -s->align);
    params[n++] = (Param){at, (int)s->bytes};
    Symbol *sym = add_symbol(r, SYM_PARAM, s->name);
    sym->value = (uint64_t)at, sym->bytes = s->bytes;
    at += (int)s->bytes;
    if (at > 32764) read_error(r, x->line, "`%s` has too many parameters", x->name);
  }
  r->f->params = params, r->f->nparams = n, r->f->params_bytes = at;
}

static void read_entry(Reader *r, Text *x) {
  Function *f = r->f = get(r, sizeof *f);
  f->name = x->name, f->module = r->m;
  memcpy(f->max, x->max, sizeof f->max), memcpy(f->need, x->need, sizeof f->need);
  r->op_room = 0, r->above = r->below = 0, r->pred_left = 0, r->loc = 0;
  r->constants = NULL, r->nconstants = 0, r->specials = NULL, r->nspecials = 0;
  r->shared = SHARED_FIRST, r->local = 0, r->modules_shared = NULL, r->depth = 0, r->body = x;
  r->at = x->at, r->line = x->line;
  next_token(r);
  scope_open(r);
  lay_out_params(r, x);
  read_body(r);
  Ins end = {.opcode = "exit", .part = {"exit"}, .nparts = 1, .guard = NO_SLOT, .line = r->t.line};
  decode_exit(r, &end);
  scope_close(r, x->line);
  constants_close(r);
  f->static_shared = r->shared - SHARED_FIRST, f->local_bytes = (r->local + 15) & ~15;
  f->next = r->m->functions, r->m->functions = f;
}

static void keep_lines(Reader *r, const char *text) {
  PtxModule *m = r->m;
  size_t n = strlen(text);
  char *copy = get(r, n + 1);
  memcpy(copy, text, n);
  for (size_t i = 0; i < n; i++) m->nlines += copy[i] == '\n';
  m->lines = get(r, sizeof *m->lines * (size_t)(m->nlines + 2));
  m->nlines = 0;
  for (char *s = copy; s;) {
    m->lines[++m->nlines] = s;
    s = strchr(s, '\n');
    if (s) *s++ = 0;
  }
}

static void read_module(Reader *r, const char *text) {
  keep_lines(r, text);
  scope_open(r);
  r->at = text, r->line = 1;
  next_token(r);
  while (r->t.kind != T_END) read_statement(r);
  for (Text *x = r->texts; x; x = x->next)
    if (x->entry && x->body) read_entry(r, x);
}

/* Reading errors return to this point. */
static bool read_guarded(Reader *r, const char *text) {
  if (setjmp(r->out)) return false;
  read_module(r, text);
  return true;
}

PtxModule *ptx_parse(PtxDevice *d, const char *text, char *error, int error_bytes) {
  PtxModule *m = calloc(1, sizeof *m);
  if (!m) return NULL;
  m->device = d;
  Reader *r = arena_get(&m->arena, sizeof *r);
  r->m = m, r->error = error, r->error_bytes = error_bytes;
  if (read_guarded(r, text)) return m;
  ptx_module_free(m);
  return NULL;
}

void ptx_module_free(PtxModule *m) {
  if (!m) return;
  for (Variable *v = m->variables; v; v = v->next) ptx_release(m->device, v->at);
  arena_drop(&m->arena);
  free(m);
}

/* ---- questions ---- */
const Function *find_entry(const PtxModule *m, const char *name) {
  for (const Function *f = m->functions; f; f = f->next)
    if (!strcmp(f->name, name)) return f;
  return NULL;
}

const char *ptx_entry_name(const PtxModule *m, int i) {
  const Function *f = m->functions;
  for (; f && i > 0; i--) f = f->next;
  return f ? f->name : NULL;
}

bool ptx_entry(const PtxModule *m, const char *name, PtxEntry *out) {
  const Function *f = find_entry(m, name);
  if (!f) return false;
  const uint32_t *t = f->need[0] ? f->need : f->max;
  *out = (PtxEntry){f->params_bytes, f->nparams, f->static_shared, t[0] * t[1] * t[2]};
  return true;
}

bool ptx_param(const PtxModule *m, const char *name, int i, int *offset, int *bytes) {
  const Function *f = find_entry(m, name);
  if (!f || i < 0 || i >= f->nparams) return false;
  *offset = f->params[i].offset, *bytes = f->params[i].bytes;
  return true;
}

bool ptx_variable(const PtxModule *m, const char *name, uint64_t *at, int64_t *bytes) {
  for (const Variable *v = m->variables; v; v = v->next)
    if (!strcmp(v->name, name)) {
      *at = v->at, *bytes = v->bytes;
      return true;
    }
  return false;
}
