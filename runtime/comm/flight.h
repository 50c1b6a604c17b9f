/* The thread that communicates where messages fly: see flight.c. */
#ifndef SHARDC_RT_FLIGHT_H
#define SHARDC_RT_FLIGHT_H
#include "comm.h"

typedef struct RtJob RtJob;
struct RtJob {
  void (*run)(const RtJob *job);
  Comm *comm;
  int channel, status;
  const rt_collective *what;
  CommCount *count;
  const void *send;
  void *receive;
  Fault *fault;
  bool *fine;
  int row; /* a start of this row of the table; -1: somebody waits for the job itself */
};

RtFlight *rt_flight_open(int rows, Fault *f);  /* NULL: f says why */
bool rt_flight_inside(const RtFlight *flight); /* is this that thread? */
void rt_flight_start(RtFlight *flight, RtJob job);
void rt_flight_run(RtFlight *flight, RtJob job); /* until it is over */
void rt_flight_wait(RtFlight *flight, int row, int64_t n);
double rt_flight_processor(const RtFlight *flight); /* seconds of one that it has taken */
bool rt_flight_awaited(const RtFlight *flight);     /* is the main thread blocked by it? */
#endif
