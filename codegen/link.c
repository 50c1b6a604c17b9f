/* From a module to a file: text of the host program or of the kernels, or the executable.

   The executable: host.c is compiled by the system's C compiler while the kernels are compiled
   (kernel_objects.c); then both are linked with libshardrt.a. Commands run inside the work folder
   with plain file names, so that no path gets into an object; symbols for debuggers are dropped.
   The result appears under its name by a rename, complete or not at all.

   libshardrt.a and rt.h are looked for in $SHARDC_LIB, then in lib/shardc beside the shardc program
   (build tree) or beside its folder (installed). */
#include "ir/count.h"
#include "cache.h"
#include "device_code.h"
#include "ir/support/output.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct Linking {
  Module *m;
  const BuildOptions *o;
  Arena *arena;
  const char *folder; /* where objects are made */
  const char *lib;    /* where libshardrt.a and rt.h are */
} Linking;

typedef VEC(const char *) LinkWords;

static bool fails(Linking *l, const char *code, const char *what, const char *which) {
  diag_at(l->m->ctx->diag, code, (Span){0}, "%s `%s`: %s", what, which, strerror(errno));
  return false;
}

/* ---- commands ---- */

static void show(const Linking *l, const LinkWords *w) {
  if (!l->o->verbose) return;
  fprintf(stderr, "(in %s)", l->folder);
  for (uint32_t i = 0; w->at[i]; i++) fprintf(stderr, " %s", w->at[i]);
  fprintf(stderr, "\n");
}

static _Noreturn void child_main(const Linking *l, const LinkWords *w) {
  int err =
      open(arena_printf(l->arena, "%s/cc.err", l->folder), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (err >= 0) dup2(err, STDERR_FILENO);
  if (!chdir(l->folder)) execvp(w->at[0], (char *const *)w->at);
  dprintf(STDERR_FILENO, "%s\n", strerror(errno));
  _exit(127);
}

static pid_t start(Linking *l, LinkWords *w) {
  vec_push(l->arena, *w, NULL);
  show(l, w);
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0) child_main(l, w);
  if (pid < 0) fails(l, "E1313", "cannot start", w->at[0]);
  return pid;
}

static bool finish(Linking *l, pid_t pid, const char *compiler, const char *what) {
  int status;
  if (pid < 0) return false;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
  const char *path = arena_printf(l->arena, "%s/cc.err", l->folder);
  CacheBytes words = cache_read_file(l->arena, path);
  unlink(path);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  Report *r = diag_at(l->m->ctx->diag, "E1312", (Span){0}, "the C compiler `%s` failed to %s",
                      compiler, what);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127 && !strcmp(compiler, "mpicc"))
    diag_help(r,
              "install an MPI for developers, such as libopenmpi-dev, or leave `--comm mpi` out");
  if (words.at && words.n)
    diag_fact(r, "%s", arena_strndup(l->arena, words.at, strcspn(words.at, "\n")));
  return false;
}

/* ---- where things are ---- */

static bool has_library(Arena *a, const char *folder) {
  if (access(arena_printf(a, "%s/libshardrt.a", folder), R_OK)) return false;
  return !access(arena_printf(a, "%s/rt.h", folder), R_OK);
}

const char *library_folder(Arena *a, const char **looked) {
  char self[PATH_MAX] = "";
  const char *given = getenv("SHARDC_LIB");
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) self[0] = 0;
  char *slash = strrchr(self, '/');
  if (slash) *slash = 0;
  const char *places[] = {given ? given : "", arena_printf(a, "%s/lib/shardc", self),
                          arena_printf(a, "%s/../lib/shardc", self)};
  *looked = places[given ? 0 : 1];
  for (int i = given ? 0 : 1; i < (given ? 1 : 3); i++)
    if (has_library(a, places[i])) {
      char *whole = realpath(places[i], NULL);
      const char *path = whole ? whole : places[i];
      path = arena_strndup(a, path, strlen(path));
      free(whole);
      return path;
    }
  return NULL;
}

static bool find_library(Linking *l) {
  const char *looked;
  l->lib = library_folder(l->arena, &looked);
  if (l->lib) return true;
  Report *r = diag_at(l->m->ctx->diag, "E1311", (Span){0}, "cannot find libshardrt.a and rt.h");
  diag_fact(r, "looked in `%s`", looked);
  diag_help(r, "set SHARDC_LIB to the folder that holds both");
  return false;
}

