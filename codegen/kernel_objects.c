/* Kernel functions to object files, or to the input of the device's assembler.

   Kernels are compiled in `jobs` forked children, because LLVM may abort on code that it cannot
   select. A child takes the next free kernel, those with the longest compilation first, so that no
   child waits for another at the end. It writes DIR/SYMBOL.o of each, or ends with another status
   and its message in a file of its own, which becomes a diagnostic.

   Objects come from the kernel cache if LLVM, the target and the LLVM IR of the function are the
   same, whatever its name: code is generated under a neutral name, and renamed when it is written.
   The cache has two steps. The compiler and the function's text give the digest of the LLVM IR, so
   that known IR is not written again; the digest gives the object, so that another compiler
   generates code only for functions of which it writes other IR. The same function gives the same
   bytes, whatever the order of the children. */
#include "cache.h"
#include "device_code.h"
#include "ir/kernel/kernel_key.h"
#include "ir/support/num.h"
#include "ir/support/output.h"
#include <errno.h>
#include <fcntl.h>
#include <llvm-c/Analysis.h>
#include <llvm-c/BitWriter.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHILD_CANNOT_WRITE = 3, ASSEMBLER_REFUSED = 5 }; /* how a child ends */

/* ---- one kernel ---- */

/* LLVM's description of a target, which takes as long to make as a small kernel: kept for the next
   one. */
typedef struct KeptMachine {
  const Target *target;
  LLVMCodeGenOptLevel level;
  LLVMTargetMachineRef ref;
} KeptMachine;

static LLVMTargetMachineRef machine_new(const Target *t, LLVMCodeGenOptLevel level) {
  t->code->init();
  LLVMTargetRef target;
  char *message = NULL;
  if (LLVMGetTargetFromTriple(t->triple, &target, &message))
    bug("LLVM has no target %s: %s", t->triple, message);
  return LLVMCreateTargetMachine(target, t->triple, t->cpu, t->features, level, LLVMRelocPIC,
                                 LLVMCodeModelDefault);
}

static void machine_free(KeptMachine *machine) {
  if (machine->ref) LLVMDisposeTargetMachine(machine->ref);
  machine->ref = NULL;
}

static LLVMTargetMachineRef machine_of(KeptMachine *last, const Target *t,
                                       LLVMCodeGenOptLevel level) {
  if (last->ref && last->target == t && last->level == level) return last->ref;
  machine_free(last);
  *last = (KeptMachine){t, level, machine_new(t, level)};
  return last->ref;
}

static const char *passes_of(const Target *t, bool quick) {
  return quick ? "function(mem2reg,early-cse)" : t->code->passes;
}

/* quick: the lowest level with correct code. If registers are copied between wgmma, ptxas
   serializes them. */
static LLVMCodeGenOptLevel level_of(const Target *t, bool quick) {
  if (!quick) return LLVMCodeGenLevelAggressive;
  return t->facts.wgmma ? LLVMCodeGenLevelLess : LLVMCodeGenLevelNone;
}

static void optimize(Emit *e, LLVMTargetMachineRef machine, bool quick) {
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMPassBuilderOptionsSetLoopVectorization(options, 0);
  LLVMPassBuilderOptionsSetSLPVectorization(options, 0);
  LLVMPassBuilderOptionsSetLoopUnrolling(options, 0);
  LLVMErrorRef error = LLVMRunPasses(e->module, passes_of(e->target, quick), machine, options);
  if (error) bug("kernel %s: %s", e->k->name, LLVMGetErrorMessage(error));
  LLVMDisposePassBuilderOptions(options);
}

static void check_module(Emit *e) {
  char *message = NULL;
  if (!LLVMVerifyModule(e->module, LLVMReturnStatusAction, &message)) {
    LLVMDisposeMessage(message);
    return;
  }
  bug("kernel %s: LLVM rejects its code: %s", e->k->name, message);
}

/* Only this handler reports code that cannot be selected for a GPU: the call that generates it
   succeeds. */
static void machine_says(LLVMDiagnosticInfoRef info, void *k) {
  if (LLVMGetDiagInfoSeverity(info) != LLVMDSError) return;
  bug("kernel %s: %s", ((const Fn *)k)->name, LLVMGetDiagInfoDescription(info));
}

