/* Command export: the parameters as a safetensors file under the names and in the orders of the
   model's weights block, and a config.json in the same folder, so that other tools can load the
   folder. A model without a map gets its own paths, one tensor per round, and no config.json.
   Adapters (`lora` in the train block) are exported alone, as PEFT reads them, or merged into their
   weights (export_adapter.c). */
#include "export_adapter.h"
#include "export_folder.h"
#include "runtime/base/file.h"
#include "runtime/device/shard_piece.h"
#include "run_tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum ExportOf { OF_ALL, OF_ADAPTERS, OF_MERGED } ExportOf;

typedef struct Export {
  SafeItem *item;
  int n;
  ExportOf of;
} Export;

/* The items' shapes and data live as long as the process: it ends soon. */
static void add(Export *export, const Map *map, const Device *d, const rt_tensor *tensor,
                int64_t round) {
  char name[RT_NAME] = "";
  Slice *slice = rt_alloc(sizeof *slice);
  *slice = rt_slice(map, d, tensor, 0, round);
  rt_map_name(map, tensor, round, 0, true, name);
  const void *data = slice->data;
  if (!rt_slice_dense(slice)) {
    int64_t n = rt_elem_bytes(slice->elem);
    for (int i = 0; i < slice->rank; i++) n *= slice->size[i];
    void *copy = rt_alloc((size_t)n);
    rt_slice_write(slice, copy);
    data = copy;
  }
  int64_t *size = rt_alloc(sizeof *size * RT_MAX_RANK);
  int rank = rt_slice_shape(slice, size);
  const char *own = rt_copy_text(name, strlen(name));
  export->item[export->n++] = (SafeItem){own, slice->elem, rank, size, data, NULL, NULL};
}

/* A call of all ranks; rank 0 gets the whole of it, in new memory, others NULL. */
static void *gather_whole(const Run *r, int i) {
  void *data = rt_is_first(r) ? rt_alloc((size_t)r->whole->tensors[i].bytes) : NULL;
  rt_tensor_gather(&r->device, &r->p->tensors[i], data);
  return data;
}

static void *gather_merged(const Run *r, int i, const int adapter[2]) {
  void *data = gather_whole(r, i), *a = gather_whole(r, adapter[0]),
       *b = gather_whole(r, adapter[1]);
  if (rt_is_first(r)) rt_merge(r->whole, &r->whole->tensors[i], data, adapter, a, b);
  free(a), free(b);
  return data;
}

/* A call of all ranks. */
static void add_parameter(Export *export, const Map *map, const Run *r, int i) {
  const rt_tensor *part = &r->p->tensors[i], *tensor = &r->whole->tensors[i];
  Device view = r->device;
  int adapter[2];
  bool merges = export->of == OF_MERGED && rt_adapters_of(r->whole, tensor, adapter);
  if (!merges && !rt_is_placed(part) && rt_is_viewed(&r->device, part)) tensor = part;
  else
    view = rt_device_with(&r->device, r->whole, tensor,
                          merges ? gather_merged(r, i, adapter) : gather_whole(r, i));
  for (int64_t k = 0; rt_is_first(r) && k < rt_rounds(map, tensor, 0); k++)
    add(export, map, &view, tensor, k);
}

static bool is_wanted(const Export *export, const rt_program *program, const rt_tensor *tensor) {
  bool adapter = rt_map_adapter(program, tensor) != NULL;
  char key[RT_NAME + 32]; /* another parameter is written under its name */
  snprintf(key, sizeof key, "weights.reads.%s", tensor->name);
  return tensor->kind == RT_PARAM && !rt_setting_said(program, key) &&
         (export->of == OF_ALL || adapter == (export->of == OF_ADAPTERS));
}

static int64_t count_items(const Map *map, const rt_program *program) {
  int64_t n = 0;
  for (int i = 0; i < program->ntensors; i++)
    if (program->tensors[i].kind == RT_PARAM) n += rt_rounds(map, &program->tensors[i], 0);
  return n;
}

/* Programs of several plans have their tensors in several orders. */
static int by_name(const void *a, const void *b) {
  return strcmp(((const SafeItem *)a)->name, ((const SafeItem *)b)->name);
}

static bool write_tensors(const Export *export, const char *folder, Fault *f) {
  char path[RT_PATH];
  NewFile n;
  int64_t bytes;
  uint64_t hash;
  rt_join(path, folder,
          export->of == OF_ADAPTERS ? "adapter_model.safetensors" : "model.safetensors");
  if (!rt_file_begin(&n, path, 0666, f)) return false;
  qsort(export->item, (size_t) export->n, sizeof *export->item, by_name);
  return rt_file_end(
      &n, rt_safe_write(n.fd, export->item, export->n, rt_export_marks, 2, &bytes, &hash, f), true,
      f);
}

static const char *type_name(const rt_program *program) {
  static const char *const names[] = {
      [RT_F32] = "float32", [RT_BF16] = "bfloat16", [RT_F16] = "float16", [RT_F64] = "float64"};
  for (int i = 0; i < program->ntensors; i++)
    if (program->tensors[i].kind == RT_PARAM && program->tensors[i].elem <= RT_F64)
      return names[program->tensors[i].elem];
  return names[RT_F32];
}

