/* Opening weights: one safetensors file; an index (..index.json) with the shards that it names; a
   directory with an index, with model.safetensors, or with one safetensors file. Names of shards
   are plain file names beside the index. Must not: follow names out of that directory. */
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "weights.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHARDS = 4096 };
static const char index_name[] = "model.safetensors.index.json";

static bool ends_with(const char *s, const char *end) {
  size_t n = strlen(s), k = strlen(end);
  return n >= k && !strcmp(s + n - k, end);
}

static bool add_path(WeightFiles *w, const char *folder, const char *name) {
  char path[RT_PATH];
  if (folder) rt_join(path, folder, name);
  else snprintf(path, sizeof path, "%s", name);
  for (int i = 0; i < w->n; i++)
    if (!strcmp(w->path[i], path)) return true;
  if (w->n == MOST_SHARDS) return false;
  if (!(w->n & (w->n - 1))) { /* grows at powers of two */
    char(*more)[RT_PATH] = rt_alloc(sizeof *more * (size_t)(w->n ? 2 * w->n : 1));
    if (w->n) memcpy(more, w->path, sizeof *more * (size_t)w->n);
    free(w->path), w->path = more;
  }
  snprintf(w->path[w->n++], RT_PATH, "%s", path);
  return true;
}

/* {"metadata": .., "weight_map": {"name": "file", ..}} */
static void read_map(Json *j, WeightFiles *w, const char *folder) {
  char key[1024], file[RT_NAME];
  if (!rt_json_object(j)) return;
  while (rt_json_member(j, key, sizeof key)) {
    if (!rt_json_string(j, file, sizeof file)) return;
    if (!*file || strchr(file, '/')) rt_json_fail(j, "a shard whose name is no plain file name");
    else if (!add_path(w, folder, file)) rt_json_fail(j, "too many shards");
  }
}

bool rt_index_read(Bytes b, const char *folder, WeightFiles *w, Fault *f) {
  char key[64];
  Json j = rt_json(b.at, b.n);
  if (rt_json_object(&j))
    while (rt_json_member(&j, key, sizeof key)) {
      if (!strcmp(key, "weight_map")) read_map(&j, w, folder);
      else rt_json_skip(&j);
    }
  bool ok = rt_json_done(&j);
  if (ok && w->n) return true;
  rt_fault(f, 302, "not an index of weights: %s", ok ? "no weight_map" : j.error);
  return rt_at(f, "", "byte", j.p - j.begin);
}

static bool read_index(const char *path, WeightFiles *w, Fault *f) {
  Bytes b;
  char folder[RT_PATH];
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  if (slash) *slash = 0;
  if (!rt_map_file(path, 301, &b, f)) return false;
  bool ok = rt_index_read(b, slash ? folder : ".", w, f);
  rt_unmap_file(&b);
  return ok || rt_at(f, path, "", -1);
}

static bool only_file(const char *folder, char path[RT_PATH], Fault *f) {
  DIR *d = opendir(folder);
  int n = 0;
  for (struct dirent *e; d && (e = readdir(d));)
    if (ends_with(e->d_name, ".safetensors") && n++ == 0) rt_join(path, folder, e->d_name);
  if (d) closedir(d);
  if (n == 1) return true;
  rt_fault(f, 301, n ? "%d safetensors files and no index" : "no safetensors file here", n);
  if (n) rt_help(f, "name one of them, or write %s", index_name);
  return rt_at(f, folder, "", -1);
}

static bool find_files(const char *path, WeightFiles *w, Fault *f) {
  char inside[RT_PATH];
  if (ends_with(path, ".index.json")) return read_index(path, w, f);
  if (!rt_is_folder(path)) return add_path(w, NULL, path);
  rt_join(inside, path, index_name);
  if (rt_exists(inside)) return read_index(inside, w, f);
  rt_join(inside, path, "model.safetensors");
  return (rt_exists(inside) || only_file(path, inside, f)) && add_path(w, NULL, inside);
}

/* No tensor stands in two files. */
static bool check_twice(const WeightFiles *w, Fault *f) {
  for (int a = 0; a < w->n; a++)
    for (int b = a + 1; b < w->n; b++)
      for (int i = 0; i < w->file[a].ntensors; i++) {
        const char *name = w->file[a].tensor[i].name;
        if (!rt_safe_find(&w->file[b], name)) continue;
        rt_fault(f, 302, "%s stands in two files", name);
        return rt_at(f, w->path[b], "", -1);
      }
  return true;
}

bool rt_weights_open(const char *path, WeightFiles *w, Fault *f) {
  *w = (WeightFiles){0};
  if (!find_files(path, w, f)) return false;
  w->bytes = rt_alloc(sizeof *w->bytes * (size_t)w->n);
  w->file = rt_alloc(sizeof *w->file * (size_t)w->n);
  for (int i = 0; i < w->n; i++) {
    if (!rt_map_file(w->path[i], 301, &w->bytes[i], f)) return false;
    if (!rt_safe_read(w->bytes[i], &w->file[i], f)) return rt_at(f, w->path[i], "", -1);
  }
  return check_twice(w, f);
}

void rt_weights_close(WeightFiles *w) {
  for (int i = 0; w->file && i < w->n; i++) rt_safe_free(&w->file[i]), rt_unmap_file(&w->bytes[i]);
  free(w->path), free(w->bytes), free(w->file);
  *w = (WeightFiles){0};
}

const SafeTensor *rt_weights_find(const WeightFiles *w, const char *name, int *file) {
  for (int i = 0; i < w->n; i++) {
    const SafeTensor *s = rt_safe_find(&w->file[i], name);
    if (s) return *file = i, s;
  }
  return NULL;
}
