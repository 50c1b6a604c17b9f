/* Flags between CTAs: see ptx_post.c.
 *
 * Must not: be asked about accesses of one CTA. */
#ifndef TESTS_GPU_PTX_POST_H
#define TESTS_GPU_PTX_POST_H
#include "ptx_inside.h"

/* st.release of the word at this address, which had this value. */
void post_release(Warp *w, int lane, uint64_t at, uint64_t old);
/* ld.acquire of the word; *old becomes its former value if the release has not arrived. False:
   reported. */
bool post_acquire(Warp *w, const Op *op, int lane, uint64_t at, uint64_t *old);
/* The access `who` of another CTA is over for the access `me` of this warp. */
bool post_orders(const Warp *w, uint32_t me, uint32_t who);
void posts_forget(Cta *c); /* drops what the CTA has acquired */
void posts_drop(Launch *l);
#endif
