/* Parts of stacks. Pass `ranges` splits a stack into several if a plan treats some layers
   differently; the parameter h.*.attn.w then becomes two, h.0_3.*.attn.w and h.4_11.*.attn.w, and
   everything named after them has such a name as well. No name of the model begins with a digit, so
   the word is unambiguous. The dim of such layers records the dim of the stack (Dim.part,
   Dim.first). */
#ifndef SHARDC_LAYER_PART_H
#define SHARDC_LAYER_PART_H
#include "ir/ir.h"

typedef struct LayerPart {
  int64_t first, last; /* layers, both included */
  size_t at, n;        /* the word in the name, with the dot before it */
} LayerPart;

bool layer_part(const char *name, LayerPart *part); /* false: the name says none */
/* At the `.*` in the name of a parameter of a stack; NULL: it is of none. */
const char *layer_star(const char *name);
Str layer_whole(const Module *m, Str name); /* h.*.attn.w */
bool layer_is_rest(const char *name);       /* of a stack's parts, not the one that has layer 0 */
Str layer_named(const Module *m, Str name, int64_t first, int64_t last); /* of h.*.attn.w */
/* Layers of the stack, or part, of that path: h[4..5], however it is cut. */
Str layer_range(const Module *m, Str path, int64_t first, int64_t count);
/* For a parameter or state: the dim of its layers; NULL: it is not a part. */
const Dim *layer_dim(const Module *m, const Global *global);
const Dim *dim_find(const Module *m, Str name); /* NULL: none */

/* A path of layers, as plans write it: h[0..3].attn, or h.5. */
typedef struct LayerPath {
  int64_t first, last;
  size_t stack;     /* length of `h` */
  const char *rest; /* ".attn"; in a list of paths, with the paths after it */
  size_t nrest;
} LayerPath;
bool layer_path(const char *path, size_t n, LayerPath *read); /* false: it names no layers */
Str layer_path_whole(Interner *names, const char *path);      /* h.*.attn; no layers: path itself */
/* Does the path, of length n, name the parameter of that name, or what is named after it? Layers of
   a stack that is in one part are all of them. */
bool layer_path_names(const char *path, size_t n, const char *name);
#endif
