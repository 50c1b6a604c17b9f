/* How the ranks of one machine find each other: rank 0 listens on a socket whose name follows from
   the job, the others connect, say who they are, and get the shared memory. The name is abstract,
   so nothing stays behind, and only this user's processes are let in. Rank 0 compares what all say;
   a job of different executables, options or sizes is refused on every rank, by name. Nobody waits
   longer than the time-out. The sockets stay open: their end tells the end of a process. */
#include "seats.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

typedef struct Answer {
  int32_t code, nothing; /* 0: welcome, with the memory */
  char what[640], help[640];
} Answer;

typedef struct Address {
  struct sockaddr_un at;
  socklen_t n;
} Address;

static Address address_of(const Launch *l) {
  Address a = {.at.sun_family = AF_UNIX};
  int n = snprintf(a.at.sun_path + 1, sizeof a.at.sun_path - 1, "shardc-%ld-%016llx",
                   (long)getuid(), (unsigned long long)rt_hash_of(l->job, strlen(l->job)));
  a.n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
  return a;
}

static bool cannot(Fault *f, const char *what) {
  return rt_fault(f, 107, "cannot %s for the ranks of this job: %s", what, strerror(errno));
}

/* ---- messages ---- */

static bool receive_hello(int s, Hello *h) {
  struct ucred who;
  socklen_t n = sizeof who;
  if (getsockopt(s, SOL_SOCKET, SO_PEERCRED, &who, &n) || who.uid != getuid()) return false;
  struct pollfd p = {s, POLLIN, 0};
  return poll(&p, 1, 2000) == 1 && recv(s, h, sizeof *h, 0) == (ssize_t)sizeof *h &&
         !memcmp(h->magic, "shardc\1", 8);
}

static bool send_answer(int s, const Answer *a, int memory) {
  struct iovec v = {(void *)a, sizeof *a};
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof memory)];
  } c = {0};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
  if (!a->code) {
    m.msg_control = &c, m.msg_controllen = sizeof c.room;
    c.head = (struct cmsghdr){CMSG_LEN(sizeof memory), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&c.head), &memory, sizeof memory);
  }
  return sendmsg(s, &m, MSG_NOSIGNAL) == (ssize_t)sizeof *a;
}

static bool receive_answer(int s, Answer *a, int *memory) {
  struct iovec v = {a, sizeof *a};
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof *memory)];
  } c = {0};
  struct msghdr m = {
      .msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c.room};
  if (recvmsg(s, &m, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *a) return false;
  if (a->code) return true;
  if (m.msg_controllen < sizeof c.head || c.head.cmsg_type != SCM_RIGHTS) return false;
  memcpy(memory, CMSG_DATA(&c.head), sizeof *memory);
  return true;
}

/* ---- rank 0 ---- */

