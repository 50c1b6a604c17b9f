/* Decisions of the watchdog (runtime/comm/watchdog.c), by a clock of the test: which ranks count as
   silent, late, gone or at odds, and when; and that ranks which pause for a while end nothing. One
   of four ranks over two axes watches; nothing in this test waits. */
#include "runtime/comm/watchdog.c"
#include <setjmp.h>
#include <sys/wait.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { WORLD = 4, LATE_AFTER = 25, SILENT_AFTER = 20 };

typedef struct Job {
  rt_program p;
  rt_axis mesh[2];
  rt_collective row[2]; /* over the first and over the second axis */
  Comm comm;
  Rendezvous meeting;
  int sockets[WORLD - 1];
  struct pollfd line[WORLD];
  Pulse pulse[WORLD - 1];
  Watchdog g;
  WatchRound l;
  _Alignas(64) char table[sizeof(PeerTable) + WORLD * sizeof(Peer)];
  double now;
  bool still[WORLD]; /* is its heartbeat missing? */
} Job;

static Job *job_of(int rank) {
  Job *j = aligned_alloc(64, (sizeof(Job) + 63) / 64 * 64);
  memset(j, 0, sizeof *j);
  j->mesh[0] = (rt_axis){.name = "data", .size = 2, .stride = 2};
  j->mesh[1] = (rt_axis){.name = "tensor", .size = 2, .stride = 1};
  for (int i = 0; i < 2; i++)
    j->row[i] = (rt_collective){.what = "sum", .source = "", .axis = i, .count = 4};
  j->p = (rt_program){.mesh = j->mesh, .naxes = 2, .collectives = j->row, .ncollectives = 2};
  j->comm.program = &j->p, j->comm.watchdog = &j->g;
  j->comm.launch.rank = rank, j->comm.launch.world = WORLD;
  j->meeting.sockets = j->sockets, j->meeting.npeers = rank ? 1 : WORLD - 1;
  j->g = (Watchdog){.comm = &j->comm, .table = (PeerTable *)j->table, .meeting = &j->meeting};
  j->g.late = LATE_AFTER, j->g.silent = SILENT_AFTER, j->g.missing = -1;
  j->g.peer = &j->g.table->peer[rank];
  j->now = 1000;
  j->l = (WatchRound){.g = &j->g, .line = j->line, .pulse = j->pulse, .now = j->now, .missing = -1};
  for (int i = 0; i < WORLD - 1; i++) j->pulse[i].seen = j->now;
  observe(&j->l, j->now); /* while all run */
  return j;
}

static void is_in(Job *j, int rank, int state, unsigned call, unsigned row) {
  Peer *s = &j->g.table->peer[rank];
  atomic_store(&s->state, state);
  atomic_store(&s->call, (unsigned long long)call << 32 | row);
}

/* So many seconds pass; the failure_of, 0: none. */
static Failure pass(Job *j, double seconds) {
  for (double end = j->now + seconds; j->now < end && !j->g.table->failure;) {
    j->now += 1e-3 * BEAT;
    for (int i = 0; i < WORLD; i++)
      if (!j->still[i] && i != j->comm.launch.rank) atomic_fetch_add(&j->g.table->peer[i].beat, 1);
    observe(&j->l, j->now);
  }
  return atomic_load(&j->g.table->failure);
}

static void waits_for(Job *j, int rank) {
  atomic_store(&j->g.missing, rank);
  atomic_store(&j->g.waits_since, j->now);
  atomic_store(&j->g.patience, (double)LATE_AFTER);
}

/* All wait: ranks 2 and 3 in the first row for each other's groups, 0 and 1 in the second. */
static void wait_on_both_axes(Job *j) {
  for (int i = 0; i < WORLD; i++) is_in(j, i, PEER_WAITS, i < 2 ? 8 : 7, i < 2 ? 2 : 1);
}

static void test_pause(void **state) {
  (void)state;
  for (int rank = 1; rank < WORLD; rank++) {
    Job *j = job_of(0);
    is_in(j, 0, PEER_WAITS, 8, 2);
    wait_on_both_axes(j), is_in(j, rank, PEER_WAITS, 3, 2); /* late, as if it disagreed */
    j->still[rank] = true;
    assert_int_equal(pass(j, SILENT_AFTER - 1), FAILURE_NONE);
    j->still[rank] = false;
    assert_int_equal(pass(j, 1), FAILURE_NONE); /* it has time to come */
    wait_on_both_axes(j), is_in(j, 0, PEER_RUNS, 9, 1);
    assert_int_equal(pass(j, 60), FAILURE_NONE);
    free(j);
  }
}

