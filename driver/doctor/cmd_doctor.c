/* `shardc doctor`: what shardc finds on this machine, what is missing, and how to get it; on stdout
   as a table, or as JSON. Exit 4 if something is missing that every compilation needs. Must not:
   change anything (the cache folder is made, as a compilation would). */
#include "driver/cmd.h"
#include "ir/support/num.h"
#include "codegen/cache.h"
#include "codegen/codegen.h"
#include "doctor.h"
#include "driver/sheet/sheet.h"
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

void doctor_add(Doctor *doctor, const char *name, const char *value, Need need, const char *help) {
  vec_push(doctor->arena, doctor->found, (Finding){name, value, need, help, ""});
}

void doctor_add_fault(Doctor *doctor, const char *name, Need need, const Fault *f) {
  Finding finding = {.name = name, .need = need};
  finding.why = arena_printf(doctor->arena, "%s", f->what);
  finding.help = arena_printf(doctor->arena, "%s", f->help);
  vec_push(doctor->arena, doctor->found, finding);
}

/* ---- this machine ---- */

static void add_system(Doctor *doctor) {
  struct utsname u;
  unsigned major, minor, patch;
  if (!uname(&u))
    doctor_add(doctor, "system",
               arena_printf(doctor->arena, "%s %s %s", u.sysname, u.release, u.machine),
               NEED_NOTHING, "");
  LLVMGetVersion(&major, &minor, &patch);
  doctor_add(doctor, "LLVM", arena_printf(doctor->arena, "%u.%u.%u", major, minor, patch),
             NEED_ALWAYS, "");
}

/* The value of `name :` in /proc/cpuinfo; "" if it is missing. */
static const char *cpu_line(Doctor *doctor, const char *name) {
  char line[8192];
  FILE *file = fopen("/proc/cpuinfo", "r");
  const char *value = "";
  while (file && !*value && fgets(line, sizeof line, file)) {
    const char *colon = strchr(line, ':');
    bool same = colon && !strncmp(line, name, strlen(name)) && strchr("\t ", line[strlen(name)]);
    line[strcspn(line, "\n")] = 0;
    if (same) value = arena_printf(doctor->arena, "%s", colon + 1 + (colon[1] == ' '));
  }
  if (file) fclose(file);
  return value;
}

static bool has_word(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *at = list; (at = strstr(at, word)); at += n)
    if ((at == list || at[-1] == ' ') && (!at[n] || at[n] == ' ')) return true;
  return false;
}

static const char *features_of(Doctor *doctor) {
  static const char *const wanted[] = {"avx2",        "fma",      "f16c",        "avx_vnni",
                                       "avx512f",     "avx512bw", "avx512_vnni", "avx512_bf16",
                                       "avx512_fp16", "amx_tile", "amx_bf16",    "amx_int8"};
  const char *flags = cpu_line(doctor, "flags"), *text = "";
  for (size_t i = 0; i < COUNT_OF(wanted); i++)
    if (has_word(flags, wanted[i]))
      text = arena_printf(doctor->arena, "%s%s%s", text, *text ? " " : "", wanted[i]);
  return *text ? text : "none of AVX2, FMA, AVX-512, AMX";
}

static const char *caches_of(Doctor *doctor, const Target *target) {
  return arena_printf(doctor->arena, "%lld, %lld, %lld KiB", (long long)target->l1_bytes >> 10,
                      (long long)target->facts.l2 >> 10, (long long)target->facts.l3 >> 10);
}

static void add_processor(Doctor *doctor) {
  const Target *target = target_find("native");
  const char *model = cpu_line(doctor, "model name");
  double bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
  doctor_add(doctor, "processor", *model ? model : "unknown", NEED_NOTHING, "");
  doctor_add(doctor, "target",
             target ? arena_printf(doctor->arena, "%s (%s)", target->name, target->cpu) : NULL,
             NEED_ALWAYS, "executables need a processor with AVX2 and FMA (x86-64-v3)");
  doctor_add(doctor, "features", features_of(doctor), NEED_NOTHING, "");
  if (target) doctor_add(doctor, "caches", caches_of(doctor, target), NEED_NOTHING, "");
  doctor_places(doctor);
  doctor_add(doctor, "memory", arena_printf(doctor->arena, "%.1f GiB", bytes / (1 << 30)),
             NEED_NOTHING, "");
}

/* ---- programs ---- */

static const char *find_in(Doctor *doctor, const char *folders, const char *program) {
  for (const char *at = folders; at && *at;) {
    size_t n = strcspn(at, ":");
    const char *path = arena_printf(doctor->arena, "%.*s/%s", (int)n, at, program);
    if (n && !access(path, X_OK)) return path;
    at += n + (at[n] == ':');
  }
  return NULL;
}

