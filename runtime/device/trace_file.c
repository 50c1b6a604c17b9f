/* The file of --trace: what every rank has recorded, as one JSON text for Chrome's and Perfetto's
   viewers ("Trace Event Format"): a process per rank, in it a lane for steps, turns of the schedule
   with the waits in them, messages, reading of data, each worker. Arrows lead from a send to its
   receive.

   Times are those of rank 0's clock (comm/clocks.c); `otherData` says by how much others may be
   off. Each rank writes its own events as text, on that clock; the texts go to rank 0 in pieces,
   and it alone writes the file. Must not: record; give a message a time that the communicator did
   not. */
#include "device.h"
#include "trace.h"
#include "runtime/base/file.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANE_STEPS, LANE_TURNS, LANE_MESSAGES, LANE_DATA, LANE_WORKERS };
enum { PIECE = 1 << 16 };

typedef struct TraceNote { /* of a rank, for the head of the file */
  int64_t bytes;
  double ahead, error;
  bool full;
} TraceNote;

typedef struct TraceText {
  const Trace *trace;
  Comm *c;
  ClockBound after;
  double origin;                   /* on rank 0's clock */
  int64_t n;                       /* events */
  int64_t next;                    /* the first turn that was over when the event was recorded */
  int64_t hops[RT_MAX_AXES][2][2]; /* so far: axis, back, sent or received */
  FILE *file;
} TraceText;

static double time_of(const TraceText *text, double own) {
  return own - rt_clock_ahead(&text->trace->before, &text->after, own) - text->origin;
}

/* ---- one event ---- */

static int lane_of(const TraceEvent *event) {
  switch (event->what) {
  case STEP: return LANE_STEPS;
  case TURN:
  case WAIT: return LANE_TURNS;
  case MESSAGE: return LANE_MESSAGES;
  case DATA: return LANE_DATA;
  default: return LANE_WORKERS + event->lane;
  }
}

static void put_head(const TraceText *text, const TraceEvent *event, const char *category) {
  fprintf(
      text->file,
      ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\",\"name\":",
      rt_comm_rank(text->c), lane_of(event), 1e6 * time_of(text, event->start),
      1e6 * (time_of(text, event->end) - time_of(text, event->start)), category);
}

static void put_kernel(const TraceText *text, const TraceEvent *event) {
  const Trace *trace = text->trace;
  int what = event->what >= 0 ? event->what : trace->program->nkernels - 1 - event->what;
  put_head(text, event, "kernel");
  rt_json_write(text->file, trace->row[what].name);
  fprintf(text->file, ",\"args\":{\"phase\":%d,\"chunks\":%lld,\"source\":", event->number,
          (long long)event->count);
  rt_json_write(text->file, trace->row[what].source);
  fputs("}}", text->file);
}

static const char *turn_word(int kind) {
  static const char *const words[] = {"forward", "backward", "weights"};
  return words[kind];
}

static void put_turn(const TraceText *text, const TraceEvent *event) {
  put_head(text, event, "turn");
  fprintf(text->file, "\"%s %d\",\"args\":{\"kind\":\"%s\",\"part\":%d,\"chunk\":%lld}}",
          turn_word(event->lane), event->number, turn_word(event->lane), event->number,
          (long long)event->count);
}

/* The turn in which event i began: the first one that ended after it. NULL: it is in no turn. */
static const TraceEvent *turn_of(TraceText *text, int64_t i) {
  const TraceEvent *event = text->trace->event;
  if (text->next < i) text->next = i;
  while (text->next < text->n && event[text->next].what != TURN) text->next++;
  if (text->next == text->n || event[text->next].start > event[i].start) return NULL;
  return &event[text->next];
}

static void put_flow(TraceText *text, const TraceEvent *event, const rt_collective *row, int peer) {
  bool sends = row->kind == RT_SEND;
  int64_t *n = &text->hops[row->axis][row->back != 0][sends];
  double end = fmax(event->start, event->end - 1e-9); /* inside of its box */
  fprintf(text->file,
          ",\n{\"ph\":\"%c\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"cat\":\"hop\",\"name\":\"hop\","
          "\"id\":\"%d.%d.%d.%lld\"%s}",
          sends ? 's' : 'f', rt_comm_rank(text->c), LANE_MESSAGES,
          1e6 * time_of(text, sends ? event->start : end), row->axis, row->back,
          sends ? rt_comm_rank(text->c) : peer, (long long)(*n)++, sends ? "" : ",\"bp\":\"e\"");
}

