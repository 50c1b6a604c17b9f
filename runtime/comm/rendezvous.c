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

static void add_layout(Hash *hash, const rt_program *program) {
  rt_hash_add(hash, program->compiler, strlen(program->compiler)),
      rt_hash_add(hash, program->target, strlen(program->target));
  for (int i = 0; i < program->naxes; i++)
    rt_hash_add(hash, (int64_t[]){program->mesh[i].size, program->mesh[i].stride},
                2 * sizeof(int64_t));
  for (int i = 0; i < program->ncollectives; i++) {
    const rt_collective *collective = &program->collectives[i];
    rt_hash_add(
        hash, (int64_t[]){collective->kind, collective->axis, collective->elem, collective->count},
        4 * sizeof(int64_t));
  }
}

/* A hash that must be equal on all ranks, besides the program's own hash: over the programs of all
   classes. */
static uint64_t layout_of(const Comm *c) {
  const rt_program *p = c->program;
  Hash hash;
  rt_hash_start(&hash);
  if (!p->stages) add_layout(&hash, p);
  for (const rt_program *q = p->stages ? c->first : NULL; q; q = q->next)
    if (!strcmp(q->hash, p->hash) && !strcmp(q->target, p->target)) add_layout(&hash, q);
  return rt_hash_end(&hash);
}

static Hello hello_of(const Comm *c) {
  const rt_program *program = c->program;
  Hello hello = {.rank = c->launch.rank,
                 .world = c->launch.world,
                 .abi = program->abi,
                 .pid = getpid(),
                 .program = rt_hash_of(program->hash, strlen(program->hash)),
                 .options = c->options,
                 .layout = layout_of(c)};
  memcpy(hello.magic, magic, sizeof magic);
  gethostname(hello.host, sizeof hello.host - 1);
  return hello;
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

/* On one machine ranks meet by what started them, which may have started two jobs. */
static bool help_jobs(const char *what, Fault *f) {
  return rt_help(f, "%s; two jobs that one shell starts need SHARDC_JOB=NAME, another for each",
                 what);
}

static bool same(const Host *host, const Hello *a, const Hello *b, Fault *f) {
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
      return host->way->lines < 2 ? help_jobs(rows[i].help, f) : rt_help(f, "%s", rows[i].help);
    }
  return true;
}

static bool twice(const Host *host, const Hello *a, const Hello *b, Fault *f) {
  rt_fault(f, 106, "two processes say that they are rank %d: pid %lld on %s and pid %lld on %s",
           a->rank, (long long)a->pid, a->host, (long long)b->pid, b->host);
  if (host->way->lines < 2) return help_jobs("each rank needs a number of its own", f);
  return rt_help(f,
                 "each rank needs a number of its own; does another job meet at the same place?");
}

/* The rank's place among the sockets of its line; NULL: it is somebody else's. */
static int *socket_of(const Host *host, const Hello *who) {
  if (who->rank < 1 || who->rank >= host->l->world || who->line < 0 ||
      who->line >= host->way->lines)
    return NULL;
  const Hello *known = &host->m->hello[who->rank];
  if (known->pid && (known->pid != who->pid || memcmp(known->host, who->host, sizeof who->host)))
    return NULL;
  int *at = who->line ? &host->m->talk[who->rank - 1] : &host->m->sockets[who->rank - 1];
  return *at < 0 ? at : NULL;
}

static void answer(const Host *host, int s, const Fault *f) {
  Welcome welcome = {.code = f->code, .pid = host->mine->pid};
  memcpy(welcome.host, host->mine->host, sizeof welcome.host);
  snprintf(welcome.what, sizeof welcome.what, "%s", f->what),
      snprintf(welcome.help, sizeof welcome.help, "%s", f->help);
  host->way->answer(s, &welcome, host->m->memory);
}

/* Reports the refusal to the rank immediately. Ranks that connect within a short time are also
   told. Messages are counted per connection: all lines of this rank arrive, and none replaces a
   line of another rank. */
static void refuse(Host *host, int s, const Fault *why) {
  if (!host->wrong.code) host->wrong = *why;
  answer(host, s, why);
  close(s);
  host->came++;
  if (host->end > rt_now() + MOMENT) host->end = rt_now() + MOMENT;
}

/* Somebody of this job, who says what does not fit ends it: everybody hears why. */
static void let_in(Host *host, int s, Hello *who) {
  Fault f = {0};
  rt_plain(who->host, sizeof who->host);
  int *at = socket_of(host, who);
  bool known = who->rank > 0 && who->rank < host->l->world;
  if (!same(host, host->mine, who, &f) ||
      (!at && !twice(host, who, known ? &host->m->hello[who->rank] : host->mine, &f))) {
    refuse(host, s, &f);
    return;
  }
  host->m->hello[who->rank] = *who, *at = s, host->came++;
}

