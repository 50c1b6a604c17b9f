/* Reading the flight recorders of a job that was lost: where each rank was, and for which rank the
   others wait. A rank waits if a message has begun and not ended; the one that all wait for is in
   no message, or in the earliest. Clocks of machines are not compared. Must not: believe what a
   file says of its own size. */
#include "chart.h"
#include "runtime/base/file.h"
#include "runtime/base/recorder.h"
#include "runtime/comm/comm.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_RANKS = 65536, SHOWN = 12 };

typedef struct RankFlight { /* of a rank */
  Record record;
  const RecordEvent *waits, *last; /* in which message, NULL: in none; the last event, NULL: none */
  bool found;
} RankFlight;

typedef struct FlightLog {
  RankFlight *rank;
  int world, found, waiting;
  const RankFlight *awaited; /* for which the others wait */
  const Record *told;        /* of a rank whose watchdog knew which rank was lost; NULL: none */
  bool stopped;              /* the awaited one: its process is */
  bool alone; /* all but the awaited one were asked to end, as a launcher does if one dies */
} FlightLog;

/* ---- reading ---- */

static bool read_rank(const char *folder, int rank, Record *record) {
  char path[RT_PATH];
  rt_record_path(path, folder, rank);
  FILE *file = *path ? fopen(path, "rb") : NULL;
  bool good = file && fread(record, sizeof *record, 1, file) == 1 &&
              !memcmp(record->magic, RECORD_MAGIC, sizeof record->magic) && record->rank == rank &&
              record->world > rank && record->world <= MOST_RANKS;
  if (file) fclose(file);
  if (!good) return false;
  record->host[sizeof record->host - 1] = 0, rt_show(record->host);
  record->why[sizeof record->why - 1] = 0, rt_show(record->why);
  for (int i = 0; i < RECORD_EVENTS; i++)
    record->event[i].what[RECORD_TEXT - 1] = 0, rt_show(record->event[i].what);
  return true;
}

/* The event that many before the end, 0: the last; NULL: it is not kept. */
static const RecordEvent *event_at(const Record *record, uint64_t back) {
  uint64_t n = record->events;
  if (back >= n || back >= RECORD_EVENTS) return NULL;
  const RecordEvent *event = &record->event[(n - 1 - back) % RECORD_EVENTS];
  return event->kind > RECORD_NONE && event->kind <= RECORD_DEVICE_CALL ? event : NULL;
}

static void find_state(RankFlight *flown) {
  for (uint64_t back = 0; back < RECORD_EVENTS && !flown->last; back++)
    flown->last = event_at(&flown->record, back);
  for (uint64_t back = 0; back < RECORD_EVENTS; back++) {
    const RecordEvent *event = event_at(&flown->record, back);
    if (!event || event->kind < RECORD_CALL) continue;
    flown->waits = event->kind == RECORD_CALL_END ? NULL : event;
    return;
  }
}

/* a is less far than b */
static bool is_earlier(const RankFlight *a, const RankFlight *b) {
  if (!a->waits != !b->waits) return !a->waits;
  const RecordEvent *x = a->waits ? a->waits : a->last, *y = b->waits ? b->waits : b->last;
  if (!x || !y) return !x && y;
  return x->step != y->step ? x->step < y->step : x->number < y->number;
}

/* The one rank that nobody asked to end; NULL: there is none, or more than one. */
static const RankFlight *not_asked(const FlightLog *flights) {
  const RankFlight *only = NULL;
  for (int i = 0; i < flights->world; i++) {
    const RankFlight *flown = &flights->rank[i];
    if (flown->found && flown->record.asked) continue;
    if (only || !flown->found) return NULL;
    only = flown;
  }
  return only;
}

/* The process of a rank of this machine. */
static bool is_stopped(const RankFlight *flown) {
  char host[sizeof flown->record.host] = "";
  gethostname(host, sizeof host - 1);
  return flown->found && !strcmp(host, flown->record.host) &&
         rt_process_state(flown->record.pid) == 'T';
}