static void test_silent(void **state) {
  (void)state;
  Job *j = job_of(0);
  j->still[2] = true;
  assert_int_equal(pass(j, SILENT_AFTER - 1), FAILURE_NONE);
  assert_int_equal(pass(j, 2), failure_of(FAILURE_SILENT, 2, 0));
  free(j);
}

/* Rank 0 says it once, long before the rank counts as lost, and again after it has come back. */
static void test_told(void **state) {
  (void)state;
  Job *j = job_of(0);
  for (int i = 0; i < 2; i++) {
    j->still[2] = true;
    pass(j, TELL - 1);
    assert_false(j->pulse[1].told);
    assert_int_equal(pass(j, 2), FAILURE_NONE);
    assert_true(j->pulse[1].told && !j->pulse[0].told);
    j->still[2] = false, pass(j, 1);
    assert_false(j->pulse[1].told);
  }
  free(j);
}

/* A stopped process is told from one that lives, and both from one of another machine. */
static void test_stopped(void **state) {
  (void)state;
  Job *j = job_of(0);
  Peer *peer = &j->g.table->peer[1];
  int status;
  pid_t pid = fork();
  if (!pid)
    for (;;) pause();
  peer->pid = pid;
  assert_non_null(strstr(process_words(&j->g, peer), "lives"));
  kill(pid, SIGSTOP), waitpid(pid, &status, WUNTRACED);
  assert_non_null(strstr(process_words(&j->g, peer), "stopped"));
  strcpy(peer->host, "elsewhere");
  assert_string_equal(process_words(&j->g, peer), "");
  kill(pid, SIGKILL), waitpid(pid, &status, 0);
  free(j);
}

static void test_at_odds(void **state) {
  (void)state;
  Job *j = job_of(0);
  for (int i = 0; i < WORLD; i++) is_in(j, i, PEER_WAITS, i == 3 ? 8 : 7, 2); /* 2 and 3 meet */
  assert_int_equal(pass(j, LATE_AFTER / 5 - 1), FAILURE_NONE);
  assert_int_equal(failure_kind(pass(j, 2)), FAILURE_DISAGREES);
  free(j);
  j = job_of(0);
  wait_on_both_axes(j); /* of other groups: they may have come more or less far, but not for ever */
  assert_int_equal(pass(j, LATE_AFTER - 1), FAILURE_NONE);
  assert_int_equal(failure_kind(pass(j, 2)), FAILURE_DISAGREES);
  free(j);
}

static void test_late(void **state) {
  (void)state;
  for (int pauses = 0; pauses < 2; pauses++) { /* what it sleeps is not counted */
    Job *j = job_of(0);
    waits_for(j, 1);
    assert_int_equal(pass(j, 10), FAILURE_NONE);
    j->still[1] = pauses;
    assert_int_equal(pass(j, 14), FAILURE_NONE);
    j->still[1] = false;
    assert_int_equal(pass(j, 3), pauses ? FAILURE_NONE : failure_of(FAILURE_LATE, 1, 0));
    if (pauses) assert_int_equal(pass(j, 14), failure_of(FAILURE_LATE, 1, 0));
    free(j);
  }
}

static void test_left(void **state) {
  (void)state;
  Job *j = job_of(0);
  waits_for(j, 1), is_in(j, 1, PEER_LEFT, 7, 1), j->still[1] = true;
  assert_int_equal(pass(j, 2), FAILURE_NONE); /* it may have come just before */
  assert_int_equal(pass(j, 2), failure_of(FAILURE_ENDED, 1, 0));
  free(j);
}

/* When this process was stopped itself, no heart was heard: all get their full time again. */
static void test_own_pause(void **state) {
  (void)state;
  for (int rank = 0; rank < 2; rank++) {
    Job *j = job_of(rank);
    waits_for(j, 2), j->still[0] = j->still[2] = true;
    assert_int_equal(pass(j, 15), FAILURE_NONE);
    j->now += 3600;
    assert_int_equal(pass(j, SILENT_AFTER - 1), FAILURE_NONE);
    assert_int_equal(failure_kind(pass(j, 3)), FAILURE_SILENT);
    free(j);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pause),   cmocka_unit_test(test_silent),    cmocka_unit_test(test_told),
      cmocka_unit_test(test_stopped), cmocka_unit_test(test_at_odds),   cmocka_unit_test(test_late),
      cmocka_unit_test(test_left),    cmocka_unit_test(test_own_pause),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
