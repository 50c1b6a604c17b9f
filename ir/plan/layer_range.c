/* Names and dims of parts of stacks (layer_range.h). Must not: cut anything, that is pass `ranges`.
 */
#include "layer_range.h"
#include "ir/word_patterns.h"
#include <stdlib.h>
#include <string.h>

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool layer_part(const char *name, LayerPart *part) {
  for (const char *c = strchr(name, '.'); c; c = strchr(c + 1, '.')) {
    char *end;
    if (!is_digit(c[1])) continue;
    part->first = strtoll(c + 1, &end, 10);
    if (*end != '_' || !is_digit(end[1])) continue;
    part->last = strtoll(end + 1, &end, 10);
    part->at = (size_t)(c - name), part->n = (size_t)(end - c);
    return !*end || *end == '.';
  }
  return false;
}

const char *layer_star(const char *name) { return strstr(name, ".*"); }

Str layer_whole(const Module *m, Str name) {
  LayerPart part;
  if (!layer_part(name, &part)) return name;
  return intern_printf(m->ctx->names, "%.*s%s", (int)part.at, name, name + part.at + part.n);
}

bool layer_is_rest(const char *name) {
  LayerPart part;
  return layer_part(name, &part) && part.first;
}

Str layer_named(const Module *m, Str name, int64_t first, int64_t last) {
  const char *star = layer_star(name);
  must(star, "@%s is of no stack", name);
  return intern_printf(m->ctx->names, "%.*s.%lld_%lld%s", (int)(star - name), name,
                       (long long)first, (long long)last, star);
}

Str layer_range(const Module *m, Str path, int64_t first, int64_t count) {
  LayerPart part;
  if (layer_part(path, &part)) first += part.first;
  return intern_printf(m->ctx->names, "%s[%lld..%lld]", layer_whole(m, path), (long long)first,
                       (long long)(first + count - 1));
}

const Dim *dim_find(const Module *m, Str name) {
  for (uint32_t i = 0; i < m->dims.n; i++)
    if (m->dims.at[i].name == name) return &m->dims.at[i];
  return NULL;
}

const Dim *layer_dim(const Module *m, const Global *global) {
  bool held = global->kind == GLOBAL_PARAM || global->kind == GLOBAL_STATE;
  const Dim *dim = held && global->type.rank ? dim_find(m, global->type.axis[0].dim) : NULL;
  LayerPart part;
  return dim && dim->part && layer_part(global->name, &part) ? dim : NULL;
}

bool layer_path(const char *path, size_t n, LayerPath *read) {
  for (size_t i = 0; i + 1 < n && path[i] != '*'; i++) { /* then the kinds of layers follow */
    bool range = path[i] == '[';
    char *end;
    if ((path[i] != '.' && !range) || !is_digit(path[i + 1])) continue;
    read->stack = i;
    read->first = read->last = strtoll(path + i + 1, &end, 10);
    if (range && !strncmp(end, "..", 2)) read->last = strtoll(end + 2, &end, 10);
    read->rest = end + range, read->nrest = n - (size_t)(read->rest - path);
    return !range || *end == ']';
  }
  return false;
}

Str layer_path_whole(Interner *names, const char *path) {
  LayerPath layers;
  if (!layer_path(path, strlen(path), &layers)) return intern(names, path);
  return intern_printf(names, "%.*s.*%s", (int)layers.stack, path, layers.rest);
}

/* Does `name` begin with these n letters, up to the end of a word? */
static bool begins(const char *name, const char *with, size_t n) {
  return !strncmp(name, with, n) && (!name[n] || name[n] == '.');
}

bool layer_path_names(const char *path, size_t n, const char *name) {
  LayerPath layers;
  LayerPart part = {.last = -1};
  bool is_part = layer_part(name, &part);
  if (!is_part) part.at = part.n = 0;
  if (!layer_path(path, n, &layers)) {
    const char *behind = name + part.at + part.n;
    if (n < part.at || !is_part) return begins(name, path, n);
    return !strncmp(name, path, part.at) && begins(behind, path + part.at, n - part.at);
  }
  const char *star = is_part ? name + part.at + part.n : name + layers.stack;
  if ((is_part && layers.stack != part.at) || strncmp(path, name, layers.stack)) return false;
  if (strncmp(star, ".*", 2) || !begins(star + 2, layers.rest, layers.nrest)) return false;
  return !is_part || (layers.first <= part.first && part.last <= layers.last);
}
