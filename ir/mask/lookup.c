/* Tables of bits as attributes of op `lookup`, so that a dump is self-contained and stays small:
   what a mask lists is a few runs per row. Must not: be asked element by element over runs where
   there are many; lookup_table reads them once. */
#include "lookup.h"

enum { MOST_BITS = INT32_MAX };

static const Attr *runs_of(const Op *o) { return attr_get(&o->attrs, ATTR_runs); }

bool lookup_is_sound(const Op *o) {
  const Attr *runs = runs_of(o);
  int64_t columns = attr_int(&o->attrs, ATTR_columns, 0), bits = 0;
  bool sound = runs && columns > 0 && columns <= MOST_BITS && runs->i % 2 == 0;
  for (int64_t i = 0; sound && i < runs->i; i++) {
    sound = runs->list[i] >= (i > 0) && runs->list[i] <= MOST_BITS - bits;
    bits += sound ? runs->list[i] : 0;
  }
  return sound;
}

LookupTable lookup_table(Arena *arena, const Op *o) {
  const Attr *runs = runs_of(o);
  LookupTable table = {.columns = attr_int(&o->attrs, ATTR_columns, 1)};
  int64_t bits = 0;
  for (int64_t i = 0; i < runs->i; i++) bits += runs->list[i];
  table.rows = (bits + table.columns - 1) / table.columns, table.pitch = (table.columns + 7) / 8;
  table.bits = ARENA_ARRAY(arena, uint8_t, table.rows * table.pitch + 1);
  bits = 0;
  for (int64_t i = 0; i < runs->i; bits += runs->list[i++])
    for (int64_t n = bits; i % 2 && n < bits + runs->list[i]; n++) {
      int64_t c = n % table.columns;
      table.bits[n / table.columns * table.pitch + c / 8] |= (uint8_t)(1 << c % 8);
    }
  return table;
}

bool lookup_bit(const LookupTable *table, int64_t row, int64_t column) {
  if (row < 0 || row >= table->rows || column < 0 || column >= table->columns) return false;
  return table->bits[row * table->pitch + column / 8] >> column % 8 & 1;
}

bool lookup_one(const Op *o, double row, double column) {
  int64_t columns = attr_int(&o->attrs, ATTR_columns, 1), at;
  const Attr *runs = runs_of(o);
  if (!(row >= 0 && row < MOST_BITS && column >= 0 && column < (double)columns)) return false;
  at = (int64_t)row * columns + (int64_t)column;
  for (int64_t i = 0; i < runs->i; at -= runs->list[i++])
    if (at < runs->list[i]) return i % 2;
  return false;
}

void lookup_set(Module *m, Op *o, int64_t rows, int64_t columns, const bool *set) {
  VEC(int64_t) runs = {0};
  int64_t n = rows * columns;
  for (int64_t i = 0; i < n;) {
    int64_t from = i;
    while (i < n && set[i] == (runs.n % 2 == 1)) i++;
    if (i == n && runs.n % 2 == 0) break;
    vec_push(m->arena, runs, i - from);
  }
  attr_set_int(m, &o->attrs, ATTR_columns, columns);
  attr_set_ints(m, &o->attrs, ATTR_runs, (int)runs.n, runs.at);
}

uint32_t *lookup_sums(Arena *arena, const LookupTable *table) {
  int64_t wide = table->columns + 1;
  uint32_t *sum = ARENA_ARRAY(arena, uint32_t, (table->rows + 1) * wide);
  for (int64_t r = 0; r < table->rows; r++)
    for (int64_t c = 0; c < table->columns; c++) {
      uint32_t *here = &sum[(r + 1) * wide + c + 1];
      *here = here[-1] + here[-wide] - here[-wide - 1] + lookup_bit(table, r, c);
    }
  return sum;
}
