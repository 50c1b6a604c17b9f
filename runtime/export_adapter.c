/* Adapters in exports. A weight has dims of inputs, which lora_a [In.., Rank] has as well, and dims
   of outputs, which lora_b [Rank, Out..] has; all have those of stacks before them. A merged
   element is the weight's plus alpha / rank times a sum over the rank, in double precision, rounded
   once to the type of the weight. adapter_config.json is that of PEFT. Must not: communicate. */
#include "export_adapter.h"
#include "runtime/base/file.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool rt_adapters_of(const rt_program *program, const rt_tensor *weight, int adapter[2]) {
  int n = 0;
  for (int i = 0; i < program->ntensors && n < 2; i++) {
    const rt_tensor *tensor = &program->tensors[i];
    const char *of = tensor->kind == RT_PARAM ? rt_map_adapter(program, tensor) : NULL;
    if (!of || strcmp(of, weight->name)) continue;
    n++, adapter[rt_text_ends(tensor->name, ".lora_b")] = i;
  }
  return n == 2;
}

/* ---- merging ---- */

typedef struct AdapterFactor { /* lora_a or lora_b as doubles, those of a sum next to each other */
  double *at;
  int64_t step[RT_MAX_RANK]; /* by dims of the weight */
} AdapterFactor;

static AdapterFactor factor_of(const rt_tensor *weight, const rt_tensor *tensor, const void *data,
                               int rank_at) {
  int64_t n = rt_tensor_count(tensor), rank = tensor->size[rank_at],
          inner = rt_tensor_stride(tensor, rank_at);
  AdapterFactor factor = {.at = rt_alloc(sizeof(double) * (size_t)(n ? n : 1))};
  for (int64_t i = 0; i < n; i++) { /* i = (outer * rank + r) * inner + k */
    int64_t k = i % inner, r = i / inner % rank, outer = i / inner / rank;
    factor.at[(outer * inner + k) * rank + r] = rt_elem_get((int)tensor->elem, data, i);
  }
  for (int i = 0; i < weight->rank; i++) {
    int at = rt_tensor_axis(tensor, weight->dim[i]);
    int64_t stride = rt_tensor_stride(tensor, at);
    factor.step[i] = at < rank_at ? stride : stride * rank; /* without a dim: 0 */
  }
  return factor;
}

void rt_merge(const rt_program *program, const rt_tensor *weight, void *data, const int adapter[2],
              const void *a, const void *b) {
  const rt_tensor *first = &program->tensors[adapter[0]], *second = &program->tensors[adapter[1]];
  const char *alpha = rt_setting_of(program, "train.lora.alpha");
  int64_t rank = first->size[first->rank - 1], n = rt_tensor_count(weight);
  int at = rt_tensor_axis(second, first->dim[first->rank - 1]);
  double scale = (alpha ? strtod(alpha, NULL) : 0) / (double)rank;
  AdapterFactor fa = factor_of(weight, first, a, first->rank - 1),
                fb = factor_of(weight, second, b, at);
  for (int64_t i = 0; i < n; i++) {
    int64_t rest = i, ia = 0, ib = 0;
    for (int k = weight->rank - 1; k >= 0; rest /= weight->size[k--])
      ia += rest % weight->size[k] * fa.step[k], ib += rest % weight->size[k] * fb.step[k];
    double sum = 0;
    for (int64_t r = 0; r < rank; r++) sum += fa.at[ia + r] * fb.at[ib + r];
    double whole = rt_elem_get((int)weight->elem, data, i) + scale * sum;
    rt_elem_put((int)weight->elem, data, i, whole);
  }
  free(fa.at), free(fb.at);
}

/* ---- configuration ---- */

/* The last word of a module's name in files, without `weight`. */
static bool module_of(const rt_program *program, const char *weight, char out[RT_NAME]) {
  char key[RT_NAME + 32];
  snprintf(key, sizeof key, "weights.file.%s", weight);
  const char *names = rt_setting_of(program, key);
  if (!names) return false;
  snprintf(out, RT_NAME, "%.*s", (int)strcspn(names, " "), names);
  if (rt_text_ends(out, ".weight")) out[strlen(out) - strlen(".weight")] = 0;
  char *dot = strrchr(out, '.');
  if (dot) memmove(out, dot + 1, strlen(dot));
  return true;
}

/* Files that hold [inputs, outputs], such as those of GPT-2's Conv1D. */
static bool inputs_first(const rt_program *program, const rt_tensor *a, const char *weight) {
  char key[RT_NAME + 32];
  snprintf(key, sizeof key, "weights.order.%s", weight);
  const char *order = rt_setting_of(program, key);
  long from = order ? strtol(order, NULL, 10) : 0, stars = 0;
  for (const char *c = weight; *c; c++) stars += *c == '*';
  for (int i = 0; i < program->ntensors; i++)
    if (!strcmp(program->tensors[i].name, weight) && stars + from < program->tensors[i].rank)
      return rt_tensor_axis(a, program->tensors[i].dim[stars + from]) >= 0;
  return false;
}

static void put_modules(const rt_program *program, FILE *file, int64_t *rank, bool *turned) {
  char *seen = rt_copy_text("", 0), name[RT_NAME];
  for (int i = 0; i < program->ntensors; i++) {
    const rt_tensor *tensor = &program->tensors[i];
    const char *weight = tensor->kind == RT_PARAM ? rt_map_adapter(program, tensor) : NULL;
    if (!weight || !rt_text_ends(tensor->name, ".lora_a")) continue;
    *rank = tensor->size[tensor->rank - 1], *turned = inputs_first(program, tensor, weight);
    if (!module_of(program, weight, name)) continue;
    char *word = rt_format("\"%s\"", name);
    if (!strstr(seen, word)) {
      char *more = rt_format("%s%s%s", seen, *seen ? ", " : "", word);
      free(seen), seen = more;
    }
    free(word);
  }
  fputs(seen, file);
  free(seen);
}

bool rt_write_adapter_config(const rt_program *program, const char *folder, Fault *f) {
  char *text = NULL, path[RT_PATH];
  size_t n = 0;
  int64_t rank = 0;
  bool turned = false;
  const char *alpha = rt_setting_of(program, "train.lora.alpha");
  const char *dropout = rt_setting_said(program, "train.lora.dropout");
  const char *kind = rt_setting_of(program, "weights.config.architectures");
  bool causal = kind && (strstr(kind, "CausalLM") || strstr(kind, "LMHead"));
  FILE *file = open_memstream(&text, &n);
  if (!file) return rt_fault(f, 701, "no memory for the configuration");
  fputs("{\n  \"peft_type\": \"LORA\",\n  \"target_modules\": [", file);
  put_modules(program, file, &rank, &turned);
  fprintf(file, "],\n  \"r\": %lld,\n  \"lora_alpha\": %s,\n", (long long)rank,
          alpha ? alpha : "0");
  fprintf(file, "  \"lora_dropout\": %s,\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": %s,\n",
          dropout ? dropout : "0.0", turned ? "true" : "false");
  fprintf(file, "  \"task_type\": %s,\n  \"base_model_name_or_path\": null,\n",
          causal ? "\"CAUSAL_LM\"" : "null");
  fputs("  \"inference_mode\": true\n}\n", file);
  fclose(file);
  rt_join(path, folder, "adapter_config.json");
  bool ok = rt_write_file(path, text, (int64_t)n, true, f);
  free(text);
  return ok;
}
