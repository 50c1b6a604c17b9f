/* Chunks of kernels on the workers of a processor (chunks.h). A chunk takes as long as its family
   says (FamilyShape.weigh), else as any other. Only the phase with nearly all of the work counts.
   Must not: choose the number of chunks. */
#include "chunks.h"
#include "family.h"
#include "ir/support/num.h"

typedef struct ShareLeft { /* the chunks of a worker that are left */
  int64_t next, end;
  double at; /* when the worker is free */
} ShareLeft;

double chunks_end(Arena *arena, const double *work, int64_t chunks, int64_t workers) {
  ShareLeft *share = ARENA_ARRAY(arena, ShareLeft, workers);
  double last = 0;
  for (int64_t i = 0; i < workers; i++)
    share[i] = (ShareLeft){share_begin(chunks, workers, i), share_begin(chunks, workers, i + 1), 0};
  for (int64_t left = chunks; left; left--) {
    int64_t worker = 0, of;
    for (int64_t i = 1; i < workers; i++)
      if (share[i].at < share[worker].at) worker = i;
    for (of = worker; share[of].next == share[of].end;) of = (of + 1) % workers;
    share[worker].at += work[share[of].next++];
    if (share[worker].at > last) last = share[worker].at;
  }
  return last;
}

static double stretch_of(const CpuCut *cut, const FamilyShape *shape, int64_t chunks,
                         int64_t workers) {
  Arena *arena = arena_new();
  double sum = 0, *work = ARENA_ARRAY(arena, double, chunks);
  shape->weigh(cut, work);
  for (int64_t i = 0; i < chunks; i++) sum += work[i];
  double last = chunks_end(arena, work, chunks, workers);
  arena_free(arena);
  return sum > 0 ? last * (double)workers / sum : 1;
}

double kernel_stretch(const Module *m, const Fn *kernel, int64_t workers) {
  const FamilyShape *shape = family_shape(kernel);
  const Attr *tile = attr_get(&kernel->attrs, ATTR_tile),
             *chunks = attr_get(&kernel->attrs, ATTR_chunks);
  if (workers <= 1 || !shape || !tile || !chunks || module_on_gpu(m)) return 1;
  CpuCut cut = {m, kernel, target_lanes(&m->target), tile->list, chunks->list};
  if (shape->weigh) return stretch_of(&cut, shape, chunks->list[chunks->i - 1], workers);
  return share_longest(chunks->list[0], workers);
}
