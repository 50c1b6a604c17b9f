/* Seconds of messages in a forecast (Machine.reach). */
#ifndef SHARDC_MESSAGE_TIME_H
#define SHARDC_MESSAGE_TIME_H
#include "machine.h"

/* As link_time of machine.h. */
LinkTime message_time(const Module *m, const Machine *machine, int axis, OpCode kind, double calls,
                      double bytes);
#endif
