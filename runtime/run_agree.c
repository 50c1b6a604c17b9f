/* Collective decisions of the ranks of a job: rank 0 writes, reports and decides; the others are
   silent. A signal or an elapsed time limit on one rank counts for all, because all ranks ask each
   other at the same points of the program. */
#include "run.h"

bool rt_is_first(const Run *r) { return rt_comm_rank(&r->comm) == 0; }

int rt_caught(Run *r) {
  return (int)rt_comm_max(&r->comm, "signals", atomic_load(&r->watch.caught));
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
