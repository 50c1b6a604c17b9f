/* `table("f.npy")`: a block pattern from a file. The file is looked for beside the file that says
   so, as `use` does, read once, and what it says becomes part of the module: a dump needs it no
   more. Where sizes are known, its shape is compared with the blocks that there are. */
#include "frontend/npy.h"
#include "frontend/sema.h"
#include "ir/support/input.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct PatternTable {
  Str path;
  NpyBits bits;
  int error; /* it was not read: errno */
};

static Str folder_of(const World *w, Span word) {
  const char *from = word.file ? world_file_name(w, word.file) : "";
  const char *slash = strrchr(from, '/');
  return slash ? arena_strndup(w->ctx->arena, from, (size_t)(slash - from) + 1) : "./";
}

static const PatternTable *read_table(World *w, Str path) {
  for (uint32_t i = 0; i < w->tables.n; i++)
    if (!strcmp(w->tables.at[i]->path, path)) return w->tables.at[i];
  PatternTable *t = ARENA_NEW(w->ctx->arena, PatternTable);
  size_t n;
  errno = 0;
  const char *text = text_read(w->ctx, path, &n);
  t->path = path;
  if (!text) t->error = errno ? errno : ENOENT;
  else t->bits = npy_bits(w->ctx->arena, text, n);
  vec_push(w->ctx->arena, w->tables, t);
  return t;
}

/* Of the .npy files of its folder, as it would be written. */
static const char *nearest_table(const World *w, Str beside, Str name) {
  VEC(const char *) names = {0};
  const char *slash = strrchr(name, '/');
  size_t own = slash ? (size_t)(slash - name) + 1 : 0;
  const char *folder = arena_printf(w->ctx->arena, "%s%.*s", beside, (int)own, name);
  struct dirent **at;
  int n = scandir(folder, &at, NULL, alphasort);
  for (int i = 0; i < n; i++) {
    size_t length = strlen(at[i]->d_name);
    if (length > 4 && !strcmp(at[i]->d_name + length - 4, ".npy"))
      vec_push(w->ctx->arena, names,
               arena_printf(w->ctx->arena, "%.*s%s", (int)own, name, at[i]->d_name));
    free(at[i]);
  }
  if (n >= 0) free(at);
  return names.n ? diag_nearest(name, names.at, names.n) : NULL;
}

static bool not_read(Eval *e, Span at, Str folder, Str name, int error) {
  Report *r = eval_error(e, "E0314", at, "cannot read the table `%s`: %s", name, strerror(error));
  diag_fact(r, "it is looked for beside the file that says `table`");
  const char *near = nearest_table(e->w, folder, name);
  if (!near) return false;
  diag_help(r, "a file with a similar name exists: `table(\"%s\")`", near);
  diag_edit(r, at, "\"%s\"", near);
  return false;
}

bool table_read(Eval *e, Mask *m, Str name, Span at) {
  Str folder = *name == '/' ? "" : folder_of(e->w, m->span);
  const PatternTable *t = read_table(e->w, arena_printf(e->arena, "%s%s", folder, name));
  if (t->error) return not_read(e, at, folder, name, t->error);
  m->table = t;
  if (!t->bits.fault) return true;
  Report *r = eval_error(e, "E0314", at, "the table `%s` cannot be taken", name);
  diag_label(r, "%s", t->bits.fault);
  if (t->bits.help) diag_help(r, "%s", t->bits.help);
  return false;
}

/* [rows, columns] of the last two dims, [heads] before them if there are three. */
bool table_fits(Eval *e, const Mask *m, const BlockGrid *g) {
  const NpyBits *b = &m->table->bits;
  int64_t q = size_of(e->sizes, g->q), k = size_of(e->sizes, g->k), heads = 1;
  for (int i = 0; i < g->heads.n; i++) heads *= size_of(e->sizes, g->heads.at[i]);
  bool sized = g->unit > 0 && q > 0 && k > 0 && heads > 0;
  int64_t rows = sized ? (int64_t)ceil((double)q / g->unit) : 0,
          columns = sized ? (int64_t)ceil((double)k / g->unit) : 0;
  bool fits = b->dim[b->rank - 2] == rows && b->dim[b->rank - 1] == columns &&
              (b->rank == 2 || b->dim[0] == heads);
  if (!sized || fits) return true;
  Report *r = eval_error(e, "E0314", m->span, "a table of other blocks than the layout has");
  diag_label(r, "is %s", npy_shape(e->arena, b));
  diag_fact(r, "`%s` has %lld elements and `%s` %lld: %lld x %lld blocks of %.0f", g->q,
            (long long)q, g->k, (long long)k, (long long)rows, (long long)columns, g->unit);
  if (b->rank == 3 && g->heads.n)
    diag_fact(r, "%s are %lld heads", dims_names(e->ctx, &g->heads), (long long)heads);
  if (b->rank == 3 && !g->heads.n)
    diag_help(r, "heads differ where the layout has them: `layout name [Heads, %s, %s] = ..`", g->q,
              g->k);
  return false;
}

const bool *table_set(const Mask *m) { return m->table->bits.set; }
bool table_by_head(const Mask *m) { return m->table->bits.rank == 3; }
