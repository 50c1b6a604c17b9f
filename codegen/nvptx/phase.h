/* How a phase begins on a GPU, and what is known of its buffers. */
#ifndef SHARDC_NVPTX_PHASE_H
#define SHARDC_NVPTX_PHASE_H
#include "codegen/emit.h"

/* Declares kernel SYMBOL_pN with one global pointer per buffer (operands, results, workspace) and
   attribute `threads` as its size of a CTA; leaves the builder at its start. */
void nvptx_begin_phase(Emit *e, int phase);

#endif
