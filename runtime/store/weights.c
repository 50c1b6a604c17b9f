/* --init: parameters from weights files.

   The files follow either the compiled map or the parameters' own paths; this is decided for all
   files together: the map under which more parameters are found is used. Everything is looked up
   and compared before the first number is copied, so a refused file changes nothing. Messages name
   both sides: the file's tensor and the model's parameter. */
#include "weights.h"
#include "checkpoint.h"
#include "runtime/base/file.h"
#include "runtime/device/shard_piece.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Loader {
  const Device *own; /* what this rank holds */
  const Device *d;   /* as if one rank had all: tensors of logical size */
  const WeightFiles *w;
  Map map;
  int64_t found, missing;
  bool fresh; /* the files are of a base model: adapters keep their first values */
} Loader;

/* With its prefix or without. */
static const SafeTensor *find(const Loader *loader, const rt_tensor *t, int choice, int64_t round,
                              int *file) {
  char name[RT_NAME];
  const SafeTensor *tensor = NULL;
  if (rt_map_name(&loader->map, t, round, choice, false, name))
    tensor = rt_weights_find(loader->w, name, file);
  if (!tensor && *loader->map.prefix && rt_map_name(&loader->map, t, round, choice, true, name))
    tensor = rt_weights_find(loader->w, name, file);
  return tensor;
}

/* The first choice of names that the files have; the first of all if they have none. */
static int choice_of(const Loader *loader, const rt_tensor *tensor, bool *found) {
  int file;
  for (int choice = 0; rt_rounds(&loader->map, tensor, choice); choice++)
    if (find(loader, tensor, choice, 0, &file)) return *found = true, choice;
  return *found = false, 0;
}

static void shape_text(char *out, size_t n, const int64_t *size, int rank) {
  size_t k = (size_t)snprintf(out, n, "[");
  for (int i = 0; i < rank && k < n; i++)
    k += (size_t)snprintf(out + k, n - k, "%s%lld", i ? ", " : "", (long long)size[i]);
  if (k < n) snprintf(out + k, n - k, "]");
}

/* Bytes of a file are weights that somebody has packed: no numbers of the model. */
static bool readable(const SafeTensor *tensor, const Slice *to) {
  return tensor->elem >= 0 && (tensor->elem == RT_U8) == (to->elem == RT_U8);
}

static bool check(const Loader *loader, const SafeTensor *tensor, const rt_tensor *t,
                  const Slice *to, int file, Fault *f) {
  char have[200], want[200];
  if (readable(tensor, to) && rt_slice_fits(to, tensor->size, tensor->rank)) return true;
  shape_text(have, sizeof have, tensor->size, tensor->rank);
  shape_text(want, sizeof want, to->size, to->rank);
  if (!readable(tensor, to))
    rt_fault(f, 303, "%s is of a type that cannot be read into %s, which is %s", tensor->name,
             t->name, rt_elem_name(to->elem));
  else
    rt_fault(f, 303, "%s is %s in the file; the model's %s is %s", tensor->name, have, t->name,
             want);
  rt_help(f, "compile with the sizes of the file (-D DIM=N); `as` in the weights block turns dims");
  return rt_at(f, loader->w->path[file], "", -1);
}

static bool take(const Loader *loader, const SafeTensor *tensor, const rt_tensor *t,
                 const Slice *to, int file, bool fill, Fault *f) {
  if (!check(loader, tensor, t, to, file, f)) return false;
  if (fill) rt_slice_read(to, tensor->elem, tensor->data);
  return true;
}

/* The first of the missing ones is told. */
static bool lacks(Loader *loader, const rt_tensor *tensor, int choice, int64_t round, Fault *f) {
  char name[RT_NAME] = "";
  if (loader->missing++) return false;
  rt_map_name(&loader->map, tensor, round, choice, false, name);
  rt_fault(f, 303, "the file holds no tensor %s", name);
  if (strcmp(name, tensor->name))
    rt_fault(f, 303, "the file holds no tensor %s for the model's %s", name, tensor->name);
  return false;
}

static bool read_tensor(Loader *loader, const rt_tensor *t, bool fill, Fault *f) {
  int file = 0;
  const SafeTensor *tensor = loader->map.plain ? rt_weights_find(loader->w, t->name, &file) : NULL;
  if (tensor) {
    Slice whole = rt_slice_whole(loader->d, t);
    return take(loader, tensor, t, &whole, file, fill, f);
  }
  bool found;
  int choice = choice_of(loader, t, &found);
  for (int64_t i = 0; i < rt_rounds(&loader->map, t, choice); i++) {
    Slice to = rt_slice(&loader->map, loader->d, t, choice, i);
    if (!(tensor = find(loader, t, choice, i, &file))) return lacks(loader, t, choice, i, f);
    if (!take(loader, tensor, t, &to, file, fill, f)) return false;
  }
  return true;
}

