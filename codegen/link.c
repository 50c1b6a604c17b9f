/* From a module to a file: text of the host program or of the kernels, or the executable.

   The executable: host.c is compiled by the system's C compiler while the kernels are compiled
   (kernel_objects.c); then both are linked with libshardrt.a. Commands run inside the work folder
   with plain file names, so that no path gets into an object; symbols for debuggers are dropped.
   The result appears under its name by a rename, complete or not at all.

   libshardrt.a and rt.h are searched in $SHARDC_LIB, then in lib/shardc next to the shardc program
   (build tree) or next to its folder (installed). */
#include "cache.h"
#include "device_code.h"
#include "ir/support/output.h"
#include "ir/support/refused.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

struct Linking {
  Module *m;
  BuildOptions options;
  const BuildOptions *o; /* these */
  Arena *arena;
  pid_t host; /* the compiler of the host program; below 0: it was not started */
  bool good;
  const char *folder; /* where objects are made */
  const char *lib;    /* where libshardrt.a and rt.h are */
};

typedef VEC(const char *) LinkWords;

static bool fails(Linking *linking, const char *code, RefusedUse use, const char *which) {
  diag_refused(linking->m->ctx->diag, code, use, which);
  return false;
}

/* ---- commands ---- */

static const uint64_t LITTLE_ROOM = (uint64_t)16 << 20; /* bytes; an executable takes less */

static void show(const Linking *linking, const LinkWords *link_words) {
  if (!linking->o->verbose) return;
  fprintf(stderr, "(in %s)", linking->folder);
  for (uint32_t i = 0; link_words->at[i]; i++) fprintf(stderr, " %s", link_words->at[i]);
  fprintf(stderr, "\n");
}

/* Runs in the memory of its parent: only system calls. */
static _Noreturn void child_main(const char *folder, const char *said,
                                 const LinkWords *link_words) {
  int err = open(said, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (err >= 0) dup2(err, STDERR_FILENO);
  if (!chdir(folder)) execvp(link_words->at[0], (char *const *)link_words->at);
  const char *why = strerrordesc_np(errno);
  if (write(STDERR_FILENO, why, strlen(why)) < 0) _exit(126);
  _exit(127);
}

static pid_t start(Linking *linking, LinkWords *link_words) {
  vec_push(linking->arena, *link_words, NULL);
  show(linking, link_words);
  fflush(NULL);
  const char *said = arena_printf(linking->arena, "%s/cc.err", linking->folder);
  pid_t pid = vfork(); /* fork copies the table of all pages of a large module */
  if (pid == 0) child_main(linking->folder, said, link_words);
  if (pid < 0) fails(linking, "E1313", CANNOT_START, link_words->at[0]);
  return pid;
}

/* A full disk keeps even the compiler from telling of it. */
static void tell_room(const Linking *linking, Report *r) {
  struct statvfs disk;
  if (statvfs(linking->folder, &disk)) return;
  uint64_t left = (uint64_t)disk.f_bavail * disk.f_frsize >> 10;
  if (left >= LITTLE_ROOM >> 10 && (disk.f_favail || !disk.f_files)) return;
  diag_fact(r, "the disk of temporary files has %llu KiB left", (unsigned long long)left);
  diag_help(r, "free some space, or `TMPDIR=FOLDER` names another folder for them");
}

static bool finish(Linking *linking, pid_t pid, const char *compiler, const char *what) {
  int status;
  if (pid < 0) return false;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  const char *path = arena_printf(linking->arena, "%s/cc.err", linking->folder);
  CacheBytes words = cache_read_file(linking->arena, path);
  unlink(path);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  Report *r = diag_at(linking->m->ctx->diag, "E1312", (Span){0}, "the C compiler `%s` failed to %s",
                      compiler, what);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127 && !strcmp(compiler, "mpicc"))
    diag_help(r,
              "install an MPI for developers, such as libopenmpi-dev, or leave `--comm mpi` out");
  else if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
    diag_help(r, "install a C compiler, such as gcc");
  if (words.at && words.n)
    diag_fact(r, "%s", arena_strndup(linking->arena, words.at, strcspn(words.at, "\n")));
  tell_room(linking, r);
  return false;
}