/* The kernel in LLVM IR, which the caller frees. */
static Emit *emitted(Module *all, const Fn *k, const char *symbol, Arena *arena, bool quick,
                     KeptMachine *machine) {
  Module *m = module_for_kernel(all, k);
  const Target *target = target_of(m);
  Str name = attr_str(&k->attrs, ATTR_family, "");
  const KernelFamily *family = target->code->family(name);
  if (!family) bug("kernel %s: no family `%s`", k->name, name);
  Emit *e = emit_new(m, k, target, symbol, arena);
  e->quick = quick;
  LLVMContextSetDiagnosticHandler(e->context, machine_says, (void *)k);
  LLVMTargetDataRef layout =
      LLVMCreateTargetDataLayout(machine_of(machine, target, level_of(target, quick)));
  LLVMSetModuleDataLayout(e->module, layout);
  LLVMDisposeTargetData(layout);
  family->emit(e);
  return e;
}

/* Everything that decides the bytes of the code: what LLVM is given, and LLVM. */
static CacheKey emitted_key(const Emit *e, bool quick) {
  const Target *target = e->target;
  unsigned major, minor, patch;
  LLVMGetVersion(&major, &minor, &patch);
  LLVMMemoryBufferRef bits = LLVMWriteBitcodeToMemoryBuffer(e->module);
  CacheKey h = hash_text(hash_begin(), SHARDC_LLVM_LIBRARY);
  h = hash_text(h, arena_printf(e->arena, "%u.%u.%u level %d file %d", major, minor, patch,
                                level_of(target, quick), target->code->file));
  const char *const words[] = {target->triple, target->cpu, target->features,
                               passes_of(target, quick)};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) h = hash_text(h, words[i]);
  h = hash_bytes(h, LLVMGetBufferStart(bits), LLVMGetBufferSize(bits));
  LLVMDisposeMemoryBuffer(bits);
  return h;
}

/* Checks the module, and optimizes it unless `quick`. */
static LLVMMemoryBufferRef generate(Emit *e, const KeptMachine *machine, LLVMCodeGenFileType type,
                                    bool quick) {
  LLVMMemoryBufferRef code = NULL;
  char *message = NULL;
  check_module(e);
  optimize(e, machine->ref, quick);
  if (LLVMTargetMachineEmitToMemoryBuffer(machine->ref, e->module, type, &message, &code))
    bug("kernel %s: %s", e->k->name, message);
  return code;
}

static LLVMMemoryBufferRef kernel_code(Module *m, const Fn *k, Arena *arena,
                                       LLVMCodeGenFileType type, bool quick) {
  KeptMachine machine = {0};
  Emit *e = emitted(m, k, kernel_symbol(m, k), arena, quick, &machine);
  LLVMMemoryBufferRef code = generate(e, &machine, type, quick);
  emit_free(e);
  machine_free(&machine);
  return code;
}

LLVMMemoryBufferRef kernel_object(Module *m, const Fn *k, bool quick) {
  Arena *arena = arena_new();
  LLVMMemoryBufferRef code = kernel_code(m, k, arena, LLVMObjectFile, quick);
  arena_free(arena);
  return code;
}

char *kernel_text(Module *m, const Fn *k, bool assembly) {
  Arena *arena = arena_new();
  char *text;
  if (assembly) {
    LLVMMemoryBufferRef code = kernel_code(m, k, arena, LLVMAssemblyFile, false);
    text = arena_strndup(m->arena, LLVMGetBufferStart(code), LLVMGetBufferSize(code));
    LLVMDisposeMemoryBuffer(code);
  } else {
    KeptMachine machine = {0};
    Emit *e = emitted(m, k, kernel_symbol(m, k), arena, false, &machine);
    check_module(e);
    optimize(e, machine.ref, false);
    char *printed = LLVMPrintModuleToString(e->module);
    text = arena_strndup(m->arena, printed, strlen(printed));
    LLVMDisposeMessage(printed);
    emit_free(e);
    machine_free(&machine);
  }
  arena_free(arena);
  return text;
}

/* ---- all kernels ---- */

typedef char Remark[200]; /* a line of another program; "": nothing */

typedef struct ObjectBuild {
  Module *m;
  Arena *arena;
  const char *folder, *cache; /* folder of the objects; cache may be NULL */
  CacheKey compiler;
  const Assembler *assembler; /* of a GPU; NULL: none */
  bool quick, failed;
  const Fn **wanted; /* not in the cache */
  uint32_t n;
  struct Queue *queue;
  Remark *slow;        /* by wanted kernel, shared by the children: what the assembler says of it */
  KeptMachine machine; /* of a child */
} ObjectBuild;

/* Shared by the children: the next free kernel, and which one each child works on. */
typedef struct Queue {
  atomic_uint next;
  uint32_t at[];
} Queue;

/* A process that compiles kernels, one after the other. */
typedef struct Child {
  pid_t pid;
  int job;
} Child;

