/* The rendezvous of a job's ranks, whatever the way (peers.h): rank 0 listens, the others connect
   and say who they are. Rank 0 listens to all connections at once, and compares what they say; a
   job of different executables, options or sizes is refused on every rank, by name. A connection
   that is none of the job (silent, garbage, without its secret) is dropped, and keeps nobody
   waiting. Nobody waits longer than the time-out. The sockets stay open: their end tells the end of
   a process. Must not: believe what a connection says before its number, magic and proof are
   checked. */
#include "peers.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOMENT = 10, MANNERS = 10, SPARE = 64 };
/* Seconds: starts of one job spread more than messages do; a hello comes at once. SPARE: visitors
   beyond the ranks' own connections. */

static const char magic[8] = "shardc\3";

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

void rt_plain(char *text, size_t size) {
  text[size - 1] = 0;
  for (; *text; text++)
    if (*text < 32 || *text > 126) *text = '?';
}

static void add_layout(Hash *h, const rt_program *p) {
  rt_hash_add(h, p->compiler, strlen(p->compiler)), rt_hash_add(h, p->target, strlen(p->target));
  for (int i = 0; i < p->naxes; i++)
    rt_hash_add(h, (int64_t[]){p->mesh[i].size, p->mesh[i].stride}, 2 * sizeof(int64_t));
  for (int i = 0; i < p->ncollectives; i++) {
    const rt_collective *c = &p->collectives[i];
    rt_hash_add(h, (int64_t[]){c->kind, c->axis, c->elem, c->count}, 4 * sizeof(int64_t));
  }
}

/* What must be the same, besides the program's own hash, for ranks to fit together: the programs of
   all classes. */
static uint64_t layout_of(const Comm *c) {
  const rt_program *p = c->program;
  Hash h;
  rt_hash_start(&h);
  if (!p->stages) add_layout(&h, p);
  for (const rt_program *q = p->stages ? c->first : NULL; q; q = q->next)
    if (!strcmp(q->hash, p->hash) && !strcmp(q->target, p->target)) add_layout(&h, q);
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
             .layout = layout_of(c)};
  memcpy(h.magic, magic, sizeof magic);
  gethostname(h.host, sizeof h.host - 1);
  return h;
}

/* ---- rank 0 ---- */

typedef struct Host {
  Rendezvous *m;
  const RendezvousKind *way;
  const Launch *l;
  const Hello *mine;
  int came, wanted; /* connections */
  PendingPeer *visitor;
  struct pollfd *line; /* of visitors, then of the door */
  int nvisitors, room, strangers;
  Fault wrong; /* of the first that does not fit; code 0: all do so far */
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
  int *at = who->line ? &h->m->talk[who->rank - 1] : &h->m->sockets[who->rank - 1];
  return *at < 0 ? at : NULL;
}

static void answer(const Host *h, int s, const Fault *f) {
  Welcome a = {.code = f->code};
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

/* Somebody of this job, who says what does not fit ends it: everybody hears why. */
static void let_in(Host *h, int s, Hello *who) {
  Fault f = {0};
  rt_plain(who->host, sizeof who->host);
  int *at = socket_of(h, who);
  bool known = who->rank > 0 && who->rank < h->l->world;
  if (!same(h->mine, who, &f) ||
      (!at && !twice(who, known ? &h->m->hello[who->rank] : h->mine, &f))) {
    refuse(h, s, &f);
    return;
  }
  h->m->hello[who->rank] = *who, *at = s, h->came++;
}

/* ---- visitors ---- */

static void forget(Host *h, int i, bool its_socket) {
  if (its_socket) close(h->visitor[i].s);
  memmove(&h->visitor[i], &h->visitor[i + 1], sizeof(PendingPeer) * (size_t)(h->nvisitors - i - 1));
  h->nvisitors--;
}

/* One too many takes the place of the one that has been silent for longest. */
static void open_to(Host *h, int s) {
  if (s < 0) return;
  if (h->nvisitors == h->room) h->strangers++, forget(h, 0, true);
  PendingPeer *v = &h->visitor[h->nvisitors++];
  *v = (PendingPeer){.s = s, .since = rt_now()};
  if (!h->way->greets(v)) h->strangers++, forget(h, h->nvisitors - 1, true);
}

static bool of_a_rank(const Hello *h) {
  return !memcmp(h->magic, magic, sizeof magic) && h->rank >= 0 && h->rank < h->world;
}

static void hear_out(Host *h, int i) {
  PendingPeer *v = &h->visitor[i];
  ssize_t n = recv(v->s, (char *)&v->hello + v->have, sizeof v->hello - v->have, MSG_DONTWAIT);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n > 0) v->have += (size_t)n;
  if (n > 0 && v->have < sizeof v->hello) return;
  bool ours = n > 0 && of_a_rank(&v->hello) && h->way->proves(v, h->m);
  PendingPeer done = *v;
  h->strangers += !ours;
  forget(h, i, !ours);
  if (ours) let_in(h, done.s, &done.hello);
}

