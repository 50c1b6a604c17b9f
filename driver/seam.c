/* Facts on which the compiler and the runtime must agree, asserted in a file that sees both. The
   compiler writes the names of runtime/rt.h into the host's C, and the runtime has tables indexed
   by their numbers: a row on only one side does not compile. Must not: hold anything but
   assertions. */
#include "ir/ir.h"
#include "ir/kernel/gpu_plan.h"
#include "runtime/rt.h"
#include <stddef.h>

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a " and " #b " are one number")

/* Element types: ir/dtypes.def, runtime/base/elem_value.c, data on disk. */
SAME(RT_F32, ELEM_f32);
SAME(RT_BF16, ELEM_bf16);
SAME(RT_F16, ELEM_f16);
SAME(RT_F64, ELEM_f64);
SAME(RT_I32, ELEM_i32);
SAME(RT_I64, ELEM_i64);
SAME(RT_BOOL, ELEM_bool);
SAME(RT_U8, ELEM_u8);
_Static_assert((int)RT_U8 + 1 == (int)ELEM_COUNT, "the runtime has every element type");

/* Kinds of tensors. */
SAME(RT_PARAM, GLOBAL_PARAM);
SAME(RT_STATE, GLOBAL_STATE);
SAME(RT_INPUT, GLOBAL_INPUT);
SAME(RT_SCALAR, GLOBAL_SCALAR);
SAME(RT_OUTPUT, GLOBAL_OUTPUT);

/* Room in the tables. */
_Static_assert((int)RT_MAX_RANK == (int)MAX_RANK, "tensors have the same largest number of dims in "
                                                  "the compiler and the runtime");
_Static_assert((int)RT_MAX_AXES >= (int)MAX_MESH, "every axis of a mesh has its place");
_Static_assert((int)RT_MAX_PHASES >= (int)GPU_PHASES, "every phase of a kernel has its place");

/* Kernels for a CPU and the host's C read arenas by offset from the context's first byte. */
_Static_assert(offsetof(struct rt_ctx, arena) == 0, "arenas come first in the context");
_Static_assert(sizeof(((struct rt_ctx *)0)->arena) == RT_ARENAS * sizeof(char *),
               "an address per arena, without gaps");
