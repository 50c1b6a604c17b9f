/* Rendezvous between machines, over TCP. The place is HOST:PORT, where rank 0 listens, or a file on
   a shared file system: rank 0 writes its addresses, its port and a random number into it, and
   removes it when all ranks have connected; a stale file leads to no rank 0 and is read again.

   Rank 0 sends first, a magic and a random number; so any other program that listens at the port is
   recognised by its silence. Then each side proves, by HMAC over the other's random number, that it
   knows the job's key: made of SHARDC_SECRET, and of the number in the file or the job's name. A
   process without the key can prove nothing and learns nothing; without a secret, a key made from
   the job's name can be guessed. Only the rendezvous is protected: later messages are neither
   encrypted nor signed. If a launcher keeps its own port open (torchrun), both sides try the
   following ports in turn. Must not: wait for ever; trust what connects: rendezvous.c checks it. */
#include "runtime/base/file.h"
#include "peers.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  IN_USE = 5,
  REST = 20000000,
  HOSTS = 16
}; /* seconds until a port is given up; nanoseconds */

static const char magic[8] = "shardc>2";

typedef struct Greeting {
  char magic[8];
  uint8_t nonce[NONCE];
} Greeting;

typedef struct MeetingPlace {
  char host[256];
  int port;
} MeetingPlace;

static bool is_file(const char *place) { return strchr(place, '/') != NULL; }

static bool wrong_place(const Launch *launch, Fault *f) {
  rt_fault(f, 108, "%s: `%.300s` is no place where ranks can meet", launch->place_from,
           launch->place);
  return rt_help(f, "HOST:PORT with a port below 65536, or a file with its path, as ./meet");
}

/* host:port, [v6]:port */
static bool read_place(const Launch *launch, MeetingPlace *place, Fault *f) {
  const char *colon = strrchr(launch->place, ':');
  char *end = NULL;
  long port = colon ? strtol(colon + 1, &end, 10) : 0;
  size_t n = colon ? (size_t)(colon - launch->place) : 0;
  bool v6 = n > 2 && launch->place[0] == '[' && launch->place[n - 1] == ']';
  if (!end || *end || port < 1 || port + launch->ports > 65536 || n - 2 * v6 < 1 ||
      n >= sizeof place->host)
    return wrong_place(launch, f);
  snprintf(place->host, sizeof place->host, "%.*s", (int)(n - 2 * v6), launch->place + v6);
  place->port = (int)port;
  return true;
}

/* The addresses of a host; NULL: it has none, f says why, or time is over. Where the time for
   meeting is set, names may come late, as those of pods do. */
static struct addrinfo *look_up(const Launch *launch, const MeetingPlace *place, int port,
                                double end, Fault *f) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
  char text[16];
  snprintf(text, sizeof text, "%d", port);
  for (int e; (e = getaddrinfo(place->host, text, &hints, &list));) {
    bool late = e == EAI_AGAIN || (e == EAI_NONAME && getenv("SHARDC_MEET"));
    if (late && rt_now() < end) {
      nanosleep(&(struct timespec){1, 0}, NULL);
      continue;
    }
    rt_fault(f, 108, "the address of rank 0 cannot be found: `%s`: %s (%s)", place->host,
             gai_strerror(e), launch->place_from);
    rt_help(f, "a name that this machine knows, or an address in numbers");
    return NULL;
  }
  return list;
}

static void set_up(int s) {
  int yes = 1;
  setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes); /* rounds of short messages */
}

/* ---- the secret ---- */

enum { RANK_SIDE = 'r', ZERO_SIDE = '0' };

static bool random_bytes(void *to, size_t n) { return getrandom(to, n, 0) == (ssize_t)n; }

static void key_of(const Rendezvous *rendezvous, uint8_t key[SHA256_BYTES]) {
  const char *secret = getenv("SHARDC_SECRET");
  Sha256 h = sha256_begin();
  sha256_add(&h, &rendezvous->token, sizeof rendezvous->token);
  if (secret) sha256_add(&h, secret, strlen(secret));
  sha256_end(h, key);
}

