/* See jit.h. Objects are those of `shardc compile` but for LLVM's optimizations, which would take
   nine tenths of the time; its linker puts them into memory. Kernels of
   equal text, names and positions aside, are one. */
#include "ir/kernel/kernel_key.h"
#include "jit.h"
#include "codegen/codegen.h"
#include "runtime/rt.h"
#include <llvm-c/LLJIT.h>
#include <stdlib.h>

typedef struct Made {
  const char *text; /* of the kernel function, under the name `k` */
  uint32_t number;
} Made;

typedef struct Known {
  const Fn *k;
  uint32_t number;
} Known;

struct Jit {
  Arena *arena;
  LLVMOrcLLJITRef linker;
  VEC(Made) made;
  VEC(Known) known;
};

static void must_work(LLVMErrorRef e) {
  if (e) bug("the linker in memory: %s", LLVMGetErrorMessage(e));
}

Jit *jit_new(Arena *a) {
  Jit *j = ARENA_NEW(a, Jit);
  j->arena = a;
  return j;
}

/* Once a target exists, that is, once a kernel has been compiled. */
static LLVMOrcLLJITRef linker_of(Jit *j) {
  LLVMOrcDefinitionGeneratorRef own = NULL;
  if (j->linker) return j->linker;
  must_work(LLVMOrcCreateLLJIT(&j->linker, NULL));
  must_work(LLVMOrcCreateDynamicLibrarySearchGeneratorForProcess(&own, '\0', NULL, NULL));
  LLVMOrcJITDylibAddGenerator(LLVMOrcLLJITGetMainJITDylib(j->linker), own);
  return j->linker;
}

void jit_add_kernel(Jit *j, Module *m, const Fn *k) {
  const char *text = kernel_key(m, k, KEY_CUT | KEY_DIMS);
  Known known = {k, 0};
  for (; known.number < j->made.n; known.number++)
    if (!strcmp(j->made.at[known.number].text, text)) break;
  if (known.number == j->made.n) {
    Fn bare = *k;
    bare.name = intern_printf(m->ctx->names, "%u", known.number);
    LLVMMemoryBufferRef code = kernel_object(m, &bare, true);
    must_work(
        LLVMOrcLLJITAddObjectFile(linker_of(j), LLVMOrcLLJITGetMainJITDylib(linker_of(j)), code));
    vec_push(j->arena, j->made, ((Made){arena_printf(j->arena, "%s", text), known.number}));
  }
  vec_push(j->arena, j->known, known);
}

void jit_add(Jit *j, Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_KERNEL) jit_add_kernel(j, m, m->fns.at[i]);
}

static void run_phase(const Fn *k, rt_chunk *run, int64_t chunks, void *const *buffers) {
  size_t bytes = (size_t)attr_int(&k->attrs, ATTR_scratch, 0);
  void *scratch = aligned_alloc(64, (bytes + 64) / 64 * 64);
  memset(scratch, 0xff, bytes);
  for (int64_t i = chunks; i-- > 0;) run(buffers, i, scratch);
  free(scratch);
}

bool jit_kernel(void *jit, const Fn *k, void *const *buffers) {
  Jit *j = jit;
  const Attr *chunks = attr_get(&k->attrs, ATTR_chunks);
  for (uint32_t i = 0; i < j->known.n; i++) {
    if (j->known.at[i].k != k) continue;
    for (int64_t p = 0; chunks && p < chunks->i; p++) {
      LLVMOrcExecutorAddress at;
      const char *name = arena_printf(j->arena, "k_%u_p%d", j->known.at[i].number, (int)p);
      must_work(LLVMOrcLLJITLookup(j->linker, &at, name));
      rt_chunk *run;
      memcpy(&run, &at, sizeof run);
      run_phase(k, run, chunks->list[p], buffers);
    }
    return true;
  }
  return false;
}
