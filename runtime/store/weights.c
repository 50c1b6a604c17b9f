/* --init: parameters from weights files.

   Whether the files follow the map that was compiled in or the parameters' own paths is decided for
   them as a whole: the map under which more parameters are found. Everything is looked up and
   compared before the first number is copied, so a refused file changes nothing. Messages name both
   sides: the file's tensor and the model's parameter. */
#include "weights.h"
#include "checkpoint.h"
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
} Loader;

/* With its prefix or without. */
static const SafeTensor *find(const Loader *l, const rt_tensor *t, int64_t round, int *file) {
  char name[RT_NAME];
  const SafeTensor *s = NULL;
  for (int choice = 0; !s && rt_map_name(&l->map, t, round, choice, false, name); choice++) {
    s = rt_weights_find(l->w, name, file);
    if (!s && *l->map.prefix && rt_map_name(&l->map, t, round, choice, true, name))
      s = rt_weights_find(l->w, name, file);
  }
  return s;
}

static void shape_text(char *out, size_t n, const int64_t *size, int rank) {
  size_t k = (size_t)snprintf(out, n, "[");
  for (int i = 0; i < rank && k < n; i++)
    k += (size_t)snprintf(out + k, n - k, "%s%lld", i ? ", " : "", (long long)size[i]);
  if (k < n) snprintf(out + k, n - k, "]");
}

/* Bytes of a file are weights that somebody has packed: no numbers of the model. */
static bool readable(const SafeTensor *s, const Slice *to) {
  return s->elem >= 0 && (s->elem == RT_U8) == (to->elem == RT_U8);
}

static bool check(const Loader *l, const SafeTensor *s, const rt_tensor *t, const Slice *to,
                  int file, Fault *f) {
  char have[200], want[200];
  if (readable(s, to) && rt_slice_fits(to, s->size, s->rank)) return true;
  shape_text(have, sizeof have, s->size, s->rank);
  shape_text(want, sizeof want, to->size, to->rank);
  if (!readable(s, to))
    rt_fault(f, 303, "%s is of a type that cannot be read into %s, which is %s", s->name, t->name,
             rt_elem_name(to->elem));
  else rt_fault(f, 303, "%s is %s in the file; the model's %s is %s", s->name, have, t->name, want);
  rt_help(f, "compile with the sizes of the file (-D DIM=N); `as` in the weights block turns dims");
  return rt_at(f, l->w->path[file], "", -1);
}

static bool take(const Loader *l, const SafeTensor *s, const rt_tensor *t, const Slice *to,
                 int file, bool fill, Fault *f) {
  if (!check(l, s, t, to, file, f)) return false;
  if (fill) rt_slice_read(to, s->elem, s->data);
  return true;
}

/* The first of the missing ones is told. */
static bool lacks(Loader *l, const rt_tensor *t, int64_t round, Fault *f) {
  char name[RT_NAME] = "";
  if (l->missing++) return false;
  rt_map_name(&l->map, t, round, 0, false, name);
  rt_fault(f, 303, "the file holds no tensor %s", name);
  if (strcmp(name, t->name))
    rt_fault(f, 303, "the file holds no tensor %s for the model's %s", name, t->name);
  return false;
}

static bool read_tensor(Loader *l, const rt_tensor *t, bool fill, Fault *f) {
  int file = 0;
  const SafeTensor *s = l->map.plain ? rt_weights_find(l->w, t->name, &file) : NULL;
  if (s) {
    Slice whole = rt_slice_whole(l->d, t);
    return take(l, s, t, &whole, file, fill, f);
  }
  for (int64_t i = 0; i < rt_rounds(t); i++) {
    Slice to = rt_slice(&l->map, l->d, t, i);
    if (!(s = find(l, t, i, &file))) return lacks(l, t, i, f);
    if (!take(l, s, t, &to, file, fill, f)) return false;
  }
  return true;
}

/* A tensor of which ranks hold parts, or more than is in files, or that has no view, is read whole,
   one at a time. Looking up touches nothing of the device: there is no tensor of that size. */
