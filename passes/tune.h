/* Tuning: one function per kernel family, called by pass `select`. Each reads the kernel function (whose types carry storage
   order and strides) and the machine's facts from the settings target.*, and sets the attributes variant, tile, chunks,
   scratch, workspace; the code generator obeys. Numbers of chunks depend on shapes only, so results never depend on how
   many workers a run has. */
#ifndef SHARDC_TUNE_H
#define SHARDC_TUNE_H
#include "ir/ir.h"

void tune_elem(Module *m, Fn *k);
void tune_row(Module *m, Fn *k);
void tune_column(Module *m, Fn *k);
void tune_scatter(Module *m, Fn *k);
void tune_contract(Module *m, Fn *k);
void tune_attention(Module *m, Fn *k);
void tune_attention_grad(Module *m, Fn *k);
#endif
