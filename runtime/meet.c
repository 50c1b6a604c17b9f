/* How the ranks of a job find each other, whatever the way (seats.h): rank 0 opens a door, the
   others connect and say who they are. Rank 0 compares what all say; a job of different
   executables, options or sizes is refused on every rank, by name. Nobody waits longer than the
   time-out. The sockets stay open: their end tells the end of a process. Must not: believe what a
   connection says before its number and magic are checked. */
#include "seats.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOMENT = 10 }; /* seconds: starts of one job spread more than messages do */

static const char magic[8] = "shardc\2";

/* ---- messages ---- */

bool rt_send_all(int s, const void *data, size_t n) {
  while (n) {
    ssize_t done = send(s, data, n, MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    data = (const char *)data + done, n -= (size_t)done;
  }
  return true;
}

bool rt_receive_all(int s, void *data, size_t n, double seconds) {
  double end = rt_now() + seconds;
  while (n) {
    struct pollfd p = {s, POLLIN, 0};
    double left = end - rt_now();
    if (left <= 0 || poll(&p, 1, (int)(left * 1000) + 1) < 1) return false;
    ssize_t done = recv(s, data, n, 0);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    data = (char *)data + done, n -= (size_t)done;
  }
  return true;
}

/* What must be the same, besides the program's own hash, for ranks to fit together. */
static uint64_t layout_of(const rt_program *p) {
  Hash h;
  rt_hash_start(&h);
  rt_hash_add(&h, p->compiler, strlen(p->compiler)), rt_hash_add(&h, p->target, strlen(p->target));
  for (int i = 0; i < p->naxes; i++)
    rt_hash_add(&h, (int64_t[]){p->mesh[i].size, p->mesh[i].stride}, 2 * sizeof(int64_t));
  for (int i = 0; i < p->ncollectives; i++) {
    const rt_collective *c = &p->collectives[i];
    rt_hash_add(&h, (int64_t[]){c->kind, c->axis, c->elem, c->count}, 4 * sizeof(int64_t));
  }
  return rt_hash_end(&h);
}

static Hello hello_of(const Comm *c) {
  const rt_program *p = c->program;
  Hello h = {.rank = c->launch.rank,
             .world = c->launch.world,
             .abi = p->abi,
             .pid = getpid(),
             .program = rt_hash_of(p->hash, strlen(p->hash)),
             .options = c->options,
             .layout = layout_of(p)};
  memcpy(h.magic, magic, sizeof magic);
  gethostname(h.host, sizeof h.host - 1);
  return h;
}

/* ---- rank 0 ---- */

typedef struct Host {
  Meeting *m;
  const Way *way;
  const Launch *l;
  const Hello *mine;
  int came, wanted; /* connections */
  Fault wrong;      /* of the first that does not fit; code 0: all do so far */
  double end;
} Host;

static bool same(const Hello *a, const Hello *b, Fault *f) {
  const struct {
    bool equal;
    const char *what, *help;
  } rows[] = {{a->world == b->world, "another number of ranks", "one launcher starts all ranks"},
              {a->abi == b->abi && a->program == b->program && a->layout == b->layout,
               "another executable",
               "give all ranks the same file; compile again and copy it everywhere"},
              {a->options == b->options, "other options", "all ranks need the same command line"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (!rows[i].equal) {
      rt_fault(f, 106, "rank %d (%s, pid %lld) runs with %s than rank 0 (%s, pid %lld)", b->rank,
               b->host, (long long)b->pid, rows[i].what, a->host, (long long)a->pid);
      return rt_help(f, "%s", rows[i].help);
    }
  return true;
}

static bool twice(const Hello *a, const Hello *b, Fault *f) {
  rt_fault(f, 106, "two processes say that they are rank %d: pid %lld on %s and pid %lld on %s",
           a->rank, (long long)a->pid, a->host, (long long)b->pid, b->host);
  return rt_help(f,
                 "each rank needs a number of its own; does another job meet at the same place?");
}

/* The rank's place among the sockets of its line; NULL: it is somebody else's. */
static int *socket_of(const Host *h, const Hello *who) {
  if (who->rank < 1 || who->rank >= h->l->world || who->line < 0 || who->line >= h->way->lines)
    return NULL;
  const Hello *known = &h->m->hello[who->rank];
  if (known->pid && (known->pid != who->pid || memcmp(known->host, who->host, sizeof who->host)))
    return NULL;
  int *at = who->line ? &h->m->talk[who->rank - 1] : &h->m->peer[who->rank - 1];
  return *at < 0 ? at : NULL;
}

static void answer(const Host *h, int s, const Fault *f) {
  Answer a = {.code = f->code};
  snprintf(a.what, sizeof a.what, "%s", f->what), snprintf(a.help, sizeof a.help, "%s", f->help);
  h->way->answer(s, &a, h->m->memory);
}

/* It is told at once. The others that come now hear of it, too: they get a moment. It counts by
   connection, as they do: all its lines come, and none takes the place of another rank's. */
static void refuse(Host *h, int s, const Fault *why) {
  if (!h->wrong.code) h->wrong = *why;
  answer(h, s, why);
  close(s);
  h->came++;
  if (h->end > rt_now() + MOMENT) h->end = rt_now() + MOMENT;
}

/* A connection that is none of ours is closed and forgotten. */
static void let_in(Host *h, int s) {
  Hello who;
  Fault f = {0};
  if (s < 0) return;
  if (!h->way->greets(s, h->m) || !rt_receive_all(s, &who, sizeof who, 2) ||
      memcmp(who.magic, magic, sizeof magic)) {
    close(s);
    return;
  }
  who.host[sizeof who.host - 1] = 0;
  int *at = socket_of(h, &who);
  bool known = who.rank > 0 && who.rank < h->l->world;
  if (!same(h->mine, &who, &f) ||
      (!at && !twice(&who, known ? &h->m->hello[who.rank] : h->mine, &f))) {
    refuse(h, s, &f);
    return;
  }
  h->m->hello[who.rank] = who, *at = s, h->came++;
}

/* such as 2, 3 */
static bool missing(const Host *h, double seconds, Fault *f) {
  char list[200] = "";
  size_t n = 0;
  int away = 0;
  for (int i = 1; i < h->l->world; i++) {
    if (h->m->hello[i].pid) continue;
    if (n < sizeof list - 16)
      n += (size_t)snprintf(list + n, sizeof list - n, "%s%d", away ? ", " : "", i);
    away++;
  }
  rt_fault(f, 107, "%d of %d ranks did not come within %.0f s: rank %s", away, h->l->world, seconds,
           list);
  return rt_help(f, "see whether they started, and what they say");
}

static bool gather(Host *h, double seconds, Fault *f) {
  while (h->came < h->wanted) {
    double left = h->end - rt_now();
    struct pollfd p = {h->m->listens, POLLIN, 0};
    if (left <= 0) break;
    if (poll(&p, 1, (int)(left * 1000) + 1) == 1)
      let_in(h, accept4(h->m->listens, NULL, NULL, SOCK_CLOEXEC));
  }
  if (h->wrong.code) *f = h->wrong;
  return !h->wrong.code && (h->came >= h->wanted || missing(h, seconds, f));
}

static bool invite(Host *h, int64_t bytes, double seconds, Fault *f) {
  Meeting *m = h->m;
  m->npeers = h->l->world - 1, h->wanted = m->npeers * h->way->lines;
  m->hello[0] = *h->mine;
  bool ok = h->way->open(m, h->l, bytes, h->end, f) && gather(h, seconds, f);
  h->way->close(m, h->l);
  if (ok) *f = (Fault){0};
  for (int i = 0; i < m->npeers; i++)
    if (m->peer[i] >= 0) answer(h, m->peer[i], f);
  return ok;
}

/* ---- the others ---- */

static bool nobody(const Launch *l, const Way *way, double seconds, Fault *f) {
  bool far = way->lines > 1;
  if (f->code) return false;
  rt_fault(f, 107, "rank 0 did not come within %.0f s%s%.300s%s; this is rank %d of %d", seconds,
           far ? " to " : "", far ? l->place : "", far ? ", where ranks are to meet" : "", l->rank,
           l->world);
  return rt_help(f,
                 far ? "see whether it started, what it says, and whether a firewall lies between"
                     : "see whether it started, and what it says");
}

static bool attend(Meeting *m, const Way *way, const Launch *l, Hello mine, double seconds,
                   Fault *f) {
  Answer a;
  double end = rt_now() + seconds;
  bool said = true;
  m->npeers = 1;
  for (int i = 0; i < way->lines; i++) {
    int s = way->reach(m, l, end, f);
    if (s < 0 && (!i || f->code)) return nobody(l, way, seconds, f);
    if (s < 0) break; /* rank 0 has answered before it heard all */
    if (i) m->talk[0] = s;
    else m->peer[0] = s;
    mine.line = i, said = said && rt_send_all(s, &mine, sizeof mine);
  }
  struct pollfd p = {m->peer[0], POLLIN, 0};
  if (!said || poll(&p, 1, (int)((seconds + 5) * 1000)) != 1 ||
      !way->hear(m->peer[0], &a, &m->memory))
    return rt_fault(f, 107, "rank 0 ended before all ranks had come; this is rank %d of %d",
                    l->rank, l->world);
  if (!a.code) return *f = (Fault){0}, true;
  rt_fault(f, a.code, "%.630s", a.what);
  return rt_help(f, "%.630s", a.help);
}

static int *no_sockets(int n) {
  int *s = rt_alloc(sizeof *s * (size_t)n);
  for (int i = 0; i < n; i++) s[i] = -1;
  return s;
}

bool rt_meet(Meeting *m, const Way *way, const Comm *c, int64_t bytes, Fault *f) {
  const Launch *l = &c->launch;
  Hello mine = hello_of(c);
  double seconds = rt_seconds_of("SHARDC_MEET", 60);
  *m = (Meeting){.memory = -1, .listens = -1};
  m->peer = no_sockets(l->world), m->talk = way->lines > 1 ? no_sockets(l->world) : NULL;
  m->hello = rt_alloc(sizeof(Hello) * (size_t)l->world);
  Host h = {.m = m, .way = way, .l = l, .mine = &mine, .end = rt_now() + seconds};
  return l->rank ? attend(m, way, l, mine, seconds, f) : invite(&h, bytes, seconds, f);
}
