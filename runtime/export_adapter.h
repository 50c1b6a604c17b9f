/* Adapters of low rank in exports: their configuration for PEFT, and merging them into weights. */
#ifndef SHARDC_RT_EXPORT_ADAPTER_H
#define SHARDC_RT_EXPORT_ADAPTER_H
#include "run.h"
#include "runtime/store/weights.h"

/* The adapters lora_a and lora_b of a weight, as indexes of tensors. False: it has none. */
bool rt_adapters_of(const rt_program *program, const rt_tensor *weight, int adapter[2]);
/* Adds alpha / rank times the product of the adapters. All are whole; a, b: their elements. */
void rt_merge(const rt_program *program, const rt_tensor *weight, void *data, const int adapter[2],
              const void *a, const void *b);
bool rt_write_adapter_config(const rt_program *program, const char *folder, Fault *f);
#endif
