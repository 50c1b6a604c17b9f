/* Arenas: memory by lifetime. One arena per compilation; nothing inside is freed by itself.
   Allocation never returns NULL: out of memory ends the process with a message. */
#ifndef SHARDC_ARENA_H
#define SHARDC_ARENA_H
#include <stdarg.h>
#include <stddef.h>

typedef struct Arena Arena;

Arena *arena_new(void);
void arena_free(Arena *arena);                 /* frees everything that was allocated in it */
void *arena_alloc(Arena *arena, size_t bytes); /* zeroed, aligned to 16 */
char *arena_strndup(Arena *arena, const char *s, size_t n);
char *arena_printf(Arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The list and one more item: "data, tensor". An empty list has no comma. */
char *arena_list(Arena *arena, const char *list, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
char *arena_amount(Arena *arena, double bytes); /* 12 B, 3.18 MiB: how all of them are written */
char *arena_least(Arena *arena,
                  double bytes); /* 12, 3.19MiB: rounded up, as settings are written */
char *arena_vprintf(Arena *arena, const char *format, va_list args);

#define ARENA_NEW(arena, T) ((T *)arena_alloc((arena), sizeof(T)))
#define ARENA_ARRAY(arena, T, n) ((T *)arena_alloc((arena), sizeof(T) * (size_t)(n)))
#endif
