/* Hover and definition: the name at a place, found in the syntax tree, and what the checker knows
   of it. */
#include "lsp.h"
#include "codegen/cache.h"
#include "codegen/codegen.h"
#include "frontend/lower.h"
#include "frontend/model/sema.h"
#include "frontend/settings/settings.h"
#include "frontend/syntax/ast_find.h"
#include "ir/support/output.h"
#include <stdlib.h>
#include <unistd.h>

typedef struct Sight { /* what is known of the place */
  World *w;
  PlaceWatch watch;
  AstFound found;
  const char *name; /* without a prime */
} Sight;

/* False: no name is at the place. */
static bool look(Request *request, Sight *sight) {
  *sight = (Sight){.watch.offset = (uint32_t)request->at};
  CheckResult result = {.watch = &sight->watch};
  check_program(request->c, request->document->path, &result);
  sight->w = result.world;
  if (!sight->w || !sight->w->files.n) return false;
  sight->found = ast_find(sight->w->files.at[0], sight->watch.offset);
  const char *text = sight->found.name.text;
  if (text) sight->name = intern_n(request->c->names, text, strcspn(text, "'"));
  return sight->found.role != ROLE_NONE;
}

/* ---- where a name is declared ---- */

static bool take(const AstName *name, const char *wanted, Span *at) {
  if (!name->text || strcmp(name->text, wanted) != 0) return false;
  return *at = name->span, true;
}

static bool of_names(const AstNames *names, const char *wanted, Span *at) {
  for (uint32_t i = 0; i < names->n; i++)
    if (take(&names->at[i], wanted, at)) return true;
  return false;
}

static bool of_options(const AstOptions *options, const char *wanted, Span *at) {
  for (uint32_t i = 0; i < options->n; i++)
    if (take(&options->at[i].name, wanted, at)) return true;
  return false;
}

static bool of_axes(const AstAxes *axes, const char *wanted, Span *at) {
  for (uint32_t i = 0; axes && i < axes->groups.n; i++)
    if (of_names(&axes->groups.at[i].from, wanted, at) ||
        of_names(&axes->groups.at[i].to, wanted, at))
      return true;
  return false;
}

/* In the item itself: the last statement that gives the name, up to the place. */
static bool of_item(const AstItem *item, const char *wanted, uint32_t offset, Span *at) {
  bool found = false;
  for (uint32_t i = 0; i < item->body.n; i++)
    if (!found || item->body.at[i]->span.offset <= offset)
      found |= of_names(&item->body.at[i]->names, wanted, at);
  if (found) return true;
  for (uint32_t i = 0; i < item->formals.n; i++)
    if (take(&item->formals.at[i].name, wanted, at)) return true;
  return of_options(&item->operands, wanted, at) || of_options(&item->with, wanted, at);
}

static bool of_world(const World *w, Space space, Str name, Span *at) {
  const Decl *decl = world_find(w, space, name, false);
  return decl ? *at = decl->span, true : false;
}

static bool of_spaces(const World *w, Str name, const Space *spaces, Span *at) {
  for (; *spaces != SPACE_COUNT; spaces++)
    if (of_world(w, *spaces, name, at)) return true;
  return false;
}

/* `mesh data = 4`: the axis is declared where it gets its size. */
static bool of_mesh(const AstItem *plan, const char *wanted, Span *at) {
  for (uint32_t i = 0; plan->block && i < plan->block->settings.n; i++) {
    const AstSetting *line = plan->block->settings.at[i];
    for (uint32_t k = 0; !strcmp(line->path->text, "mesh") && k < line->values.n; k++) {
      const AstPath *key = line->values.at[k].key;
      if (key && !strcmp(key->text, wanted)) return *at = key->span, true;
    }
  }
  return false;
}

static bool of_file(const World *w, const char *name, Span *at) {
  for (uint32_t i = 0; i < w->files.n; i++) {
    const char *path = w->files.at[i]->name, *slash = strrchr(path, '/');
    const char *base = slash ? slash + 1 : path;
    size_t n = strlen(name);
    if (strncmp(base, name, n) || (base[n] && strcmp(base + n, ".shard"))) continue;
    return *at = (Span){w->files.at[i]->file, 0, 0}, true;
  }
  return false;
}