typedef struct Host {
  Meeting *m;
  const Launch *l;
  const Hello *mine;
  int listens, came;
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

/* A connection that is none of ours is closed and forgotten. */
static bool let_in(Host *h, int s, Fault *f) {
  Hello hello;
  if (s < 0) return true;
  if (!receive_hello(s, &hello)) return close(s), true;
  if (!same(h->mine, &hello, f)) return h->m->peer[0] = s, h->m->npeers = 1, false;
  if (hello.rank < 1 || hello.rank >= h->l->world || h->m->hello[hello.rank].pid) {
    h->m->peer[0] = s, h->m->npeers = 1;
    return rt_fault(f, 106, "two processes say that they are rank %d: pid %lld and pid %lld",
                    hello.rank, (long long)hello.pid,
                    hello.rank < 1 || hello.rank >= h->l->world
                        ? (long long)h->mine->pid
                        : (long long)h->m->hello[hello.rank].pid);
  }
  h->m->hello[hello.rank] = hello, h->m->peer[hello.rank - 1] = s, h->came++;
  return true;
}

/* such as 2, 3 */
static bool missing(const Host *h, double seconds, Fault *f) {
  char list[200] = "";
  size_t n = 0;
  for (int i = 1; i < h->l->world && n < sizeof list - 16; i++)
    if (!h->m->hello[i].pid)
      n += (size_t)snprintf(list + n, sizeof list - n, "%s%d", n ? ", " : "", i);
  rt_fault(f, 107, "%d of %d ranks did not come within %.0f s: rank %s", h->l->world - 1 - h->came,
           h->l->world, seconds, list);
  return rt_help(f, "see whether they started, and what they say");
}

static bool gather(Host *h, double seconds, Fault *f) {
  while (h->came < h->l->world - 1) {
    double left = h->end - rt_now();
    struct pollfd p = {h->listens, POLLIN, 0};
    if (left <= 0) return missing(h, seconds, f);
    if (poll(&p, 1, (int)(left * 1000) + 1) != 1) continue;
    if (!let_in(h, accept4(h->listens, NULL, NULL, SOCK_CLOEXEC), f)) return false;
  }
  return true;
}

static void tell(const Host *h, const Fault *f) {
  Answer a = {.code = f->code};
  snprintf(a.what, sizeof a.what, "%s", f->what), snprintf(a.help, sizeof a.help, "%s", f->help);
  for (int i = 0; i < h->m->npeers; i++)
    if (h->m->peer[i] >= 0) send_answer(h->m->peer[i], &a, h->m->memory);
}

static bool open_door(Host *h, int64_t bytes, Fault *f) {
  Address a = address_of(h->l);
  h->m->memory = memfd_create("shardc", MFD_CLOEXEC);
  if (h->m->memory < 0 || ftruncate(h->m->memory, bytes)) return cannot(f, "make shared memory");
  h->listens = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (h->listens < 0) return cannot(f, "make a socket");
  while (bind(h->listens, (struct sockaddr *)&a.at, a.n)) {
    if (errno != EADDRINUSE || rt_now() > h->end) {
      cannot(f, "listen");
      return rt_help(f, "does another job with the same name run? (%s)", h->l->job);
    }
    nanosleep(&(struct timespec){0, 50000000}, NULL); /* a job of the same name ends just now */
  }
  return !listen(h->listens, h->l->world) || cannot(f, "listen");
}

static bool invite(Meeting *m, const Launch *l, const Hello *mine, int64_t bytes, double seconds,
                   Fault *f) {
  Host h = {m, l, mine, -1, 0, rt_now() + seconds};
  int keep = l->world - 1;
  m->hello[0] = *mine;
  for (int i = 0; i < keep; i++) m->peer[i] = -1;
  m->npeers = keep;
  bool ok = open_door(&h, bytes, f) && gather(&h, seconds, f);
  if (h.listens >= 0) close(h.listens);
  if (ok) *f = (Fault){0};
  tell(&h, f);
  return ok;
}

/* ---- the others ---- */

static int reach(const Launch *l, double end) {
  Address a = address_of(l);
  for (;;) {
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (s >= 0 && !connect(s, (struct sockaddr *)&a.at, a.n)) return s;
    if (s >= 0) close(s);
    if (rt_now() > end) return -1;
    nanosleep(&(struct timespec){0, 5000000}, NULL);
  }
}

static bool attend(Meeting *m, const Launch *l, const Hello *mine, double seconds, Fault *f) {
  Answer a;
  double end = rt_now() + seconds;
  int s = reach(l, end);
  if (s < 0) {
    rt_fault(f, 107, "rank 0 did not come within %.0f s; this is rank %d of %d", seconds, l->rank,
             l->world);
    return rt_help(f, "see whether it started, and what it says");
  }
  m->peer[0] = s, m->npeers = 1;
  struct pollfd p = {s, POLLIN, 0};
  if (send(s, mine, sizeof *mine, MSG_NOSIGNAL) != (ssize_t)sizeof *mine ||
      poll(&p, 1, (int)((seconds + 5) * 1000)) != 1 || !receive_answer(s, &a, &m->memory))
    return rt_fault(f, 107, "rank 0 ended before all ranks had come; this is rank %d of %d",
                    l->rank, l->world);
  if (!a.code) return true;
  rt_fault(f, a.code, "%.630s", a.what);
  return rt_help(f, "%.630s", a.help);
}

bool rt_meet(Meeting *m, const Launch *l, const Hello *mine, int64_t bytes, double seconds,
             Fault *f) {
  m->memory = -1;
  m->peer = rt_alloc(sizeof(int) * (size_t)l->world);
  m->hello = rt_alloc(sizeof(Hello) * (size_t)l->world);
  return l->rank ? attend(m, l, mine, seconds, f) : invite(m, l, mine, bytes, seconds, f);
}
