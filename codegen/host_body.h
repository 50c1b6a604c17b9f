/* Inside of the host writer: the function that is written, and addresses of its values. */
#ifndef SHARDC_HOST_BODY_H
#define SHARDC_HOST_BODY_H
#include "host.h"

typedef struct HostBody {
  HostWriter *h;
  const Fn *f;
  uint32_t *number; /* of each value, as printed */
} HostBody;

const Value *host_value(const HostBody *host, ValueId v);
/* base + offset as text */
const char *host_plus(HostBody *host, const char *base, int64_t offset);
/* The variable that has the frame of a tier. */
const char *host_frame_word(Tier t);
const char *host_address(HostBody *host, ValueId v);
/* A comment: the value and its type. */
void host_put_label(HostBody *host, ValueId v, const char *end);
/* Copies the value to this address, if it is at another one. */
void host_put_copy(HostBody *host, const char *to, ValueId from);
/* The frame, of that tier, of the body or kernel that the op calls. */
const char *host_work_at(HostBody *host, const Op *o, Tier t);
/* A comment that names the call of the library. */
void host_put_flight(HostBody *host, const Op *o, bool starts);

/* host_loops.c */
void host_put_loop(HostBody *host, const Op *o, const ScheduleLoops *schedule);
void host_put_loops_in_turn(HostBody *host, const ScheduleLoops *loops);
#endif
