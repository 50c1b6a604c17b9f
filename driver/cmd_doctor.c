/* `shardc doctor`: what shardc finds on this machine, what is missing, and how to get it; on stdout
   as a table, or as JSON. Exit 4 if something is missing that every compilation needs. Must not:
   change anything (the cache folder is made, as a compilation would). */
#include "cmd.h"
#include "ir/support/num.h"
#include "codegen/cache.h"
#include "codegen/codegen.h"
#include "doctor.h"
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

void doctor_add(Doctor *d, const char *name, const char *value, Need need, const char *help) {
  vec_push(d->arena, d->found, (Finding){name, value, need, help, NULL});
}

/* ---- this machine ---- */

static void add_system(Doctor *d) {
  struct utsname u;
  unsigned major, minor, patch;
  if (!uname(&u))
    doctor_add(d, "system", arena_printf(d->arena, "%s %s %s", u.sysname, u.release, u.machine),
               NEED_NOTHING, "");
  LLVMGetVersion(&major, &minor, &patch);
  doctor_add(d, "LLVM", arena_printf(d->arena, "%u.%u.%u", major, minor, patch), NEED_ALWAYS, "");
}

/* What stands behind `name :` in /proc/cpuinfo; "" if nothing does. */
static const char *cpu_line(Doctor *d, const char *name) {
  char line[8192];
  FILE *f = fopen("/proc/cpuinfo", "r");
  const char *value = "";
  while (f && !*value && fgets(line, sizeof line, f)) {
    const char *colon = strchr(line, ':');
    bool same = colon && !strncmp(line, name, strlen(name)) && strchr("\t ", line[strlen(name)]);
    line[strcspn(line, "\n")] = 0;
    if (same) value = arena_printf(d->arena, "%s", colon + 1 + (colon[1] == ' '));
  }
  if (f) fclose(f);
  return value;
}