static const Target *target_for(const ObjectBuild *build, const Fn *k) {
  return target_of(module_for_kernel(build->m, k));
}

/* NULL: the code generator writes the object itself. */
static const Assembler *assembler_for(const ObjectBuild *build, const Fn *k) {
  return kernel_on_host(build->m, k) ? NULL : build->assembler;
}

static const char *object_path(ObjectBuild *build, const Fn *k, const char *ending) {
  return arena_printf(build->arena, "%s/%s%s", build->folder, kernel_symbol(build->m, k), ending);
}

/* The file that the code generator of the kernel's device writes. */
static const char *code_path(ObjectBuild *build, const Fn *k) {
  return object_path(build, k, target_for(build, k)->code->ending);
}

/* Everything that decides the LLVM IR of all kernels alike, and the output of an assembler: this
   program, LLVM. */
static CacheKey compiler_hash(ObjectBuild *build) {
  unsigned major, minor, patch;
  LLVMGetVersion(&major, &minor, &patch);
  CacheKey h = hash_program(hash_begin(), build->arena);
  h = hash_text(h, arena_printf(build->arena, "LLVM %u.%u.%u", major, minor, patch));
  return build->quick ? hash_text(h, "quick") : h;
}

static CacheKey code_key(ObjectBuild *build, const Fn *k) {
  CacheKey h = hash_text(build->compiler, target_for(build, k)->name);
  return hash_text(h, kernel_key(build->m, k, KEY_CUT | KEY_DIMS));
}

/* The output of an assembler depends on the assembler as well, and has the kernel's name. */
static CacheKey assembled_key(ObjectBuild *build, const Fn *k) {
  CacheKey h = hash_text(code_key(build, k), kernel_symbol(build->m, k));
  return hash_text(h, build->assembler->version);
}

static bool write_code(ObjectBuild *build, const Fn *k, CacheBytes code) {
  CacheBytes own =
      target_for(build, k)->code->named(build->arena, code, kernel_symbol(build->m, k));
  return output_write(build->arena, code_path(build, k), own.at, own.n, 0666);
}

/* The object of LLVM IR with this digest. */
static CacheKey object_key(const uint8_t digest[SHA256_BYTES]) {
  return hash_bytes(hash_text(hash_begin(), "object"), digest, SHA256_BYTES);
}

static CacheBytes known_code(ObjectBuild *build, const Fn *k) {
  CacheBytes none = {0}, digest = cache_get(build->arena, build->cache, code_key(build, k));
  if (!digest.at || digest.n != SHA256_BYTES) return none;
  return cache_get(build->arena, build->cache, object_key((const uint8_t *)digest.at));
}

static bool take_from_cache(ObjectBuild *build, const Fn *k) {
  if (!build->cache) return false;
  CacheBytes o = known_code(build, k);
  if (!o.at || !write_code(build, k, o)) return false;
  if (!assembler_for(build, k)) return true;
  CacheBytes made = cache_get(build->arena, build->cache, assembled_key(build, k));
  const char *path = object_path(build, k, build->assembler->ending);
  return made.at && output_write(build->arena, path, made.at, made.n, 0666);
}

/* Slow code is not kept, so that each compilation reports it. */
static Assembled assemble(ObjectBuild *build, const Fn *k) {
  const Assembler *assembler = assembler_for(build, k);
  if (!assembler) return (Assembled){0};
  const char *path = object_path(build, k, assembler->ending);
  Assembled made =
      assembler->run(build->arena, assembler, target_of(build->m), code_path(build, k), path);
  if (made.refused || made.slow || !build->cache) return made;
  CacheBytes code = cache_read_file(build->arena, path);
  if (code.at) cache_put(build->arena, build->cache, assembled_key(build, k), code);
  return made;
}

/* The message of a child about the kernel that it works on. One file per child, not per kernel:
   making and removing many files costs more than compiling small kernels without optimizations. */
static const char *words_path(ObjectBuild *build, int job) {
  return arena_printf(build->arena, "%s/kernels-%d.err", build->folder, job);
}

/* The code of LLVM IR that an earlier compiler may have written as well. Code that the assembler
   refuses is not looked up by the kernel's text. */
static CacheBytes code_of(ObjectBuild *build, const Fn *k, bool quick,
                          uint8_t digest[SHA256_BYTES]) {
  Emit *e = emitted(build->m, k, NEUTRAL_SYMBOL, build->arena, quick, &build->machine);
  CacheBytes object = {0};
  if (build->cache) {
    sha256_end(emitted_key(e, quick), digest);
    object = cache_get(build->arena, build->cache, object_key(digest));
  }
  if (!object.at) {
    LLVMMemoryBufferRef code = generate(e, &build->machine, e->target->code->file, quick);
    object.n = LLVMGetBufferSize(code), object.at = arena_alloc(build->arena, object.n);
    memcpy(object.at, LLVMGetBufferStart(code), object.n);
    LLVMDisposeMemoryBuffer(code);
    if (build->cache) cache_put(build->arena, build->cache, object_key(digest), object);
  }
  emit_free(e);
  return object;
}

