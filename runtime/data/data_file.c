/* Data files by name: a plain file, or Megatron's pair, named by either of its files or by what
   their names have in common; and patterns, as files in name order. Must not: look at the numbers.
 */
#include "data_file.h"
#include "runtime/base/file.h"
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The path with another end in place of .bin or .idx; "" if it is too long. */
static void sibling(char out[RT_PATH], const char *path, const char *end) {
  size_t n = strlen(path);
  if (rt_text_ends(path, ".bin") || rt_text_ends(path, ".idx")) n -= 4;
  if (snprintf(out, RT_PATH, "%.*s%s", (int)n, path, end) >= RT_PATH) *out = 0;
}

static bool is_index(const char *path) {
  Bytes b;
  Fault f;
  if (!rt_exists(path) || !rt_map_file(path, 201, &b, &f)) return false;
  bool is = rt_megatron_is(b);
  rt_unmap_file(&b);
  return is;
}

/* Is it half of a pair? Then out is the name of its index. */
static bool is_pair(const char *path, const char *format, char out[RT_PATH]) {
  bool insists = format && !strcmp(format, "megatron");
  if (format && !insists) return false;
  sibling(out, path, ".idx");
  if (insists) return rt_exists(out);
  bool half = rt_text_ends(path, ".bin") || rt_text_ends(path, ".idx") || !rt_exists(path);
  return half && is_index(out);
}

static bool open_pair(const char *index, DataFile *file, Fault *f) {
  char tokens[RT_PATH];
  sibling(tokens, index, ".bin");
  if (!rt_map_file(index, 201, &file->index, f) || !rt_map_file(tokens, 201, &file->file, f))
    return false;
  free((char *)file->path);
  file->path = rt_copy_text(tokens, strlen(tokens));
  return rt_megatron_open(file->index, file->file, &file->array, f) || rt_at(f, index, "", -1);
}

bool rt_part_open(const char *path, const char *format, DataFile *file, Fault *f) {
  char index[RT_PATH];
  *file = (DataFile){.path = rt_copy_text(path, strlen(path))};
  if (is_pair(path, format, index)) return open_pair(index, file, f);
  if (!rt_map_file(path, 201, &file->file, f)) return false;
  if (file->file.n == 0) {
    rt_fault(f, 203, "the file is empty");
    return rt_at(f, path, "", -1);
  }
  return rt_array_open(file->file, path, format, &file->array, f) || rt_at(f, path, "", -1);
}

void rt_part_close(DataFile *file) {
  rt_unmap_file(&file->file), rt_unmap_file(&file->index);
  free((char *)file->path), free(file->document);
  *file = (DataFile){0};
}

/* An index that a pattern found along with its tokens adds nothing. */
static bool found_twice(const glob_t *g, size_t i) {
  char tokens[RT_PATH];
  if (g->gl_pathc < 2 || !rt_text_ends(g->gl_pathv[i], ".idx") || !is_index(g->gl_pathv[i]))
    return false;
  sibling(tokens, g->gl_pathv[i], ".bin");
  return rt_exists(tokens);
}

bool rt_parts_open(const char *pattern, const char *format, DataFile **parts, int *n, Fault *f) {
  glob_t g;
  *n = 0;
  if (glob(pattern, GLOB_NOCHECK, NULL, &g))
    return rt_fault(f, 201, "cannot look for `%s`", pattern);
  *parts = rt_alloc(sizeof **parts * g.gl_pathc);
  bool ok = true;
  for (size_t i = 0; ok && i < g.gl_pathc; i++)
    if (!found_twice(&g, i)) ok = rt_part_open(g.gl_pathv[i], format, *parts + (*n)++, f);
  globfree(&g);
  return ok;
}
