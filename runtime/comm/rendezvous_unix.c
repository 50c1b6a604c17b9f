/* Rendezvous on one machine: rank 0 listens on a socket whose name follows from the job. The name
   is abstract, so no file remains, and only this user's processes are accepted. The answer carries
   the shared memory. */
#include "peers.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

typedef struct Address {
  struct sockaddr_un at;
  socklen_t n;
} Address;

static Address address_of(const Launch *launch) {
  Address address = {.at.sun_family = AF_UNIX};
  int n =
      snprintf(address.at.sun_path + 1, sizeof address.at.sun_path - 1, "shardc-%ld-%016llx",
               (long)getuid(), (unsigned long long)rt_hash_of(launch->job, strlen(launch->job)));
  address.n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
  return address;
}

static bool cannot(Fault *f, const char *what) {
  return rt_fault(f, 107, "cannot %s for the ranks of this job: %s", what, strerror(errno));
}

/* ---- rank 0 ---- */

static void close_door(Rendezvous *rendezvous, const Launch *launch) {
  (void)launch;
  if (rendezvous->listens >= 0) close(rendezvous->listens);
}

/* Asked on both sides: who listens under a name that anybody can work out may be anybody. */
static bool is_ours(int s) {
  struct ucred who;
  socklen_t n = sizeof who;
  return !getsockopt(s, SOL_SOCKET, SO_PEERCRED, &who, &n) && who.uid == getuid();
}

static bool greets(PendingPeer *v) { return is_ours(v->s); }

static bool proves(PendingPeer *v, const Rendezvous *rendezvous) {
  (void)v, (void)rendezvous;
  return true;
}

static bool answer(int s, const Welcome *welcome, int memory) {
  struct iovec v = {(void *)welcome, sizeof *welcome};
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof memory)];
  } c = {0};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
  if (!welcome->code) {
    m.msg_control = &c, m.msg_controllen = sizeof c.room;
    c.head = (struct cmsghdr){CMSG_LEN(sizeof memory), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(&c.head), &memory, sizeof memory);
  }
  return sendmsg(s, &m, MSG_NOSIGNAL) == (ssize_t)sizeof *welcome;
}

/* ---- the others ---- */

static int reach(Rendezvous *rendezvous, const Launch *launch, const Hello *mine, double end,
                 Fault *f) {
  Address address = address_of(launch);
  bool strange = false;
  (void)rendezvous;
  for (;;) {
    int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    bool there = s >= 0 && !connect(s, (struct sockaddr *)&address.at, address.n);
    if (there && is_ours(s) && rt_send_all(s, mine, sizeof *mine)) return s;
    strange = strange || (there && !is_ours(s));
    if (s >= 0) close(s);
    if (rt_now() > end) break;
    nanosleep(&(struct timespec){0, 5000000}, NULL);
  }
  if (!strange) return -1;
  rt_fault(f, 107, "another user's process listens where the ranks of this job meet");
  rt_help(f, "SHARDC_JOB=NAME, the same for all ranks, is another place");
  return -1;
}

static bool hear(int s, Welcome *welcome, int *memory) {
  struct iovec v = {welcome, sizeof *welcome};
  union {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof *memory)];
  } c = {0};
  struct msghdr m = {
      .msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c.room};
  if (recvmsg(s, &m, MSG_CMSG_CLOEXEC) != (ssize_t)sizeof *welcome) return false;
  if (welcome->code) return true;
  if (m.msg_controllen < sizeof c.head || c.head.cmsg_type != SCM_RIGHTS) return false;
  memcpy(memory, CMSG_DATA(&c.head), sizeof *memory);
  return true;
}

/* ---- rank 0 opens ---- */

/* Asks the owner of the socket: a rank 0 that waits for its ranks answers at once, so two jobs
   share the name. An owner that does not answer is just exiting: true. */
static bool meets_another(const Rendezvous *rendezvous, const Address *address, Fault *f) {
  Welcome welcome = {0};
  int memory = -1, s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  struct pollfd p = {s, POLLIN, 0};
  bool told = s >= 0 && !connect(s, (const struct sockaddr *)&address->at, address->n) &&
              is_ours(s) && rt_send_all(s, &rendezvous->hello[0], sizeof rendezvous->hello[0]) &&
              poll(&p, 1, 2000) == 1 && hear(s, &welcome, &memory) && welcome.code;
  if (s >= 0) close(s);
  if (memory >= 0) close(memory);
  if (!told) return true;
  rt_fault(f, welcome.code, "%.630s", welcome.what);
  return rt_help(f, "%.630s", welcome.help);
}

static bool open_door(Rendezvous *rendezvous, const Launch *launch, int64_t bytes, double end,
                      Fault *f) {
  Address address = address_of(launch);
  rendezvous->memory = memfd_create("shardc", MFD_CLOEXEC);
  if (rendezvous->memory < 0 || ftruncate(rendezvous->memory, bytes))
    return cannot(f, "make shared memory");
  rendezvous->listens = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (rendezvous->listens < 0) return cannot(f, "make a socket");
  for (double asked = 0; bind(rendezvous->listens, (struct sockaddr *)&address.at, address.n);) {
    if (errno != EADDRINUSE || rt_now() > end) {
      cannot(f, "listen");
      return rt_help(f, "does another job with the same name run? (%s)", launch->job);
    }
    if (rt_now() > asked + 1 && !meets_another(rendezvous, &address, f)) return false;
    asked = rt_now();
    nanosleep(&(struct timespec){0, 50000000}, NULL); /* a job of the same name ends just now */
  }
  return !listen(rendezvous->listens, launch->world) || cannot(f, "listen");
}

const RendezvousKind rt_rendezvous_unix = {1,      open_door, close_door, greets,
                                           proves, reach,     answer,     hear};
