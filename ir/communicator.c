/* Communicators by name and by device: see communicator.h. */
#include "communicator.h"
#include "ir/support/num.h"
#include <string.h>

enum { HOST, DEVICE };

static const Communicator communicators[] = {
#define COMMUNICATOR(name, words, memory, meaning) {#name, words, memory == DEVICE},
#include "communicators.def"
#undef COMMUNICATOR
};

enum { COMMUNICATORS = COUNT_OF(communicators) };

const Communicator *communicator_find(const char *name) {
  for (int i = 0; i < COMMUNICATORS; i++)
    if (!strcmp(communicators[i].name, name)) return &communicators[i];
  return NULL;
}

const Communicator *communicator_default(const Module *m) {
  for (int i = 0; i < COMMUNICATORS; i++)
    if (communicators[i].on_device == module_on_gpu(m)) return &communicators[i];
  bug("no communicator for %s", device_name(m->target.device));
}

const Communicator *module_communicator(const Module *m) {
  Str name = module_setting(m, "comm", NULL);
  const Communicator *chosen = name ? communicator_find(name) : NULL;
  return chosen ? chosen : communicator_default(m);
}

const char *communicator_list(Arena *arena) {
  const char *list = communicators[0].name;
  for (int i = 1; i < COMMUNICATORS; i++)
    list = arena_printf(arena, "%s, %s", list, communicators[i].name);
  return list;
}
