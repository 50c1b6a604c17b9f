/* The machine of a plan as numbers: what a rank may use, and a bound on the time of a step. For
   passes and the driver. */
#ifndef SHARDC_IR_MACHINE_H
#define SHARDC_IR_MACHINE_H
#include "arch.h"
#include "budget.h"
#include "kernel_record.h"

typedef struct Machine {
  int64_t memory, reserve; /* bytes of a rank; 0: the machine does not say */
  int64_t in_node;         /* ranks that share a node */
  int64_t cpus;            /* processors of a node, which its ranks share in order */
  int64_t threads;         /* of a rank of processors: its share of a node's cores */
  bool gpus;
  double on_core; /* ranks that share a core of processors; 1: none do, or it is not known */
  bool even;      /* of a forecast: threads share each kernel evenly, not by its chunks */
  double balance; /* of a forecast: share of the time of equal work in which ranks do not wait for
                     the slowest one, where rates leave it out; 0: nowhere */
  double flops, hbm, intra, inter; /* per rank, of the compute type; per rank; per rank; per node */
  double between;                  /* per processor, to the others of its node */
  double latency, carries; /* seconds from node to node; bytes per second of one processor, 0: the
                              network carries messages by itself */
  int64_t host;            /* with GPUs: bytes of the host's memory per rank; 0: not given */
  double pcie, copy;       /* bytes per second between host and GPU; seconds of a copy that runs
                        concurrently with kernels */
  double dram;             /* bytes per second of the host's memory, for a rank */
  uint32_t endless;  /* if not 0: axes, bits, of which each message takes ENDLESS seconds, of others
                       none (driver/fit/search.c) */
  const Arch *reach; /* of a forecast (forecast.h): what programs reach; the rates above, but flops,
                        are those that they reach; NULL: peaks */
  const KernelRecords *records; /* of a forecast; NULL: none */
  KernelShapes *shapes; /* of programs' kernels, as far as they are known; NULL: none is kept */
} Machine;

enum { ENDLESS = 1 };

Machine plan_machine(const Module *m);
int64_t plan_capacity(const Machine *machine); /* memory without reserve; 0: not known */

typedef struct LinkTime {  /* seconds, 0: not known */
  double seconds, latency; /* of messages: all, and of these the latency of their hops */
} LinkTime;

typedef struct StepTime { /* seconds, 0: not known */
  double compute, memory, axis[MAX_MESH];
  double latency[MAX_MESH]; /* of the messages over an axis: part of `axis` */
  double exposed[MAX_MESH]; /* of messages over an axis: what the computation waits for */
  double slowed;  /* the factor by which computation is slower while processors copy messages */
  double pcie;    /* copies between host and GPU */
  double host;    /* kernels of the host */
  double longest; /* of these, and of copies one way, what takes the longest */
  double away;    /* of both: for so long the GPU waits for them */
  double sends, inputs;   /* the copy of the next inputs; the GPU waits for it, or moves them */
  double snapshot, saves; /* a step that saves takes longer; on average of all steps */
  double total; /* the larger of computation and memory, then waits; 0: something is not known */
} StepTime;

/* traffic and counts are those of m after pass `memory`; on_host: those of host kernels of a GPU
   module; seconds of computation and of memory, of which the longer counts, are without these.
   Nothing is hidden (timeline.h). */
StepTime plan_time(const Module *m, const Machine *machine, const TrafficList *traffic,
                   const Moves *moves, const IrCount *on_host, double compute, double memory);
/* The part of `waited`, for which a rank with `own` work waits, that is left where ranks share
   cores: each is faster while others wait. */
double machine_waits(const Machine *machine, double own, double waited);
/* So many messages of one kind over an axis; bytes: of all, in paper counting. */
LinkTime link_time(const Module *m, const Machine *machine, int axis, OpCode kind, double calls,
                   double bytes);
/* The same bytes at `rate` of the axis, without latency. */
double sending_seconds(const Module *m, const Machine *machine, int axis, OpCode kind, double rate,
                       double bytes);
double axis_rate(const Module *m, const Machine *machine,
                 int axis); /* bytes per second, of a rank */
int64_t axis_joined(const Module *m, const Machine *machine, int axis); /* of a ring, in one node */
double message_seconds(const Module *m, const Machine *machine, const Fn *f,
                       const Op *o); /* 0: unknown */
/* The share of a rank's processors that is busy with a message over the axis while it is in
   flight. */
double message_load(const Module *m, const Machine *machine, int axis);
bool machine_is_known(const Module *m,
                      const Machine *machine); /* peak, and a link for every axis */
bool axis_crosses(const Module *m, const Machine *machine, int axis); /* leaves the node */
#endif
