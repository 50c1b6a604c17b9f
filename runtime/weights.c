/* Parameters from a safetensors file by name, and the guard that looks for numbers which are not
 * finite. */
#include "checkpoint.h"
#include "file.h"
#include "safetensors.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool shape_is(const SafeTensor *s, const int64_t *size, int rank) {
  if (s->rank != rank) return false;
  for (int i = 0; i < rank; i++)
    if (s->size[i] != size[i]) return false;
  return true;
}

static void shape_text(char *out, size_t n, const int64_t *size, int rank) {
  size_t k = (size_t)snprintf(out, n, "[");
  for (int i = 0; i < rank && k < n; i++)
    k += (size_t)snprintf(out + k, n - k, "%s%lld", i ? ", " : "", (long long)size[i]);
  if (k < n) snprintf(out + k, n - k, "]");
}

static bool check(const SafeTensor *s, const rt_tensor *t, const int64_t *size, int rank,
                  Fault *f) {
  char have[200], want[200];
  if (s->elem >= 0 && shape_is(s, size, rank)) return true;
  shape_text(have, sizeof have, s->size, s->rank), shape_text(want, sizeof want, size, rank);
  if (s->elem < 0)
    return rt_fault(f, 303, "%s is of a type that cannot be read as %s", s->name,
                    rt_elem_name(t->elem));
  return rt_fault(f, 303, "%s is %s in the file, %s in the model", s->name, have, want);
}

/* Round i of a stacked parameter: the star of its path becomes i. */
static bool load_round(const SafeFile *w, const Device *d, const rt_tensor *t, int64_t i, bool fill,
                       Fault *f) {
  char name[RT_NAME];
  const char *star = strchr(t->name, '*');
  snprintf(name, sizeof name, "%.*s%lld%s", (int)(star - t->name), t->name, (long long)i, star + 1);
  const SafeTensor *s = rt_safe_find(w, name);
  if (!s) return rt_fault(f, 303, "the file holds neither %s nor %s", t->name, name);
  if (!check(s, t, t->size + 1, t->rank - 1, f)) return false;
  rt_tensor slice = *t;
  int64_t zero[RT_MAX_RANK] = {0};
  slice.rank--;
  memmove(slice.size, t->size + 1, sizeof *t->size * (RT_MAX_RANK - 1));
  char *to = (char *)rt_tensor_data(d, t) + i * rt_tensor_count(&slice) * rt_elem_bytes(t->elem);
  if (fill) rt_copy_box(s->elem, s->data, s->size, &slice, to, zero);
  return true;
}

static bool load_one(const SafeFile *w, const Device *d, const rt_tensor *t, bool fill, Fault *f) {
  const SafeTensor *s = rt_safe_find(w, t->name);
  int64_t zero[RT_MAX_RANK] = {0};
  if (s) {
    if (!check(s, t, t->size, t->rank, f)) return false;
    if (fill) rt_copy_box(s->elem, s->data, s->size, t, rt_tensor_data(d, t), zero);
    return true;
  }
  if (!strchr(t->name, '*') || !t->rank)
    return rt_fault(f, 303, "the file holds no tensor %s", t->name);
  for (int64_t i = 0; i < t->size[0]; i++)
    if (!load_round(w, d, t, i, fill, f)) return false;
  return true;
}

bool rt_weights_load(const char *path, const Device *d, Fault *f) {
  Bytes b;
  SafeFile w;
  if (!rt_map_file(path, 301, &b, f)) return false;
  bool ok = rt_safe_read(b, &w, f);
  for (int fill = 0; ok && fill < 2; fill++)
    for (int i = 0; ok && i < d->program->ntensors; i++)
      if (d->program->tensors[i].kind == RT_PARAM)
        ok = load_one(&w, d, &d->program->tensors[i], fill, f);
  rt_safe_free(&w), rt_unmap_file(&b);
  return ok || rt_at(f, path, "", -1);
}

/* ---- numbers that are not finite ---- */

static int64_t bad_in(const Device *d, const rt_tensor *t) {
  const void *data = rt_tensor_data(d, t);
  int64_t n = rt_tensor_count(t), bad = 0;
  if (t->elem == RT_F32)
    for (int64_t i = 0; i < n; i++) bad += !isfinite(((const float *)data)[i]);
  else if (t->elem == RT_BF16 || t->elem == RT_F16 || t->elem == RT_F64)
    for (int64_t i = 0; i < n; i++) bad += !isfinite(rt_elem_get(t->elem, data, i));
  return bad;
}

/* Adds a name to a list; one that is full ends in "..". */
static void append(char *text, size_t n, const char *name, int64_t bad) {
  char piece[RT_NAME + 32];
  size_t k = strlen(text);
  if (k > 2 && text[k - 1] == '.') return;
  if (bad) snprintf(piece, sizeof piece, "%s%s (%lld)", k ? ", " : "", name, (long long)bad);
  else snprintf(piece, sizeof piece, "%s%s", k ? ", " : "", name);
  bool fits = k + strlen(piece) + 6 < n;
  snprintf(text + k, n - k, "%s", fits ? piece : k ? ", .." : "..");
}

int rt_check_finite(const Device *d, unsigned kinds, char *names, size_t nnames, char *clean,
                    size_t nclean) {
  int faulty = 0;
  names[0] = clean[0] = 0;
  for (int i = 0; i < d->program->ntensors; i++) {
    const rt_tensor *t = &d->program->tensors[i];
    if (!(kinds >> t->kind & 1)) continue;
    int64_t bad = bad_in(d, t);
    faulty += bad > 0;
    append(bad ? names : clean, bad ? nnames : nclean, t->name, bad);
  }
  return faulty;
}
