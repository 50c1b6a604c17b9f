/* Inside of the check of lines `offload`: their words and paths (sema_offload.c), and the layers
   that stages of a pipeline share (sema_offload_stages.c). */
#ifndef SHARDC_SEMA_OFFLOAD_H
#define SHARDC_SEMA_OFFLOAD_H
#include "sema_plan.h"

typedef struct Offloaded {     /* a word with one of its paths */
  const AstValue *word, *path; /* path NULL: all parameters */
} Offloaded;

typedef struct OffloadPath { /* h.*.attn, h[0..3].attn, wte */
  Str whole;                 /* with a star for the layers */
  int64_t first, last;       /* last -1: no layers are named */
  const char *rest;          /* .attn, of these */
} OffloadPath;

OffloadPath offload_path(const PlanCheck *check, const AstValue *value);
bool offload_same_word(const Offloaded *a, const Offloaded *b);
/* Is the path `with`, or under it? */
bool path_starts(Str path, Str with);
/* E0901: of a stage some layers, not all (sema_offload_stages.c). */
void check_offload_stages(PlanCheck *check, uint32_t n, const Offloaded *list);
#endif
