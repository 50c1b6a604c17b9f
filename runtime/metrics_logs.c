/* Metrics in the formats of other tools, on request (`--log-as csv,tensorboard`): metrics.csv, that
   is written again from metrics.jsonl when a run starts or resumes, and a file of TensorBoard
   (TFRecords of Event messages), one per start. TensorBoard drops what an earlier start wrote about
   later steps when it reads the record of the new start. Must not: allocate in rt_logs_step. */
#include "metrics.h"
#include "runtime/base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- the figures of a step ---- */

enum { FIGURES = 13 };

typedef struct StepFigure {
  const char *column, *tag; /* of metrics.csv, of TensorBoard */
  double v;                 /* NaN: not known */
} StepFigure;

static void figures_of(const StepRecord *record, StepFigure figure[FIGURES]) {
  const StepFigure all[FIGURES] = {
      {"samples", "progress/samples", (double)record->samples},
      {"tokens", "progress/tokens", record->tokens ? (double)record->tokens : NAN},
      {"loss", "loss/train", record->loss},
      {"valid_loss", "loss/validation", record->valid_loss},
      {"lr", "optimizer/lr", record->lr},
      {"grad_norm", "optimizer/grad_norm", record->norm},
      {"scale", "optimizer/loss_scale", record->scale},
      {"counted", "progress/counted", record->counted},
      {"ms", "time/step_ms", record->milliseconds},
      {"waited_ms", "time/waited_ms", record->waited},
      {"slowest", "time/slowest_rank", record->slowest},
      {"slower_ms", "time/slower_ms", record->slower},
      {"skipped", "progress/skipped", record->skipped ? 1 : NAN}};
  memcpy(figure, all, sizeof all);
}

static int open_log(const char *path, int more, Fault *f) {
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | more, 0666);
  if (fd >= 0) return fd;
  rt_fault(f, 401, "cannot open: %s", strerror(errno));
  rt_at(f, path, "", -1);
  return -1;
}

/* ---- metrics.csv ---- */

static bool write_heads(int fd, Fault *f) {
  StepFigure figure[FIGURES];
  StepRecord nothing = {0};
  char line[512];
  size_t n = (size_t)snprintf(line, sizeof line, "step");
  figures_of(&nothing, figure);
  for (int i = 0; i < FIGURES; i++)
    n += (size_t)snprintf(line + n, sizeof line - n, ",%s", figure[i].column);
  line[n++] = '\n';
  return rt_write_all(fd, line, (int64_t)n, f);
}

static bool write_row(int fd, const StepRecord *record, Fault *f) {
  StepFigure figure[FIGURES];
  char line[512];
  size_t n = (size_t)snprintf(line, sizeof line, "%lld", (long long)record->step);
  figures_of(record, figure);
  for (int i = 0; i < FIGURES; i++)
    n += isfinite(figure[i].v) ? (size_t)snprintf(line + n, sizeof line - n, ",%.9g", figure[i].v)
                               : (size_t)snprintf(line + n, sizeof line - n, ",");
  line[n++] = '\n';
  return rt_write_all(fd, line, (int64_t)n, f);
}

/* From metrics.jsonl, whose lines of later steps are gone already. */
static bool open_csv(Metrics *metrics, const char *run, Fault *f) {
  char path[RT_PATH];
  Bytes bytes = {0};
  rt_join(path, run, "metrics.csv");
  if (metrics->csv >= 0) close(metrics->csv);
  metrics->csv = open_log(path, O_TRUNC, f);
  if (metrics->csv < 0 || !rt_map_file(metrics->path, 401, &bytes, f)) return false;
  bool ok = write_heads(metrics->csv, f);
  const uint8_t *end;
  for (int64_t at = 0;
       ok && at < bytes.n && (end = memchr(bytes.at + at, '\n', (size_t)(bytes.n - at)));
       at = end - bytes.at + 1) {
    StepRecord record;
    if (rt_metrics_line((Bytes){bytes.at + at, end - (bytes.at + at)}, &record))
      ok = write_row(metrics->csv, &record, f);
  }
  rt_unmap_file(&bytes);
  return ok || rt_at(f, path, "", -1);
}

/* ---- TensorBoard ---- */

