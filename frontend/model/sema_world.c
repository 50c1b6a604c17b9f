/* Reads FILE and the files it uses, and lists what they declare: one name space per kind over all
   files.

   Each file is read once, known by its real path. `use "gpt2"` is searched for in the folder of the
   file with the `use`, then in the folders of SHARDC_PATH; `use "std"` is the embedded library. A
   name of the library may be taken over (N0203); any other name declared twice is E0203. Must not:
   read bodies. */
#include "sema_mask.h"
#include "ir/support/num.h"
#include "ir/support/input.h"
#include "ir/support/refused.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool same_span(Span a, Span b) {
  return a.file == b.file && a.offset == b.offset && a.length == b.length;
}

Report *world_error(World *w, const char *code, Span s, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = arena_vprintf(w->ctx->arena, format, args);
  va_end(args);
  w->errors += code[0] == 'E';
  if (diag_full(w->ctx->diag)) return diag_at(w->scratch, code, s, "%s", text);
  for (uint32_t i = 0; i < w->seen.n; i++)
    if (!strcmp(w->seen.at[i].code, code) && same_span(w->seen.at[i].span, s))
      return diag_at(w->scratch, code, s, "%s", text);
  vec_push(w->ctx->arena, w->seen, (Seen){code, s});
  return diag_at(w->ctx->diag, code, s, "%s", text);
}

bool world_lost(World *w, Space s) {
  bool lost = w->lost;
  for (uint32_t i = 0; i < w->files.n; i++)
    lost |= w->files.at[i]->lost || (s == SPACE_DIM && w->files.at[i]->lost_dims);
  w->errors += lost;
  return lost;
}

static const AstFile *library(World *w) {
  if (w->library) return w->library;
  Ctx quiet = *w->ctx;
  size_t n;
  const char *text = std_shard_text(&n);
  quiet.diag = w->scratch;
  return w->library = ast_parse(&quiet, "std.shard", text, n);
}

bool world_misses_library(World *w, Space s, Span at, Str name) {
  if (w->std) return false;
  const AstFile *file = library(w);
  for (uint32_t i = 0; i < file->items.n; i++) {
    const AstItem *item = file->items.at[i];
    bool same = s == SPACE_LAYER ? item->kind == ITEM_LAYER : item->kind == ITEM_FN;
    if (!same || item->name.text != name) continue;
    if (w->said_library) return w->errors++, true;
    w->said_library = true;
    Report *r = world_error(w, "E0201", at, "`%s` is in the standard library", name);
    diag_label(r, "which this file does not use");
    diag_help(r, "begin the file with `use \"std\"`");
    diag_edit(r, (Span){at.file, 0, 0}, "use \"std\"\n");
    return true;
  }
  return false;
}

void world_warn(World *w, const char *code, Span s, Str headline, Str help) {
  char *place = arena_printf(w->ctx->arena, "%u:%u:%u", s.file, s.offset, s.length);
  uint32_t before;
  if (names_find(w->warned, 0, place, &before)) return;
  names_put(w->warned, 0, place, w->warnings.n);
  vec_push(w->ctx->arena, w->warnings, (Warning){code, s, headline, help});
}

void world_flush_warnings(World *w) {
  if (diag_errors(w->ctx->diag)) {
    diag_drop(w->ctx->diag, "N0701"), diag_drop(w->ctx->diag, "N0902");
    return;
  }
  for (uint32_t i = 0; i < w->warnings.n; i++) {
    Warning *warning = &w->warnings.at[i];
    Report *r = diag_at(w->ctx->diag, warning->code, warning->span, "%s", warning->headline);
    if (warning->help) diag_help(r, "%s", warning->help);
  }
  w->warnings.n = 0;
}

/* ---- names ---- */

static uint32_t index_kind(Space s, bool std) { return 2 * (uint32_t)s + std; }

const Decl *world_find(const World *w, Space s, Str name, bool std_only) {
  uint32_t i;
  if (!std_only && names_find(w->index, index_kind(s, false), name, &i)) return &w->decls.at[i];
  return names_find(w->index, index_kind(s, true), name, &i) ? &w->decls.at[i] : NULL;
}