static bool load_tensor(Loader *l, int i, bool fill, Fault *f) {
  const rt_tensor *t = &l->d->program->tensors[i], *part = &l->own->program->tensors[i];
  if (fill && !rt_is_placed(part) && rt_is_viewed(l->own, part)) return read_tensor(l, t, fill, f);
  const Device *d = l->d;
  void *data = fill ? rt_alloc((size_t)t->bytes) : NULL;
  Device view = rt_device_with(d, d->program, t, data);
  l->d = &view;
  bool ok = read_tensor(l, t, fill, f);
  l->d = d;
  if (ok && fill) rt_tensor_keep(l->own, part, (int)t->elem, data);
  free(data);
  return ok;
}

static void count_found(Loader *l) {
  int file;
  const rt_program *p = l->d->program;
  for (int i = 0; i < p->ntensors; i++) {
    const rt_tensor *t = &p->tensors[i];
    if (t->kind != RT_PARAM) continue;
    l->found += find(l, t, 0, &file) || (l->map.plain && rt_weights_find(l->w, t->name, &file));
  }
}

static Map choose_map(const Device *d, const WeightFiles *w) {
  Loader both[2] = {{.d = d, .w = w, .map = rt_map(d->program, false)},
                    {.d = d, .w = w, .map = rt_map(d->program, true)}};
  if (!rt_map_there(d->program)) return both[1].map;
  for (int i = 0; i < 2; i++) count_found(&both[i]);
  return both[both[1].found > both[0].found].map;
}

/* ---- tensors that no parameter takes ---- */

static bool named(const Loader *l, const char *name) {
  char own[RT_NAME];
  const rt_program *p = l->d->program;
  for (int i = 0; i < p->ntensors; i++) {
    const rt_tensor *t = &p->tensors[i];
    for (int64_t r = 0; t->kind == RT_PARAM && r < rt_rounds(t); r++)
      for (int choice = 0; rt_map_name(&l->map, t, r, choice, true, own); choice++)
        if (!strcmp(own, name) ||
            (rt_map_name(&l->map, t, r, choice, false, own) && !strcmp(own, name)))
          return true;
  }
  return false;
}

/* Plain files may be checkpoints and dumps, which hold more than parameters. */
static bool check_extra(const Loader *l, Fault *f) {
  for (int k = 0; !l->map.plain && k < l->w->n; k++)
    for (int i = 0; i < l->w->file[k].ntensors; i++) {
      const char *name = l->w->file[k].tensor[i].name;
      if (rt_map_ignores(&l->map, name) || named(l, name)) continue;
      rt_fault(f, 303, "%s is in the file, but the model has no parameter for it", name);
      rt_help(f, "if it is to be passed over: `ignore \"%s\"` in the weights block", name);
      return rt_at(f, l->w->path[k], "", -1);
    }
  return true;
}

static bool load(Loader *l, Fault *f) {
  const rt_program *p = l->d->program;
  for (int fill = 0; fill < 2; fill++) {
    bool ok = true;
    for (int i = 0; i < p->ntensors; i++)
      if (p->tensors[i].kind == RT_PARAM && (ok || l->missing))
        ok = load_tensor(l, i, fill, f) && ok;
    if (l->missing > 1)
      rt_help(f, "%lld parameters of the model are not in the file", (long long)l->missing);
    if (!ok || (!fill && !check_extra(l, f))) return false;
  }
  return true;
}

bool rt_weights_load(const char *path, const Device *d, Fault *f) {
  WeightFiles w;
  bool ok = rt_weights_open(path, &w, f);
  if (ok) {
    Device view = *d;
    view.program = rt_whole_program(d->program);
    Loader l = {.own = d, .d = &view, .w = &w, .map = choose_map(&view, &w)};
    ok = load(&l, f);
    rt_whole_free(view.program, d->program);
  }
  rt_weights_close(&w);
  return ok || rt_at(f, path, "", -1);
}