/* When this process has ended, whatever the way, the folder goes. What waits for that end is a
   process of its own: it reads from a pipe of which only this one and its children have the other
   end. Nobody waits for it, so it belongs to init. */
static void look_after(Arena *a, const char *folder) {
  int line[2];
  char nothing;
  sigset_t all;
  if (pipe2(line, O_CLOEXEC)) return;
  pid_t pid = fork();
  if (pid == 0) {
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    if (setsid() < 0 || fork()) _exit(0);
    close(0), close(1), close(2), close(line[1]);
    while (read(line[0], &nothing, 1) < 0 && errno == EINTR) {}
    remove_folder(a, folder);
    _exit(0);
  }
  close(line[0]); /* the other end closes with the process */
  if (pid > 0) waitpid(pid, NULL, 0);
}

char *work_folder(Ctx *c) {
  const char *base = getenv("TMPDIR");
  char *path = arena_printf(c->arena, "%s/shardc.XXXXXX", base && *base ? base : "/tmp");
  if (mkdtemp(path)) return look_after(c->arena, path), path;
  diag_at(c->diag, "E1310", (Span){0}, "cannot make a temporary folder `%s`: %s", path,
          strerror(errno));
  return NULL;
}

void remove_folder(Arena *a, const char *folder) {
  DIR *d = opendir(folder);
  if (!d) return;
  for (struct dirent *e; (e = readdir(d));)
    if (e->d_name[0] != '.') unlink(arena_printf(a, "%s/%s", folder, e->d_name));
  closedir(d);
  rmdir(folder);
}

static bool open_folder(Linking *l) {
  l->folder = l->o->keep_dir ? l->o->keep_dir : work_folder(l->m->ctx);
  return l->folder != NULL;
}

static void close_folder(Linking *l) {
  if (!l->o->keep_dir && l->folder) remove_folder(l->arena, l->folder);
}

/* ---- the executable ---- */

/* The programs of an executable for several targets hang on each other. */
static const char *program_flag(const Linking *l, const char *word, int part) {
  return arena_printf(l->arena, "-D%s=rt_program_%d", word, part);
}

static pid_t compile_host(Linking *l) {
  const char *path = arena_printf(l->arena, "%s/host.c", l->folder);
  char *text = host_write(l->m);
  if (!output_write(l->arena, path, text, strlen(text), 0666))
    return fails(l, "E1310", "cannot write", path), -1;
  const char *const words[] = {"cc", "-std=gnu17", "-O1", "-fPIC", "-Wall", "-c",
                               "-o", "host.o",     "-I",  l->lib,  "host.c"};
  LinkWords w = {0};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) vec_push(l->arena, w, words[i]);
  if (l->o->part) vec_push(l->arena, w, program_flag(l, "RT_PROGRAM", l->o->part));
  if (l->o->part + 1 < l->o->parts)
    vec_push(l->arena, w, program_flag(l, "RT_NEXT", l->o->part + 1));
  return start(l, &w);
}

#define IMAGE_BYTES "rt_image_bytes_" /* of symbols that hold a kernel's file */

/* Where a kernel's file begins and ends; both 0: there is none. Programs of one executable (plans,
   classes of stages) share files that are the same: each is a COMDAT group named by what it holds.
   A zero byte ends text. */
static void put_file(Linking *l, FILE *o, const char *file) {
  CacheBytes b = cache_read_file(l->arena, arena_printf(l->arena, "%s/%s", l->folder, file));
  if (!b.at) {
    fprintf(o, "\t.quad 0, 0\n");
    return;
  }
  const char *hash = hash_words(l->arena, hash_bytes(hash_begin(), b.at, b.n), 32);
  const char *name = arena_printf(l->arena, IMAGE_BYTES "%s", hash);
  fprintf(o, "\t.section .rodata.%s,\"aG\",@progbits,%s,comdat\n\t.balign 64\n", name, name);
  fprintf(o, "\t.globl %s\n\t.hidden %s\n%s:\n", name, name, name);
  fprintf(o, "\t.incbin \"%s\"\n\t.byte 0\n", file);
  fprintf(o, "\t.section .data.rel.ro,\"aw\",@progbits\n\t.quad %s, %s + %zu\n", name, name, b.n);
}

static void put_image(Linking *l, FILE *o, const char *symbol) {
  fprintf(o, "\t.section .data.rel.ro,\"aw\",@progbits\n\t.balign 8\n");
  fprintf(o, "\t.globl %s_image\n\t.hidden %s_image\n%s_image:\n", symbol, symbol, symbol);
  put_file(l, o, arena_printf(l->arena, "%s.ptx", symbol));
  put_file(l, o, arena_printf(l->arena, "%s.cubin", symbol));
}