/* Wanted kernel i. Ends the child if that cannot be. */
static void compile(ObjectBuild *build, uint32_t i, bool quick) {
  const Fn *k = build->wanted[i];
  uint8_t digest[SHA256_BYTES];
  CacheBytes code = code_of(build, k, quick, digest);
  if (!write_code(build, k, code)) _exit(CHILD_CANNOT_WRITE);
  Assembled made = assemble(build, k);
  if (quick && (made.refused || made.slow)) { /* with optimizations it fits into the registers */
    compile(build, i, false);
    return;
  }
  if (made.refused) {
    fprintf(stderr, "%s\n", made.refused), fflush(stderr);
    _exit(ASSEMBLER_REFUSED);
  }
  if (made.slow) snprintf(build->slow[i], sizeof build->slow[i], "%s", made.slow);
  else if (build->cache)
    cache_put(build->arena, build->cache, code_key(build, k),
              (CacheBytes){(char *)digest, sizeof digest});
}

static _Noreturn void child_main(ObjectBuild *build, int job) {
  int err = open(words_path(build, job), O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0666);
  if (err >= 0) dup2(err, STDERR_FILENO), close(err);
  for (uint32_t i; (i = atomic_fetch_add(&build->queue->next, 1)) < build->n;) {
    build->queue->at[job] = i;
    compile(build, i, build->quick);
    if (err >= 0 && ftruncate(STDERR_FILENO, 0)) _exit(CHILD_CANNOT_WRITE);
  }
  _exit(0);
}

static const char *first_line(ObjectBuild *build, int job) {
  CacheBytes words = cache_read_file(build->arena, words_path(build, job));
  return words.at && words.n ? arena_strndup(build->arena, words.at, strcspn(words.at, "\n"))
                             : "it printed nothing";
}

static void report_assembler(ObjectBuild *build, const Fn *k, const char *said) {
  Report *r = diag_at(build->m->ctx->diag, "E1304", (Span){0}, "%s does not assemble kernel `%s`",
                      build->assembler->name, k->name);
  diag_fact(r, "%s", said);
  diag_fact(r, "family %s, target %s", attr_str(&k->attrs, ATTR_family, "?"),
            target_of(build->m)->name);
  diag_help(r, "`--keep DIR` keeps the `%s` file; try another %s, or none, on PATH",
            target_of(build->m)->code->ending, build->assembler->name);
}

/* Cuts are chosen by an estimate of registers, which may be too low. */
static void report_slow(ObjectBuild *build) {
  enum { SHOWN = 4 };
  uint32_t n = 0;
  for (uint32_t i = 0; i < build->n; i++) n += *build->slow[i] != 0;
  if (!n) return;
  Report *r =
      diag_at(build->m->ctx->diag, "W1316", (Span){0}, "%u kernel%s slower than %s should be", n,
              n > 1 ? "s are" : " is", n > 1 ? "they" : "it");
  uint32_t shown = 0;
  for (uint32_t i = 0; i < build->n && shown < SHOWN; i++)
    if (*build->slow[i]) diag_fact(r, "`%s`: %s", build->wanted[i]->name, build->slow[i]), shown++;
  if (n > shown) diag_fact(r, "and %u more", n - shown);
  diag_help(r, "results are right, and `plan` does not know the time; another %s may differ",
            build->assembler->name);
}