/* ---- where things are ---- */

static bool has_library(Arena *arena, const char *folder) {
  if (access(arena_printf(arena, "%s/libshardrt.a", folder), R_OK)) return false;
  return !access(arena_printf(arena, "%s/rt.h", folder), R_OK);
}

const char *library_folder(Arena *arena, const char **looked) {
  char self[PATH_MAX] = "";
  const char *given = getenv("SHARDC_LIB");
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) self[0] = 0;
  char *slash = strrchr(self, '/');
  if (slash) *slash = 0;
  const char *places[] = {given ? given : "", arena_printf(arena, "%s/lib/shardc", self),
                          arena_printf(arena, "%s/../lib/shardc", self)};
  *looked = places[given ? 0 : 1];
  for (int i = given ? 0 : 1; i < (given ? 1 : 3); i++)
    if (has_library(arena, places[i])) {
      char *whole = realpath(places[i], NULL);
      const char *path = whole ? whole : places[i];
      path = arena_strndup(arena, path, strlen(path));
      free(whole);
      return path;
    }
  return NULL;
}

static bool find_library(Linking *linking) {
  const char *looked;
  linking->lib = library_folder(linking->arena, &looked);
  if (linking->lib) return true;
  Report *r =
      diag_at(linking->m->ctx->diag, "E1311", (Span){0}, "cannot find libshardrt.a and rt.h");
  diag_fact(r, "looked in `%s`", looked);
  diag_help(r, "set SHARDC_LIB to the folder that holds both");
  return false;
}

/* Removes the folder when this process has ended, however it ends. A process of its own waits for
   that: it reads from a pipe whose other end only this process and its children hold. This process
   does not wait for it, so init inherits it. A shell: a copy of this process would hold its memory,
   all of which would be copied as this process writes to it. All signals are blocked in it, as the
   caller has it. */
static void look_after(const char *folder) {
  static const char *const waiter =
      "exec 3<&0; (read -r end; PATH=/usr/bin:/bin rm -rf -- \"$1\") <&3 &";
  const char *const words[] = {"sh", "-c", waiter, "sh", folder, NULL};
  int line[2];
  if (pipe2(line, O_CLOEXEC)) return;
  pid_t pid = vfork();
  if (pid == 0) {
    int nothing = open("/dev/null", O_RDWR);
    if (setsid() < 0 || nothing < 0 || dup2(line[0], 0) < 0) _exit(0);
    dup2(nothing, 1), dup2(nothing, 2);
    execv("/bin/sh", (char *const *)words);
    _exit(0);
  }
  close(line[0]); /* the other end closes with the process */
  if (pid > 0) waitpid(pid, NULL, 0);
}

char *work_folder(Ctx *c) {
  const char *base = getenv("TMPDIR");
  char *path = arena_printf(c->arena, "%s/shardc.XXXXXX", base && *base ? base : "/tmp");
  sigset_t all, before; /* no signal between the folder and what looks after it */
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  bool made = mkdtemp(path) != NULL;
  if (made) look_after(path);
  sigprocmask(SIG_SETMASK, &before, NULL);
  if (made) return path;
  diag_refused(c->diag, "E1310", CANNOT_MAKE_TEMPORARY, path);
  return NULL;
}

void remove_folder(Arena *arena, const char *folder) {
  DIR *d = opendir(folder);
  if (!d) return;
  for (struct dirent *e; (e = readdir(d));)
    if (e->d_name[0] != '.') unlink(arena_printf(arena, "%s/%s", folder, e->d_name));
  closedir(d);
  rmdir(folder);
}

