/* Tokens of operations outside of entries, by the bytes that they touch: pass `streams` writes
   them, pass `prove` compares. */
#ifndef SHARDC_BACKGROUND_ORDER_H
#define SHARDC_BACKGROUND_ORDER_H
#include "ir/background.h"
#include "stream_order.h"

const char *background_name(BackgroundOp op);
const char *background_stream(BackgroundOp op);
/* The operations that the module needs, with the tokens that bytes ask for. `orders`: of the
   module. */
void background_of(const Module *m, const StreamOrders *orders, Background *out /* BACKGROUNDS */);
/* A step's inputs that a thread reads during the step before. */
bool global_is_read_ahead(const Module *m, const Global *global);
/* Is it copied by `save async = on`? Parameters that change, and states. */
bool global_is_kept(const Module *m, const Global *global);
#endif
