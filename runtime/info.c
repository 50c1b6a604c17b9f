/* Command info: what is compiled in, as tables for people or one JSON object, or the embedded
 * source. */
#include "run.h"
#include "ir/support/num.h"
#include "runtime/base/file.h"
#include <stdio.h>
#include <string.h>

static const char *const kinds[] = {"parameter", "state", "input", "scalar", "output"};
_Static_assert(COUNT_OF(kinds) == RT_OUTPUT + 1, "a word per rt_kind");
static const char *const arenas[] = {
#define ARENA(name, word, tier, globals) [RT_##name] = #word,
#include "ir/arenas.def"
#undef ARENA
};

enum { /* the compiler's numbers are the runtime's */
#define ARENA(name, word, tier, globals) IN_##name,
#include "ir/arenas.def"
#undef ARENA
       IN_ARENAS
};
#define ARENA(name, word, tier, globals) _Static_assert((int)IN_##name == RT_##name, #word);
#include "ir/arenas.def"
#undef ARENA
_Static_assert((int)IN_ARENAS == RT_ARENAS, "every arena has a row");

/* Of the host those that hold something. */
static bool is_there(const rt_program *p, int arena) {
  return arena < RT_HOST_WEIGHTS || p->arena_bytes[arena];
}

static void text_shape(char *out, size_t n, const rt_tensor *t) {
  size_t k = (size_t)snprintf(out, n, "%s[", rt_elem_name(t->elem));
  for (int i = 0; i < t->rank && k < n; i++)
    k += (size_t)snprintf(out + k, n - k, "%s%s:%lld", i ? ", " : "", t->dim[i],
                          (long long)t->size[i]);
  if (k < n) snprintf(out + k, n - k, "]%s%s", t->of ? " of " : "", t->of ? t->of : "");
}

static void print_tensors(const rt_program *p) {
  char shape[400];
  for (int i = 0; i < p->ntensors; i++) {
    text_shape(shape, sizeof shape, &p->tensors[i]);
    printf("  %-10s%-34s%12lld  %s\n", kinds[p->tensors[i].kind], p->tensors[i].name,
           (long long)rt_tensor_count(&p->tensors[i]), shape);
  }
}

static int print_text(const rt_program *p) {
  printf("%s: %lld parameters\ncompiler %s, target %s, %d workers at most, program %s\n\ntensors\n",
         p->model, (long long)rt_parameters(p), p->compiler, p->target, p->workers, p->hash);
  print_tensors(p);
  printf("\nmemory, bytes\n");
  for (int i = 0; i < RT_ARENAS; i++)
    if (is_there(p, i)) printf("  %-12s%14lld\n", arenas[i], (long long)p->arena_bytes[i]);
  printf("  %-10s%16lld per worker\n\nentries%20s%16s%14s%14s%14s\n", "scratch",
         (long long)p->scratch, "work bytes", "live bytes", "flop", "bytes moved", "unavoidable");
  for (int i = 0; i < p->nentries; i++)
    printf("  %-9s%16lld%16lld%14.4g%14.4g%14.4g\n", p->entries[i].name,
           (long long)p->entries[i].work_bytes, (long long)p->entries[i].live_bytes,
           p->entries[i].flop, p->entries[i].bytes, p->entries[i].least_bytes);
  printf("\n%d kernels\n", p->nkernels);
  for (int i = 0; i < p->nkernels; i++) {
    printf("  %-34s", p->kernels[i]->name);
    for (int k = 0; k < p->kernels[i]->phases; k++)
      printf("%s%lld", k ? "+" : "", (long long)p->kernels[i]->phase[k].chunks);
    printf(" chunks  %s\n", p->kernels[i]->source);
  }
  printf("\nsettings\n");
  for (int i = 0; i < p->nsettings; i++)
    printf("  %s = %s\n", p->settings[i].key, p->settings[i].value);
  return 0;
}

/* ---- JSON ---- */

static void key(const char *name) {
  rt_json_write(stdout, name);
  putchar(':');
}

static void pair(const char *name, const char *value) { key(name), rt_json_write(stdout, value); }

static void json_tensor(const rt_tensor *t) {
  putchar('{'), pair("name", t->name), putchar(','), pair("kind", kinds[t->kind]), putchar(',');
  pair("type", rt_elem_name(t->elem)), putchar(','), key("dims"), putchar('[');
  for (int i = 0; i < t->rank; i++) printf("%s", i ? "," : ""), rt_json_write(stdout, t->dim[i]);
  printf("],\"shape\":[");
  for (int i = 0; i < t->rank; i++) printf("%s%lld", i ? "," : "", (long long)t->size[i]);
  printf("],"), pair("arena", arenas[t->arena]);
  printf(",\"offset\":%lld,\"bytes\":%lld}", (long long)t->offset, (long long)t->bytes);
}

static void json_kernel(const rt_kernel *k) {
  putchar('{'), pair("name", k->name), putchar(','), pair("source", k->source),
      printf(",\"chunks\":[");
  for (int i = 0; i < k->phases; i++) printf("%s%lld", i ? "," : "", (long long)k->phase[i].chunks);
  printf("]}");
}

static void json_tables(const rt_program *p) {
  printf(",\"tensors\":[");
  for (int i = 0; i < p->ntensors; i++) printf("%s", i ? "," : ""), json_tensor(&p->tensors[i]);
  printf("],\"entries\":[");
  for (int i = 0; i < p->nentries; i++) {
    const rt_entry *e = &p->entries[i];
    printf("%s{", i ? "," : ""), pair("name", e->name);
    printf(",\"work_bytes\":%lld,\"live_bytes\":%lld,\"flop\":%.17g,\"bytes\":%.17g,\"least_"
           "bytes\":%.17g}",
           (long long)e->work_bytes, (long long)e->live_bytes, e->flop, e->bytes, e->least_bytes);
  }
  printf("],\"kernels\":[");
  for (int i = 0; i < p->nkernels; i++) printf("%s", i ? "," : ""), json_kernel(p->kernels[i]);
  printf("],\"settings\":{");
  for (int i = 0; i < p->nsettings; i++)
    printf("%s", i ? "," : ""), pair(p->settings[i].key, p->settings[i].value);
  printf("}}\n");
}

static int print_json(const rt_program *p) {
  printf("{\"schema\":1,"), pair("model", p->model), putchar(','), pair("compiler", p->compiler),
      putchar(',');
  pair("program", p->hash), putchar(','), pair("target", p->target);
  printf(",\"parameters\":%lld,\"workers\":%d,\"scratch\":%lld,\"arenas\":{",
         (long long)rt_parameters(p), p->workers, (long long)p->scratch);
  for (int i = 0; i < RT_ARENAS; i++)
    if (is_there(p, i))
      printf("%s", i ? "," : ""), key(arenas[i]), printf("%lld", (long long)p->arena_bytes[i]);
  printf("}"), json_tables(p);
  return 0;
}

static int print_source(const rt_program *p) {
  for (const char *const *s = p->sources; s && s[0]; s += 2)
    printf("# ---- %s ----\n%s\n", s[0], s[1]);
  return 0;
}

int rt_info(Run *r) {
  if (r->o.at[OPT_source].given) return print_source(r->p);
  return r->o.at[OPT_json].given ? print_json(r->p) : print_text(r->p);
}
