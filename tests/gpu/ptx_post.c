/* Flags between CTAs: st.release and ld.acquire of words of global memory, at scope gpu or sys.
 *
 * A release posts what its warp knows: intervals of its CTA that are over for it. An acquire that
 * reads the word takes that over for its lane; its warp and others know of it after their next
 * synchronisation with it. ptx_check.c asks for accesses of other CTAs. CTAs run one after the
 * other, so a flag is set before it is waited for, or never: to show what happens without a wait,
 * an acquire reads the old word for some turns after a release (late mode: always, else at random).
 *
 * Must not: hand on what a CTA itself has acquired: a reader must acquire from each writer. */
#include "ptx_post.h"
#include <stdlib.h>
#include <string.h>

enum { LATE_TURNS = 2, TURNS_MOST = 10000 };

struct Post { /* a release; newest first */
  uint64_t at, old;
  uint32_t turns; /* during which the old word is read */
  uint32_t who;   /* stamp << 5 | lane of the release */
  uint32_t warp, first, n, known[MAX_OWNERS];
  Post *next;
  uint8_t owner[]; /* owners of the n stamps from `first` on */
};

struct Taken { /* an acquire of the CTA that runs; newest first */
  const Post *post;
  uint32_t who, warp; /* of the acquire */
  Taken *next;
};

/* ---- release ---- */
void post_release(Warp *w, int lane, uint64_t at, uint64_t old) {
  Cta *c = w->cta;
  Launch *l = c->launch;
  Post *post = malloc(sizeof *post + c->nowner + 1);
  if (!post) abort();
  *post = (Post){.at = at,
                 .old = old,
                 .turns = l->device->o.late ? LATE_TURNS : launch_draw(l, LATE_TURNS + 1),
                 .who = w->stamp << 5 | (uint32_t)lane,
                 .warp = w->index,
                 .first = c->first_stamp,
                 .n = c->nowner,
                 .next = l->posts};
  memcpy(post->known, w->known, sizeof post->known);
  if (c->nowner) memcpy(post->owner, c->owner, c->nowner);
  l->posts = post;
}

/* ---- acquire ---- */
static bool polls(Warp *w, const Op *op, int lane, uint64_t at) {
  if (w->polled != at) w->polled = at, w->polls = 0;
  if (++w->polls <= TURNS_MOST) return true;
  fault(w, op, lane, "deadlock: the word at %#llx was read %d times: no CTA that has begun sets it",
        (unsigned long long)at, TURNS_MOST);
  return false;
}

bool post_acquire(Warp *w, const Op *op, int lane, uint64_t at, uint64_t *old) {
  Launch *l = w->cta->launch;
  if (!polls(w, op, lane, at)) return false;
  Post *post = l->posts;
  while (post && post->at != at) post = post->next;
  if (!post) return true;
  if (post->turns) {
    post->turns--, *old = post->old;
    return true;
  }
  Taken *taken = malloc(sizeof *taken);
  if (!taken) abort();
  *taken = (Taken){post, w->stamp << 5 | (uint32_t)lane, w->index, w->cta->taken};
  w->cta->taken = taken;
  return true;
}

/* ---- what follows from them ---- */
static bool released(const Post *post, uint32_t who) {
  uint32_t stamp = who >> 5, i = stamp - post->first;
  if (i >= post->n) return false;
  bool own = post->owner[i] == post->warp && !((who ^ post->who) & (LANES - 1));
  return own || stamp < post->known[post->owner[i]];
}

bool post_orders(const Warp *w, uint32_t me, uint32_t who) {
  for (const Taken *taken = w->cta->taken; taken; taken = taken->next) {
    uint32_t stamp = taken->who >> 5;
    bool own = taken->warp == w->index && !((me ^ taken->who) & (LANES - 1));
    if ((own || stamp < w->known[taken->warp]) && released(taken->post, who)) return true;
  }
  return false;
}

/* ---- ends ---- */
void posts_forget(Cta *c) {
  for (Taken *next; c->taken; c->taken = next) next = c->taken->next, free(c->taken);
}

void posts_drop(Launch *l) {
  posts_forget(&l->cta);
  for (Post *next; l->posts; l->posts = next) next = l->posts->next, free(l->posts);
}
