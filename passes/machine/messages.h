/* Part of pass `select`: in how many messages a collective goes (messages.c). */
#ifndef SHARDC_MESSAGES_H
#define SHARDC_MESSAGES_H
#include "passes/base/rebuild.h"

void select_messages(Module *m);
#endif