/* A message, or the main thread standing still for one. */
static void put_message(TraceText *text, int64_t i) {
  const TraceEvent *event = &text->trace->event[i], *turn = turn_of(text, i);
  const rt_collective *row = &text->trace->program->collectives[event->number];
  const RankGroup *group = &text->c->group[row->axis];
  bool waits = event->what == WAIT;
  int at = rt_is_hop(row->kind) ? rt_hop_peer(row, group) : -1,
      peer = (int)(group->first + at * group->stride);
  put_head(text, event, waits ? "wait" : "message");
  fprintf(text->file, "\"%s%s\",\"args\":{\"what\":", waits ? "wait: " : "",
          rt_collective_facts[row->kind].words);
  rt_json_write(text->file, row->what);
  fputs(",\"source\":", text->file);
  rt_json_write(text->file, row->source);
  fprintf(text->file, ",\"axis\":\"%s\",\"elements\":%lld",
          text->trace->program->mesh[row->axis].name, (long long)row->count);
  if (at >= 0) fprintf(text->file, ",\"%s\":%d", row->kind == RT_SEND ? "to" : "from", peer);
  if (turn)
    fprintf(text->file, ",\"kind\":\"%s\",\"part\":%d,\"chunk\":%lld", turn_word(turn->lane),
            turn->number, (long long)turn->count);
  fputs("}}", text->file);
  if (at >= 0 && !waits) put_flow(text, event, row, peer);
}

static void put_event(TraceText *text, int64_t i) {
  const TraceEvent *event = &text->trace->event[i];
  switch (event->what) {
  case STEP:
    put_head(text, event, "step"),
        fprintf(text->file, "\"step %d\",\"args\":{\"step\":%d}}", event->number, event->number);
    break;
  case DATA:
    put_head(text, event, "data"), fprintf(text->file, "\"data of step %d\"}", event->number);
    break;
  case TURN: put_turn(text, event); break;
  case MESSAGE:
  case WAIT: put_message(text, i); break;
  default: put_kernel(text, event);
  }
}

/* ---- the lanes of a rank ---- */

static void put_name(const TraceText *text, const char *what, int lane, const char *name) {
  fprintf(text->file,
          ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"args\":{\"name\":\"%s\"}}",
          rt_comm_rank(text->c), lane, what, name);
}

/* rank 3: data = 0, pipe = 1 */
static void put_rank(const TraceText *text) {
  const rt_program *program = text->trace->program;
  char name[RT_NAME];
  size_t n = (size_t)snprintf(name, sizeof name, "rank %d", rt_comm_rank(text->c));
  for (int i = 0; i < program->naxes && n < sizeof name; i++)
    n += (size_t)snprintf(name + n, sizeof name - n, "%s%s = %d", i ? ", " : ": ",
                          program->mesh[i].name, text->c->group[i].me);
  put_name(text, "process_name", 0, name);
}

static void put_lanes(const TraceText *text) {
  const Trace *trace = text->trace;
  char name[32];
  put_rank(text);
  put_name(text, "thread_name", LANE_STEPS, "steps");
  put_name(text, "thread_name", LANE_TURNS, "turns");
  put_name(text, "thread_name", LANE_MESSAGES, "messages");
  put_name(text, "thread_name", LANE_DATA, "data");
  if (!trace->workers) put_name(text, "thread_name", LANE_WORKERS, "device");
  for (int i = 0; i < trace->workers; i++) {
    snprintf(name, sizeof name, "worker %d", i);
    put_name(text, "thread_name", LANE_WORKERS + i, name);
  }
}

/* ---- all ranks ---- */

static char *write_own(TraceText *text, size_t *bytes) {
  char *own = NULL;
  text->file = open_memstream(&own, bytes);
  if (!text->file) rt_fail(701, "no memory for the trace");
  put_lanes(text);
  for (int64_t i = 0; i < text->n; i++) put_event(text, i);
  if (fclose(text->file)) rt_fail(701, "no memory for the trace");
  return own;
}

