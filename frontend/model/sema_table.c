/* `table("f.npy")`: a block pattern from a file. The file is searched for in the folder of the
   model file that names it, as for `use`. It is read once, and its contents become part of the
   module: a dump does not need the file. If sizes are known, its shape is compared with the number
   of blocks. */
#include "npy.h"
#include "sema_mask.h"
#include "ir/support/input.h"
#include <errno.h>
#include <math.h>
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
  PatternTable *table = ARENA_NEW(w->ctx->arena, PatternTable);
  size_t n;
  errno = 0;
  const char *text = text_read(w->ctx, path, &n);
  table->path = path;
  if (!text) table->error = errno ? errno : ENOENT;
  else table->bits = npy_bits(w->ctx->arena, text, n);
  vec_push(w->ctx->arena, w->tables, table);
  return table;
}

/* The .npy file of the folder with the most similar name, as it would be written. */
static const char *nearest_table(const World *w, Str beside, Str name) {
  const char *slash = strrchr(name, '/');
  size_t own = slash ? (size_t)(slash - name) + 1 : 0;
  const char *folder = arena_printf(w->ctx->arena, "%s%.*s", beside, (int)own, name);
  FolderNames names = files_ending(w->ctx->arena, folder, ".npy");
  const char *dot = strrchr(name + own, '.');
  Str base =
      dot ? arena_strndup(w->ctx->arena, name + own, (size_t)(dot - name) - own) : name + own;
  const char *near = diag_nearest(base, names.at, names.n);
  return near ? arena_printf(w->ctx->arena, "%.*s%s.npy", (int)own, name, near) : NULL;
}

static bool not_read(Eval *e, Span at, Str folder, Str name, int error) {
  Report *r = eval_error(e, "E0314", at, "cannot read the table `%s`: %s", name, strerror(error));
  diag_fact(r, "it is searched for in the folder of the file with `table`");
  const char *near = nearest_table(e->w, folder, name);
  if (!near) return false;
  diag_help(r, "a file with a similar name exists: `table(\"%s\")`", near);
  diag_edit(r, at, "\"%s\"", near);
  return false;
}

bool table_read(Eval *e, Mask *mask, Str name, Span at) {
  Str folder = *name == '/' ? "" : folder_of(e->w, mask->span);
  const PatternTable *table = read_table(e->w, arena_printf(e->arena, "%s%s", folder, name));
  if (table->error) return not_read(e, at, folder, name, table->error);
  mask->table = table;
  if (!table->bits.fault) return true;
  Report *r = eval_error(e, "E0314", at, "the table `%s` cannot be taken", name);
  diag_label(r, "%s", table->bits.fault);
  if (table->bits.help) diag_help(r, "%s", table->bits.help);
  return false;
}

/* [rows, columns] of the last two dims, [heads] before them if there are three. */
bool table_fits(Eval *e, const Mask *mask, const BlockGrid *grid) {
  const NpyBits *bits = &mask->table->bits;
  int64_t q = size_of(e->sizes, grid->q), k = size_of(e->sizes, grid->k), heads = 1;
  for (int i = 0; i < grid->heads.n; i++) heads *= size_of(e->sizes, grid->heads.at[i]);
  bool sized = grid->unit > 0 && q > 0 && k > 0 && heads > 0;
  int64_t rows = sized ? (int64_t)ceil((double)q / grid->unit) : 0,
          columns = sized ? (int64_t)ceil((double)k / grid->unit) : 0;
  bool fits = bits->dim[bits->rank - 2] == rows && bits->dim[bits->rank - 1] == columns &&
              (bits->rank == 2 || bits->dim[0] == heads);
  if (!sized || fits) return true;
  Report *r = eval_error(e, "E0314", mask->span, "a table of other blocks than the layout has");
  diag_label(r, "is %s", npy_shape(e->arena, bits));
  diag_fact(r, "`%s` has %lld elements and `%s` %lld: %lld x %lld blocks of %.0f", grid->q,
            (long long)q, grid->k, (long long)k, (long long)rows, (long long)columns, grid->unit);
  if (bits->rank == 3 && grid->heads.n)
    diag_fact(r, "%s are %lld heads", dims_names(e->ctx, &grid->heads), (long long)heads);
  if (bits->rank == 3 && !grid->heads.n)
    diag_help(r, "heads differ where the layout has them: `layout name [Heads, %s, %s] = ..`",
              grid->q, grid->k);
  return false;
}

const bool *table_set(const Mask *mask) { return mask->table->bits.set; }
bool table_by_head(const Mask *mask) { return mask->table->bits.rank == 3; }