/* The line of what `path --version` says that holds `word`, or the first one. */
static const char *version_of(Doctor *doctor, const char *path, const char *word) {
  char line[256], first[256] = "";
  FILE *file = strchr(path, '\'')
                   ? NULL
                   : popen(arena_printf(doctor->arena, "'%s' --version 2>/dev/null", path), "r");
  bool found = false;
  while (file && !found && fgets(line, sizeof line, file)) {
    line[strcspn(line, "\n")] = 0;
    found = strstr(line, word) != NULL;
    if (found || !*first) snprintf(first, sizeof first, "%s", line);
  }
  if (file) pclose(file);
  return arena_printf(doctor->arena, "%s", first);
}

void doctor_program(Doctor *doctor, const char *name, const char *folders, const char *word,
                    Need need, const char *help) {
  const char *path = find_in(doctor, getenv("PATH"), name);
  if (!path) path = find_in(doctor, folders, name);
  const char *value =
      path ? arena_printf(doctor->arena, "%s: %s", path, version_of(doctor, path, word)) : NULL;
  doctor_add(doctor, name, value, need, help);
}

/* ---- folders ---- */

static void add_folders(Doctor *doctor) {
  const char *looked, *lib = library_folder(doctor->arena, &looked), *why,
                      *cache = cache_folder(doctor->arena, &why);
  const char *temporary = getenv("TMPDIR");
  if (!temporary || !*temporary) temporary = "/tmp";
  doctor_add(doctor, "runtime library", lib, NEED_ALWAYS,
             arena_printf(doctor->arena,
                          "libshardrt.a and rt.h are not in `%s`; set SHARDC_LIB to their folder",
                          looked));
  doctor_add(
      doctor, "kernel cache", cache && !access(cache, W_OK) ? cache : NULL, NEED_NOTHING,
      why ? why
          : "set SHARDC_CACHE_DIR to a folder that can be written; without one every kernel is "
            "compiled again");
  doctor_add(doctor, "temporary folder", access(temporary, W_OK) ? NULL : temporary, NEED_ALWAYS,
             "set TMPDIR to a folder that can be written");
}

/* ---- output ---- */

static const char *need_text(Need n) {
  static const char *const texts[] = {"always", "for GPUs", "for several ranks", "not necessary"};
  _Static_assert(COUNT_OF(texts) == NEED_NOTHING + 1, "words per Need");
  return texts[n];
}

static void say_finding(Sheet *sheet, const Finding *finding) {
  const char *value = finding->value, *state = *finding->why ? "cannot be used" : "not found";
  sheet_open(sheet, "findings[]");
  sheet_say(sheet, "{name:-17} ", as_text(finding->name));
  sheet_say_if(sheet, value, "{value}\n{!found}", as_text(value), as_flag(value, "", ""));
  sheet_say_if(sheet, !value, "{} (needed: {needed})\n", as_text(state),
               as_text(need_text(finding->need)));
  sheet_say_if(sheet, *finding->why, "{:-17}   {why}\n", as_text(""), as_text(finding->why));
  sheet_say_if(sheet, !value && *finding->help, "{:-17}   {help}\n", as_text(""),
               as_text(value ? "" : finding->help));
  sheet_close(sheet);
}

Exit cmd_doctor(Cli *o) {
  Doctor doctor = {.arena = o->c->arena};
  Exit e = EXIT_FINE;
  doctor_add(&doctor, "shardc", SHARDC_VERSION, NEED_ALWAYS, "");
  add_system(&doctor);
  add_processor(&doctor);
  doctor_program(&doctor, "cc", NULL, "", NEED_ALWAYS,
                 "install a C compiler, for example `apt-get install gcc libc6-dev`");
  add_folders(&doctor);
  doctor_gpu(&doctor);
  doctor_program(
      &doctor, "mpirun", NULL, "", NEED_RANKS,
      "install an MPI, for example `apt-get install openmpi-bin`; only many nodes need it");
  doctor_gpu_messages(&doctor);
  Sheet *sheet = sheet_new(o->c->arena);
  sheet_put(sheet, "{schema}", as_count(1));
  for (uint32_t i = 0; i < doctor.found.n; i++) {
    const Finding *finding = &doctor.found.at[i];
    say_finding(sheet, finding);
    if (!finding->value && finding->need == NEED_ALWAYS) e = EXIT_ENVIRONMENT;
  }
  sheet_show(sheet, o->value[OPT_JSON]);
  return e;
}
