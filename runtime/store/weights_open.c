/* Opening weights: one safetensors file; an index (..index.json) with the shards that it names; a
   directory with an index, with model.safetensors, or with one safetensors file. Names of shards
   are plain file names in the folder of the index. Must not: follow names out of that directory. */
#include "runtime/base/file.h"
#include "runtime/base/json.h"
#include "weights.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHARDS = 4096 };
static const char index_name[] = "model.safetensors.index.json";

static bool add_path(WeightFiles *files, const char *folder, const char *name) {
  char path[RT_PATH];
  if (folder) rt_join(path, folder, name);
  else snprintf(path, sizeof path, "%s", name);
  for (int i = 0; i < files->n; i++)
    if (!strcmp(files->path[i], path)) return true;
  if (files->n == MOST_SHARDS) return false;
  if (!(files->n & (files->n - 1))) { /* grows at powers of two */
    char(*more)[RT_PATH] = rt_alloc(sizeof *more * (size_t)(files->n ? 2 * files->n : 1));
    if (files->n) memcpy(more, files->path, sizeof *more * (size_t)files->n);
    free(files->path), files->path = more;
  }
  snprintf(files->path[files->n++], RT_PATH, "%s", path);
  return true;
}

/* {"metadata": .., "weight_map": {"name": "file", ..}} */
static void read_map(Json *json, WeightFiles *files, const char *folder) {
  char key[1024], file[RT_NAME];
  if (!rt_json_object(json)) return;
  while (rt_json_member(json, key, sizeof key)) {
    if (!rt_json_string(json, file, sizeof file)) return;
    if (!*file || strchr(file, '/')) rt_json_fail(json, "a shard whose name is no plain file name");
    else if (!add_path(files, folder, file)) rt_json_fail(json, "too many shards");
  }
}

bool rt_index_read(Bytes bytes, const char *folder, WeightFiles *files, Fault *f) {
  char key[64];
  Json json = rt_json(bytes.at, bytes.n);
  if (rt_json_object(&json))
    while (rt_json_member(&json, key, sizeof key)) {
      if (!strcmp(key, "weight_map")) read_map(&json, files, folder);
      else rt_json_skip(&json);
    }
  bool ok = rt_json_done(&json);
  if (ok && files->n) return true;
  rt_fault(f, 302, "not an index of weights: %s", ok ? "no weight_map" : json.error);
  return rt_at(f, "", "byte", json.p - json.begin);
}

static bool read_index(const char *path, WeightFiles *files, Fault *f) {
  Bytes bytes;
  char folder[RT_PATH];
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  if (slash) *slash = 0;
  if (!rt_map_file(path, 301, &bytes, f)) return false;
  bool ok = rt_index_read(bytes, slash ? folder : ".", files, f);
  rt_unmap_file(&bytes);
  return ok || rt_at(f, path, "", -1);
}

static bool only_file(const char *folder, char path[RT_PATH], Fault *f) {
  DIR *d = opendir(folder);
  int n = 0;
  for (struct dirent *e; d && (e = readdir(d));)
    if (rt_text_ends(e->d_name, ".safetensors") && n++ == 0) rt_join(path, folder, e->d_name);
  if (d) closedir(d);
  if (n == 1) return true;
  rt_fault(f, 301,
           n ? "%d safetensors files and no index"
             : "the folder has no safetensors "
               "file",
           n);
  if (n) rt_help(f, "name one of them, or write %s", index_name);
  return rt_at(f, folder, "", -1);
}

bool rt_holds_weights(const char *folder) {
  char index[RT_PATH], file[RT_PATH];
  rt_join(index, folder, index_name), rt_join(file, folder, "model.safetensors");
  return rt_exists(index) || rt_exists(file);
}

static bool find_files(const char *path, WeightFiles *files, Fault *f) {
  char inside[RT_PATH];
  if (rt_text_ends(path, ".index.json")) return read_index(path, files, f);
  if (!rt_is_folder(path)) return add_path(files, NULL, path);
  rt_join(inside, path, index_name);
  if (rt_exists(inside)) return read_index(inside, files, f);
  rt_join(inside, path, "model.safetensors");
  return (rt_exists(inside) || only_file(path, inside, f)) && add_path(files, NULL, inside);
}

/* Checks that no tensor occurs in two files. */
static bool check_twice(const WeightFiles *files, Fault *f) {
  for (int a = 0; a < files->n; a++)
    for (int b = a + 1; b < files->n; b++)
      for (int i = 0; i < files->file[a].ntensors; i++) {
        const char *name = files->file[a].tensor[i].name;
        if (!rt_safe_find(&files->file[b], name)) continue;
        rt_fault(f, 302, "%s occurs in two files", name);
        return rt_at(f, files->path[b], "", -1);
      }
  return true;
}

bool rt_weights_open(const char *path, WeightFiles *files, Fault *f) {
  *files = (WeightFiles){0};
  if (!find_files(path, files, f)) return false;
  files->bytes = rt_alloc(sizeof *files->bytes * (size_t)files->n);
  files->file = rt_alloc(sizeof *files->file * (size_t)files->n);
  for (int i = 0; i < files->n; i++) {
    if (!rt_map_file(files->path[i], 301, &files->bytes[i], f)) return false;
    if (!rt_safe_read(files->bytes[i], &files->file[i], f)) return rt_at(f, files->path[i], "", -1);
  }
  return check_twice(files, f);
}

void rt_weights_close(WeightFiles *files) {
  for (int i = 0; files->file && i < files->n; i++)
    rt_safe_free(&files->file[i]), rt_unmap_file(&files->bytes[i]);
  free(files->path), free(files->bytes), free(files->file);
  *files = (WeightFiles){0};
}

const SafeTensor *rt_weights_find(const WeightFiles *files, const char *name, int *file) {
  for (int i = 0; i < files->n; i++) {
    const SafeTensor *s = rt_safe_find(&files->file[i], name);
    if (s) return *file = i, s;
  }
  return NULL;
}