/* Values of weights.config.* are JSON already. */
static void put_config(const rt_program *program, const int64_t *special, FILE *file) {
  static const char prefix[] = "weights.config.";
  int said = 0;
  for (int i = 0; i < program->nsettings; i++) {
    if (strncmp(program->settings[i].key, prefix, sizeof prefix - 1)) continue;
    fputs(said++ ? ",\n  " : "\n  ", file);
    rt_json_write(file, program->settings[i].key + sizeof prefix - 1);
    fprintf(file, ": %s", program->settings[i].value);
  }
  for (int i = 0; i < RT_SPECIALS; i++) {
    char key[64];
    snprintf(key, sizeof key, "weights.config.%s_token_id", rt_special_name(i));
    if (special[i] >= 0 && !rt_setting_said(program, key))
      fprintf(file, "%s\"%s_token_id\": %lld", said++ ? ",\n  " : "\n  ", rt_special_name(i),
              (long long)special[i]);
  }
  if (!rt_setting_said(program, "weights.config.torch_dtype") &&
      !rt_setting_said(program, "weights.config.dtype"))
    fprintf(file, "%s\"torch_dtype\": \"%s\"", said ? ",\n  " : "\n  ", type_name(program));
}

static bool write_config(const rt_program *program, const int64_t *special, const char *folder,
                         Fault *f) {
  char *text = NULL, path[RT_PATH];
  size_t n = 0;
  FILE *file = open_memstream(&text, &n);
  if (!file) return rt_fault(f, 701, "no memory for the configuration");
  putc('{', file), put_config(program, special, file), fputs("\n}\n", file);
  fclose(file);
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

/* Without a weights block, adapters have no names of other tools: they are parameters. */
static bool choose_export(const Run *r, bool mapped, ExportOf *of, Fault *f) {
  bool any = rt_has_adapters(r->whole), merge = r->o.at[OPT_merge].given;
  *of = !any ? OF_ALL : merge ? OF_MERGED : mapped ? OF_ADAPTERS : OF_ALL;
  if (any || !merge) return true;
  rt_fault(f, 103, "--merge: the model was compiled without adapters");
  return rt_help(f, "`lora` in the train block makes them; without, leave out --merge");
}

static bool write_files(const Run *r, const Export *export, bool mapped, const char *folder,
                        Fault *f) {
  const rt_program *program = r->whole;
  int64_t special[RT_SPECIALS];
  if (!write_tensors(export, folder, f)) return false;
  if (export->of == OF_ADAPTERS) return rt_write_adapter_config(program, folder, f);
  return !mapped ||
         (rt_export_specials(r, special, f) && write_config(program, special, folder, f) &&
          rt_export_tokenizer(r, special, folder, f));
}

/* --tokenizer alone: one that the run or its settings name may be absent. */
static bool check_tokenizer(const Run *r, const Export *export, bool mapped, Fault *f) {
  const OptionValue *given = &r->o.at[OPT_tokenizer];
  if (!given->given) return true;
  if (!mapped || export->of == OF_ADAPTERS)
    return rt_fault(f, 104, "--tokenizer: %s are exported without one",
                    mapped ? "adapters" : "parameters of a model without a weights block");
  if (rt_exists(given->text)) return true;
  rt_fault(f, 205, "the tokenizer does not exist");
  return rt_at(f, given->text, "", -1);
}

int rt_export(Run *r) {
  Fault f = {0};
  const rt_program *program = r->whole;
  bool mapped = rt_map_there(program);
  Map map = rt_map(program, !mapped);
  if (!r->o.at[OPT_out].given) {
    rt_fault(&f, 103, "export needs --out DIR: where to write");
    rt_help(&f, "--resume=DIR says which run, --init FILE other weights");
    rt_die_on_all(r, &f);
  }
  const OptionValue *init = &r->o.at[OPT_init];
  ExportFolder place;
  const char *folder = r->o.at[OPT_out].text;
  Export export = {.item = rt_alloc(sizeof(SafeItem) * (size_t)(count_items(&map, program) + 1))};
  if (!choose_export(r, mapped, &export.of, &f) || !check_tokenizer(r, &export, mapped, &f) ||
      !rt_export_folder(&place, folder, init->given ? init->text : NULL, &f) || !load(r, &f) ||
      !rt_make_folders(folder, &f))
    rt_die_on_all(r, &f);
  for (int i = 0; i < program->ntensors; i++)
    if (is_wanted(&export, program, &program->tensors[i])) add_parameter(&export, &map, r, i);
  if (!rt_is_first(r)) return 0;
  if (!write_files(r, &export, mapped, folder, &f)) rt_die_on_all(r, &f);
  rt_export_tidy(&place);
  if (!r->o.at[OPT_quiet].given)
    rt_say(stderr, "%d tensors in %s%s%s\n", export.n, folder,
           export.of == OF_ADAPTERS ? ", the adapters alone: --merge writes whole weights" : "",
           mapped ? "" : ", under the model's own names: it has no weights block");
  free(export.item);
  return 0;
}
