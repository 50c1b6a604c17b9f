/* plan: products in 8 bits (`precision fp8`): their share of the FLOP of all products, the bytes of
   kernels that round their operands, and a bound of the rounding error of a sum of products. Must
   not: count other work. */
#include "plan_report.h"
#include "ir/cost/count.h"
#include "ir/eights.h"
#include "ir/plan/module_settings.h"
#include <string.h>

typedef struct Products {
  double all, eights; /* FLOP of a step */
} Products;

static void count(const Module *m, const Fn *f, double times, Products *to) {
  EACH_OP (f, o) {
    if (o->callee)
      count(m, o->callee,
            o->code == OP_loop ? times * (double)attr_int(&o->attrs, ATTR_trip, 1) : times, to);
    if (o->code != OP_dot) continue;
    double flop = times * ir_op_flop(m, f, o);
    to->all += flop;
    if (attr_get(&o->attrs, ATTR_eights)) to->eights += flop;
  }
}

static bool rounds(const Fn *k) {
  bool is = false;
  EACH_OP (k, o) {
    if (op_family(o->code) == FAMILY_CONTRACT) return false;
    is |= o->code == OP_quantize;
  }
  return is;
}

/* Bytes that kernels which round numbers for products read and write. */
static double rounding(const Module *m, const Fn *f) {
  double bytes = 0;
  EACH_OP (f, o) {
    double times = o->code == OP_loop ? (double)attr_int(&o->attrs, ATTR_trip, 1) : 1;
    if (o->code == OP_kernel && rounds(o->callee)) bytes += ir_count(m, o->callee).bytes;
    else if (o->callee && o->code != OP_kernel) bytes += times * rounding(m, o->callee);
  }
  return bytes;
}

/* The largest error of a sum of products, relative to the sum of their sizes. */
static double error(const char *format) {
  return (1 + eights_error(eights_format("e4m3"))) * (1 + eights_error(eights_format(format))) - 1;
}

/* in 8 bits: 86 % of the FLOP of products, .. rounding changes a sum by 12.1 % .. */
void topic_eights(Sheet *sheet, const Planned *planned) {
  const Module *m = planned->m;
  if (!plan_eights(m)) return;
  const char *backward = plan_backward_format(m);
  Products products = {0};
  const Fn *step = ir_main_entry(m);
  if (step) count(m, step, 1, &products);
  sheet_say(sheet,
            "in 8 bits: {eights.share} of the FLOP of products, a scale for {eights.block} numbers "
            "or {} x {} of a weight; ",
            as_portion(products.all > 0 ? products.eights / products.all : 0),
            as_count(EIGHTS_BLOCK), as_count(EIGHTS_BLOCK), as_count(EIGHTS_BLOCK));
  if (module_on_gpu(m))
    sheet_say(sheet, "{eights.multiplied} of it multiplied in 8 bits; ",
              as_portion(products.eights > 0 ? ir_codes_flop(m, step) / products.eights : 0));
  sheet_say(sheet, "rounding moves {eights.rounding} a step; ",
            as_bytes(step ? rounding(m, step) : 0));
  sheet_say(sheet,
            "rounding changes a sum by {eights.error} of the sum of its terms' sizes at most",
            as_portion(error("e4m3")));
  sheet_say_if(sheet, strcmp(backward, "e4m3") != 0, ", backward by {}",
               as_portion(error(backward)));
  sheet_put(sheet, "{eights.backward_error}", as_portion(error(backward)));
  sheet_say(sheet, "\n");
}
