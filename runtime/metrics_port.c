/* `--metrics HOST:PORT`: the figures of the newest step as text for Prometheus, over HTTP, from a
   thread of rank 0. Whatever is asked, the answer is the same page. Must not: keep the run waiting,
   or read more of a request than its first bytes. */
#include "metrics.h"
#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct MetricsPort {
  int listens, ends; /* ends: a pipe whose end of file ends the thread; its other side: */
  int running;
  pthread_t thread;
  pthread_mutex_t lock; /* guards the members below */
  StepRecord record;
  int64_t steps, skipped;
  char model[RT_NAME];
  int ranks;
};

/* ---- the page ---- */

static void put(FILE *page, const char *name, const char *kind, const char *help, double v) {
  if (isnan(v)) return;
  fprintf(page, "# HELP shardc_%s %s\n# TYPE shardc_%s %s\nshardc_%s ", name, help, name, kind,
          name);
  if (isinf(v)) fputs(v > 0 ? "+Inf\n" : "-Inf\n", page);
  else fprintf(page, "%.9g\n", v);
}

/* A label: backslash, quote and newline are written with a backslash. */
static void put_label(FILE *page, const char *text) {
  for (; *text; text++)
    if (*text == '\n') fputs("\\n", page);
    else fprintf(page, *text == '\\' || *text == '"' ? "\\%c" : "%c", *text);
}

static void write_figures(FILE *page, const StepRecord *record, int64_t steps, int64_t skipped) {
  put(page, "step", "gauge", "Number of the newest step.", (double)record->step);
  put(page, "steps", "gauge", "Steps after which the run ends.", (double)steps);
  put(page, "samples_total", "counter", "Samples used so far.", (double)record->samples);
  put(page, "tokens_total", "counter", "Tokens used so far.",
      record->tokens ? (double)record->tokens : NAN);
  put(page, "loss", "gauge", "Training loss.", record->loss);
  put(page, "valid_loss", "gauge", "Validation loss of the newest evaluation.", record->valid_loss);
  put(page, "learning_rate", "gauge", "Learning rate.", record->lr);
  put(page, "gradient_norm", "gauge", "Norm of the gradients before clipping.", record->norm);
  put(page, "loss_scale", "gauge", "Loss scale, in f16.", record->scale);
  put(page, "step_seconds", "gauge", "Seconds of the newest step.", record->milliseconds / 1e3);
  put(page, "waited_seconds", "gauge", "Of these, seconds for which rank 0 waited for messages.",
      record->waited / 1e3);
  put(page, "slowest_rank", "gauge", "The rank whose step took longest, without its waits.",
      record->slowest);
  put(page, "slower_seconds", "gauge", "By how much the fastest rank took less than the slowest.",
      record->slower / 1e3);
  put(page, "skipped_total", "counter", "Steps of this process that were not finite.",
      (double)skipped);
}

static char *write_page(MetricsPort *port, size_t *n) {
  char *text = NULL;
  FILE *page = open_memstream(&text, n);
  if (!page) return NULL;
  pthread_mutex_lock(&port->lock);
  StepRecord record = port->record;
  int64_t steps = port->steps, skipped = port->skipped;
  pthread_mutex_unlock(&port->lock);
  fputs(
      "# HELP shardc_run Model and number of ranks.\n# TYPE shardc_run gauge\nshardc_run{model=\"",
      page);
  put_label(page, port->model);
  fprintf(page, "\",ranks=\"%d\"} 1\n", port->ranks);
  write_figures(page, &record, steps, skipped);
  fclose(page);
  return text;
}

/* ---- the thread ---- */