/* The proof of one side, over the other's random number and the rank's hello message. */
static void prove(const Rendezvous *rendezvous, uint8_t side, const uint8_t nonce[NONCE],
                  const Hello *hello, uint8_t proof[SHA256_BYTES]) {
  uint8_t key[SHA256_BYTES], head[1 + NONCE] = {side};
  memcpy(head + 1, nonce, NONCE);
  key_of(rendezvous, key);
  hmac_sha256(key, head, sizeof head, hello, offsetof(Hello, proof), proof);
}

/* In a time that does not depend on where they differ. */
static bool equal(const uint8_t a[SHA256_BYTES], const uint8_t b[SHA256_BYTES]) {
  uint8_t differ = 0;
  for (int i = 0; i < SHA256_BYTES; i++) differ |= a[i] ^ b[i];
  return !differ;
}

/* ---- rank 0 ---- */

/* A rank has two connections; limits of 1024 files are common. */
static void allow_files(int world) {
  struct rlimit r;
  if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur > (rlim_t)world * 2 + 256) return;
  r.rlim_cur = r.rlim_max;
  setrlimit(RLIMIT_NOFILE, &r);
}

/* A socket that listens; -1: errno says why not. */
static int listen_at(const struct sockaddr *at, socklen_t n, int family, int world) {
  int s = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1, no = 0;
  if (s < 0) return -1;
  setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (family == AF_INET6) setsockopt(s, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  if (!bind(s, at, n) && !listen(s, 2 * world)) return s;
  int why = errno;
  close(s);
  errno = why;
  return -1;
}

static int listen_anywhere(int port, int world) {
  struct sockaddr_in6 all = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
  struct sockaddr_in old = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int s = listen_at((struct sockaddr *)&all, sizeof all, AF_INET6, world);
  if (s >= 0 || errno == EADDRINUSE) return s;
  return listen_at((struct sockaddr *)&old, sizeof old, AF_INET, world);
}

/* Listens for an address that is none of this machine's own: it is translated (NAT). */
static int listen_as(const struct addrinfo *list, int port, int world) {
  for (const struct addrinfo *a = list; a; a = a->ai_next) {
    int s = listen_at(a->ai_addr, a->ai_addrlen, a->ai_family, world);
    if (s >= 0) return s;
    if (errno == EADDRINUSE || errno == EACCES) return -1;
  }
  return listen_anywhere(port, world);
}

static bool listen_in_turn(Rendezvous *rendezvous, const Launch *launch, const MeetingPlace *place,
                           double end, Fault *f) {
  double until = rt_now() + IN_USE < end ? rt_now() + IN_USE : end;
  for (;;) {
    for (int i = 0; i < launch->ports; i++) {
      struct addrinfo *list = look_up(launch, place, place->port + i, end, f);
      if (!list) return false;
      rendezvous->listens = listen_as(list, place->port + i, launch->world);
      freeaddrinfo(list);
      if (rendezvous->listens >= 0) return true;
      if (errno != EADDRINUSE) until = 0;
    }
    if (rt_now() > until) break;
    nanosleep(&(struct timespec){0, REST}, NULL); /* a job at the same place ends just now */
  }
  rt_fault(f, 108, "rank 0 cannot listen at %.300s (%s): %s", launch->place, launch->place_from,
           strerror(errno));
  return rt_help(f, "another job or service may have the port: MASTER_PORT or --meet HOST:PORT "
                    "names another one, for all ranks");
}

/* One line per address by which others may reach this machine, those of its own loop last. */
static size_t own_addresses(char *text, size_t size) {
  struct ifaddrs *list = NULL;
  size_t n = 0;
  if (getifaddrs(&list)) list = NULL;
  for (int loop = 0; loop < 2; loop++)
    for (struct ifaddrs *a = list; a && n + 80 < size; a = a->ifa_next) {
      char name[INET6_ADDRSTRLEN];
      int family = a->ifa_addr ? a->ifa_addr->sa_family : 0;
      if (family != AF_INET && family != AF_INET6) continue;
      const void *at = family == AF_INET ? (void *)&((struct sockaddr_in *)a->ifa_addr)->sin_addr
                                         : &((struct sockaddr_in6 *)a->ifa_addr)->sin6_addr;
      bool own = family == AF_INET ? ntohl(*(const uint32_t *)at) >> 24 == 127
                                   : IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)at);
      if (own != loop || (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)at)))
        continue;
      if (inet_ntop(family, at, name, sizeof name))
        n += (size_t)snprintf(text + n, size - n, "%s\n", name);
    }
  if (list) freeifaddrs(list);
  return n;
}

