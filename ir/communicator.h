/* Communicators, from the table communicators.def. Every room asks for the fact, none for the
   name. */
#ifndef SHARDC_IR_COMMUNICATOR_H
#define SHARDC_IR_COMMUNICATOR_H
#include "ir/ir.h"

typedef struct Communicator {
  const char *name, *words;
  bool on_device; /* sends from the memory of GPUs */
} Communicator;

const Communicator *communicator_find(const char *name); /* NULL: there is none */
const Communicator *communicator_default(const Module *m);
const Communicator *module_communicator(const Module *m); /* the chosen one, or the default */
const char *communicator_list(Arena *arena);              /* local, mpi, .. */
#endif
