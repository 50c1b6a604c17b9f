/* Answers that need no name at a place: messages of the checker, their edits, layout, symbols. */
#include "lsp.h"
#include "frontend/lower.h"
#include "frontend/syntax/fmt.h"

/* ---- messages ---- */

static const Source *document_source(Request *request) {
  return diag_source(request->c->diag, 1); /* FILE is read first */
}

static bool in_document(const Request *request, Span at) {
  (void)request;
  return at.file == 1;
}

/* Messages without a place, or of a file that the document uses, are at its beginning. */
static void put_place(Request *request, const Source *source, const Report *r) {
  Span at = in_document(request, r->primary.span) ? r->primary.span : (Span){1, 0, 0};
  put_range(request->out, request, source, at);
}

static void put_related(Request *request, const SourcePlace *place, bool *any) {
  const Source *source = diag_source(request->c->diag, place->span.file);
  if (!source) return;
  fputs(*any ? ",{\"location\":{\"uri\":" : "{\"location\":{\"uri\":", request->out);
  put_uri(request->out, request->server, source->name);
  fputs(",\"range\":", request->out);
  put_range(request->out, request, source, place->span);
  fputs("},\"message\":", request->out);
  json_put_string(request->out, place->text && *place->text ? place->text : "here");
  fputc('}', request->out);
  *any = true;
}

static const char *whole_message(Request *request, const Report *r) {
  const char *text = r->headline;
  if (r->primary.text && *r->primary.text)
    text = arena_printf(request->c->arena, "%s\n%s", text, r->primary.text);
  for (uint32_t i = 0; i < r->facts.n; i++)
    text = arena_printf(request->c->arena, "%s\n%s", text, r->facts.at[i]);
  for (uint32_t i = 0; i < r->helps.n; i++)
    text = arena_printf(request->c->arena, "%s\nhelp: %s", text, r->helps.at[i]);
  return text;
}

static void put_message(Request *request, const Source *source, const Report *r) {
  bool any = false;
  fputs("{\"range\":", request->out);
  put_place(request, source, r);
  fprintf(request->out, ",\"severity\":%d,\"code\":\"%s\",\"source\":\"shardc\",\"message\":",
          *r->code == 'W'   ? 2
          : *r->code == 'N' ? 3
                            : 1,
          r->code);
  json_put_string(request->out, whole_message(request, r));
  fputs(",\"relatedInformation\":[", request->out);
  if (!in_document(request, r->primary.span)) put_related(request, &r->primary, &any);
  for (uint32_t i = 0; i < r->also.n; i++) put_related(request, &r->also.at[i], &any);
  fputs("]}", request->out);
}

static void put_messages(Request *request) {
  const Diag *diag = request->c->diag;
  const Source *source = document_source(request);
  fputs("{\"jsonrpc\":\"2.0\",\"method\":\"textDocument/publishDiagnostics\",\"params\":{\"uri\":",
        request->out);
  json_put_string(request->out, request->document->uri);
  if (request->document->version >= 0)
    fprintf(request->out, ",\"version\":%lld", (long long)request->document->version);
  fputs(",\"diagnostics\":[", request->out);
  for (uint32_t i = 0; source && i < diag->reports.n; i++) {
    if (i) fputc(',', request->out);
    put_message(request, source, diag->reports.at[i]);
  }
  fputs("]}}", request->out);
}

void publish_check(Request *request) {
  check_program(request->c, request->document->path, NULL);
  put_messages(request);
}

void publish_whole(Request *request) {
  check_beyond(&request->cli, request->document->path);
  put_messages(request);
}

/* ---- edits ---- */

static bool edits_files(Request *request, const Report *r) {
  for (uint32_t i = 0; i < r->edits.n; i++)
    if (!diag_source(request->c->diag, r->edits.at[i].span.file)) return false;
  return r->edits.n;
}