/* ---- visitors ---- */

static void forget(Host *host, int i, bool its_socket) {
  if (its_socket) close(host->visitor[i].s);
  memmove(&host->visitor[i], &host->visitor[i + 1],
          sizeof(PendingPeer) * (size_t)(host->nvisitors - i - 1));
  host->nvisitors--;
}

/* One too many takes the place of the one that has been silent for longest. */
static void open_to(Host *host, int s) {
  if (s < 0) return;
  if (host->nvisitors == host->room) host->strangers++, forget(host, 0, true);
  PendingPeer *peer = &host->visitor[host->nvisitors++];
  *peer = (PendingPeer){.s = s, .since = rt_now()};
  if (!host->way->greets(peer)) host->strangers++, forget(host, host->nvisitors - 1, true);
}

static bool of_a_rank(const Hello *hello) {
  return !memcmp(hello->magic, magic, sizeof magic) && hello->rank >= 0 &&
         hello->rank < hello->world;
}

static void hear_out(Host *host, int i) {
  PendingPeer *peer = &host->visitor[i];
  ssize_t n = recv(peer->s, (char *)&peer->hello + peer->have, sizeof peer->hello - peer->have,
                   MSG_DONTWAIT);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n > 0) peer->have += (size_t)n;
  if (n > 0 && peer->have < sizeof peer->hello) return;
  bool ours = n > 0 && of_a_rank(&peer->hello) && host->way->proves(peer, host->m);
  PendingPeer done = *peer;
  host->strangers += !ours;
  forget(host, i, !ours);
  if (ours) let_in(host, done.s, &done.hello);
}

static void listen_once(Host *host, double seconds) {
  int n = host->nvisitors;
  for (int i = 0; i < n; i++) host->line[i] = (struct pollfd){host->visitor[i].s, POLLIN, 0};
  host->line[n] = (struct pollfd){host->m->listens, POLLIN, 0};
  if (poll(host->line, (nfds_t)n + 1, (int)(seconds * 1000) + 1) < 0) return;
  for (int i = n; i-- > 0;) {
    if (host->line[i].revents) hear_out(host, i);
    else if (rt_now() - host->visitor[i].since > MANNERS) host->strangers++, forget(host, i, true);
  }
  if (host->line[n].revents & POLLIN)
    open_to(host, accept4(host->m->listens, NULL, NULL, SOCK_CLOEXEC));
}

/* Ranks that no launcher named meet under their parent; `timeout` or a subshell is a new one. */
static const char *apart(const Launch *launch) {
  return strncmp(launch->job, "parent ", 7)
             ? ""
             : "; ranks started each by its own `timeout` or subshell need SHARDC_JOB=NAME, the "
               "same for all";
}

/* such as 2, 3 */
static bool missing(const Host *host, double seconds, Fault *f) {
  char list[200] = "";
  size_t n = 0;
  int away = 0;
  for (int i = 1; i < host->l->world; i++) {
    bool talks = host->way->lines < 2 || host->m->talk[i - 1] >= 0;
    if (host->m->sockets[i - 1] >= 0 && talks)
      continue; /* one that died between the two did not come */
    if (n < sizeof list - 16)
      n += (size_t)snprintf(list + n, sizeof list - n, "%s%d", away ? ", " : "", i);
    away++;
  }
  rt_fault(f, 107, "%d of %d ranks did not come within %.0f s: rank %s", away, host->l->world,
           seconds, list);
  if (!host->strangers)
    return rt_help(f, "see whether they started, and what they say%s", apart(host->l));
  return rt_help(f,
                 "%d connections were none of this job's: has every rank the same SHARDC_SECRET?",
                 host->strangers);
}

static bool gather(Host *host, double seconds, Fault *f) {
  host->room = 2 * host->wanted + SPARE;
  host->visitor = rt_alloc(sizeof(PendingPeer) * (size_t)host->room);
  host->line = rt_alloc(sizeof(struct pollfd) * (size_t)(host->room + 1));
  for (double left; host->came < host->wanted && (left = host->end - rt_now()) > 0;)
    listen_once(host, left < 1 ? left : 1);
  while (host->nvisitors) forget(host, 0, true);
  free(host->visitor), free(host->line);
  if (host->wrong.code) *f = host->wrong;
  return !host->wrong.code && (host->came >= host->wanted || missing(host, seconds, f));
}

