/* Part of pass `select`: the number of messages of a collective (messages.c). */
#ifndef SHARDC_MESSAGES_H
#define SHARDC_MESSAGES_H
#include "passes/base/rebuild.h"

void select_messages(Module *m);
#endif