/* An option that `called`, a layer or function, declares. */
static bool of_called(const World *w, Str called, const char *wanted, Span *at) {
  const Decl *decl = called ? world_find(w, SPACE_LAYER, called, false) : NULL;
  if (!decl && called) decl = world_find(w, SPACE_FN, called, false);
  return decl && (of_options(&decl->item->with, wanted, at) ||
                  of_options(&decl->item->operands, wanted, at));
}

static bool declared(const Sight *sight, Span *at) {
  static const Space dims[] = {SPACE_DIM, SPACE_COUNT}, layers[] = {SPACE_LAYER, SPACE_COUNT},
                     models[] = {SPACE_MODEL, SPACE_COUNT},
                     values[] = {SPACE_FN, SPACE_CONST, SPACE_DIM, SPACE_COUNT},
                     choices[] = {SPACE_MACHINE, SPACE_DIM, SPACE_MODEL, SPACE_COUNT};
  const AstFound *found = &sight->found;
  const World *w = sight->w;
  switch (found->role) {
  case ROLE_DIM:
    return (found->item->kind != ITEM_DIMS && of_axes(found->item->axes, sight->name, at)) ||
           of_spaces(w, sight->name, dims, at);
  case ROLE_LAYER: return of_spaces(w, sight->name, layers, at);
  case ROLE_MODEL: return of_spaces(w, sight->name, models, at);
  case ROLE_CALL:
  case ROLE_VALUE:
    return of_item(found->item, sight->name, sight->watch.offset, at) ||
           of_axes(found->item->axes, sight->name, at) || of_spaces(w, sight->name, values, at);
  case ROLE_OPTION: return of_called(w, found->of, sight->name, at);
  case ROLE_KEY:
  case ROLE_CHOICE:
    return of_mesh(found->item, sight->name, at) || of_spaces(w, sight->name, choices, at);
  case ROLE_FILE: return of_file(w, found->name.text, at);
  case ROLE_ITEM: return *at = found->name.span, true;
  default: return false;
  }
}

/* ---- definition ---- */

/* The library is part of the program: a copy of it for the editor, among the files of the cache. */
static const char *library_path(Arena *arena) {
  const char *why, *folder = cache_folder(arena, &why);
  size_t n;
  const char *text = std_shard_text(&n);
  if (!folder) return NULL;
  const char *path = arena_printf(arena, "%s/std-%s.shard", folder, SHARDC_VERSION);
  return output_write(arena, path, text, n, 0444) ? path : NULL;
}

void answer_definition(Request *request) {
  Sight sight;
  Span at;
  bool known = look(request, &sight) && declared(&sight, &at);
  const Source *source = known ? diag_source(request->c->diag, at.file) : NULL;
  const char *path = source ? source->name : NULL;
  if (source && at.file == sight.w->std) path = library_path(request->c->arena);
  if (!path) {
    fputs("null", request->out);
    return;
  }
  fputs("{\"uri\":", request->out);
  put_uri(request->out, request->server, path);
  fputs(",\"range\":", request->out);
  put_range(request->out, request, source, at);
  fputc('}', request->out);
}

/* ---- hover: Markdown ---- */

/* The line of a declaration, up to the body. */
static const char *declaration(Request *request, Span at) {
  const Source *source = diag_source(request->c->diag, at.file);
  const char *text = source->text, *from = text + at.offset, *to = from;
  while (from > text && from[-1] != '\n' && from[-1] != ';' && from[-1] != '{') from--;
  from += strspn(from, " \t");
  int depth = 0;
  for (; *to && !strchr("\n#{", *to) && (*to != ';' || depth); to++)
    depth += *to == '[' || *to == '(' ? 1 : *to == ']' || *to == ')' ? -1 : 0;
  while (to > from && (to[-1] == ' ' || to[-1] == '}')) to--;
  return arena_strndup(request->c->arena, from, (size_t)(to - from));
}