/* Into the table of shared memory, before a rank has it. */
static bool enter_names(const Rendezvous *rendezvous, int world, Fault *f) {
  bool ok = true;
  for (int i = 0; ok && rendezvous->memory >= 0 && i < world; i++) {
    const Hello *hello = &rendezvous->hello[i];
    size_t at = offsetof(PeerTable, peer) + sizeof(Peer) * (size_t)i;
    ok = pwrite(rendezvous->memory, hello->host, sizeof hello->host,
                (off_t)(at + offsetof(Peer, host))) == (ssize_t)sizeof hello->host &&
         pwrite(rendezvous->memory, &hello->pid, sizeof hello->pid,
                (off_t)(at + offsetof(Peer, pid))) == (ssize_t)sizeof hello->pid;
  }
  return ok || rt_fault(f, 701, "no memory to share between ranks: %s", strerror(errno));
}

static bool invite(Host *host, int64_t bytes, double seconds, Fault *f) {
  Rendezvous *rendezvous = host->m;
  rendezvous->npeers = host->l->world - 1, host->wanted = rendezvous->npeers * host->way->lines;
  rendezvous->hello[0] = *host->mine;
  bool ok = host->way->open(rendezvous, host->l, bytes, host->end, f) && gather(host, seconds, f);
  host->way->close(rendezvous, host->l);
  if (ok) *f = (Fault){0};
  ok = ok && enter_names(rendezvous, host->l->world, f);
  for (int i = 0; i < rendezvous->npeers; i++)
    if (rendezvous->sockets[i] >= 0) answer(host, rendezvous->sockets[i], f);
  return ok;
}

/* ---- the others ---- */

static bool nobody(const Launch *launch, const RendezvousKind *way, double seconds, Fault *f) {
  bool far = way->lines > 1;
  if (f->code) return false;
  rt_fault(f, 107, "rank 0 did not come within %.0f s%s%.300s%s; this is rank %d of %d", seconds,
           far ? " to " : "", far ? launch->place : "", far ? ", where ranks are to meet" : "",
           launch->rank, launch->world);
  if (!far) return rt_help(f, "see whether it started, and what it says%s", apart(launch));
  return rt_help(f,
                 "check that it started, its messages, and that no firewall blocks the connection");
}

static bool attend(Rendezvous *rendezvous, const RendezvousKind *way, const Launch *launch,
                   Hello mine, double seconds, Fault *f) {
  Welcome welcome;
  double end = rt_now() + seconds;
  rendezvous->npeers = 1;
  for (int i = 0; i < way->lines; i++) {
    mine.line = i;
    int s = way->reach(rendezvous, launch, &mine, end, f);
    if (s < 0 && (!i || f->code)) return nobody(launch, way, seconds, f);
    if (s < 0) break; /* rank 0 has answered before it heard all */
    if (i) rendezvous->talk[0] = s;
    else rendezvous->sockets[0] = s;
  }
  struct pollfd p = {rendezvous->sockets[0], POLLIN, 0};
  if (poll(&p, 1, (int)((seconds + 5) * 1000)) != 1 ||
      !way->hear(rendezvous->sockets[0], &welcome, &rendezvous->memory))
    return rt_fault(f, 107, "rank 0 ended before all ranks had come; this is rank %d of %d",
                    launch->rank, launch->world);
  rt_plain(welcome.host, sizeof welcome.host);
  rendezvous->hello[0].pid = welcome.pid;
  memcpy(rendezvous->hello[0].host, welcome.host, sizeof welcome.host);
  if (!welcome.code) return *f = (Fault){0}, true;
  rt_fault(f, welcome.code, "%.630s", welcome.what);
  return rt_help(f, "%.630s", welcome.help);
}

static int *no_sockets(int n) {
  int *s = rt_alloc(sizeof *s * (size_t)n);
  for (int i = 0; i < n; i++) s[i] = -1;
  return s;
}

bool rt_rendezvous(Rendezvous *rendezvous, const RendezvousKind *way, const Comm *c, int64_t bytes,
                   Fault *f) {
  const Launch *launch = &c->launch;
  Hello mine = hello_of(c);
  double seconds = rt_seconds_of("SHARDC_MEET", 60);
  *rendezvous = (Rendezvous){.memory = -1, .listens = -1};
  rendezvous->sockets = no_sockets(launch->world),
  rendezvous->talk = way->lines > 1 ? no_sockets(launch->world) : NULL;
  rendezvous->hello = rt_alloc(sizeof(Hello) * (size_t)launch->world);
  Host host = {.m = rendezvous, .way = way, .l = launch, .mine = &mine, .end = rt_now() + seconds};
  return launch->rank ? attend(rendezvous, way, launch, mine, seconds, f)
                      : invite(&host, bytes, seconds, f);
}