static void put_edit(Request *request, const SourcePlace *edit) {
  fputs("{\"range\":", request->out);
  put_range(request->out, request, diag_source(request->c->diag, edit->span.file), edit->span);
  fputs(",\"newText\":", request->out);
  json_put_string(request->out, edit->text);
  fputc('}', request->out);
}

/* The edits by file: {"uri":[edit,..],..}. */
static void put_changes(Request *request, const Report *r) {
  bool any = false;
  for (uint32_t i = 0; i < r->edits.n; i++) {
    uint32_t file = r->edits.at[i].span.file, k = 0;
    while (r->edits.at[k].span.file != file) k++;
    if (k < i) continue; /* written with the first edit of this file */
    if (any) fputc(',', request->out);
    put_uri(request->out, request->server, diag_source(request->c->diag, file)->name);
    fputs(":[", request->out);
    for (; k < r->edits.n; k++) {
      if (r->edits.at[k].span.file != file) continue;
      if (k > i) fputc(',', request->out);
      put_edit(request, &r->edits.at[k]);
    }
    fputc(']', request->out), any = true;
  }
}

/* A short edit is its own title; of others, the help says what they do. */
static const char *action_title(Request *request, const Report *r) {
  Arena *arena = request->c->arena;
  const SourcePlace *edit = &r->edits.at[0];
  const char *help = r->helps.n ? r->helps.at[0] : r->headline, *with = edit->text;
  size_t n = strcspn(with, "\n");
  if (r->edits.n == 1 && !*with)
    return arena_printf(arena, "Leave out `%s`", span_text(request->c, edit->span));
  if (r->edits.n == 1 && n < 60 && !with[n]) return arena_printf(arena, "Write `%s`", with);
  return arena_strndup(arena, help, strcspn(help, "\n"));
}

static void put_action(Request *request, const Report *r) {
  const char *title = action_title(request, r);
  fputs("{\"title\":", request->out);
  json_put_string(request->out, title);
  fputs(",\"kind\":\"quickfix\",\"isPreferred\":true,\"diagnostics\":[", request->out);
  put_message(request, document_source(request), r);
  fputs("],\"edit\":{\"changes\":{", request->out);
  put_changes(request, r);
  fputs("}}}", request->out);
}

void answer_actions(Request *request) {
  const Diag *diag = request->c->diag;
  const EditedFile *document = request->document;
  Json range = {0};
  size_t from = 0, to = document->length;
  bool any = false, utf8 = request->server->utf8;
  if (json_at(request->params, "range", &range)) {
    from = text_offset(document, utf8, json_whole(range, "start.line", 0), 0);
    to = text_offset(document, utf8, json_whole(range, "end.line", 0), INT64_MAX);
  }
  check_program(request->c, document->path, NULL);
  fputc('[', request->out);
  for (uint32_t i = 0; i < diag->reports.n; i++) {
    const Report *r = diag->reports.at[i];
    Span at = r->primary.span;
    if (!in_document(request, at) || at.offset > to || at.offset + at.length < from ||
        !edits_files(request, r))
      continue;
    if (any) fputc(',', request->out);
    put_action(request, r), any = true;
  }
  fputc(']', request->out);
}

/* ---- layout: the lines that differ ---- */

void answer_format(Request *request) {
  const EditedFile *document = request->document;
  size_t n, from = 0, same = 0;
  const char *old = document->text;
  const char *made = fmt_text(request->c, document->path, old, document->length, &n);
  if (!made) { /* it has mistakes, which are published */
    fputs("null", request->out);
    return;
  }
  size_t least = n < document->length ? n : document->length;
  for (size_t i = 0; i < least && made[i] == old[i]; i++)
    if (old[i] == '\n') from = i + 1;
  for (size_t i = 1; i <= least - from && made[n - i] == old[document->length - i]; i++)
    if (i < least - from && old[document->length - i - 1] == '\n') same = i;
  if (from == n && n == document->length) {
    fputs("[]", request->out);
    return;
  }
  const Source source = {"", old, document->length};
  Span at = {1, (uint32_t)from, (uint32_t)(document->length - same - from)};
  fputs("[{\"range\":", request->out);
  put_range(request->out, request, &source, at);
  fputs(",\"newText\":", request->out);
  json_put_string(request->out, arena_strndup(request->c->arena, made + from, n - same - from));
  fputs("}]", request->out);
}

