/* Command info: what is compiled in, as tables for people or one JSON object, or the embedded
 * source. */
#include "run.h"
#include "ir/support/num.h"
#include "runtime/base/file.h"
#include <stdio.h>
#include <string.h>

static const char *const kinds[] = {"parameter", "state", "input", "scalar", "output", "layers"};
_Static_assert(COUNT_OF(kinds) == RT_REST + 1, "a word per rt_kind");
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

static const char not_compared[] = "not compared";

/* Is the arena listed? Arenas of the host are if they hold something. */
static bool is_there(const rt_program *program, int arena) {
  return arena < RT_HOST_WEIGHTS || program->arena_bytes[arena];
}

static void text_shape(char *out, size_t n, const rt_tensor *t) {
  size_t k = (size_t)snprintf(out, n, "%s[", rt_elem_name(t->elem));
  for (int i = 0; i < t->rank && k < n; i++)
    k += (size_t)snprintf(out + k, n - k, "%s%s:%lld", i ? ", " : "", t->dim[i],
                          (long long)t->size[i]);
  if (k < n) snprintf(out + k, n - k, "]%s%s", t->of ? " of " : "", t->of ? t->of : "");
}

static void print_tensors(const rt_program *program) {
  char shape[400];
  for (int i = 0; i < program->ntensors; i++) {
    text_shape(shape, sizeof shape, &program->tensors[i]);
    printf("  %-10s%-34s%12lld  %s\n", kinds[program->tensors[i].kind], program->tensors[i].name,
           (long long)rt_tensor_count(&program->tensors[i]), shape);
  }
}

/* Why its entries cannot be graphs of a GPU; NULL: they are. */
static const char *why_no_graphs(const rt_program *program) {
  for (int i = 0; i < program->nkernels; i++)
    if (!program->kernels[i]->image)
      return "kernels of the host run on while the next step begins, and a graph would wait for "
             "them";
  bool library = program->communicator && !strcmp(program->communicator, "nccl");
  return program->ncollectives && !library ? "messages between ranks go through the host" : NULL;
}

static void print_graphs(const rt_program *program) {
  const char *why = why_no_graphs(program);
  if (!program->sm) return;
  if (why) printf("\nentries are launched kernel by kernel: %s\n", why);
  else printf("\nfrom its second run on an entry is one graph of the GPU\n");
}

static void print_kernels(const rt_program *program) {
  printf("\n%d kernels\n", program->nkernels);
  for (int i = 0; i < program->nkernels; i++) {
    printf("  %-34s", program->kernels[i]->name);
    for (int k = 0; k < program->kernels[i]->phases; k++)
      printf("%s%lld", k ? "+" : "", (long long)program->kernels[i]->phase[k].chunks);
    rt_say(stdout, " chunks  %s\n", program->kernels[i]->source);
  }
}

/* all: not only what passes decided. */
static void print_settings(const rt_program *program, bool all) {
  static const char made[] = "made.";
  if (all) printf("\nsettings\n");
  for (int i = 0; i < program->nsettings; i++)
    if (all || !strncmp(program->settings[i].key, made, sizeof made - 1))
      rt_say(stdout, "  %s = %s\n", program->settings[i].key, program->settings[i].value);
}

static void print_memory(const rt_program *program) {
  printf("\nmemory, bytes\n");
  for (int i = 0; i < RT_ARENAS; i++)
    if (is_there(program, i))
      printf("  %-12s%14lld\n", arenas[i], (long long)program->arena_bytes[i]);
  printf("  %-10s%16lld per worker\n", "scratch", (long long)program->scratch);
}

static void print_entries(const rt_program *program) {
  printf("\nentries%19s%15s%13s%14s%12s\n", "work bytes", "live bytes", "flop", "bytes moved",
         "least");
  for (int i = 0; i < program->nentries; i++)
    printf("  %-9s%15lld%15lld%13.4g%14.4g%12.4g\n", program->entries[i].name,
           (long long)program->entries[i].work_bytes, (long long)program->entries[i].live_bytes,
           program->entries[i].flop, program->entries[i].bytes, program->entries[i].least_bytes);
}

/* One screen; all: tensors, kernels and settings as well. */
static int print_text(const rt_program *program, bool all) {
  printf("%s: %lld parameters\ncompiler %s, target %s, %d workers at most\nprogram %s\n",
         program->model, (long long)rt_parameters(program), program->compiler, program->target,
         program->workers, program->hash);
  printf("equal to the model: %s\n", program->equal ? program->equal : not_compared);
  if (all) printf("\ntensors\n"), print_tensors(program);
  print_memory(program);
  print_entries(program);
  print_graphs(program);
  if (all) print_kernels(program);
  else
    printf("\n%d tensors, %d kernels, %d settings: --all lists them\n", program->ntensors,
           program->nkernels, program->nsettings);
  print_settings(program, all);
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

static void json_tables(const rt_program *program) {
  printf(",\"tensors\":[");
  for (int i = 0; i < program->ntensors; i++)
    printf("%s", i ? "," : ""), json_tensor(&program->tensors[i]);
  printf("],\"entries\":[");
  for (int i = 0; i < program->nentries; i++) {
    const rt_entry *entry = &program->entries[i];
    printf("%s{", i ? "," : ""), pair("name", entry->name);
    printf(",\"work_bytes\":%lld,\"live_bytes\":%lld,\"flop\":%.17g,\"bytes\":%.17g,\"least_"
           "bytes\":%.17g}",
           (long long)entry->work_bytes, (long long)entry->live_bytes, entry->flop, entry->bytes,
           entry->least_bytes);
  }
  putchar(']');
  if (program->sm) {
    const char *why = why_no_graphs(program);
    printf(",\"graphs\":%s", why ? "false" : "true");
    if (why) putchar(','), pair("no_graphs", why);
  }
  printf(",\"kernels\":[");
  for (int i = 0; i < program->nkernels; i++)
    printf("%s", i ? "," : ""), json_kernel(program->kernels[i]);
  printf("],\"settings\":{");
  for (int i = 0; i < program->nsettings; i++)
    printf("%s", i ? "," : ""), pair(program->settings[i].key, program->settings[i].value);
  printf("}}\n");
}

static int print_json(const rt_program *program) {
  printf("{\"schema\":1,"), pair("model", program->model), putchar(','),
      pair("compiler", program->compiler), putchar(',');
  pair("program", program->hash), putchar(','), pair("target", program->target);
  putchar(','), pair("equal", program->equal ? program->equal : not_compared);
  printf(",\"parameters\":%lld,\"workers\":%d,\"scratch\":%lld,\"arenas\":{",
         (long long)rt_parameters(program), program->workers, (long long)program->scratch);
  for (int i = 0; i < RT_ARENAS; i++)
    if (is_there(program, i))
      printf("%s", i ? "," : ""), key(arenas[i]),
          printf("%lld", (long long)program->arena_bytes[i]);
  printf("}"), json_tables(program);
  return 0;
}

static int print_source(const rt_program *program) {
  for (const char *const *s = program->sources; s && s[0]; s += 2)
    printf("# ---- %s ----\n%s\n", s[0], s[1]);
  return 0;
}

int rt_info(Run *r) {
  bool source = r->o.at[OPT_source].given;
  if (r->o.at[OPT_all].given + r->o.at[OPT_json].given + source > 1) {
    Fault f = {0};
    rt_fault(&f, 104, "`info` takes one of --all, --json (which has all), --source");
    rt_die(&f);
  }
  if (source) return print_source(r->p);
  return r->o.at[OPT_json].given ? print_json(r->p) : print_text(r->p, r->o.at[OPT_all].given);
}