/* Kernels as data of the executable: images.S takes their files as they are. */
static bool embed_images(Linking *l) {
  char *text = NULL;
  size_t n = 0;
  const char *path = arena_printf(l->arena, "%s/images.S", l->folder);
  FILE *o = heap_stream(&text, &n);
  if (!o) return fails(l, "E1310", "cannot write", path);
  for (uint32_t i = 0; i < l->m->fns.n; i++) {
    if (l->m->fns.at[i]->kind != FN_KERNEL || kernel_beside(l->m, l->m->fns.at[i])) continue;
    put_image(l, o, kernel_symbol(l->m, l->m->fns.at[i]));
  }
  fprintf(o, "\t.section .note.GNU-stack,\"\",@progbits\n");
  fclose(o);
  bool ok = output_write(l->arena, path, text, n, 0666);
  free(text);
  if (!ok) return fails(l, "E1310", "cannot write", path);
  LinkWords w = {0};
  const char *const words[] = {"cc", "-c", "-o", "images.o", "images.S"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) vec_push(l->arena, w, words[i]);
  return finish(l, start(l, &w), "cc", "embed the kernels");
}

static bool has_images(const Linking *l) { return target_of(l->m)->code->images; }

static void add_objects(Linking *l, LinkWords *w) {
  bool images = has_images(l);
  if (images) vec_push(l->arena, *w, "images.o");
  for (uint32_t i = 0; i < l->m->fns.n; i++)
    if (l->m->fns.at[i]->kind == FN_KERNEL && (!images || kernel_beside(l->m, l->m->fns.at[i])))
      vec_push(l->arena, *w, arena_printf(l->arena, "%s.o", kernel_symbol(l->m, l->m->fns.at[i])));
}

/* The file of the runtime that knows MPI is compiled here, by the compiler of the MPI at hand. */
static bool uses_mpi(const Module *m) { return !strcmp(module_setting(m, "comm", "local"), "mpi"); }

/* One object of all that belongs to one plan and target. Only its program can be seen from outside,
   and bytes that others may share: kernels of different ones have the same names. */
static bool make_part(Linking *l) {
  LinkWords join = {0}, hide = {0};
  const char *const words[] = {"cc", "-r", "-nostdlib", "-o", "program", "host.o"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) vec_push(l->arena, join, words[i]);
  add_objects(l, &join);
  if (!finish(l, start(l, &join), "cc", "join the objects of a target")) return false;
  vec_push(l->arena, hide, "objcopy");
  vec_push(l->arena, hide, "--wildcard");
  vec_push(l->arena, hide, "--keep-global-symbol=" IMAGE_BYTES "*");
  vec_push(l->arena, hide,
           l->o->part ? arena_printf(l->arena, "--keep-global-symbol=rt_program_%d", l->o->part)
                      : "--keep-global-symbol=rt_the_program");
  vec_push(l->arena, hide, "program");
  return finish(l, start(l, &hide), "objcopy", "join the objects of a target");
}

/* objects: NULL: those of the module in the folder. */
static bool link_all(Linking *l, const char *const *objects) {
  LinkWords w = {0};
  bool mpi = uses_mpi(l->m);
  vec_push(l->arena, w, mpi ? "mpicc" : "cc");
#if defined __SANITIZE_ADDRESS__ /* the runtime beside a checked compiler is checked too */
  vec_push(l->arena, w, "-fsanitize=address,undefined");
#elif defined __SANITIZE_THREAD__
  vec_push(l->arena, w, "-fsanitize=thread");
#endif
  const char *const flags[] = {"-Wl,--build-id=none", "-Wl,--strip-debug", "-Wl,-z,noexecstack",
                               "-o", "program"};
  for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) vec_push(l->arena, w, flags[i]);
  for (int i = 0; objects && i < l->o->parts; i++) vec_push(l->arena, w, objects[i]);
  if (!objects) {
    vec_push(l->arena, w, "host.o");
    add_objects(l, &w);
  }
  const char *const own[] = {"-std=gnu17", "-D_GNU_SOURCE", "-O1", "-I", l->lib};
  for (size_t i = 0; mpi && i < sizeof own / sizeof *own; i++) vec_push(l->arena, w, own[i]);
  if (mpi) vec_push(l->arena, w, arena_printf(l->arena, "%s/comm/comm_mpi.c", l->lib));
  vec_push(l->arena, w, arena_printf(l->arena, "%s/libshardrt.a", l->lib));
  vec_push(l->arena, w, "-lm");
  vec_push(l->arena, w, "-lpthread");
  vec_push(l->arena, w, "-ldl");
  return finish(l, start(l, &w), mpi ? "mpicc" : "cc", "link the executable");
}