static bool open_folder(Linking *linking) {
  linking->folder = linking->o->keep_dir ? linking->o->keep_dir : work_folder(linking->m->ctx);
  return linking->folder != NULL;
}

static void close_folder(Linking *linking) {
  if (!linking->o->keep_dir && linking->folder) remove_folder(linking->arena, linking->folder);
}

/* ---- the executable ---- */

/* The programs of an executable for several targets hang on each other. */
static const char *program_flag(const Linking *linking, const char *word, int part) {
  return arena_printf(linking->arena, "-D%s=rt_program_%d", word, part);
}

static pid_t compile_host(Linking *linking) {
  const char *path = arena_printf(linking->arena, "%s/host.c", linking->folder);
  char *text = host_write(linking->m);
  if (!output_write(linking->arena, path, text, strlen(text), 0666))
    return fails(linking, "E1310", CANNOT_WRITE, path), -1;
  const char *level = linking->o->quick ? "-O0" : "-O1"; /* kernels take the time of a step */
  const char *const words[] = {"cc", "-std=gnu17", level, "-fPIC",      "-Wall", "-c",
                               "-o", "host.o",     "-I",  linking->lib, "host.c"};
  LinkWords link_words = {0};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    vec_push(linking->arena, link_words, words[i]);
  if (linking->o->part)
    vec_push(linking->arena, link_words, program_flag(linking, "RT_PROGRAM", linking->o->part));
  if (linking->o->part + 1 < linking->o->parts)
    vec_push(linking->arena, link_words, program_flag(linking, "RT_NEXT", linking->o->part + 1));
  return start(linking, &link_words);
}

#define IMAGE_BYTES "rt_image_bytes_" /* of symbols that hold a kernel's file */
#define PHASE_NAMES "phases"          /* a file of names of phases, and of what they become */

/* Where a kernel's file begins and ends; both 0: there is none. Programs of one executable (plans,
   classes of stages) share files that are the same: each is a COMDAT group named by what it holds.
   A zero byte ends text. */
static void put_file(Linking *linking, FILE *l_e, const char *file) {
  CacheBytes bytes =
      cache_read_file(linking->arena, arena_printf(linking->arena, "%s/%s", linking->folder, file));
  if (!bytes.at) {
    fprintf(l_e, "\t.quad 0, 0\n");
    return;
  }
  const char *hash = hash_words(linking->arena, hash_bytes(hash_begin(), bytes.at, bytes.n), 32);
  const char *name = arena_printf(linking->arena, IMAGE_BYTES "%s", hash);
  fprintf(l_e, "\t.section .rodata.%s,\"aG\",@progbits,%s,comdat\n\t.balign 64\n", name, name);
  fprintf(l_e, "\t.globl %s\n\t.hidden %s\n%s:\n", name, name, name);
  fprintf(l_e, "\t.incbin \"%s\"\n\t.byte 0\n", file);
  fprintf(l_e, "\t.section .data.rel.ro,\"aw\",@progbits\n\t.quad %s, %s + %zu\n", name, name,
          bytes.n);
}

static void put_image(Linking *linking, FILE *file, const char *symbol) {
  fprintf(file, "\t.section .data.rel.ro,\"aw\",@progbits\n\t.balign 8\n");
  fprintf(file, "\t.globl %s_image\n\t.hidden %s_image\n%s_image:\n", symbol, symbol, symbol);
  const DeviceCode *code = target_of(linking->m)->code;
  put_file(linking, file, arena_printf(linking->arena, "%s%s", symbol, code->ending));
  put_file(linking, file, arena_printf(linking->arena, "%s%s", symbol, code->assembled));
}