static void listen_once(Host *h, double seconds) {
  int n = h->nvisitors;
  for (int i = 0; i < n; i++) h->line[i] = (struct pollfd){h->visitor[i].s, POLLIN, 0};
  h->line[n] = (struct pollfd){h->m->listens, POLLIN, 0};
  if (poll(h->line, (nfds_t)n + 1, (int)(seconds * 1000) + 1) < 0) return;
  for (int i = n; i-- > 0;) {
    if (h->line[i].revents) hear_out(h, i);
    else if (rt_now() - h->visitor[i].since > MANNERS) h->strangers++, forget(h, i, true);
  }
  if (h->line[n].revents & POLLIN) open_to(h, accept4(h->m->listens, NULL, NULL, SOCK_CLOEXEC));
}

/* such as 2, 3 */
static bool missing(const Host *h, double seconds, Fault *f) {
  char list[200] = "";
  size_t n = 0;
  int away = 0;
  for (int i = 1; i < h->l->world; i++) {
    bool talks = h->way->lines < 2 || h->m->talk[i - 1] >= 0;
    if (h->m->sockets[i - 1] >= 0 && talks)
      continue; /* one that died between the two did not come */
    if (n < sizeof list - 16)
      n += (size_t)snprintf(list + n, sizeof list - n, "%s%d", away ? ", " : "", i);
    away++;
  }
  rt_fault(f, 107, "%d of %d ranks did not come within %.0f s: rank %s", away, h->l->world, seconds,
           list);
  if (!h->strangers) return rt_help(f, "see whether they started, and what they say");
  return rt_help(f,
                 "%d connections were none of this job's: has every rank the same SHARDC_SECRET?",
                 h->strangers);
}

static bool gather(Host *h, double seconds, Fault *f) {
  h->room = 2 * h->wanted + SPARE;
  h->visitor = rt_alloc(sizeof(PendingPeer) * (size_t)h->room);
  h->line = rt_alloc(sizeof(struct pollfd) * (size_t)(h->room + 1));
  for (double left; h->came < h->wanted && (left = h->end - rt_now()) > 0;)
    listen_once(h, left < 1 ? left : 1);
  while (h->nvisitors) forget(h, 0, true);
  free(h->visitor), free(h->line);
  if (h->wrong.code) *f = h->wrong;
  return !h->wrong.code && (h->came >= h->wanted || missing(h, seconds, f));
}

static bool invite(Host *h, int64_t bytes, double seconds, Fault *f) {
  Rendezvous *m = h->m;
  m->npeers = h->l->world - 1, h->wanted = m->npeers * h->way->lines;
  m->hello[0] = *h->mine;
  bool ok = h->way->open(m, h->l, bytes, h->end, f) && gather(h, seconds, f);
  h->way->close(m, h->l);
  if (ok) *f = (Fault){0};
  for (int i = 0; i < m->npeers; i++)
    if (m->sockets[i] >= 0) answer(h, m->sockets[i], f);
  return ok;
}

/* ---- the others ---- */

static bool nobody(const Launch *l, const RendezvousKind *way, double seconds, Fault *f) {
  bool far = way->lines > 1;
  if (f->code) return false;
  rt_fault(f, 107, "rank 0 did not come within %.0f s%s%.300s%s; this is rank %d of %d", seconds,
           far ? " to " : "", far ? l->place : "", far ? ", where ranks are to meet" : "", l->rank,
           l->world);
  return rt_help(f,
                 far ? "see whether it started, what it says, and whether a firewall lies between"
                     : "see whether it started, and what it says");
}

static bool attend(Rendezvous *m, const RendezvousKind *way, const Launch *l, Hello mine,
                   double seconds, Fault *f) {
  Welcome a;
  double end = rt_now() + seconds;
  m->npeers = 1;
  for (int i = 0; i < way->lines; i++) {
    mine.line = i;
    int s = way->reach(m, l, &mine, end, f);
    if (s < 0 && (!i || f->code)) return nobody(l, way, seconds, f);
    if (s < 0) break; /* rank 0 has answered before it heard all */
    if (i) m->talk[0] = s;
    else m->sockets[0] = s;
  }
  struct pollfd p = {m->sockets[0], POLLIN, 0};
  if (poll(&p, 1, (int)((seconds + 5) * 1000)) != 1 || !way->hear(m->sockets[0], &a, &m->memory))
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

bool rt_rendezvous(Rendezvous *m, const RendezvousKind *way, const Comm *c, int64_t bytes,
                   Fault *f) {
  const Launch *l = &c->launch;
  Hello mine = hello_of(c);
  double seconds = rt_seconds_of("SHARDC_MEET", 60);
  *m = (Rendezvous){.memory = -1, .listens = -1};
  m->sockets = no_sockets(l->world), m->talk = way->lines > 1 ? no_sockets(l->world) : NULL;
  m->hello = rt_alloc(sizeof(Hello) * (size_t)l->world);
  Host h = {.m = m, .way = way, .l = l, .mine = &mine, .end = rt_now() + seconds};
  return l->rank ? attend(m, way, l, mine, seconds, f) : invite(&h, bytes, seconds, f);
}
