/* Command export: the parameters as a safetensors file under the names and in the orders of the
   model's weights block, and a config.json beside it, so that other tools load the directory. A
   model without a map gets its own paths, one tensor per round, and no config.json. */
#include "runtime/base/file.h"
#include "runtime/device/shard_piece.h"
#include "run.h"
#include "runtime/store/weights.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Export {
  SafeItem *item;
  int n;
} Export;

/* The items' shapes and data live as long as the process: it ends soon. */
static void add(Export *x, const Map *m, const Device *d, const rt_tensor *t, int64_t round) {
  char name[RT_NAME] = "";
  Slice *s = rt_alloc(sizeof *s);
  *s = rt_slice(m, d, t, round);
  rt_map_name(m, t, round, 0, true, name);
  const void *data = s->data;
  if (!rt_slice_dense(s)) {
    int64_t n = rt_elem_bytes(s->elem);
    for (int i = 0; i < s->rank; i++) n *= s->size[i];
    void *copy = rt_alloc((size_t)n);
    rt_slice_write(s, copy);
    data = copy;
  }
  int64_t *size = rt_alloc(sizeof *size * RT_MAX_RANK);
  int rank = rt_slice_shape(s, size);
  const char *own = rt_copy_text(name, strlen(name));
  x->item[x->n++] = (SafeItem){own, s->elem, rank, size, data, NULL, NULL};
}

/* A call of all ranks; rank 0 gets the whole of it. */
static void add_parameter(Export *x, const Map *m, const Run *r, int i) {
  const rt_tensor *part = &r->p->tensors[i], *t = &r->whole->tensors[i];
  Device view = r->device;
  if (!rt_is_placed(part) && rt_is_viewed(&r->device, part)) t = part;
  else {
    void *data = rt_is_first(r) ? rt_alloc((size_t)t->bytes) : NULL;
    rt_tensor_gather(&r->device, part, data);
    view = rt_device_with(&r->device, r->whole, t, data);
  }
  for (int64_t k = 0; rt_is_first(r) && k < rt_rounds(t); k++) add(x, m, &view, t, k);
}

static int64_t count_items(const rt_program *p) {
  int64_t n = 0;
  for (int i = 0; i < p->ntensors; i++)
    if (p->tensors[i].kind == RT_PARAM) n += rt_rounds(&p->tensors[i]);
  return n;
}

static bool write_tensors(const Export *x, const char *folder, Fault *f) {
  char path[RT_PATH];
  NewFile n;
  int64_t bytes;
  uint64_t hash;
  rt_join(path, folder, "model.safetensors");
  if (!rt_file_begin(&n, path, 0666, f)) return false;
  return rt_file_end(&n, rt_safe_write(n.fd, x->item, x->n, NULL, 0, &bytes, &hash, f), true, f);
}

static const char *type_name(const rt_program *p) {
  static const char *const names[] = {
      [RT_F32] = "float32", [RT_BF16] = "bfloat16", [RT_F16] = "float16", [RT_F64] = "float64"};
  for (int i = 0; i < p->ntensors; i++)
    if (p->tensors[i].kind == RT_PARAM && p->tensors[i].elem <= RT_F64)
      return names[p->tensors[i].elem];
  return names[RT_F32];
}

/* Values of weights.config.* are JSON already. */
static bool write_config(const rt_program *p, const char *folder, Fault *f) {
  static const char prefix[] = "weights.config.";
  char *text = NULL, path[RT_PATH];
  size_t n = 0;
  FILE *o = open_memstream(&text, &n);
  if (!o) return rt_fault(f, 701, "no memory for the configuration");
  fprintf(o, "{\n");
  for (int i = 0; i < p->nsettings; i++) {
    if (strncmp(p->settings[i].key, prefix, sizeof prefix - 1)) continue;
    fputs("  ", o), rt_json_write(o, p->settings[i].key + sizeof prefix - 1);
    fprintf(o, ": %s,\n", p->settings[i].value);
  }
  fprintf(o, "  \"torch_dtype\": \"%s\"\n}\n", type_name(p));
  fclose(o);
  rt_join(path, folder, "config.json");
  bool ok = rt_write_file(path, text, (int64_t)n, true, f);
  free(text);
  return ok;
}

/* --out is where to write; the weights come from --init, --resume or the last run. */
static bool load(Run *r, Fault *f) {
  OptionValue out = r->o.at[OPT_out];
  r->o.at[OPT_out].given = false;
  bool ok = rt_start_device(r, f) && rt_load_weights(r, f);
  r->o.at[OPT_out] = out;
  return ok;
}

int rt_export(Run *r) {
  Fault f = {0};
  const rt_program *p = r->whole;
  bool mapped = rt_map_there(p);
  Map m = rt_map(p, !mapped);
  if (!r->o.at[OPT_out].given) {
    rt_fault(&f, 103, "export needs --out DIR: where to write");
    rt_help(&f, "--resume=DIR says which run, --init FILE other weights");
    rt_die_on_all(r, &f);
  }
  const char *folder = r->o.at[OPT_out].text;
  if (!load(r, &f) || !rt_make_folders(folder, &f)) rt_die_on_all(r, &f);
  Export x = {.item = rt_alloc(sizeof(SafeItem) * (size_t)(count_items(p) + 1))};
  for (int i = 0; i < p->ntensors; i++)
    if (p->tensors[i].kind == RT_PARAM) add_parameter(&x, &m, r, i);
  if (!rt_is_first(r)) return 0;
  if (!write_tensors(&x, folder, &f) || (mapped && !write_config(p, folder, &f)))
    rt_die_on_all(r, &f);
  if (!r->o.at[OPT_quiet].given)
    fprintf(stderr, "%d tensors in %s%s\n", x.n, folder,
            mapped ? "" : ", under the model's own names: it has no weights block");
  free(x.item);
  return 0;
}