/* False: there are none. */
static bool read_all(const char *folder, FlightLog *flights) {
  Record *first = rt_alloc(sizeof *first);
  *flights = (FlightLog){0};
  for (int i = 0; i < MOST_RANKS && !flights->world && i <= SHOWN; i++)
    if (read_rank(folder, i, first)) flights->world = first->world;
  free(first);
  if (!flights->world) return false;
  flights->rank = rt_alloc(sizeof *flights->rank * (size_t)flights->world);
  for (int i = 0; i < flights->world; i++) {
    RankFlight *flown = &flights->rank[i];
    if (!(flown->found = read_rank(folder, i, &flown->record))) continue;
    find_state(flown);
    flights->found++, flights->waiting += flown->waits != NULL;
    if (flown->record.lost > 0 && !flights->told) flights->told = &flown->record;
    if (!flights->awaited || is_earlier(flown, flights->awaited)) flights->awaited = flown;
  }
  const Record *told = flights->told;
  if (told && told->lost <= flights->world) flights->awaited = &flights->rank[told->lost - 1];
  const RankFlight *only = told || flights->world < 2 ? NULL : not_asked(flights);
  if (only) flights->awaited = only, flights->alone = true;
  for (int i = 0; i < flights->world && !told && !only; i++)
    if (is_stopped(&flights->rank[i])) {
      flights->awaited = &flights->rank[i], flights->stopped = true;
      break;
    }
  return true;
}

/* ---- words ---- */

static void say_event(FILE *out, const RecordEvent *event) {
  static const char *const before[] = {
      [RECORD_ENTRY] = "begin of ", [RECORD_ENTRY_END] = "end of ",
      [RECORD_KERNEL] = "kernel ",  [RECORD_CALL] = "",
      [RECORD_CALL_END] = "",       [RECORD_DEVICE_CALL] = "its GPU is in "};
  if (!event) {
    fputs("no event", out);
    return;
  }
  fprintf(out, "%s%s", before[event->kind], event->what);
  if (event->kind >= RECORD_CALL) fprintf(out, " #%u", event->number);
  if (event->kind == RECORD_CALL_END) fputs(", which ended", out);
}

static void say_rank(FILE *out, const FlightLog *flights, int i) {
  const RankFlight *flown = &flights->rank[i];
  fprintf(out, "  rank %-5d", i);
  if (!flown->found) {
    fputs("no events: it ended well, died before its first or wrote on another machine", out);
    fputs(flown == flights->awaited ? "  <--\n" : "\n", out);
    return;
  }
  const RecordEvent *event = flown->waits ? flown->waits : flown->last;
  fprintf(out, "step %-7lld %s", event ? (long long)event->step : 0LL,
          flown->waits ? "waits in " : "after ");
  say_event(out, event);
  fputs(flown == flights->awaited ? "  <--\n" : "\n", out);
}

static void say_last(FILE *out, const RankFlight *flown) {
  if (!flown->found) return;
  double end = flown->last ? flown->last->when : 0;
  fprintf(out, "the last events of rank %d (%s, pid %lld), in seconds before its last one:\n",
          flown->record.rank, flown->record.host, (long long)flown->record.pid);
  for (uint64_t back = RECORD_EVENTS; back-- > 0;) {
    const RecordEvent *event = event_at(&flown->record, back);
    if (!event) continue;
    fprintf(out, "  %10.6f  step %lld  ", end - event->when, (long long)event->step);
    say_event(out, event);
    fputc('\n', out);
  }
}

static void say_cause(FILE *out, const FlightLog *flights) {
  int rank = (int)(flights->awaited - flights->rank);
  if (flights->told) fprintf(out, "%s\n", flights->told->why);
  else if (flights->alone)
    fprintf(out, "rank %d died first: all others were asked to end by a signal\n", rank);
  else if (flights->stopped) fprintf(out, "rank %d is stopped\n", rank);
  else if (flights->waiting == flights->found)
    fprintf(out, "all wait; rank %d is least far\n", rank);
  else
    fprintf(out, "%d of %d ranks wait; rank %d does not: the others wait for it\n",
            flights->waiting, flights->found, rank);
}

bool rt_report_flights(FILE *out, const char *folder) {
  FlightLog flights;
  if (!read_all(folder, &flights)) return false;
  const RankFlight *awaited = flights.awaited;
  fprintf(out, "%s: a job of %d rank%s that did not end well\n", folder, flights.world,
          flights.world > 1 ? "s" : "");
  for (int i = 0; i < flights.world; i++)
    if (flights.world <= SHOWN || &flights.rank[i] == awaited || !flights.rank[i].waits)
      say_rank(out, &flights, i);
  say_cause(out, &flights);
  say_last(out, awaited);
  free(flights.rank);
  return true;
}
