/* Which sums a kernel of attention_grad makes: see gradient_columns.h. Must not: look at a cut. */
#include "gradient_columns.h"

static const Op *below(const Fn *f, const Op *op, OpCode code) {
  return op && op->code == code ? value_def(f, op->in[0]) : op;
}

static void add_axis(FlashDims *dims, Axis axis) {
  dims->axis[dims->n++] = axis, dims->count *= axis.size;
}

/* The name of the rows in a value that shows gradient number `which` of attention; NULL: the value
   shows none, or other dims under other names. */
static Str rows_of(const Fn *f, ValueId value, const Op **grad, int *which) {
  const Op *rename = value_def(f, value), *op = below(f, rename, OP_rename);
  if (!op || op->code != OP_attention_grad) return NULL;
  ValueId gradient = rename == op ? value : rename->in[0];
  *grad = op, *which = (int)(gradient - op->out);
  Str row = *which ? op->group[0].to[0] : op->group[0].from[0];
  if (rename == op) return row;
  bool one = rename->ngroups == 1 && rename->group[0].nfrom == 1;
  return one && rename->group[0].from[0] == row ? rename->group[0].to[0] : NULL;
}

/* The gradients of which a value consists. */
static Str find_gradients(const Fn *f, ValueId value, const Op **grad, FlashColumns *columns) {
  const Op *op = value_def(f, value), *same = NULL;
  bool stack = op && op->code == OP_stack;
  Str row = NULL;
  if (stack && op->nin > FLASH_GRADIENTS) return NULL;
  columns->place = stack ? op->group[0].from[0] : NULL;
  columns->sums = stack ? (int)op->nin : 1;
  for (int i = 0, which; i < columns->sums; i++) {
    Str own = rows_of(f, stack ? op->in[i] : value, grad, &which);
    if (!own || (row && own != row) || (same && same != *grad)) return NULL;
    row = own, same = *grad, columns->of[i] = same->out + (ValueId)which;
    for (int j = 0; j < i; j++)
      if (columns->of[j] == columns->of[i]) return NULL;
  }
  return row;
}

static bool sort_dims(const Fn *f, const Op *sum, Str row, Str width, FlashColumns *columns) {
  const Type *all = value_type(f, sum->in[0]), *kept = value_type(f, sum->out);
  columns->kept.count = columns->summed.count = 1;
  for (int i = 0; i < kept->rank; i++)
    if (kept->axis[i].dim != columns->place) add_axis(&columns->kept, kept->axis[i]);
  for (int i = 0; i < all->rank; i++) {
    Axis axis = all->axis[i];
    bool stays = type_find(kept, axis.dim) >= 0;
    if (axis.dim == row) columns->rows = axis.size;
    if (axis.dim == row ? stays : (axis.dim == width || axis.dim == columns->place) && !stays)
      return false;
    if (axis.dim != row && !stays) add_axis(&columns->summed, axis);
  }
  return true;
}

bool flash_sums_columns(const Fn *f, const Op *sum, FlashColumns *columns) {
  *columns = (FlashColumns){.value = NO_VALUE};
  if (sum->code != OP_sum) return false;
  const Op *cast = value_def(f, sum->in[0]), *grad = NULL;
  ValueId value = cast && cast->code == OP_cast ? cast->in[0] : sum->in[0];
  FlashColumns found = {.value = sum->out};
  Str row = find_gradients(f, value, &grad, &found);
  if (!row || !sort_dims(f, sum, row, grad->group[1].from[0], &found)) return false;
  *columns = found;
  return true;
}

FlashColumns flash_columns_of(const Fn *kernel) {
  FlashColumns columns = {.value = NO_VALUE};
  EACH_OP (kernel, op)
    if (op->code == OP_sum && flash_sums_columns(kernel, op, &columns)) return columns;
  return columns;
}

const char *flash_columns_fault(const Fn *kernel, const Op *attention) {
  FlashColumns columns;
  int sums = 0;
  EACH_OP (kernel, op) {
    bool reads = false;
    for (uint32_t i = 0; i < op->nin; i++) {
      const Op *from = value_def(kernel, op->in[i]);
      reads |= from && op_family(from->code) == FAMILY_REDUCE;
    }
    if (reads) return "its sums are read";
    if (op_family(op->code) != FAMILY_REDUCE) continue;
    if (attention->code != OP_attention_grad || sums++ || !flash_sums_columns(kernel, op, &columns))
      return "it sums anything but the columns of its gradients, once";
  }
  return NULL;
}
