/* The table operators.def: what can be called in expressions, in words. */
#ifndef SHARDC_OPERATORS_H
#define SHARDC_OPERATORS_H
#include <stdint.h>

typedef enum OperatorSection {
  SECTION_ELEMENT,
  SECTION_REDUCTION,
  SECTION_STRUCTURE,
  SECTION_INDEXED,
  SECTION_KERNEL,
  SECTION_START,
  SECTION_MASK,
  SECTION_LIBRARY,
  SECTION_LAYER,
  SECTION_COUNT
} OperatorSection;

typedef struct Operator {
  OperatorSection section;
  const char *name, *form, *meaning, *gradient;
} Operator;

const Operator *operator_table(uint32_t *n);
const char *operator_section(OperatorSection s); /* its title */
#endif