static void put_sizes(FILE *out, const Sight *sight) {
  const char *separator = "";
  for (uint32_t i = 0; i < sight->watch.sizes.n; i++) {
    const WatchSize *size = &sight->watch.sizes.at[i];
    bool again = strcmp(size->dim, sight->name);
    for (uint32_t k = 0; k < i && !again; k++) {
      const WatchSize *other = &sight->watch.sizes.at[k];
      again = other->dim == size->dim && other->model == size->model && other->size == size->size;
    }
    if (again) continue;
    fprintf(out, "%s%lld in %s", separator, (long long)size->size, size->model);
    if (size->stored > size->size) fprintf(out, " (stored: %lld)", (long long)size->stored);
    separator = ", ";
  }
  if (*separator) fputs("\n\n", out);
}

/* The line, option or value of a settings block, by the table. */
static void put_setting(FILE *out, const Sight *sight) {
  uint32_t n;
  const SettingRow *row = settings_table(&n);
  const AstFound *found = &sight->found;
  const char *line = found->line->path->text;
  size_t length = strlen(line);
  if (found->role == ROLE_WORD) {
    fputs("```text\n", out);
    explain_setting(out, line);
    fputs("```\n", out);
    return;
  }
  for (uint32_t i = 0; i < n; i++) {
    bool part = row[i].kind == (found->role == ROLE_KEY ? ROW_OPTION : ROW_CHOICE);
    if (!part || row[i].block != found->item->kind || strncmp(row[i].word, line, length) ||
        (row[i].word[length] && row[i].word[length] != '.') || strcmp(row[i].key, sight->name))
      continue;
    fprintf(out, "`%s`: %s", row[i].key, row[i].help);
    if (*row[i].otherwise) fprintf(out, "; default `%s`", row[i].otherwise);
    fputs("\n\n", out);
  }
}

static void put_hover(Request *request, FILE *out, const Sight *sight) {
  Span at;
  bool local = false;
  if (declared(sight, &at) && at.file) {
    const char *line = declaration(request, at);
    if (*line) fprintf(out, "```shard\n%s\n```\n", line); /* a file: it begins with a comment */
    local = at.file != sight->w->std;
  }
  AstRole role = sight->found.role;
  bool valued = role == ROLE_VALUE || role == ROLE_CALL || role == ROLE_LAYER;
  for (uint32_t i = 0; valued && i < sight->watch.notes.n && i < 8; i++)
    fprintf(out, "%s\n\n", sight->watch.notes.at[i].text);
  if (role == ROLE_DIM || role == ROLE_VALUE || role == ROLE_CHOICE) put_sizes(out, sight);
  if (sight->found.line) put_setting(out, sight);
  char *text = NULL;
  size_t n;
  FILE *help = heap_stream(&text, &n);
  bool known = (role == ROLE_CALL || role == ROLE_LAYER) && !local &&
               explain_operator(help, request->c, sight->name);
  fclose(help);
  if (known) fprintf(out, "```text\n%s```\n", text);
  free(text);
}

/* All that the checker counted of a model: its parameters. */
static void put_model(Request *request, FILE *out, const char *name) {
  Ctx *c = ctx_new();
  CheckResult result = {0};
  c->open = request->c->open;
  check_program(c, request->document->path, &result);
  for (uint32_t i = 0; i < result.models.n; i++)
    if (!strcmp(result.models.at[i].name, name) && result.models.at[i].counted)
      fprintf(out, "%lld parameters\n\n", (long long)result.models.at[i].parameters);
  ctx_free(c);
}

void answer_hover(Request *request) {
  Sight sight;
  char *text = NULL;
  size_t n;
  if (!look(request, &sight)) {
    fputs("null", request->out);
    return;
  }
  FILE *out = heap_stream(&text, &n);
  put_hover(request, out, &sight);
  AstRole role = sight.found.role;
  if (role == ROLE_MODEL || role == ROLE_ITEM) put_model(request, out, sight.name);
  fclose(out);
  if (n) {
    fputs("{\"contents\":{\"kind\":\"markdown\",\"value\":", request->out);
    json_put_string(request->out, text);
    fputs("},\"range\":", request->out);
    put_range(request->out, request, diag_source(request->c->diag, 1), sight.found.name.span);
    fputc('}', request->out);
  } else fputs("null", request->out);
  free(text);
}
