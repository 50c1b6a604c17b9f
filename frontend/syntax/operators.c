/* The table of operators, in words. Must not: decide anything; the checker has its own tables. */
#include "operators.h"
#include "ir/support/num.h"

static const Operator table[] = {
#define OPERATOR(section, name, form, meaning, gradient)                                           \
  {SECTION_##section, #name, form, meaning, gradient},
#include "operators.def"
#undef OPERATOR
};

const Operator *operator_table(uint32_t *n) {
  *n = sizeof table / sizeof *table;
  return table;
}

const char *operator_section(OperatorSection s) {
  static const char *const titles[] = {
      "Element by element",        "Reductions",     "Structure", "Indexed",
      "With kernels of their own", "Initial values", "Masks",     "Functions of the library",
      "Layers of the library"};
  _Static_assert(COUNT_OF(titles) == SECTION_COUNT, "a title per OperatorSection");
  return titles[s];
}
