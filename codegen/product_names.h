/* Names of dims in the epilogue of a contraction (product_names.c). */
#ifndef SHARDC_PRODUCT_NAMES_H
#define SHARDC_PRODUCT_NAMES_H
#include "emit.h"
#include "ir/kernel/product.h"

/* Adds the new names of dims that the epilogue renames to a point of the dot's result. */
void product_add_names(Emit *e, const Product *product, Point *p);
#endif
