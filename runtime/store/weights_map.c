/* Names and orders of parameters in weights files, and the copying between both orders.
   Must not: open files; report anything. */
#include "weights.h"
#include "runtime/base/setting.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Map rt_map(const rt_program *p, bool plain) {
  const char *prefix = plain ? NULL : rt_setting_of(p, "weights.prefix"),
             *ignore = plain ? NULL : rt_setting_of(p, "weights.ignore");
  return (Map){p, plain, prefix ? prefix : "", ignore ? ignore : ""};
}

static const char *setting(const rt_program *p, const char *group, const char *path) {
  char key[RT_NAME + 32];
  snprintf(key, sizeof key, "weights.%s.%s", group, path);
  return rt_setting_of(p, key);
}

bool rt_map_there(const rt_program *p) {
  for (int i = 0; i < p->ntensors; i++)
    if (p->tensors[i].kind == RT_PARAM && setting(p, "file", p->tensors[i].name)) return true;
  return false;
}

const char *rt_map_adapter(const rt_program *program, const rt_tensor *tensor) {
  return tensor->kind == RT_PARAM ? setting(program, "adapter", tensor->name) : NULL;
}

bool rt_lacks_adapter(const rt_program *program, const char *item) {
  char name[RT_NAME];
  size_t n = strcspn(item, ":"); /* NAME, or of a number of pieces NAME:0, NAME:1, .. */
  snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), item);
  return rt_text_ends(name, ".lora_a") && !rt_tensor_find(program, name);
}

bool rt_has_adapters(const rt_program *program) {
  for (int i = 0; i < program->ntensors; i++)
    if (rt_map_adapter(program, &program->tensors[i])) return true;
  return false;
}

static int leads(const rt_tensor *tensor) { /* dims of stacks: one per star */
  int n = 0;
  for (const char *c = tensor->name; *c; c++) n += *c == '*';
  return n < tensor->rank ? n : tensor->rank;
}

/* ---- names ---- */

/* Word number `choice` of a list with blanks between. */
static bool word(const char *list, int choice, const char **begin, size_t *n) {
  for (const char *at = list;; at += *n) {
    at += strspn(at, " ");
    *begin = at, *n = strcspn(at, " ");
    if (!*n) return false;
    if (!choice--) return true;
  }
}

/* The dims of a parameter after those of stacks, in the order of the file: which of them each is.
   joined: to the one before, when written. */
static int file_dims(const Map *map, const rt_tensor *tensor, int from[RT_MAX_RANK],
                     bool joined[RT_MAX_RANK]) {
  int rank = tensor->rank - leads(tensor);
  const char *order = map->plain ? NULL : setting(map->program, "order", tensor->name);
  for (int i = 0; i < rank; i++) {
    long at = i;
    joined[i] = false;
    if (order) {
      char *end;
      size_t blank = strspn(order, " ;");
      joined[i] = i > 0 && !memchr(order, ';', blank);
      at = strtol(order + blank, &end, 10), order = end;
    }
    from[i] = at < 0 || at >= rank ? i : (int)at;
  }
  return rank;
}

/* The pattern of a name: a star, or a list {a,b}, is the index along one dim: those of the stacks,
   then the first ones in the order of the file. */
typedef struct FileNames {
  const char *at;
  size_t n;
  int stars, further;        /* all of them; those after the stacks' */
  int64_t size[RT_MAX_RANK]; /* of each star */
} FileNames;

static bool pattern_of(const Map *map, const rt_tensor *tensor, int choice, FileNames *pattern) {
  const char *list = map->plain ? tensor->name : setting(map->program, "file", tensor->name);
  int from[RT_MAX_RANK], stacks = leads(tensor);
  bool joined[RT_MAX_RANK];
  *pattern = (FileNames){0};
  if (!list || !word(list, choice, &pattern->at, &pattern->n)) return false;
  int rank = file_dims(map, tensor, from, joined);
  for (size_t i = 0; i < pattern->n && pattern->stars < stacks + rank; i++) {
    if (pattern->at[i] != '*' && pattern->at[i] != '{') continue;
    int star = pattern->stars++;
    pattern->size[star] = tensor->size[star < stacks ? star : stacks + from[star - stacks]];
    pattern->further += star >= stacks;
  }
  return true;
}

int64_t rt_rounds(const Map *map, const rt_tensor *tensor, int choice) {
  FileNames pattern;
  int64_t n = 1;
  if (!pattern_of(map, tensor, choice, &pattern)) return 0;
  for (int i = 0; i < pattern.stars; i++) n *= pattern.size[i];
  for (int i = pattern.stars; i < leads(tensor); i++) n *= tensor->size[i];
  return n;
}

/* Added to the index by a star: *+3, or 0. n: bytes of the star. */
static int64_t star_offset(const char *star, size_t *n) {
  char *end = (char *)star + 1;
  bool more = star[1] == '+' && star[2] >= '0' && star[2] <= '9';
  int64_t offset = more ? strtoll(star + 2, &end, 10) : 0;
  *n = (size_t)(end - star);
  return offset;
}

