/* Classes of ranks: ranks along the axis of a pipeline's stages that run one program. The first and
   the last stage are classes of their own, all between them one more, or several: `middle_1` and
   `middle_2_5`, where the plan has something of stages 2 to 5 on the host and not of stage 1
   (stage_offload.h).

   Pass `pipeline` says along which axis stages differ (settings made.stages, made.chunks); a
   module that is for one class alone, made by pipeline_classes (passes/pass.h), says for which
   (made.class). */
#ifndef SHARDC_STAGE_CLASS_H
#define SHARDC_STAGE_CLASS_H
#include "ir/ir.h"

enum { STAGE_ENDS = 3, STAGE_CLASSES = 16 };

typedef struct StageClass {
  const char *name;    /* first, middle, middle_1, middle_2_5, last; "": all stages */
  int axis;            /* of the mesh; -1: the module has no stages */
  int64_t first, last; /* coordinates on it */
} StageClass;

/* Each stage has that many chunks of layers; a chunk of a stage follows that of the previous
   stage. */
void module_set_stages(Module *m, Str axis, int64_t chunks);
int64_t module_chunks(const Module *m); /* 1: a block of layers */
/* The number of chunks that a rank's part of dim consists of. */
int64_t stage_chunks(const Module *m, const Placement *p, Str dim);
bool dim_counts_layers(const Module *m, Str dim);
/* That a stage has, of whatever the stages are made of; 0: the module has no stages. */
int64_t stage_layers(const Module *m, int64_t stage);
/* Can each stage have room for n layers, all but the last one having at least one? */
bool stage_room_fits(int64_t layers, int64_t stages, int64_t n);
/* The dim that the stages cut; NULL: the module has no stages. */
const Dim *stages_dim(const Module *m);
bool module_choose_class(Module *m, const char *name); /* false: no class is ever called so */
/* First, middle, last, as far as there are such stages; 0: the module has none, or one. */
int module_ends(const Module *m, StageClass *out /* [STAGE_ENDS] */);
/* The classes of the module's ranks, whichever it is for; 0: all run one program. If there are more
   than STAGE_CLASSES, which pass `pipeline` refuses, the first ones. */
int module_classes(const Module *m, StageClass *out /* [STAGE_CLASSES] */);
bool module_has_class(const Module *m);   /* Is what it is for one of these, or nothing at all? */
Str module_class_name(const Module *m);   /* "": it is for all ranks, as yet */
StageClass module_class(const Module *m); /* that it is for */
/* Has a rank that runs this module bytes for it? */
bool global_is_held(const Module *m, const Global *g);
int64_t global_bytes(const Module *m, const Global *g); /* 0: it is not held */
#endif