static int port_of(int s) {
  struct sockaddr_storage at;
  socklen_t n = sizeof at;
  if (getsockname(s, (struct sockaddr *)&at, &n)) return 0;
  return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                        : ((struct sockaddr_in *)&at)->sin_port);
}

static bool write_place(Rendezvous *rendezvous, const Launch *launch, Fault *f) {
  char text[HOSTS * 80];
  rendezvous->listens = listen_anywhere(0, launch->world);
  if (rendezvous->listens < 0) return rt_fault(f, 108, "rank 0 cannot listen: %s", strerror(errno));
  if (!random_bytes(&rendezvous->token, sizeof rendezvous->token))
    return rt_fault(f, 108, "no random number: %s", strerror(errno));
  size_t n = (size_t)snprintf(text, sizeof text, "shardc %d %016llx\n",
                              port_of(rendezvous->listens), (unsigned long long)rendezvous->token);
  n += own_addresses(text + n, sizeof text - n);
  NewFile file; /* for this user's eyes: the number is what lets ranks in */
  if (rt_file_begin(&file, launch->place, 0600, f) &&
      rt_file_end(&file, rt_write_all(file.fd, text, (int64_t)n, f), false, f))
    return true;
  f->code = 108;
  return false;
}

static bool open_door(Rendezvous *rendezvous, const Launch *launch, int64_t bytes, double end,
                      Fault *f) {
  MeetingPlace place;
  (void)bytes;
  allow_files(launch->world);
  if (is_file(launch->place)) return write_place(rendezvous, launch, f);
  rendezvous->token = launch->named ? rt_hash_of(launch->job, strlen(launch->job)) : 0;
  return read_place(launch, &place, f) && listen_in_turn(rendezvous, launch, &place, end, f);
}

static void close_door(Rendezvous *rendezvous, const Launch *launch) {
  if (rendezvous->listens < 0) return;
  close(rendezvous->listens);
  if (is_file(launch->place)) unlink(launch->place);
}

