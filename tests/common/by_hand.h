/* Tensors and programs that tests write by hand, without the compiler. */
#ifndef SHARDC_BY_HAND_H
#define SHARDC_BY_HAND_H
#include "runtime/rt.h"

#define AT(where, begin, n) .arena = where, .offset = begin, .bytes = n

/* An input [Batch = rows, Seq = columns] of words. */
#define INPUT(called, rows, columns, words, ...)                                                   \
  {                                                                                                \
    .name = called, .kind = RT_INPUT, .elem = RT_I32, .rank = 2, .dim = {"Batch", "Seq"},          \
    .size = {rows, columns}, .of = "Vocab", .of_size = words, __VA_ARGS__                          \
  }

/* Any tensor: its place follows, and its dims if it has some. */
#define VALUE(called, what, type, ...)                                                             \
  { .name = called, .kind = what, .elem = type, __VA_ARGS__ }

/* On a GPU, accessed through the window. */
#define FLOATS(called, what, where, n) VALUE(called, what, RT_F32, AT(where, 0, n), .view = -1)

#define PROGRAM_SM80                                                                               \
  .abi = RT_ABI_VERSION, .model = "test", .compiler = "", .hash = "", .target = "sm_80", .sm = 80
#endif