/* A tensor of which ranks hold parts, or more than is in files, or that has no view, is read whole,
   one at a time. Looking up touches nothing of the device: there is no tensor of that size. */
static bool load_tensor(Loader *loader, int i, bool fill, Fault *f) {
  const rt_tensor *tensor = &loader->d->program->tensors[i],
                  *part = &loader->own->program->tensors[i];
  if (fill && !rt_is_placed(part) && rt_is_viewed(loader->own, part))
    return read_tensor(loader, tensor, fill, f);
  const Device *d = loader->d;
  void *data = fill ? rt_alloc((size_t)tensor->bytes) : NULL;
  Device view = rt_device_with(d, d->program, tensor, data);
  loader->d = &view;
  bool ok = read_tensor(loader, tensor, fill, f);
  loader->d = d;
  if (ok && fill) rt_tensor_keep(loader->own, part, (int)tensor->elem, data);
  free(data);
  return ok;
}

static void count_found(Loader *loader) {
  int file;
  const rt_program *program = loader->d->program;
  loader->fresh = true;
  for (int i = 0; i < program->ntensors; i++) {
    const rt_tensor *tensor = &program->tensors[i];
    if (tensor->kind != RT_PARAM) continue;
    bool found;
    choice_of(loader, tensor, &found);
    found = found || (loader->map.plain && rt_weights_find(loader->w, tensor->name, &file));
    loader->found += found;
    if (found && rt_map_adapter(program, tensor)) loader->fresh = false;
  }
}

static Loader choose_map(const Device *d, const WeightFiles *files) {
  Loader both[2] = {{.d = d, .w = files, .map = rt_map(d->program, false)},
                    {.d = d, .w = files, .map = rt_map(d->program, true)}};
  for (int i = 0; i < 2; i++) count_found(&both[i]);
  return both[!rt_map_there(d->program) || both[1].found > both[0].found];
}

/* ---- tensors that no parameter takes ---- */

static bool named(const Loader *loader, const char *name) {
  const rt_program *program = loader->d->program;
  for (int i = 0; i < program->ntensors; i++)
    if (program->tensors[i].kind == RT_PARAM &&
        rt_map_takes(&loader->map, &program->tensors[i], name))
      return true;
  return false;
}

/* Plain files may be checkpoints and dumps, which hold more than parameters. */
static bool is_extra(const Loader *loader, const char *name) {
  if (loader->map.plain) return rt_lacks_adapter(loader->d->program, name);
  return !rt_map_ignores(&loader->map, name) && !named(loader, name);
}

static bool check_extra(const Loader *loader, Fault *f) {
  for (int k = 0; k < loader->w->n; k++)
    for (int i = 0; i < loader->w->file[k].ntensors; i++) {
      const char *name = loader->w->file[k].tensor[i].name;
      if (!is_extra(loader, name)) continue;
      rt_fault(f, 303, "%s is in the file, but the model has no parameter for it", name);
      if (!loader->map.plain)
        rt_help(f, "if it is to be passed over: `ignore \"%s\"` in the weights block", name);
      return rt_at(f, loader->w->path[k], "", -1);
    }
  return true;
}

static bool is_read(const Loader *loader, const rt_tensor *tensor) {
  return tensor->kind == RT_PARAM && !(loader->fresh && rt_map_adapter(loader->d->program, tensor));
}

static bool load(Loader *loader, Fault *f) {
  const rt_program *program = loader->d->program;
  for (int fill = 0; fill < 2; fill++) {
    bool ok = true;
    for (int i = 0; i < program->ntensors; i++)
      if (is_read(loader, &program->tensors[i]) && (ok || loader->missing))
        ok = load_tensor(loader, i, fill, f) && ok;
    if (loader->missing > 1)
      rt_help(f, "%lld parameters of the model are not in the file", (long long)loader->missing);
    if (!ok || (!fill && !check_extra(loader, f))) return false;
  }
  return true;
}

/* A rank's file, or that of frozen parameters, named alone. */
static bool help_file_of_checkpoint(const char *path, Fault *f) {
  char folder[RT_PATH];
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  if (slash) *slash = 0;
  const char *holder = slash ? folder : ".";
  if (!rt_is_folder(path) && rt_is_checkpoint(holder))
    rt_help(f, "it is one file of a checkpoint: --init %s reads all of them", holder);
  return false;
}

bool rt_weights_load(const char *path, const Device *d, Fault *f) {
  WeightFiles files = {0};
  bool ok = rt_weights_same_model(path, d->program, f) && rt_weights_open(path, &files, f);
  if (ok) {
    Device view = *d;
    view.program = rt_whole_program(d->program);
    Loader loader = choose_map(&view, &files);
    loader.own = d;
    ok = load(&loader, f) || help_file_of_checkpoint(path, f);
    rt_whole_free(view.program, d->program);
  }
  rt_weights_close(&files);
  return ok || rt_at(f, path, "", -1);
}