/* The checksum of TFRecords: Castagnoli's polynomial, reflected, and a rotation on top. */
static uint32_t masked_crc(const uint8_t *data, size_t n) {
  uint32_t crc = ~0u;
  for (size_t i = 0; i < n; i++) {
    crc ^= data[i];
    for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
  }
  crc = ~crc;
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

typedef struct EventMessage { /* a message of protobuf; all fit */
  uint8_t at[1024];
  size_t n;
} EventMessage;

static void put_le(EventMessage *to, uint64_t v, int bytes) {
  for (int i = 0; i < bytes; i++) to->at[to->n++] = (uint8_t)(v >> 8 * i);
}

static void put_varint(EventMessage *to, uint64_t v) {
  for (; v >= 128; v >>= 7) to->at[to->n++] = (uint8_t)(v | 128);
  to->at[to->n++] = (uint8_t)v;
}

enum { VARINT = 0, DOUBLE = 1, BYTES = 2, FLOAT = 5 }; /* wire types */

static void put_key(EventMessage *to, int field, int type) {
  put_varint(to, (uint64_t)(field << 3 | type));
}

static void put_bytes(EventMessage *to, int field, const void *data, size_t n) {
  put_key(to, field, BYTES), put_varint(to, n);
  memcpy(to->at + to->n, data, n), to->n += n;
}

/* Event.wall_time, Event.step */
static void begin_event(EventMessage *event, int64_t step) {
  struct timespec now;
  double seconds;
  uint64_t bits;
  clock_gettime(CLOCK_REALTIME, &now);
  seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
  memcpy(&bits, &seconds, sizeof bits);
  *event = (EventMessage){.n = 0};
  put_key(event, 1, DOUBLE), put_le(event, bits, 8);
  put_key(event, 2, VARINT), put_varint(event, (uint64_t)step);
}

/* Summary.value: tag, simple_value */
static void put_value(EventMessage *summary, const StepFigure *figure) {
  EventMessage value = {.n = 0};
  float v = (float)figure->v;
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  put_bytes(&value, 1, figure->tag, strlen(figure->tag));
  put_key(&value, 2, FLOAT), put_le(&value, bits, 4);
  put_bytes(summary, 1, value.at, value.n);
}

static bool write_event(int fd, const EventMessage *event, Fault *f) {
  EventMessage record = {.n = 0};
  put_le(&record, event->n, 8), put_le(&record, masked_crc(record.at, 8), 4);
  memcpy(record.at + record.n, event->at, event->n), record.n += event->n;
  put_le(&record, masked_crc(event->at, event->n), 4);
  return rt_write_all(fd, record.at, (int64_t)record.n, f);
}

static bool write_summary(int fd, const StepRecord *record, Fault *f) {
  StepFigure figure[FIGURES];
  EventMessage event, summary = {.n = 0};
  begin_event(&event, record->step), figures_of(record, figure);
  for (int i = 0; i < FIGURES; i++)
    if (isfinite(figure[i].v)) put_value(&summary, &figure[i]);
  put_bytes(&event, 5, summary.at, summary.n);
  return write_event(fd, &event, f);
}

/* The version of the format, and the record of a start: steps from this one on are written anew. */
static bool open_events(Metrics *metrics, const char *run, int64_t step, Fault *f) {
  static const char version[] = "brain.Event:2";
  static const uint8_t begins[] = {1 << 3 | VARINT, 1}; /* SessionLog.status = START */
  char path[RT_PATH], name[256], host[64] = "host";
  EventMessage event;
  gethostname(host, sizeof host - 1);
  snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%ld.%lld", (long long)time(NULL),
           host, (long)getpid(), (long long)step);
  rt_join(path, run, name);
  if (metrics->events >= 0) close(metrics->events);
  metrics->events = open_log(path, 0, f);
  if (metrics->events < 0) return false;
  begin_event(&event, 0), put_bytes(&event, 3, version, sizeof version - 1);
  bool ok = write_event(metrics->events, &event, f);
  begin_event(&event, step + 1), put_bytes(&event, 7, begins, sizeof begins);
  return (ok && write_event(metrics->events, &event, f)) || rt_at(f, path, "", -1);
}

/* ---- both ---- */

static bool takes(const char *list, const char *word) {
  size_t n = strlen(word);
  for (; list; list = strchr(list, ',') ? strchr(list, ',') + 1 : NULL)
    if (!strncmp(list, word, n) && (!list[n] || list[n] == ',')) return true;
  return false;
}

bool rt_logs_check(const char *list, Fault *f) {
  for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    char word[32];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(at, ","), at);
    if (strcmp(word, "csv") && strcmp(word, "tensorboard"))
      return rt_fault(f, 103, "--log-as takes csv, tensorboard or both, not `%s`", list);
  }
  return true;
}

bool rt_logs_open(Metrics *metrics, const char *run, const char *list, int64_t step, Fault *f) {
  metrics->logs = list;
  return (!takes(list, "csv") || open_csv(metrics, run, f)) &&
         (!takes(list, "tensorboard") || open_events(metrics, run, step, f));
}

bool rt_logs_step(const Metrics *metrics, const StepRecord *record, Fault *f) {
  return (metrics->csv < 0 || write_row(metrics->csv, record, f)) &&
         (metrics->events < 0 || write_summary(metrics->events, record, f));
}

void rt_logs_close(Metrics *metrics) {
  if (metrics->csv >= 0) close(metrics->csv);
  if (metrics->events >= 0) close(metrics->events);
  metrics->csv = metrics->events = -1;
}