/* Text number `index` of a list {a,b,..} that begins at `list`. */
static const char *listed(const char *list, int64_t index, size_t *n) {
  const char *at = list + 1;
  for (; index > 0 && at[strcspn(at, ",} ")] == ','; index--) at += strcspn(at, ",} ") + 1;
  *n = strcspn(at, ",} ");
  return at;
}

/* PEFT's name of an adapter, from that of its weight: model.q.weight ->
   base_model.model.model.q.lora_A.weight */
static void name_adapter(const rt_tensor *tensor, char name[RT_NAME]) {
  static const char end[] = ".weight";
  char base[RT_NAME];
  snprintf(base, sizeof base, "%s", name);
  if (rt_text_ends(base, end)) base[strlen(base) - strlen(end)] = 0;
  snprintf(name, RT_NAME, "base_model.model.%.200s.lora_%c.weight", base,
           rt_text_ends(tensor->name, ".lora_b") ? 'B' : 'A');
}

bool rt_map_name(const Map *map, const rt_tensor *tensor, int64_t round, int choice, bool prefixed,
                 char out[RT_NAME]) {
  FileNames pattern;
  if (!pattern_of(map, tensor, choice, &pattern)) return false;
  int64_t below = rt_rounds(map, tensor, choice);
  size_t k = 0;
  int star = 0;
  if (prefixed) k = (size_t)snprintf(out, RT_NAME, "%s", map->prefix);
  for (size_t i = 0; i < pattern.n && k < RT_NAME - 24; i++) {
    char c = pattern.at[i];
    if ((c != '*' && c != '{') || star == pattern.stars) {
      out[k++] = c;
      continue;
    }
    below /= pattern.size[star];
    int64_t index = round / below % pattern.size[star++];
    size_t n;
    int64_t offset = star_offset(pattern.at + i, &n);
    if (c == '*') i += n - 1;
    if (c == '*') k += (size_t)snprintf(out + k, RT_NAME - k, "%lld", (long long)(index + offset));
    if (c == '*') continue;
    const char *text = listed(pattern.at + i, index, &n);
    k += (size_t)snprintf(out + k, RT_NAME - k, "%.*s", (int)n, text);
    i += strcspn(pattern.at + i, "} ");
  }
  out[k < RT_NAME ? k : RT_NAME - 1] = 0;
  if (!map->plain && rt_map_adapter(map->program, tensor)) name_adapter(tensor, out);
  return true;
}

/* Is `name` that of some round? From the pattern's byte i and star on. */
static bool takes(const FileNames *pattern, size_t i, int star, const char *name) {
  if (i >= pattern->n) return !*name;
  char c = pattern->at[i];
  if ((c != '*' && c != '{') || star == pattern->stars)
    return *name == c && takes(pattern, i + 1, star, name + 1);
  if (c == '*') {
    char *end;
    size_t n;
    long long index = strtoll(name, &end, 10) - star_offset(pattern->at + i, &n);
    bool number = *name >= '0' && *name <= '9' && (*name != '0' || end == name + 1);
    return number && index >= 0 && index < pattern->size[star] &&
           takes(pattern, i + n, star + 1, end);
  }
  size_t after = i + strcspn(pattern->at + i, "} ") + 1, n;
  for (int64_t k = 0; k < pattern->size[star]; k++) {
    const char *text = listed(pattern->at + i, k, &n);
    if (!strncmp(text, name, n) && takes(pattern, after, star + 1, name + n)) return true;
  }
  return false;
}

bool rt_map_takes(const Map *map, const rt_tensor *tensor, const char *name) {
  FileNames pattern;
  size_t prefix = strlen(map->prefix);
  char own[RT_NAME];
  bool adapter = !map->plain && rt_map_adapter(map->program, tensor);
  for (int choice = 0; pattern_of(map, tensor, choice, &pattern); choice++) {
    for (int64_t r = 0; adapter && r < rt_rounds(map, tensor, choice); r++)
      for (int prefixed = 0; prefixed < 2; prefixed++)
        if (rt_map_name(map, tensor, r, choice, prefixed, own) && !strcmp(own, name)) return true;
    if (adapter) continue;
    if (takes(&pattern, 0, 0, name)) return true;
    if (prefix && !strncmp(name, map->prefix, prefix) && takes(&pattern, 0, 0, name + prefix))
      return true;
  }
  return false;
}

/* A star matches any text. */
static bool like(const char *pattern, size_t n, const char *name) {
  if (!n) return !*name;
  if (*pattern != '*') return *name == *pattern && like(pattern + 1, n - 1, name + 1);
  return like(pattern + 1, n - 1, name) || (*name && like(pattern, n, name + 1));
}

bool rt_map_ignores(const Map *map, const char *name) {
  const char *at;
  size_t n, prefix = strlen(map->prefix);
  bool cut = prefix && !strncmp(name, map->prefix, prefix);
  for (int i = 0; word(map->ignore, i, &at, &n); i++)
    if (like(at, n, name) || (cut && like(at, n, name + prefix))) return true;
  return false;
}

/* ---- slices ---- */