const Decl *world_next(const World *w, Space s, uint32_t *at) {
  return *at < w->of[s].n ? &w->decls.at[w->of[s].at[(*at)++]] : NULL;
}

const char *world_nearest(const World *w, Space s, const char *name) {
  VEC(const char *) names = {0};
  uint32_t at = 0;
  for (const Decl *decl; (decl = world_next(w, s, &at));)
    vec_push(w->ctx->arena, names, decl->name);
  return names.n ? diag_nearest(name, names.at, names.n) : NULL;
}

Str world_file_name(const World *w, uint32_t file) {
  const Source *s = file ? diag_source(w->ctx->diag, file) : NULL;
  return s ? s->name : "the command line";
}

Str world_place(const World *w, Span from, Span s) {
  uint32_t line, column;
  if (!s.file) return "the command line";
  diag_line_column(w->ctx->diag, s, &line, &column);
  if (from.file == s.file) return arena_printf(w->ctx->arena, "line %u", line);
  return arena_printf(w->ctx->arena, "%s:%u", world_file_name(w, s.file), line);
}

static const char *space_word(Space s) {
  static const char *const words[] = {
      [SPACE_DIM] = "dimension",        [SPACE_CONST] = "const", [SPACE_LAYER] = "layer",
      [SPACE_FN] = "function",          [SPACE_GRAD] = "grad",   [SPACE_MODEL] = "model",
      [SPACE_TRAIN] = "train block",    [SPACE_PLAN] = "plan",   [SPACE_MACHINE] = "machine",
      [SPACE_WEIGHTS] = "weights block"};
  _Static_assert(COUNT_OF(words) == SPACE_COUNT, "a word per Space");
  return words[s];
}

static void declare(World *w, Decl decl) {
  const Decl *old = world_find(w, decl.space, decl.name, decl.std);
  if (old && old->std == decl.std) {
    Report *r = world_error(w, "E0203", decl.span, "%s `%s` is declared twice",
                            space_word(decl.space), decl.name);
    diag_label(r, "the second time");
    diag_also(r, old->span, "first declared here");
    return;
  }
  if (decl.space == SPACE_FN && !decl.std && !world_find(w, SPACE_FN, decl.name, true) &&
      (builtin_find(decl.name, true) || builtin_find(decl.name, false) ||
       mask_function(decl.name) || mask_word(decl.name))) {
    Report *r =
        world_error(w, "E0203", decl.span, "`%s` is an operator of the language", decl.name);
    diag_label(r, "cannot be declared again");
    diag_help(r, "give it another name: `my_%s`", decl.name);
    return;
  }
  names_put(w->index, index_kind(decl.space, decl.std), decl.name, w->decls.n);
  vec_push(w->ctx->arena, w->of[decl.space], w->decls.n);
  vec_push(w->ctx->arena, w->decls, decl);
}

/* Once all files are read: which names of the library the user took over. */
static void note_taken_over(World *w) {
  for (uint32_t i = 0; i < w->decls.n; i++) {
    const Decl *decl = &w->decls.at[i];
    if (decl->std || (decl->space != SPACE_FN && decl->space != SPACE_LAYER) ||
        !world_find(w, decl->space, decl->name, true))
      continue;
    const Decl *library = world_find(w, decl->space, decl->name, true);
    if (library->std) {
      Report *r = world_error(w, "N0203", decl->span,
                              "`%s` of the standard library is redeclared here", decl->name);
      diag_label(r, "from now on this one is meant");
    }
  }
}

static bool item_space(const AstItem *item, Space *s) {
  switch (item->kind) {
  case ITEM_CONST: return *s = SPACE_CONST, true;
  case ITEM_FN:
  case ITEM_LAYOUT: return *s = SPACE_FN, true;
  case ITEM_GRAD: return *s = SPACE_GRAD, true;
  case ITEM_LAYER: return *s = SPACE_LAYER, true;
  case ITEM_MODEL:
  case ITEM_VARIANT: return *s = SPACE_MODEL, true;
  case ITEM_TRAIN: return *s = SPACE_TRAIN, true;
  case ITEM_PLAN: return *s = SPACE_PLAN, true;
  case ITEM_MACHINE: return *s = SPACE_MACHINE, true;
  case ITEM_WEIGHTS: return *s = SPACE_WEIGHTS, true;
  case ITEM_USE:
  case ITEM_DIMS: return false;
  }
  return false;
}