static bool has_word(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *at = list; (at = strstr(at, word)); at += n)
    if ((at == list || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
  return false;
}

static const char *features_of(Doctor *d) {
  static const char *const wanted[] = {"avx2",        "fma",      "f16c",        "avx_vnni",
                                       "avx512f",     "avx512bw", "avx512_vnni", "avx512_bf16",
                                       "avx512_fp16", "amx_tile", "amx_bf16",    "amx_int8"};
  const char *flags = cpu_line(d, "flags"), *text = "";
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
    if (has_word(flags, wanted[i]))
      text = arena_printf(d->arena, "%s%s%s", text, *text ? " " : "", wanted[i]);
  return *text ? text : "none of AVX2, FMA, AVX-512, AMX";
}

static const char *caches_of(Doctor *d, const Target *t) {
  return arena_printf(d->arena, "%lld, %lld, %lld KiB", (long long)t->l1_bytes >> 10,
                      (long long)t->facts.l2 >> 10, (long long)t->facts.l3 >> 10);
}

static void add_processor(Doctor *d) {
  const Target *t = target_find("native");
  const char *model = cpu_line(d, "model name");
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  double bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  doctor_add(d, "processor", *model ? model : "unknown", NEED_NOTHING, "");
  doctor_add(d, "target", t ? arena_printf(d->arena, "%s (%s)", t->name, t->cpu) : NULL,
             NEED_ALWAYS, "executables need a processor with AVX2 and FMA (x86-64-v3)");
  doctor_add(d, "features", features_of(d), NEED_NOTHING, "");
  if (t) doctor_add(d, "caches", caches_of(d, t), NEED_NOTHING, "");
  doctor_add(d, "cores", arena_printf(d->arena, "%ld", cores), NEED_NOTHING, "");
  doctor_add(d, "memory", arena_printf(d->arena, "%.1f GiB", bytes / (1 << 30)), NEED_NOTHING, "");
}

/* ---- programs ---- */

static const char *find_in(Doctor *d, const char *folders, const char *program) {
  for (const char *at = folders; at && *at;) {
    size_t n = strcspn(at, ":");
    const char *path = arena_printf(d->arena, "%.*s/%s", (int)n, at, program);
    if (n && !access(path, X_OK)) return path;
    at += n + (at[n] == ':');
  }
  return NULL;
}

static const char *find_program(Doctor *d, const char *program) {
  const char *path = find_in(d, getenv("PATH"), program);
  return path ? path : find_in(d, "/usr/local/cuda/bin:/usr/lib/nvidia-cuda-toolkit/bin", program);
}

/* The line of what `path --version` says that holds `word`, or the first one. */
static const char *version_of(Doctor *d, const char *path, const char *word) {
  char line[256], first[256] = "";
  FILE *p = strchr(path, '\'')
                ? NULL
                : popen(arena_printf(d->arena, "'%s' --version 2>/dev/null", path), "r");
  bool found = false;
  while (p && !found && fgets(line, sizeof line, p)) {
    line[strcspn(line, "\n")] = 0;
    found = strstr(line, word) != NULL;
    if (found || !*first) snprintf(first, sizeof first, "%s", line);
  }
  if (p) pclose(p);
  return arena_printf(d->arena, "%s", first);
}

static void add_program(Doctor *d, const char *name, const char *word, Need need,
                        const char *help) {
  const char *path = find_program(d, name);
  const char *value =
      path ? arena_printf(d->arena, "%s: %s", path, version_of(d, path, word)) : NULL;
  doctor_add(d, name, value, need, help);
}

/* ---- folders ---- */

static void add_folders(Doctor *d) {
  const char *looked, *lib = library_folder(d->arena, &looked), *why,
                      *cache = cache_folder(d->arena, &why);
  const char *temporary = getenv("TMPDIR");
  if (!temporary || !*temporary) temporary = "/tmp";
  doctor_add(d, "runtime library", lib, NEED_ALWAYS,
             arena_printf(d->arena,
                          "libshardrt.a and rt.h are not in `%s`; set SHARDC_LIB to their folder",
                          looked));
  doctor_add(
      d, "kernel cache", cache && !access(cache, W_OK) ? cache : NULL, NEED_NOTHING,
      why ? why
          : "set SHARDC_CACHE_DIR to a folder that can be written; without one every kernel is "
            "compiled again");
  doctor_add(d, "temporary folder", access(temporary, W_OK) ? NULL : temporary, NEED_ALWAYS,
             "set TMPDIR to a folder that can be written");
}

/* ---- output ---- */

static const char *need_text(Need n) {
  static const char *const texts[] = {"always", "for GPUs", "for several ranks", "not necessary"};
  _Static_assert(COUNT_OF(texts) == NEED_NOTHING + 1, "words per Need");
  return texts[n];
}

static void print_table(const Doctor *d) {
  for (uint32_t i = 0; i < d->found.n; i++) {
    const Finding *f = &d->found.at[i];
    if (f->value) printf("%-17s %s\n", f->name, f->value);
    else
      printf("%-17s %s (needed: %s)\n%-17s   %s\n", f->name, f->lacks ? f->lacks : "not found",
             need_text(f->need), "", f->help);
  }
}

static void print_json(const Doctor *d) {
  fputs("{\"schema\":1,\"findings\":[", stdout);
  for (uint32_t i = 0; i < d->found.n; i++) {
    const Finding *f = &d->found.at[i];
    fputs(i ? ",{\"name\":" : "{\"name\":", stdout);
    json_put_string(stdout, f->name);
    printf(",\"found\":%s,\"needed\":", f->value ? "true" : "false");
    json_put_string(stdout, need_text(f->need));
    fputs(",\"value\":", stdout);
    json_put_string(stdout, f->value ? f->value : "");
    fputs(",\"help\":", stdout);
    json_put_string(stdout, f->value ? "" : f->help);
    putchar('}');
  }
  puts("]}");
}

Exit cmd_doctor(Cli *o) {
  Doctor d = {.arena = o->c->arena};
  Exit e = EXIT_FINE;
  doctor_add(&d, "shardc", SHARDC_VERSION, NEED_ALWAYS, "");
  add_system(&d);
  add_processor(&d);
  add_program(&d, "cc", "", NEED_ALWAYS,
              "install a C compiler, for example `apt-get install gcc libc6-dev`");
  add_folders(&d);
  add_program(&d, "ptxas", "release", NEED_GPU,
              "comes with the CUDA toolkit (Debian: nvidia-cuda-toolkit)");
  doctor_gpu(&d);
  add_program(&d, "mpirun", "", NEED_RANKS,
              "install an MPI, for example `apt-get install openmpi-bin`; only many nodes need it");
  doctor_nccl(&d);
  for (uint32_t i = 0; i < d.found.n; i++)
    if (!d.found.at[i].value && d.found.at[i].need == NEED_ALWAYS) e = EXIT_ENVIRONMENT;
  if (o->value[OPT_JSON]) print_json(&d);
  else print_table(&d);
  return e;
}