Slice rt_slice_whole(const Device *d, const rt_tensor *tensor) {
  Slice slice = {
      .elem = (int)tensor->elem, .rank = tensor->rank, .data = rt_tensor_write(d, tensor)};
  int64_t stride = 1;
  for (int i = tensor->rank - 1; i >= 0; i--)
    slice.size[i] = tensor->size[i], slice.stride[i] = stride, stride *= tensor->size[i];
  return slice;
}

/* Without its first n dims, at `index` of them together. */
static void drop_dims(Slice *slice, int n, int64_t index) {
  for (int i = n - 1; i >= 0; i--) {
    slice->data += index % slice->size[i] * slice->stride[i] * rt_elem_bytes(slice->elem);
    index /= slice->size[i];
  }
  for (int i = n; i < slice->rank; i++)
    slice->size[i - n] = slice->size[i], slice->stride[i - n] = slice->stride[i],
                    slice->joined[i - n] = slice->joined[i] && i > n;
  slice->rank -= n;
}

Slice rt_slice(const Map *map, const Device *d, const rt_tensor *tensor, int choice,
               int64_t round) {
  Slice whole = rt_slice_whole(d, tensor), slice = {.elem = whole.elem};
  FileNames pattern;
  int from[RT_MAX_RANK], stacks = leads(tensor);
  int64_t count = 1, each = 1;
  slice.rank = file_dims(map, tensor, from, slice.joined);
  for (int i = 0; i < slice.rank; i++) {
    slice.size[i] = whole.size[stacks + from[i]], slice.stride[i] = whole.stride[stacks + from[i]];
    count *= slice.size[i];
  }
  if (!pattern_of(map, tensor, choice, &pattern)) pattern.further = 0;
  for (int i = 0; i < pattern.further; i++) each *= slice.size[i];
  slice.data = whole.data + round / each * count * rt_elem_bytes(slice.elem);
  drop_dims(&slice, pattern.further, round % each);
  return slice;
}

bool rt_slice_fits(const Slice *slice, const int64_t *size, int rank) {
  int i = 0;
  for (int k = 0; k < rank; k++) {
    int64_t joined = 1;
    if (size[k] == 1 && (i == slice->rank || slice->size[i] != 1)) continue;
    do {
      if (i == slice->rank) return false;
      joined *= slice->size[i++];
    } while (joined < size[k]);
    if (joined != size[k]) return false;
  }
  while (i < slice->rank && slice->size[i] == 1) i++;
  return i == slice->rank;
}

int rt_slice_shape(const Slice *slice, int64_t size[RT_MAX_RANK]) {
  int rank = 0;
  for (int i = 0; i < slice->rank; i++)
    if (slice->joined[i]) size[rank - 1] *= slice->size[i];
    else size[rank++] = slice->size[i];
  return rank;
}

bool rt_slice_dense(const Slice *slice) {
  int64_t stride = 1;
  for (int i = slice->rank - 1; i >= 0; stride *= slice->size[i--])
    if (slice->stride[i] != stride && slice->size[i] > 1) return false;
  return true;
}

static int64_t count_of(const Slice *slice) {
  int64_t n = 1;
  for (int i = 0; i < slice->rank; i++) n *= slice->size[i];
  return n;
}

/* Where row `row` along the last dim begins, in elements. */
static int64_t row_at(const Slice *slice, int64_t row) {
  int64_t at = 0;
  for (int i = slice->rank - 2; i >= 0; i--) {
    at += row % slice->size[i] * slice->stride[i];
    row /= slice->size[i];
  }
  return at;
}

static void copy_elements(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n,
                          int bytes) {
  if (to_step == bytes && from_step == bytes) {
    memcpy(to, from, (size_t)(n * bytes));
    return;
  }
  for (int64_t i = 0; i < n; i++) memcpy(to + i * to_step, from + i * from_step, (size_t)bytes);
}

/* Walks over rows of the last dim. The file's elements are dense, in the slice's order. */
void rt_slice_read(const Slice *slice, int from, const void *data) {
  int64_t n = slice->rank ? slice->size[slice->rank - 1] : 1,
          step = slice->rank ? slice->stride[slice->rank - 1] : 1,
          rows = n ? count_of(slice) / n : 0;
  int bytes = rt_elem_bytes(slice->elem);
  for (int64_t r = 0; r < rows; r++) {
    int64_t at = row_at(slice, r);
    if (from == slice->elem)
      copy_elements(slice->data + at * bytes, step * bytes, (const char *)data + r * n * bytes,
                    bytes, n, bytes);
    else
      for (int64_t i = 0; i < n; i++)
        rt_elem_put(slice->elem, slice->data, at + i * step, rt_elem_get(from, data, r * n + i));
  }
}

void rt_slice_write(const Slice *slice, void *data) {
  int64_t n = slice->rank ? slice->size[slice->rank - 1] : 1,
          step = slice->rank ? slice->stride[slice->rank - 1] : 1,
          rows = n ? count_of(slice) / n : 0;
  int bytes = rt_elem_bytes(slice->elem);
  for (int64_t r = 0; r < rows; r++)
    copy_elements((char *)data + r * n * bytes, bytes, slice->data + row_at(slice, r) * bytes,
                  step * bytes, n, bytes);
}