static void declare_item(World *w, const AstItem *item, bool std) {
  Space s;
  if (item->kind == ITEM_DIMS)
    for (uint32_t k = 0; k < item->dims.n; k++) {
      const AstDim *dim = &item->dims.at[k];
      if (dim->name.text)
        declare(w, (Decl){SPACE_DIM, dim->name.text, dim->name.span, NULL, dim, std});
    }
  if (item_space(item, &s) && item->name.text)
    declare(w, (Decl){s, item->name.text, item->name.span, item, NULL, std});
}

/* ---- files ---- */

static bool load_text(World *w, const char *name, const char *text, size_t n, const char *from);

/* 1: read now or before; 0: no such file */
/* Zero bytes are in no text; one alone may be a slip, which the lexer reports. */
static bool is_binary(const char *text, size_t n) {
  size_t zeros = 0;
  for (size_t i = 0; i < n && i < 512; i++) zeros += !text[i];
  return zeros > 8;
}

/* In place of a message for each byte. */
static void report_binary(Ctx *c, const char *path, const char *text) {
  bool executable = !memcmp(text, "\177ELF", 4);
  Report *r = diag_at(c->diag, "E0001", (Span){0}, "`%s` is %s, and no model file", path,
                      executable ? "an executable" : "no text");
  if (executable)
    diag_help(r, "`%s info --source` prints the files that it was compiled from", path);
}

static bool load_path(World *w, const char *path) {
  char real[PATH_MAX];
  if (!realpath(path, real)) snprintf(real, sizeof real, "%s", path); /* "-", a pipe */
  Str key = intern(w->ctx->names, real);
  for (uint32_t i = 0; i < w->loaded.n; i++)
    if (w->loaded.at[i] == key) return true;
  size_t n;
  char *text = text_read(w->ctx, path, &n);
  if (!text) return false;
  vec_push(w->ctx->arena, w->loaded, key);
  if (is_binary(text, n)) return report_binary(w->ctx, path, text), true;
  return load_text(w, path, text, n, path);
}

static void load_std(World *w) {
  Str key = intern(w->ctx->names, "std");
  for (uint32_t i = 0; i < w->loaded.n; i++)
    if (w->loaded.at[i] == key) return;
  vec_push(w->ctx->arena, w->loaded, key);
  size_t n;
  const char *text = std_shard_text(&n);
  load_text(w, "std.shard", text, n, NULL);
}

static char *beside(World *w, const char *from, Str name) {
  const char *slash = strrchr(from, '/');
  int folder = slash ? (int)(slash - from) + 1 : 0;
  return arena_printf(w->ctx->arena, "%.*s%s.shard", folder, from, name);
}

/* The examples are a library: those of the installation of this program, or of its source tree if
   the program is in a folder of that. NULL: none. */
static const char *examples_folder(Arena *arena) {
  static const char *const places[] = {"../share/shardc/examples", "../examples"};
  char self[4096] = "";
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return NULL;
  char *slash = strrchr(self, '/');
  if (slash) *slash = 0;
  for (size_t i = 0; slash && i < sizeof places / sizeof *places; i++) {
    const char *folder = arena_printf(arena, "%s/%s", self, places[i]);
    if (!access(arena_printf(arena, "%s/gpt2.shard", folder), R_OK)) return folder;
  }
  return NULL;
}

/* Without its extension. */
static const char *name_of_file(Ctx *c, const char *name) {
  size_t n = strlen(name);
  return n > 6 && !strcmp(name + n - 6, ".shard") ? arena_strndup(c->arena, name, n - 6) : name;
}

static bool load_used(World *w, const char *from, Str name) {
  name = name_of_file(w->ctx, name);
  if (load_path(w, beside(w, from, name))) return true;
  const char *path = getenv("SHARDC_PATH");
  while (path && *path) {
    size_t part = strcspn(path, ":");
    if (part && load_path(w, arena_printf(w->ctx->arena, "%.*s/%s.shard", (int)part, path, name)))
      return true;
    path += part + (path[part] == ':');
  }
  const char *examples = examples_folder(w->ctx->arena);
  return examples && load_path(w, arena_printf(w->ctx->arena, "%s/%s.shard", examples, name));
}