bool kernels_link(Module *m, const char *dir, const char *name) {
  const BuildOptions options = {0};
  Linking l = {.m = m, .o = &options, .arena = arena_new(), .folder = dir};
  LinkWords w = {0};
  const char *const words[] = {"cc", "-shared", "-o", name};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) vec_push(l.arena, w, words[i]);
  add_objects(&l, &w);
  vec_push(l.arena, w, "-lm");
  bool ok = finish(&l, start(&l, &w), "cc", "link the kernels");
  arena_free(l.arena);
  return ok;
}

static bool deliver(Linking *l) {
  const char *made = arena_printf(l->arena, "%s/program", l->folder);
  CacheBytes b = cache_read_file(l->arena, made);
  if (!b.at) return fails(l, "E1310", "cannot read", made);
  if (!output_write(l->arena, l->o->output, b.at, b.n, 0777))
    return fails(l, "E1310", "cannot write", l->o->output);
  unlink(made);
  return true;
}

static bool build_executable(Linking *l) {
  if (!find_library(l) || !open_folder(l)) return false;
  pid_t host = compile_host(l);
  bool ok = host >= 0 && kernels_build_as(l->m, l->folder, l->o->jobs, l->o->quick);
  ok = (host >= 0 && finish(l, host, "cc", "compile the host program")) && ok;
  ok = ok && (!has_images(l) || embed_images(l));
  ok = ok && (l->o->parts > 1 ? make_part(l) : link_all(l, NULL)) && deliver(l);
  close_folder(l);
  return ok;
}

bool targets_join(Module *m, const BuildOptions *o, const char *const *objects) {
  Linking l = {.m = m, .o = o, .arena = arena_new()};
  bool ok = find_library(&l) && (l.folder = work_folder(m->ctx));
  ok = ok && link_all(&l, objects) && deliver(&l);
  if (l.folder) remove_folder(l.arena, l.folder);
  arena_free(l.arena);
  return ok;
}

/* ---- text ---- */

static bool put_text(Linking *l, const char *text) {
  if (!strcmp(l->o->output, "-")) {
    bool ok = fputs(text, stdout) >= 0 && !fflush(stdout);
    return ok || fails(l, "E1310", "cannot write", "stdout");
  }
  return output_write(l->arena, l->o->output, text, strlen(text), 0666) ||
         fails(l, "E1310", "cannot write", l->o->output);
}

/* PTX of several kernels is one file if only the first one says what it is written for. */
static const char *after_head(const char *text, size_t before) {
  const char *at = before ? strstr(text, ".address_size") : NULL;
  return at && strchr(at, '\n') ? strchr(at, '\n') + 1 : text;
}

static bool emit_kernels(Linking *l, bool assembly) {
  Module *m = l->m;
  char *all = NULL;
  size_t n = 0, kernels = 0;
  FILE *out = heap_stream(&all, &n);
  if (!out) return fails(l, "E1310", "cannot write", l->o->output);
  const char *mark = assembly ? target_of(m)->code->comment : ";";
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_KERNEL)
      fprintf(out, "%s kernel %s\n%s\n", mark, m->fns.at[i]->name,
              after_head(kernel_text(m, m->fns.at[i], assembly), kernels++));
  fclose(out);
  bool ok = put_text(l, all);
  free(all);
  return ok;
}

/* IR written by hand may stop short of what `select` decides. */
static bool all_cut(Module *m) {
  bool good = true;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *k = m->fns.at[i];
    if (k->kind != FN_KERNEL || attr_get(&k->attrs, ATTR_tile)) continue;
    diag_at(m->ctx->diag, "E1110", k->span, "kernel @%s has no family and no tile", k->name);
    good = false;
  }
  return good;
}

bool codegen_build(Module *m, const BuildOptions *o) {
  if (!all_cut(m)) return false;
  Linking l = {.m = m, .o = o, .arena = arena_new()};
  bool ok;
  if (!o->emit) ok = build_executable(&l);
  else if (!strcmp(o->emit, "c")) ok = put_text(&l, host_write(m));
  else ok = emit_kernels(&l, strcmp(o->emit, "llvm") != 0);
  arena_free(l.arena);
  return ok;
}
