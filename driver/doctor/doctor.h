/* Shared by the files of `shardc doctor`: the list of findings. */
#ifndef SHARDC_DOCTOR_H
#define SHARDC_DOCTOR_H
#include "ir/ir.h"
#include "runtime/base/base.h"

typedef enum Need { NEED_ALWAYS, NEED_GPU, NEED_RANKS, NEED_NOTHING } Need;

typedef struct Finding {
  const char *name;
  const char *value; /* NULL: not found */
  Need need;
  const char *help; /* how to get it */
  const char *why;  /* it is found, and cannot be used; "": it is not found */
} Finding;

typedef struct Doctor {
  Arena *arena;
  VEC(Finding) found;
} Doctor;

void doctor_add(Doctor *doctor, const char *name, const char *value, Need need, const char *help);
/* A fault of the runtime: the device or library is found, and cannot be used. */
void doctor_add_fault(Doctor *doctor, const char *name, Need need, const Fault *f);
/* A program on PATH, or in one of the folders, with the line of its version that has the word. */
void doctor_program(Doctor *doctor, const char *name, const char *folders, const char *word,
                    Need need, const char *help);

void doctor_places(Doctor *doctor); /* doctor_places.c: processors, NUMA nodes */
/* doctor_gpu.c: the assembler, and libraries that executables load when they start */
void doctor_gpu(Doctor *doctor);
void doctor_gpu_messages(Doctor *doctor);
/* The GPU of `run --emulate`: its file, whether it exists or not; makes executables use it. */
const char *standin_path(Arena *arena);
void standin_use(Arena *arena);
#endif