/* ---- symbols ---- */

enum { /* of the protocol */
       SYMBOL_MODULE = 2,
       SYMBOL_NAMESPACE = 3,
       SYMBOL_CLASS = 5,
       SYMBOL_PROPERTY = 7,
       SYMBOL_FIELD = 8,
       SYMBOL_FUNCTION = 12,
       SYMBOL_VARIABLE = 13,
       SYMBOL_CONSTANT = 14,
       SYMBOL_STRUCT = 23
};

static int symbol_of(AstItemKind kind) {
  switch (kind) {
  case ITEM_LAYER: return SYMBOL_CLASS;
  case ITEM_MODEL:
  case ITEM_VARIANT: return SYMBOL_STRUCT;
  case ITEM_FN:
  case ITEM_GRAD: return SYMBOL_FUNCTION;
  case ITEM_CONST:
  case ITEM_LAYOUT: return SYMBOL_CONSTANT;
  case ITEM_DIMS: return SYMBOL_NAMESPACE;
  default: return SYMBOL_MODULE;
  }
}

static void begin_symbol(Request *request, bool *any, const char *name, int kind, Span all,
                         Span at) {
  const Source *source = document_source(request);
  fputs(*any ? ",{\"name\":" : "{\"name\":", request->out);
  json_put_string(request->out, name);
  fprintf(request->out, ",\"kind\":%d,\"range\":", kind);
  put_range(request->out, request, source, all);
  fputs(",\"selectionRange\":", request->out);
  put_range(request->out, request, source, at);
  fputs(",\"children\":[", request->out);
  *any = true;
}

static void put_symbol(Request *request, bool *any, AstName name, int kind, Span all) {
  if (!name.text) return;
  begin_symbol(request, any, name.text, kind, all, name.span);
  fputs("]}", request->out);
}

static void put_parts(Request *request, const AstItem *item) {
  bool any = false;
  for (uint32_t i = 0; i < item->dims.n; i++)
    put_symbol(request, &any, item->dims.at[i].name, SYMBOL_CONSTANT,
               span_join(item->dims.at[i].name.span, item->dims.at[i].span));
  for (uint32_t i = 0; i < item->body.n; i++) {
    const AstStmt *stmt = item->body.at[i];
    bool declares = stmt->kind == STMT_PARAM || stmt->kind == STMT_SUB || stmt->kind == STMT_STACK;
    for (uint32_t k = 0; (declares || stmt->kind == STMT_INPUT) && k < stmt->names.n; k++)
      put_symbol(request, &any, stmt->names.at[k], declares ? SYMBOL_FIELD : SYMBOL_VARIABLE,
                 stmt->span);
  }
  for (uint32_t i = 0; item->block && i < item->block->settings.n; i++) {
    const AstSetting *line = item->block->settings.at[i];
    put_symbol(request, &any, (AstName){line->path->text, line->path->span}, SYMBOL_PROPERTY,
               line->span);
  }
}

void answer_symbols(Request *request) {
  const EditedFile *document = request->document;
  const AstFile *file = ast_parse(request->c, document->path, document->text, document->length);
  bool any = false;
  fputc('[', request->out);
  for (uint32_t i = 0; file && i < file->items.n; i++) {
    const AstItem *item = file->items.at[i];
    if (item->kind == ITEM_USE || (item->kind != ITEM_DIMS && !item->name.text)) continue;
    bool dims = item->kind == ITEM_DIMS;
    begin_symbol(request, &any, dims ? "dims" : item->name.text, symbol_of(item->kind), item->span,
                 dims ? item->word : item->name.span);
    put_parts(request, item);
    fputs("]}", request->out);
  }
  fputc(']', request->out);
}
