/* The data files that `check` finds, as a run from the same folder would find them: opened by the
   runtime's own readers, and the first numbers held against the model. A file that does not exist
   is no mistake yet. Must not: read whole files. */
#include "driver/cmd.h"
#include "frontend/lower.h"
#include "runtime/base/file.h"
#include "runtime/data/data.h"
#include <fnmatch.h>
#include <glob.h>
#include <stdlib.h>

static rt_tensor input_of(const Module *m, const Global *global) {
  rt_tensor tensor = {.name = global->name, .kind = RT_INPUT, .rank = global->type.rank};
  tensor.elem = global->type.elem == ELEM_f32    ? RT_F32
                : global->type.elem == ELEM_bool ? RT_BOOL
                                                 : RT_I32;
  for (int i = 0; i < tensor.rank; i++)
    tensor.dim[i] = global->type.axis[i].dim, tensor.size[i] = global->type.axis[i].size;
  tensor.of = global->of;
  for (uint32_t i = 0; global->of && i < m->dims.n; i++)
    if (m->dims.at[i].name == global->of) tensor.of_size = m->dims.at[i].size;
  return tensor;
}

/* A program of inputs and settings. Ends of documents are left out: they take all tokens. */
static rt_program inputs_of(Ctx *c, const Module *m) {
  rt_tensor *tensors = ARENA_ARRAY(c->arena, rt_tensor, m->globals.n + 1);
  rt_setting *settings = ARENA_ARRAY(c->arena, rt_setting, m->settings.n + 1);
  rt_program program = {.model = m->model, .tensors = tensors, .settings = settings};
  for (uint32_t i = 0; i < m->globals.n; i++)
    tensors[program.ntensors++] = input_of(m, m->globals.at[i]);
  for (uint32_t i = 0; i < m->settings.n; i++)
    if (strcmp(m->settings.at[i].key, "data.pack"))
      settings[program.nsettings++] = (rt_setting){m->settings.at[i].key, m->settings.at[i].value};
  return program;
}

static bool first_numbers(const DataSet *set, Fault *f) {
  enum { MOST = 1 << 16 };
  int32_t *unused = rt_alloc(sizeof *unused * MOST);
  bool ok = true;
  for (int i = 0; ok && i < set->nfeeds; i++) {
    const Feed *feed = &set->feed[i];
    bool taken = feed->input->of && feed->role <= ROLE_LABELS;
    for (int k = 0; ok && taken && k < set->stream[feed->stream].nparts; k++) {
      const DataFile *file = &set->stream[feed->stream].part[k];
      int64_t n = file->array.count < MOST ? file->array.count : MOST;
      ok = rt_copy_index(feed, file, 0, n, unused, f);
    }
  }
  free(unused);
  return ok;
}

static bool holds(const rt_program *program, Fault *f) {
  Data data;
  DataOptions options = {.shuffle = -1};
  bool ok = rt_data_open(&data, program, &options, f) && first_numbers(&data.train, f) &&
            first_numbers(&data.valid, f);
  rt_data_close(&data);
  return ok || f->code == 201 || (f->code == 206 && !rt_exists(f->where));
}

static Span named(const CheckedData *data, const Fault *f) {
  for (uint32_t i = 0; i < data->files.n; i++)
    if (!fnmatch(data->files.at[i].path, f->where, 0)) return data->files.at[i].span;
  return data->line;
}

static bool is_found(const char *pattern) {
  glob_t g;
  bool found = !glob(pattern, 0, NULL, &g);
  if (found) globfree(&g);
  return found;
}

/* N0603: a file that a run from this folder does not find, in the folder of the model file. */
static void note_beside(Cli *o, const CheckedFile *file) {
  const Source *source = diag_source(o->c->diag, file->span.file);
  const char *slash = source ? strrchr(source->name, '/') : NULL;
  if (!slash || *file->path == '/' || is_found(file->path)) return;
  int n = (int)(slash - source->name);
  const char *beside = arena_printf(o->c->arena, "%.*s/%s", n, source->name, file->path);
  if (!is_found(beside)) return;
  Report *r = diag_at(o->c->diag, "N0603", file->span, "a run from this folder does not find `%s`",
                      file->path);
  diag_label(r, "it is in `%.*s`, the folder of the model file", n, source->name);
  diag_fact(r, "paths of data and tokenizers count from the folder in which the executable starts");
  diag_help(r, "start it in `%.*s`, or write `%s`", n, source->name, beside);
  diag_edit(r, file->span, "\"%s\"", beside);
}

/* One data line serves several models and variants. */
static bool is_repeated(const CheckResult *result, uint32_t i) {
  for (uint32_t k = 0; k < i; k++) {
    Span a = result->data.at[k].line, b = result->data.at[i].line;
    if (a.file == b.file && a.offset == b.offset) return true;
  }
  return false;
}

void check_data_files(Cli *o, const CheckResult *result) {
  for (uint32_t i = 0; i < result->data.n; i++) {
    const CheckedData *data = &result->data.at[i];
    for (uint32_t k = 0; k < data->files.n && !is_repeated(result, i); k++)
      note_beside(o, &data->files.at[k]);
    rt_program program = inputs_of(o->c, data->m);
    Fault f = {0};
    if (holds(&program, &f)) continue;
    const char *code = f.code == 202 || f.code == 206 ? "E1401" : "E1404";
    Report *r = diag_at(o->c->diag, code, named(data, &f), "%s", f.what);
    if (*f.where && f.position >= 0)
      diag_fact(r, "%s, %s %lld", f.where, f.unit, (long long)f.position);
    else if (*f.where) diag_fact(r, "%s", f.where);
    if (*f.help) diag_help(r, "%s", f.help);
    return;
  }
}
