/* What the shared emitters ask of GPUs: how a phase begins. Emitters use emit.h and simt.h. */
#ifndef SHARDC_NVPTX_PHASE_H
#define SHARDC_NVPTX_PHASE_H
#include "codegen/emit.h"

/* Declares kernel SYMBOL_pN with one global pointer per buffer (operands, results, workspace) and
   attribute `threads` as its size of a CTA; leaves the builder at its start. */
void nvptx_begin_phase(Emit *e, int phase);
uint32_t emit_buffers(const Emit *e); /* emit.c: their number */

#endif