static void answer(MetricsPort *port, int s) {
  char head[512];
  size_t n;
  struct pollfd asks = {s, POLLIN, 0};
  char *page = write_page(port, &n);
  if (page && poll(&asks, 1, 2000) == 1 && recv(s, head, sizeof head, 0) > 0) {
    int k = snprintf(head, sizeof head,
                     "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; "
                     "charset=utf-8\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                     n);
    if (send(s, head, (size_t)k, MSG_NOSIGNAL) == k) send(s, page, n, MSG_NOSIGNAL);
    shutdown(s, SHUT_WR); /* what is left of the request is read, so that no reset cuts the page */
    while (poll(&asks, 1, 500) == 1 && recv(s, head, sizeof head, 0) > 0) continue;
  }
  free(page), close(s);
}

static void *serve(void *argument) {
  MetricsPort *port = argument;
  struct pollfd p[2] = {{port->listens, POLLIN, 0}, {port->ends, POLLIN, 0}};
  for (;;) {
    if (poll(p, 2, -1) < 0 && errno != EINTR) return NULL;
    if (p[1].revents) return NULL;
    int s = p[0].revents ? accept4(port->listens, NULL, NULL, SOCK_CLOEXEC) : -1;
    if (s >= 0) answer(port, s);
  }
}

/* ---- for the run ---- */

static bool wrong_place(Fault *f, const char *place, const char *why) {
  rt_fault(f, 110, "--metrics %s: %s", place, why);
  return rt_help(f, "an address of this machine and a free port, such as 127.0.0.1:9400");
}

static bool listen_at(MetricsPort *port, const char *place, Fault *f) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list;
  const char *colon = strrchr(place, ':');
  char host[256], *end;
  size_t n = colon ? (size_t)(colon - place) : 0;
  long number = colon ? strtol(colon + 1, &end, 10) : 0;
  if (!n || n >= sizeof host || number < 1 || number > 65535 || *end)
    return wrong_place(f, place, "not of the form HOST:PORT");
  bool v6 = n > 2 && place[0] == '[' && place[n - 1] == ']';
  snprintf(host, sizeof host, "%.*s", (int)(n - 2 * v6), place + v6);
  int e = getaddrinfo(host, colon + 1, &hints, &list), yes = 1;
  if (e) return wrong_place(f, place, gai_strerror(e));
  port->listens = socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool ok = port->listens >= 0 &&
            !setsockopt(port->listens, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) &&
            !bind(port->listens, list->ai_addr, list->ai_addrlen) && !listen(port->listens, 16);
  freeaddrinfo(list);
  return ok || wrong_place(f, place, strerror(errno));
}

MetricsPort *rt_metrics_port(const char *place, const char *model, int ranks, int64_t steps,
                             Fault *f) {
  MetricsPort *port = rt_alloc(sizeof *port);
  int ends[2];
  *port = (MetricsPort){.steps = steps, .ranks = ranks};
  port->record = (StepRecord){.loss = NAN, .valid_loss = NAN, .lr = NAN, .norm = NAN};
  port->record.milliseconds = port->record.waited = port->record.scale = NAN;
  port->record.slowest = port->record.slower = NAN;
  snprintf(port->model, sizeof port->model, "%s", model);
  pthread_mutex_init(&port->lock, NULL);
  if (!listen_at(port, place, f)) return NULL;
  bool ok = !pipe(ends);
  if (ok) port->ends = ends[0], port->running = ends[1];
  if (ok && !pthread_create(&port->thread, NULL, serve, port)) return port;
  return rt_fault(f, 704, "the thread of --metrics cannot be started: %s", strerror(errno)), NULL;
}

void rt_metrics_port_step(MetricsPort *port, const StepRecord *record) {
  if (!port) return;
  pthread_mutex_lock(&port->lock);
  double valid = port->record.valid_loss;
  port->record = *record, port->skipped += record->skipped;
  if (isnan(record->valid_loss)) port->record.valid_loss = valid;
  pthread_mutex_unlock(&port->lock);
}

void rt_metrics_port_close(MetricsPort *port) {
  if (!port) return;
  close(port->running), pthread_join(port->thread, NULL);
  close(port->ends), close(port->listens);
  free(port);
}