/* Kernels as data of the executable: images.S takes their files as they are. */
static bool embed_images(Linking *linking) {
  char *text = NULL;
  size_t n = 0;
  const char *path = arena_printf(linking->arena, "%s/images.S", linking->folder);
  FILE *file = heap_stream(&text, &n);
  if (!file) return fails(linking, "E1310", CANNOT_WRITE, path);
  for (uint32_t i = 0; i < linking->m->fns.n; i++) {
    if (linking->m->fns.at[i]->kind != FN_KERNEL ||
        kernel_on_host(linking->m, linking->m->fns.at[i]))
      continue;
    put_image(linking, file, kernel_symbol(linking->m, linking->m->fns.at[i]));
  }
  fprintf(file, "\t.section .note.GNU-stack,\"\",@progbits\n");
  fclose(file);
  bool ok = output_write(linking->arena, path, text, n, 0666);
  free(text);
  if (!ok) return fails(linking, "E1310", CANNOT_WRITE, path);
  LinkWords link_words = {0};
  const char *const words[] = {"cc", "-c", "-o", "images.o", "images.S"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    vec_push(linking->arena, link_words, words[i]);
  return finish(linking, start(linking, &link_words), "cc", "embed the kernels");
}

static bool has_images(const Linking *linking) { return target_of(linking->m)->code->images; }

static void add_objects(Linking *linking, LinkWords *link_words) {
  bool images = has_images(linking);
  if (images) vec_push(linking->arena, *link_words, "images.o");
  for (uint32_t i = 0; i < linking->m->fns.n; i++)
    if (linking->m->fns.at[i]->kind == FN_KERNEL &&
        (!images || kernel_on_host(linking->m, linking->m->fns.at[i])))
      vec_push(
          linking->arena, *link_words,
          arena_printf(linking->arena, "%s.o", kernel_symbol(linking->m, linking->m->fns.at[i])));
}

/* The file of the runtime that uses MPI is compiled at this point, by the installed MPI's
   compiler. */
static bool uses_mpi(const Module *m) { return !strcmp(module_setting(m, "comm", "local"), "mpi"); }

/* For code of processors, as put_file does for images: a kernel's phases get names with a hash of
   their file's contents, and phases of the same name are linked once, whatever other names the
   kernel has. */
static bool name_phases(Linking *linking, const char *path) {
  char *text = NULL;
  size_t n = 0;
  FILE *file = heap_stream(&text, &n);
  if (!file) return fails(linking, "E1310", CANNOT_WRITE, path);
  for (uint32_t i = 0; i < linking->m->fns.n; i++) {
    const Fn *k = linking->m->fns.at[i];
    if (k->kind != FN_KERNEL || (has_images(linking) && !kernel_on_host(linking->m, k))) continue;
    const char *symbol = kernel_symbol(linking->m, k);
    const char *made = arena_printf(linking->arena, "%s/%s.o", linking->folder, symbol);
    CacheBytes bytes = cache_read_file(linking->arena, made);
    const char *hash = hash_words(linking->arena, hash_bytes(hash_begin(), bytes.at, bytes.n), 32);
    for (int64_t phase = 0; phase < attr_get(&k->attrs, ATTR_chunks)->i; phase++)
      fprintf(file, "%s_p%lld %s_p%lld.%s\n", symbol, (long long)phase, symbol, (long long)phase,
              hash);
  }
  fclose(file);
  bool ok = output_write(linking->arena, path, text, n, 0666);
  free(text);
  return ok || fails(linking, "E1310", CANNOT_WRITE, path);
}

/* One object of all that belongs to one plan and target. Only its program can be seen from outside,
   and what others may share: kernels of different ones have the same names. */
static bool make_part(Linking *linking) {
  LinkWords join = {0}, hide = {0};
  if (!name_phases(linking, arena_printf(linking->arena, "%s/" PHASE_NAMES, linking->folder)))
    return false;
  const char *const words[] = {"cc", "-r", "-nostdlib", "-o", "program", "host.o"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    vec_push(linking->arena, join, words[i]);
  add_objects(linking, &join);
  if (!finish(linking, start(linking, &join), "cc", "join the objects of a target")) return false;
  vec_push(linking->arena, hide, "objcopy");
  vec_push(linking->arena, hide, "--wildcard");
  vec_push(linking->arena, hide, "--keep-global-symbol=" IMAGE_BYTES "*");
  vec_push(linking->arena, hide, "--redefine-syms=" PHASE_NAMES);
  vec_push(linking->arena, hide, "--keep-global-symbol=k_*_p?.*");
  vec_push(linking->arena, hide,
           linking->o->part ? arena_printf(linking->arena, "--keep-global-symbol=rt_program_%d",
                                           linking->o->part)
                            : "--keep-global-symbol=rt_the_program");
  vec_push(linking->arena, hide, "program");
  return finish(linking, start(linking, &hide), "objcopy", "join the objects of a target");
}

/* objects: NULL: those of the module in the folder. */
static bool link_all(Linking *linking, const char *const *objects) {
  LinkWords link_words = {0};
  bool mpi = uses_mpi(linking->m);
  vec_push(linking->arena, link_words, mpi ? "mpicc" : "cc");
#if defined __SANITIZE_ADDRESS__ /* with a checked compiler, the runtime is checked as well */
  vec_push(linking->arena, link_words, "-fsanitize=address,undefined");
#elif defined __SANITIZE_THREAD__
  vec_push(linking->arena, link_words, "-fsanitize=thread");
#endif
  const char *const flags[] = {"-Wl,--build-id=none", "-Wl,--strip-debug", "-Wl,-z,noexecstack",
                               "-o", "program"};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
    vec_push(linking->arena, link_words, flags[i]);
  for (int i = 0; objects && i < linking->o->parts; i++)
    vec_push(linking->arena, link_words, objects[i]);
  if (!objects) {
    vec_push(linking->arena, link_words, "host.o");
    add_objects(linking, &link_words);
  }
  const char *const own[] = {"-std=gnu17", "-D_GNU_SOURCE", "-O1", "-I", linking->lib};
  for (size_t i = 0; mpi && i < sizeof own / sizeof *own; i++)
    vec_push(linking->arena, link_words, own[i]);
  if (mpi)
    vec_push(linking->arena, link_words,
             arena_printf(linking->arena, "%s/comm/comm_mpi.c", linking->lib));
  vec_push(linking->arena, link_words,
           arena_printf(linking->arena, "%s/libshardrt.a", linking->lib));
  vec_push(linking->arena, link_words, "-lm");
  vec_push(linking->arena, link_words, "-lpthread");
  vec_push(linking->arena, link_words, "-ldl");
  return finish(linking, start(linking, &link_words), mpi ? "mpicc" : "cc", "link the executable");
}

bool kernels_link(Module *m, const char *dir, const char *name) {
  const BuildOptions options = {0};
  Linking linking = {.m = m, .o = &options, .arena = arena_new(), .folder = dir};
  LinkWords link_words = {0};
  const char *const words[] = {"cc", "-shared", "-o", name};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++)
    vec_push(linking.arena, link_words, words[i]);
  add_objects(&linking, &link_words);
  vec_push(linking.arena, link_words, "-lm");
  bool ok = finish(&linking, start(&linking, &link_words), "cc", "link the kernels");
  arena_free(linking.arena);
  return ok;
}

static bool deliver(Linking *linking) {
  const char *made = arena_printf(linking->arena, "%s/program", linking->folder);
  CacheBytes bytes = cache_read_file(linking->arena, made);
  if (!bytes.at) return fails(linking, "E1310", CANNOT_READ, made);
  if (!output_write(linking->arena, linking->o->output, bytes.at, bytes.n, 0777))
    return fails(linking, "E1310", CANNOT_WRITE, linking->o->output);
  unlink(made);
  return true;
}

static Linking *linking_new(Module *m, const BuildOptions *options) {
  Arena *arena = arena_new();
  Linking *linking = ARENA_NEW(arena, Linking);
  *linking = (Linking){.m = m, .options = *options, .arena = arena, .host = -1};
  linking->o = &linking->options;
  return linking;
}

/* IR written by hand may stop short of what `select` decides. */
static bool all_cut(Module *m) {
  bool good = true;
  EACH_FN (m, k) {
    if (k->kind != FN_KERNEL || attr_get(&k->attrs, ATTR_tile)) continue;
    diag_at(m->ctx->diag, "E1110", k->span, "kernel @%s has no family and no tile", k->name);
    good = false;
  }
  return good;
}

Linking *codegen_begin(Module *m, const BuildOptions *options) {
  Linking *linking = linking_new(m, options);
  if (!all_cut(m) || !find_library(linking) || !open_folder(linking)) return linking;
  linking->host = compile_host(linking);
  linking->good = linking->host >= 0 && kernels_build_as(linking->m, linking->folder,
                                                         linking->o->jobs, linking->o->quick);
  return linking;
}

bool codegen_end(Linking *linking) {
  bool ok = linking->host >= 0 && finish(linking, linking->host, "cc", "compile the host program");
  ok = ok && linking->good;
  ok = ok && (!has_images(linking) || embed_images(linking));
  ok = ok && (linking->o->parts > 1 ? make_part(linking) : link_all(linking, NULL)) &&
       deliver(linking);
  close_folder(linking);
  arena_free(linking->arena);
  return ok;
}

bool targets_join(Module *m, const BuildOptions *options, const char *const *objects) {
  Linking linking = {.m = m, .o = options, .arena = arena_new()};
  bool ok = find_library(&linking) && (linking.folder = work_folder(m->ctx));
  ok = ok && link_all(&linking, objects) && deliver(&linking);
  if (linking.folder) remove_folder(linking.arena, linking.folder);
  arena_free(linking.arena);
  return ok;
}

/* ---- text ---- */

static bool put_text(Linking *linking, const char *text) {
  if (!strcmp(linking->o->output, "-")) {
    bool ok = fputs(text, stdout) >= 0 && !fflush(stdout);
    return ok || fails(linking, "E1310", CANNOT_WRITE, "stdout");
  }
  return output_write(linking->arena, linking->o->output, text, strlen(text), 0666) ||
         fails(linking, "E1310", CANNOT_WRITE, linking->o->output);
}

/* Assembly of several kernels is one file if only the first one says what it is written for. */
static const char *after_head(const DeviceCode *code, const char *text, size_t before) {
  const char *at = before && code->head_end ? strstr(text, code->head_end) : NULL;
  return at && strchr(at, '\n') ? strchr(at, '\n') + 1 : text;
}

static bool emit_kernels(Linking *linking, bool assembly) {
  Module *m = linking->m;
  char *all = NULL;
  size_t n = 0, kernels = 0;
  FILE *out = heap_stream(&all, &n);
  if (!out) return fails(linking, "E1310", CANNOT_WRITE, linking->o->output);
  const char *mark = assembly ? target_of(m)->code->comment : ";";
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_KERNEL)
      fprintf(out, "%s kernel %s\n%s\n", mark, m->fns.at[i]->name,
              after_head(target_of(m)->code, kernel_text(m, m->fns.at[i], assembly), kernels++));
  fclose(out);
  bool ok = put_text(linking, all);
  free(all);
  return ok;
}

bool codegen_build(Module *m, const BuildOptions *options) {
  if (!options->emit) return codegen_end(codegen_begin(m, options));
  if (!all_cut(m)) return false;
  Linking linking = {.m = m, .o = options, .arena = arena_new()};
  bool ok;
  if (!strcmp(options->emit, "c")) ok = put_text(&linking, host_write(m));
  else ok = emit_kernels(&linking, strcmp(options->emit, "llvm") != 0);
  arena_free(linking.arena);
  return ok;
}