/* The texts of all ranks, on rank 0; the others keep nothing. */
static char **bring(Comm *c, const TraceNote *note, const char *own) {
  int ranks = rt_comm_world(c);
  int64_t most = 0, mine = note[rt_comm_rank(c)].bytes;
  char **all = rt_alloc(sizeof *all * (size_t)ranks), *pieces = rt_alloc(PIECE * (size_t)ranks),
       *piece = rt_alloc(PIECE);
  for (int i = 0; i < ranks; i++) {
    if (!rt_comm_rank(c)) all[i] = rt_alloc((size_t)note[i].bytes);
    most = note[i].bytes > most ? note[i].bytes : most;
  }
  for (int64_t at = 0; at < most; at += PIECE) {
    if (at < mine) memcpy(piece, own + at, (size_t)(mine - at < PIECE ? mine - at : PIECE));
    rt_comm_gather(c, "the trace", piece, pieces, PIECE);
    for (int i = 0; i < ranks && !rt_comm_rank(c); i++) {
      int64_t left = note[i].bytes - at;
      if (left > 0)
        memcpy(all[i] + at, pieces + (int64_t)i * PIECE, (size_t)(left < PIECE ? left : PIECE));
    }
  }
  free(pieces), free(piece);
  return all;
}

static void put_file_head(const TraceText *text, const TraceNote *note, FILE *file) {
  const Trace *trace = text->trace;
  int ranks = rt_comm_world(text->c);
  bool full = false;
  double error = 0;
  for (int i = 0; i < ranks; i++) full |= note[i].full, error = fmax(error, note[i].error);
  fputs("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"model\":", file);
  rt_json_write(file, trace->program->model);
  const rt_entry *step = rt_entry_find(trace->program, "step");
  fprintf(file, ",\"flop\":%.9g", step ? step->flop : 0); /* per rank */
  fprintf(file, ",\"hash\":\"%s\",\"ranks\":%d,\"steps\":[%lld,%lld],\"complete\":%s",
          trace->program->hash, ranks, (long long)trace->first, (long long)trace->last,
          full ? "false" : "true");
  fprintf(file,
          ",\"clock\":\"of rank 0; times of others are off by no more than error_us\""
          ",\"error_us\":%.3f,\"clocks\":[",
          1e6 * error);
  for (int i = 0; i < ranks; i++)
    fprintf(file, "%s\n{\"rank\":%d,\"ahead_us\":%.3f,\"error_us\":%.3f}", i ? "," : "", i,
            1e6 * note[i].ahead, 1e6 * note[i].error);
  fputs("]},\"traceEvents\":[", file);
}

static bool put_file(const TraceText *text, const TraceNote *note, char *const *all, Fault *f) {
  char *head = NULL;
  size_t n = 0;
  FILE *file = open_memstream(&head, &n);
  NewFile out;
  if (!file) return rt_fault(f, 701, "no memory for the trace");
  put_file_head(text, note, file);
  fclose(file);
  bool ok = rt_file_begin(&out, text->trace->path, 0666, f);
  if (ok) {
    bool all_out = rt_write_all(out.fd, head, (int64_t)n, f);
    for (int i = 0; i < rt_comm_world(text->c) && all_out; i++) /* the first comma is too much */
      all_out = rt_write_all(out.fd, all[i] + !i, note[i].bytes - !i, f);
    ok = rt_file_end(&out, all_out && rt_write_all(out.fd, "]}\n", 3, f), false, f);
  }
  free(head);
  return ok;
}

bool rt_trace_write(Trace *trace, Comm *c, Fault *f) {
  int ranks = rt_comm_world(c);
  TraceText text = {.trace = trace, .c = c, .after = rt_clock_bound(c), .origin = trace->opened};
  text.n = trace->nevents < trace->most ? trace->nevents : trace->most;
  rt_comm_broadcast(c, "the trace", &text.origin, sizeof text.origin);
  size_t bytes = 0;
  char *own = write_own(&text, &bytes);
  TraceNote mine = {(int64_t)bytes, rt_clock_ahead(&trace->before, &text.after, text.after.at),
                    rt_clock_error(&trace->before, &text.after), trace->full};
  TraceNote *note = rt_alloc(sizeof *note * (size_t)ranks);
  rt_comm_gather(c, "the trace", &mine, note, sizeof mine);
  char **all = bring(c, note, own);
  bool ok = rt_comm_rank(c) || put_file(&text, note, all, f);
  for (int i = 0; i < ranks; i++) free(all[i]);
  free(all), free(note), free(own), free(trace->event), trace->event = NULL;
  return rt_comm_decide(c, "write the trace", ok, NULL, 0, f);
}
