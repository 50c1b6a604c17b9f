/* Mechanical changes to PTX text: one at a time, each of which should be noticed by somebody.
 *
 *   Mutant list[N]; int n = mutants_find(text, list, N);
 *   char *changed = mutant_apply(text, &list[i]);
 *
 * Must not: make text that cannot be read. */
#ifndef TESTS_GPU_MUTATE_H
#define TESTS_GPU_MUTATE_H
#include <stddef.h>

typedef enum MutantKind {
  DROP_BARRIER,   /* bar.sync and bar.warp.sync go away */
  DROP_WAIT,      /* cp.async.wait_group and wgmma.wait_group go away */
  EASE_WAIT,      /* it waits for one group less */
  DROP_COMMIT,    /* cp.async.commit_group and wgmma.commit_group go away */
  DROP_FENCE,     /* fence.proxy.async and fence.mbarrier_init go away */
  DROP_ARRIVAL,   /* mbarrier.arrive goes away */
  MORE_ARRIVALS,  /* mbarrier.init expects one more, or one less */
  OTHER_BYTES,    /* expect_tx: 16 more, or 16 less */
  DROP_TEST,      /* mbarrier.try_wait says yes without a look */
  OTHER_PHASE,    /* it waits for parity 0, or for 1 */
  DROP_COPY,      /* cp.async.bulk.tensor goes away */
  KEEP_FLAG,      /* st.release and st.relaxed of a word for other CTAs go away */
  RELAX_FLAG,     /* st.release and ld.acquire become relaxed */
  OTHER_COUNT,    /* atom wraps one later, or one earlier */
  NEGATE_GUARD,   /* @p becomes @!p */
  DROP_GUARD,     /* @p goes away: always; for a branch: always taken */
  NEVER_GUARD,    /* the guarded instruction goes away: never */
  SHIFT_COMPARE,  /* lt and le, gt and ge change places */
  NEGATE_COMPARE, /* lt and ge, gt and le, eq and ne change places */
  SWAP_SELECT,    /* operands of selp change places */
  DROP_TERM,      /* add a, b, c of an address becomes mov a, b */
  ALTER_OFFSET,   /* [r+n] becomes [r+n+size], [r] becomes [r+size] */
  NEXT_STAGE,     /* [r+n] in shared memory becomes [r+n+stage]: of the ring, the one after */
  LAST_STAGE,     /* [r+n-stage]: the one before */
  MUTANT_KINDS,
  SYNC_KINDS = NEGATE_GUARD /* those before it are of synchronisation */
} MutantKind;
extern const char *const mutant_names[MUTANT_KINDS];

typedef struct Mutant {
  MutantKind kind;
  int line;        /* of the text, from 1 */
  size_t from, to; /* bytes that are replaced */
  char with[120];
} Mutant;

int mutants_find(const char *text, Mutant *out, int room);
char *mutant_apply(const char *text, const Mutant *m); /* malloc */
#endif
