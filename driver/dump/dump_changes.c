/* The changes of a module by passes, entry by entry: new or different settings, dims and globals,
   and changed functions in full; unchanged functions and removed entries are named:

     # gone: param @dead
     # as before: body @h.forward

   It compares two texts of one module (print.c), so all it knows of the IR is that a function
   begins with a line that ends in `{`, ends with the line `}`, and that all other entries are
   lines. Header lines (version, model, counts, sources) are no entries. */
#include "driver/cmd.h"
#include <stdio.h>
#include <stdlib.h>

typedef struct ChangedEntry { /* "param @w" of "param @w : f32[E:8]" */
  const char *text, *key;
  size_t n;
  bool function;
} ChangedEntry;
typedef VEC(ChangedEntry) Entries;

static const char *key_of(Arena *arena, const char *line) {
  size_t kind = strcspn(line, " \n"), name = strcspn(line + kind + 1, " (,\n");
  return arena_strndup(arena, line, kind + 1 + name);
}

static bool is_head(const char *line) {
  static const char *const heads[] = {"shardc-ir ", "model ", "after ", "was ", "source ", "\n"};
  for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
    if (!strncmp(line, heads[i], strlen(heads[i]))) return true;
  return false;
}

static Entries entries_of(Arena *arena, const char *text) {
  Entries all = {0};
  for (size_t n; *text; text += n) {
    n = strcspn(text, "\n") + 1;
    if (is_head(text)) continue;
    bool function = n > 1 && text[n - 2] == '{';
    if (function) n = (size_t)(strstr(text, "\n}\n") + strlen("\n}\n") - text);
    vec_push(arena, all, ((ChangedEntry){text, key_of(arena, text), n, function}));
  }
  return all;
}

static const ChangedEntry *find(const Entries *all, const ChangedEntry *e, bool whole) {
  for (uint32_t i = 0; i < all->n; i++) {
    const ChangedEntry *x = &all->at[i];
    bool same = whole ? x->n == e->n && !memcmp(x->text, e->text, e->n) : !strcmp(x->key, e->key);
    if (same) return x;
  }
  return NULL;
}

static void put_changed(FILE *out, const Entries *before, const Entries *after, bool functions) {
  for (uint32_t i = 0; i < after->n; i++) {
    const ChangedEntry *e = &after->at[i];
    if (e->function != functions) continue;
    if (!find(before, e, true)) fprintf(out, "%s%.*s", functions ? "\n" : "", (int)e->n, e->text);
    else if (functions) fprintf(out, "\n# as before: %s\n", e->key);
  }
}

static void put_gone(FILE *out, const Entries *before, const Entries *after) {
  for (uint32_t i = 0; i < before->n; i++)
    if (!find(after, &before->at[i], false)) fprintf(out, "# gone: %s\n", before->at[i].key);
}

char *text_changes(Arena *arena, const char *before, const char *after, size_t *n) {
  Entries old = entries_of(arena, before), new = entries_of(arena, after);
  char *text = NULL;
  FILE *out = heap_stream(&text, n);
  if (!out) bug("no memory");
  put_gone(out, &old, &new);
  put_changed(out, &old, &new, false);
  put_changed(out, &old, &new, true);
  fclose(out);
  char *copy = arena_strndup(arena, text, *n);
  free(text);
  return copy;
}
