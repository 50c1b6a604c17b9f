/* Collective decisions of the ranks of a job: rank 0 writes, reports and decides; the others are
   silent. A signal or an elapsed time limit on one rank counts for all, because all ranks ask each
   other at the same points of the program. */
#include "run.h"
#include "ir/support/num.h"
#include <math.h>

bool rt_is_first(const Run *r) { return rt_comm_rank(&r->comm) == 0; }

int rt_caught(Run *r) {
  return (int)rt_comm_max(&r->comm, "signals", atomic_load(&r->watch.caught));
}

enum { RANK_BITS = 20 }; /* below the microseconds of a rank */

void rt_agree(Run *r, Agreed *agreed) {
  static const int64_t unknown = (int64_t)1 << 60;
  bool known = agreed->own >= 0 && agreed->own < 1e9 && rt_comm_world(&r->comm) > 1;
  int64_t own = known ? (int64_t)(1e3 * agreed->own) : 0;
  int64_t told[] = {agreed->stop, agreed->writing, agreed->late,
                    own << RANK_BITS | rt_comm_rank(&r->comm), known ? -own : unknown};
  rt_comm_max_of(&r->comm, "whether to stop", told, COUNT_OF(told));
  agreed->stop = told[0], agreed->writing = told[1], agreed->late = told[2];
  agreed->slowest = agreed->slower = NAN;
  if (told[4] == unknown) return;
  agreed->slowest = (double)(told[3] & (((int64_t)1 << RANK_BITS) - 1));
  agreed->slower = 1e-3 * (double)((told[3] >> RANK_BITS) + told[4]);
}

void rt_data_lost(Run *r, Fault *f) {
  if (!f->code) rt_fault(f, 201, "another rank cannot read its data"), f->quiet = true;
  f->everywhere = rt_comm_world(&r->comm) > 1;
}

bool rt_all_filled(Run *r, bool filled, Fault *f) {
  if (!rt_comm_max(&r->comm, "whether all have read their data", !filled)) return true;
  rt_data_lost(r, f);
  return false;
}

bool rt_everywhere(const Run *r, Fault *f) {
  f->everywhere = true, f->quiet = !rt_is_first(r);
  return false;
}

void rt_die_on_all(Run *r, Fault *f) {
  if (f->everywhere) rt_comm_close(&r->comm);
  rt_die(f);
}