static bool greets(PendingPeer *v) {
  Greeting greeting;
  memcpy(greeting.magic, magic, sizeof magic);
  set_up(v->s);
  if (!random_bytes(v->nonce, sizeof v->nonce)) return false;
  memcpy(greeting.nonce, v->nonce, sizeof greeting.nonce);
  return send(v->s, &greeting, sizeof greeting, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         (ssize_t)sizeof greeting;
}

static bool proves(PendingPeer *v, const Rendezvous *rendezvous) {
  uint8_t proof[SHA256_BYTES];
  prove(rendezvous, RANK_SIDE, v->nonce, &v->hello, proof);
  if (!equal(proof, v->hello.proof)) return false;
  prove(rendezvous, ZERO_SIDE, v->hello.nonce, &v->hello, proof);
  return send(v->s, proof, sizeof proof, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof proof;
}

static bool answer(int s, const Welcome *a, int memory) {
  (void)memory;
  return rt_send_all(s, a, sizeof *a);
}

/* ---- the others ---- */

static bool connect_in_time(int s, const struct addrinfo *a, double seconds) {
  int e = 0, flags = fcntl(s, F_GETFL);
  socklen_t n = sizeof e;
  struct pollfd p = {s, POLLOUT, 0};
  if (connect(s, a->ai_addr, a->ai_addrlen) && errno != EINPROGRESS) return false;
  if (poll(&p, 1, (int)(seconds * 1000)) != 1) return false;
  return !getsockopt(s, SOL_SOCKET, SO_ERROR, &e, &n) && !e &&
         !fcntl(s, F_SETFL, flags & ~O_NONBLOCK);
}

/* Both sides prove that they know the secret; rank 0 has the hello then. */
static bool shake_hands(int s, const Rendezvous *rendezvous, const Hello *mine) {
  Greeting greeting = {0};
  Hello hello = *mine;
  uint8_t want[SHA256_BYTES], proof[SHA256_BYTES];
  if (!rt_receive_all(s, &greeting, sizeof greeting, 3) ||
      memcmp(greeting.magic, magic, sizeof magic))
    return false;
  if (!random_bytes(hello.nonce, sizeof hello.nonce)) return false;
  prove(rendezvous, RANK_SIDE, greeting.nonce, &hello, hello.proof);
  prove(rendezvous, ZERO_SIDE, hello.nonce, &hello, want);
  return rt_send_all(s, &hello, sizeof hello) && rt_receive_all(s, proof, sizeof proof, 10) &&
         equal(proof, want);
}

/* A connection to rank 0 of this job; -1: none, *strange if another program answers at the
   address. */
static int knock(const struct addrinfo *list, const Rendezvous *rendezvous, const Hello *mine,
                 bool *strange) {
  for (const struct addrinfo *a = list; a; a = a->ai_next) {
    int s = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s < 0) continue;
    if (connect_in_time(s, a, 3)) {
      set_up(s);
      if (shake_hands(s, rendezvous, mine)) return s;
      *strange = true;
    }
    close(s);
  }
  return -1;
}

static int knock_at(const Launch *launch, const MeetingPlace *place, const Rendezvous *rendezvous,
                    const Hello *mine, double end, bool *strange, Fault *f) {
  struct addrinfo *list = look_up(launch, place, place->port, end, f);
  if (!list) return -1;
  int s = knock(list, rendezvous, mine, strange);
  freeaddrinfo(list);
  return s;
}

static int try_ports(const Rendezvous *rendezvous, const Launch *launch, const Hello *mine,
                     double end, bool *strange, Fault *f) {
  MeetingPlace place;
  int s = -1;
  if (!read_place(launch, &place, f)) return -1;
  for (int i = 0; s < 0 && !f->code && i < launch->ports; i++, place.port++)
    s = knock_at(launch, &place, rendezvous, mine, end, strange, f);
  return s;
}

/* The file may be stale: then no process answers, or one without its random number. */
static int try_file(Rendezvous *rendezvous, const Launch *launch, const Hello *mine, double end,
                    bool *strange) {
  char text[HOSTS * 80 + 1], *line, *rest = NULL;
  unsigned long long token;
  MeetingPlace place;
  Fault none = {0};
  FILE *in = fopen(launch->place, "r");
  if (!in) return -1;
  size_t n = fread(text, 1, sizeof text - 1, in);
  fclose(in);
  text[n] = 0, line = strtok_r(text, "\n", &rest);
  if (!line || sscanf(line, "shardc %d %llx", &place.port, &token) != 2) return -1;
  rendezvous->token = token;
  for (int s; (line = strtok_r(NULL, "\n", &rest));) {
    snprintf(place.host, sizeof place.host, "%s", line);
    if ((s = knock_at(launch, &place, rendezvous, mine, end, strange, &none)) >= 0) return s;
  }
  return -1;
}

static int reach(Rendezvous *rendezvous, const Launch *launch, const Hello *mine, double end,
                 Fault *f) {
  bool strange = false;
  rendezvous->token = launch->named ? rt_hash_of(launch->job, strlen(launch->job)) : 0;
  for (;;) {
    struct pollfd p = {rendezvous->sockets[0], POLLIN, 0};
    int s = is_file(launch->place) ? try_file(rendezvous, launch, mine, end, &strange)
                                   : try_ports(rendezvous, launch, mine, end, &strange, f);
    if (s >= 0 || f->code) return s;
    if (rendezvous->sockets[0] >= 0 && poll(&p, 1, 0) == 1)
      return -1; /* rank 0 has answered already */
    if (rt_now() > end) break;
    nanosleep(&(struct timespec){0, REST}, NULL);
  }
  if (!strange) return -1;
  rt_fault(f, 107, "something listens at %.300s (%s), but it is not rank 0 of this job",
           launch->place, launch->place_from);
  rt_help(f, "another job or service has the port (choose another one, for all ranks), or "
             "SHARDC_SECRET is not the same");
  return -1;
}

static bool hear(int s, Welcome *a, int *memory) {
  (void)memory;
  bool ok = rt_receive_all(s, a, sizeof *a, 5);
  a->what[sizeof a->what - 1] = a->help[sizeof a->help - 1] = 0;
  return ok;
}

const RendezvousKind rt_rendezvous_tcp = {2,      open_door, close_door, greets,
                                          proves, reach,     answer,     hear};