static void report(ObjectBuild *build, const Fn *k, int status, const char *said) {
  build->failed = true;
  if (WIFEXITED(status) && WEXITSTATUS(status) == CHILD_CANNOT_WRITE) {
    Report *r =
        diag_at(build->m->ctx->diag, "E1301", (Span){0}, "cannot write `%s`", code_path(build, k));
    diag_help(r, "if its disk is full, `TMPDIR=FOLDER` names another folder for temporary files");
    return;
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == ASSEMBLER_REFUSED) {
    report_assembler(build, k, said);
    return;
  }
  Report *r = diag_at(build->m->ctx->diag, "E1302", (Span){0}, "the compiler of kernel `%s` %s %d",
                      k->name, WIFSIGNALED(status) ? "died of signal" : "ended with status",
                      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  diag_fact(r, "%s", said);
  diag_fact(r, "family %s, target %s", attr_str(&k->attrs, ATTR_family, "?"),
            target_for(build, k)->name);
}

/* The other children end what they are at. */
static void report_child(ObjectBuild *build, const Child *child, int status) {
  atomic_store(&build->queue->next, build->n);
  report(build, build->wanted[build->queue->at[child->job]], status, first_line(build, child->job));
}

/* Waits for one child; only for its own, by asking them in turn, so that other children of the
 * process are left alone. */
static void wait_for_one(ObjectBuild *build, Child *children, int *n) {
  const struct timespec nap = {.tv_nsec = 300000};
  for (int i = 0;; i = (i + 1) % *n) {
    int status;
    pid_t pid = waitpid(children[i].pid, &status, WNOHANG);
    if (pid < 0 && errno != EINTR) bug("a kernel compiler is lost");
    if (pid > 0) {
      if (status) report_child(build, &children[i], status);
      unlink(words_path(build, children[i].job));
      children[i] = children[--*n];
      return;
    }
    if (i == *n - 1) nanosleep(&nap, NULL);
  }
}

static void start(ObjectBuild *build, Child *children, int *n) {
  Child child = {0, *n};
  fflush(NULL);
  child.pid = fork();
  if (child.pid == 0) child_main(build, child.job);
  if (child.pid > 0) {
    children[(*n)++] = child;
    return;
  }
  build->failed = true;
  atomic_store(&build->queue->next, build->n);
  diag_at(build->m->ctx->diag, "E1303", (Span){0}, "cannot start a compiler for kernel `%s`: %s",
          build->wanted[0]->name, strerror(errno));
}

/* How long LLVM takes, as a rank: attention has most code, products and normal numbers follow. */
static int weight(const Fn *k) {
  int most = 0;
  for (OpId i = 0; i < k->ops.n; i++) {
    OpFamily family = op_family(k->ops.at[i].code);
    int here = family == FAMILY_ATTENTION ? 2 : family == FAMILY_CONTRACT ? 1 : 0;
    most = here > most ? here : most;
  }
  return most;
}

/* Kernels that are not in the cache, the longest first, else in the order of the module. */
static void find_wanted(ObjectBuild *build) {
  Fn **fns = build->m->fns.at;
  uint32_t n = build->m->fns.n;
  bool *missing = ARENA_ARRAY(build->arena, bool, n + 1);
  build->wanted = ARENA_ARRAY(build->arena, const Fn *, n + 1);
  for (uint32_t i = 0; i < n; i++)
    missing[i] = fns[i]->kind == FN_KERNEL && !take_from_cache(build, fns[i]);
  for (int w = 2; w >= 0; w--)
    for (uint32_t i = 0; i < n; i++)
      if (missing[i] && weight(fns[i]) == w) build->wanted[build->n++] = fns[i];
}

static void *share(size_t bytes) {
  void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) bug("no memory that the compilers of kernels share");
  return shared;
}

static void build_wanted(ObjectBuild *build, int jobs) {
  size_t queue = sizeof *build->queue + sizeof *build->queue->at * (size_t)jobs,
         slow = sizeof *build->slow * build->n;
  build->queue = share(queue), build->slow = share(slow);
  Child *children = ARENA_ARRAY(build->arena, Child, jobs);
  int running = 0;
  while (running < jobs && !build->failed) start(build, children, &running);
  while (running) wait_for_one(build, children, &running);
  report_slow(build);
  munmap(build->queue, queue), munmap(build->slow, slow);
}

static const char *find_cache(ObjectBuild *build) {
  const char *why, *folder = cache_folder(build->arena, &why);
  if (!why) return folder;
  Report *r =
      diag_at(build->m->ctx->diag, "W1315", (Span){0}, "the kernel cache is not used: %s", why);
  diag_help(r,
            "its contents become part of executables: `chmod go-w` the folder, or name another one "
            "with SHARDC_CACHE_DIR");
  return NULL;
}

bool kernels_build(Module *m, const char *dir, int jobs) {
  return kernels_build_as(m, dir, jobs, false);
}

bool kernels_build_as(Module *m, const char *dir, int jobs, bool quick) {
  ObjectBuild build = {.m = m, .arena = arena_new(), .folder = dir, .quick = quick};
  if (jobs < 1) jobs = 1;
  build.cache = find_cache(&build);
  build.compiler = compiler_hash(&build);
  const DeviceCode *device = target_of(m)->code;
  if (device->assembler) build.assembler = device->assembler(build.arena);
  find_wanted(&build);
  if (build.n) build_wanted(&build, (int)min_i64(jobs, build.n));
  arena_free(build.arena);
  return !build.failed;
}