/* The most similar name among "std" and the `.shard` files in the folder of the file that uses
   it. */
static const char *nearest_file(World *w, const char *from, const char *name) {
  const char *slash = from ? strrchr(from, '/') : NULL;
  const char *folder = slash ? arena_strndup(w->ctx->arena, from, (size_t)(slash - from) + 1) : ".";
  FolderNames names = files_ending(w->ctx->arena, folder, ".shard");
  vec_push(w->ctx->arena, names, "std");
  return diag_nearest(name, names.at, names.n);
}

static void use_file(World *w, const AstItem *item, const char *from) {
  if (!item->file) return;
  if (w->deep > 200) {
    world_error(w, "E0202", item->file_span, "files use each other more than 200 deep");
    w->lost = true;
    return;
  }
  if (!strcmp(item->file, "std")) {
    load_std(w);
    return;
  }
  if (from && !strcmp(beside(w, from, item->file), from)) {
    Report *r = world_error(w, "E0201", item->file_span, "this file is `%s.shard`", item->file);
    diag_label(r, "a file cannot use itself");
    diag_help(r, "give this file another name to use another `%s.shard`", item->file);
    w->lost = true;
    return;
  }
  if (from && load_used(w, from, item->file)) return;
  Report *r = world_error(w, "E0201", item->file_span, "no file `%s.shard`", item->file);
  diag_label(r, "neither in the folder of this file, nor on SHARDC_PATH, nor an example of shardc");
  w->lost = true;
  const char *near = nearest_file(w, from, item->file);
  if (!near) return;
  diag_help(r, "a file with a similar name exists: `use \"%s\"`", near);
  diag_edit(r, item->file_span, "\"%s\"", near);
}

static bool load_text(World *w, const char *name, const char *text, size_t n, const char *from) {
  AstFile *file = ast_parse(w->ctx, name, text, n);
  if (!file) return true; /* was reported */
  if (!from) w->std = file->file;
  if (!w->top) w->top = file->file;
  vec_push(w->ctx->arena, w->files, file);
  w->deep++;
  for (uint32_t i = 0; i < file->items.n; i++)
    if (file->items.at[i]->kind == ITEM_USE) use_file(w, file->items.at[i], from);
  w->deep--;
  for (uint32_t i = 0; i < file->items.n; i++) declare_item(w, file->items.at[i], !from);
  return true;
}

void report_unread(Ctx *c, const char *path) {
  bool absent = errno == ENOENT;
  Report *r = diag_refused(c->diag, "E0001", CANNOT_READ, path);
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  const char *folder = absent ? examples_folder(c->arena) : NULL, *near = name_of_file(c, name);
  char *example =
      folder ? realpath(arena_printf(c->arena, "%s/%s.shard", folder, near), NULL) : NULL;
  if (example) diag_help(r, "an example of shardc has this name: `%s`", example);
  free(example);
}

World *world_load(Ctx *c, const char *path) {
  World *w = ARENA_NEW(c->arena, World);
  w->ctx = c, w->scratch = diag_new(c->arena);
  w->index = names_new(c->arena), w->warned = names_new(c->arena);
  w->walked = names_new(c->arena);
  errno = 0;
  if (!load_path(w, path)) return report_unread(c, path), NULL;
  note_taken_over(w);
  return w->files.n ? w : NULL;
}

void world_add(World *w, const char *text, const char *from) {
  load_text(w, "written.shard", text, strlen(text), from);
}

static const char *unbuilt_code(const World *w) { return w->checking ? "N0902" : "E0901"; }

Report *world_unbuilt(World *w, Span at, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *what = arena_vprintf(w->ctx->arena, format, args);
  va_end(args);
  return world_error(w, unbuilt_code(w), at, "%s not built yet", what);
}

bool world_has_bad(const World *w) {
  for (uint32_t i = 0; i < w->files.n; i++)
    for (uint32_t k = 0; k < w->files.at[i]->items.n; k++)
      if (w->files.at[i]->items.at[k]->bad) return true;
  return false;
}
