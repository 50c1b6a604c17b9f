/* See names.h. At most half of the slots are taken, so a search is short. */
#include "names.h"
#include <string.h>

typedef struct Slot {
  const char *name; /* NULL: free */
  uint32_t kind, hash, value;
} Slot;

struct NameMap {
  Arena *arena;
  Slot *slot;
  uint32_t n, cap; /* cap is a power of two */
};

NameMap *names_new(Arena *a) {
  NameMap *m = ARENA_NEW(a, NameMap);
  m->arena = a, m->cap = 32, m->slot = ARENA_ARRAY(a, Slot, m->cap);
  return m;
}

static uint32_t hash_of(uint32_t kind, const char *name) {
  uint32_t h = 2166136261u ^ kind;
  for (; *name; name++) h = (h ^ (unsigned char)*name) * 16777619u;
  return h ^ h >> 15;
}

static Slot *slot_of(const NameMap *m, uint32_t kind, const char *name, uint32_t hash) {
  for (uint32_t i = hash & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
    Slot *s = &m->slot[i];
    if (!s->name || (s->hash == hash && s->kind == kind && !strcmp(s->name, name))) return s;
  }
}

static void grow(NameMap *m) {
  Slot *old = m->slot;
  uint32_t cap = m->cap;
  m->cap *= 2, m->slot = ARENA_ARRAY(m->arena, Slot, m->cap);
  for (uint32_t i = 0; i < cap; i++)
    if (old[i].name) *slot_of(m, old[i].kind, old[i].name, old[i].hash) = old[i];
}

void names_put(NameMap *m, uint32_t kind, const char *name, uint32_t value) {
  uint32_t hash = hash_of(kind, name);
  Slot *s = slot_of(m, kind, name, hash);
  bool fresh = !s->name;
  *s = (Slot){name, kind, hash, value};
  if (fresh && ++m->n * 2 > m->cap) grow(m);
}

bool names_find(const NameMap *m, uint32_t kind, const char *name, uint32_t *value) {
  const Slot *s = slot_of(m, kind, name, hash_of(kind, name));
  if (s->name) *value = s->value;
  return s->name != NULL;
}
