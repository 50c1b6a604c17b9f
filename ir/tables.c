/* Facts from the tables (ops.def, attrs.def, dtypes.def) and small questions about types.

   Each table is expanded once, in this file, into constant arrays indexed by the enum of ir.h;
   nothing else in the tree may list op, attribute or element type names. Types are values: every
   function of this file takes them apart by dim name, none allocates. Dim names are interned, hence
   compared as pointers. */
#include "ir.h"

typedef struct OpFact {
  const char *name, *meaning;
  OpFamily family;
  unsigned flags;
  int operands, results;
  OpAttrs attrs;
} OpFact;

#define A(key) ((AttrMask)1 << ATTR_##key)
_Static_assert(ATTR_COUNT <= 8 * sizeof(AttrMask), "a bit per attribute");

static const OpFact op_facts[OP_COUNT] = {
#define OP(name, family, operands, results, flags, shape, needs, may, meaning)                     \
  [OP_##name] = {#name, meaning, FAMILY_##family, flags, operands, results, {needs, may}},
#include "ops.def"
#undef OP
};

static const struct {
  const char *name;
  AttrKind kind;
} attr_facts[ATTR_COUNT] = {
#define ATTR(name, kind, meaning) [ATTR_##name] = {#name, ATTR_##kind},
#include "attrs.def"
#undef ATTR
};

static const struct {
  const char *name;
  int bytes;
  ElemClass class;
} elem_facts[ELEM_COUNT] = {
#define DTYPE(name, bytes, class) [ELEM_##name] = {#name, bytes, CLASS_##class},
#include "dtypes.def"
#undef DTYPE
};

static const struct {
  const char *name;
  AttrKey frame, live, work;
} tier_facts[TIERS] = {
#define TIER(name, frame, live, work, where)                                                       \
  [TIER_##name] = {#name, ATTR_##frame, ATTR_##live, ATTR_##work},
#include "tiers.def"
#undef TIER
};

const char *tier_name(Tier t) { return tier_facts[t].name; }
AttrKey tier_frame(Tier t) { return tier_facts[t].frame; }
AttrKey tier_live(Tier t) { return tier_facts[t].live; }
AttrKey tier_work(Tier t) { return tier_facts[t].work; }

bool tier_find(const char *name, Tier *t) {
  for (int i = 0; i < TIERS; i++)
    if (!strcmp(tier_facts[i].name, name)) return *t = (Tier)i, true;
  return false;
}

const char *elem_name(Elem e) { return elem_facts[e].name; }
int elem_bytes(Elem e) { return elem_facts[e].bytes; }
ElemClass elem_class(Elem e) { return elem_facts[e].class; }
bool elem_is_half(Elem e) { return elem_class(e) == CLASS_FLOAT && elem_bytes(e) == 2; }

bool elem_find(const char *name, Elem *e) {
  for (int i = 0; i < ELEM_COUNT; i++)
    if (!strcmp(elem_facts[i].name, name)) return *e = (Elem)i, true;
  return false;
}

const char *op_name(OpCode c) { return op_facts[c].name; }
OpFamily op_family(OpCode c) { return op_facts[c].family; }
unsigned op_flags(OpCode c) { return op_facts[c].flags; }
int op_arity(OpCode c) { return op_facts[c].operands; }
int op_results(OpCode c) { return op_facts[c].results; }
/* Every element-wise op may be asked to be early. */
OpAttrs op_attrs(OpCode c) {
  OpAttrs attrs = op_facts[c].attrs;
  return attrs;
}
const char *op_meaning(OpCode c) { return op_facts[c].meaning; }

bool op_find(const char *name, OpCode *c) {
  for (int i = 0; i < OP_COUNT; i++)
    if (!strcmp(op_facts[i].name, name)) return *c = (OpCode)i, true;
  return false;
}

const char *attr_name(AttrKey k) { return attr_facts[k].name; }
AttrKind attr_kind(AttrKey k) { return attr_facts[k].kind; }

bool attr_find(const char *name, AttrKey *k) {
  for (int i = 0; i < ATTR_COUNT; i++)
    if (!strcmp(attr_facts[i].name, name)) return *k = (AttrKey)i, true;
  return false;
}

Type type_scalar(Elem e) { return (Type){.elem = e}; }

Type type_of(Elem e, int rank, const Axis *axes) {
  if (rank > MAX_RANK) bug("a type of rank %d", rank);
  Type t = {.elem = e, .rank = rank};
  for (int i = 0; i < rank; i++) t.axis[i] = axes[i];
  return t;
}

bool names_have(const Str *names, int n, Str name) {
  for (int i = 0; i < n; i++)
    if (names[i] == name) return true;
  return false;
}

int type_find(const Type *t, Str dim) {
  for (int i = 0; i < t->rank; i++)
    if (t->axis[i].dim == dim) return i;
  return -1;
}

int64_t type_size(const Type *t, Str dim) {
  int i = type_find(t, dim);
  if (i < 0) bug("the type has no dim %s", dim);
  return t->axis[i].size;
}

int64_t type_count(const Type *t) {
  int64_t n = 1;
  for (int i = 0; i < t->rank; i++) n *= t->axis[i].size;
  return n;
}

int64_t type_dense_bytes(const Type *t) { return type_count(t) * elem_bytes(t->elem); }

bool type_contains(const Type *big, const Type *small) {
  for (int i = 0; i < small->rank; i++) {
    int at = type_find(big, small->axis[i].dim);
    if (at < 0 || big->axis[at].size != small->axis[i].size) return false;
  }
  return true;
}

bool type_equal(const Type *a, const Type *b) {
  if (a->elem != b->elem || a->rank != b->rank || a->tier != b->tier) return false;
  for (int i = 0; i < a->rank; i++)
    if (a->axis[i].dim != b->axis[i].dim || a->axis[i].size != b->axis[i].size) return false;
  return true;
}

bool type_same_dims(const Type *a, const Type *b) {
  return a->rank == b->rank && type_contains(a, b);
}

static bool listed(Str dim, const Str *dims, int n) {
  for (int i = 0; i < n; i++)
    if (dims[i] == dim) return true;
  return false;
}

Type type_without(const Type *t, const Str *dims, int n) {
  Type r = {.elem = t->elem, .tier = t->tier};
  for (int i = 0; i < t->rank; i++)
    if (!listed(t->axis[i].dim, dims, n)) r.axis[r.rank++] = t->axis[i];
  return r;
}

Type type_with_elem(Type t, Elem e) { return t.elem = e, t; }
Type type_in_tier(Type t, Tier tier) { return t.tier = tier, t; }
