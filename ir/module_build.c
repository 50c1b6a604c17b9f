/* Building modules and functions: globals, settings, functions, ops, attributes.

   Everything is appended and lives in the module's arena. Operand lists, groups and attributes are
   copied, so a caller's arrays may be on its stack. A copied op owns its lists: changing the copy
   never changes the original. */
#include "ir.h"
#include <stdlib.h>

Module *module_new(Ctx *c) {
  static const WrittenBlocks nothing;
  Module *m = ARENA_NEW(c->arena, Module);
  m->written = &nothing;
  m->ctx = c, m->arena = c->arena, m->shares = ARENA_NEW(c->arena, MaskShares);
  m->target = m->host_target = target_none;
  m->model = intern(c->names, ""), m->after = intern(c->names, "lower");
  return m;
}

Fn *fn_new(Module *m, FnKind kind, Str name) {
  Fn *f = ARENA_NEW(m->arena, Fn);
  f->kind = kind, f->name = name;
  return f;
}

Fn *fn_like(Module *m, const Fn *f) {
  Fn *to = fn_new(m, f->kind, f->name);
  to->loc = f->loc;
  for (uint32_t i = 0; i < f->attrs.n; i++) vec_push(m->arena, to->attrs, f->attrs.at[i]);
  return to;
}

void module_add(Module *m, Fn *f) { vec_push(m->arena, m->fns, f); }

static void redirect(Fn *f, const Fn *old, Fn *with) {
  for (uint32_t i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].callee == old) f->ops.at[i].callee = with;
}

void module_replace(Module *m, Fn *old, Fn *with) {
  bool found = false;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    if (m->fns.at[i] == old) m->fns.at[i] = with, found = true;
    redirect(m->fns.at[i], old, with);
  }
  if (!found) bug("module_replace: function %s is not in the module", old->name);
}

uint32_t fn_index(const Module *m, const Fn *f) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i] == f) return i;
  bug("function %s is not in the module", f->name);
}

uint32_t global_index(const Module *m, const Global *global) {
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i] == global) return i;
  bug("global @%s is not in the module", global->name);
}

bool global_has_members(const Module *m, const Global *global) {
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->within == global) return true;
  return false;
}

/* Callees are defined before callers, so one walk from the end sees every caller first. */
void module_remove_unused(Module *m) {
  bool *used = ARENA_ARRAY(m->arena, bool, m->fns.n + 1);
  for (uint32_t i = m->fns.n; i-- > 0;) {
    Fn *f = m->fns.at[i];
    used[i] |= f->kind == FN_ENTRY;
    for (uint32_t o = 0; used[i] && o < f->ops.n; o++)
      if (f->ops.at[o].callee) used[fn_index(m, f->ops.at[o].callee)] = true;
  }
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (used[i]) m->fns.at[n++] = m->fns.at[i];
  m->fns.n = n;
}

Fn *module_fn(const Module *m, Str name) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->name == name) return m->fns.at[i];
  return NULL;
}

Global *module_global(const Module *m, Str name) {
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->name == name) return m->globals.at[i];
  return NULL;
}

Global *module_add_global(Module *m, GlobalKind kind, Str name, Type type, Loc loc) {
  Global *g = ARENA_NEW(m->arena, Global);
  *g = (Global){.kind = kind, .name = name, .type = type, .loc = loc};
  vec_push(m->arena, m->globals, g);
  return g;
}

static Setting *find_setting(const Module *m, const char *key) {
  for (uint32_t i = 0; i < m->settings.n; i++)
    if (!strcmp(m->settings.at[i].key, key)) return &m->settings.at[i];
  return NULL;
}

Str module_setting(const Module *m, const char *key, const char *otherwise) {
  const Setting *s = find_setting(m, key);
  return s ? s->value : otherwise ? intern(m->ctx->names, otherwise) : NULL;
}

double module_number(const Module *m, const char *key, double otherwise) {
  const Setting *s = find_setting(m, key);
  return s ? strtod(s->value, NULL) : otherwise;
}

void module_set(Module *m, const char *key, const char *format, ...) {
  va_list args;
  va_start(args, format);
  Str value = intern(m->ctx->names, arena_vprintf(m->arena, format, args));
  va_end(args);
  Setting *setting = find_setting(m, key);
  if (setting) setting->value = value;
  else
    vec_push(m->arena, m->settings, (Setting){.key = intern(m->ctx->names, key), .value = value});
}

WrittenSetting module_written(const Module *m, const char *key) {
  for (uint32_t i = m->written->settings.n; i-- > 0;)
    if (!strcmp(m->written->settings.at[i].key, key)) return m->written->settings.at[i];
  return (WrittenSetting){0};
}

static ValueId add_value(Module *m, Fn *f, Type t, OpId def, uint32_t result) {
  vec_push(m->arena, f->values, (Value){.type = t, .def = def, .result = result});
  return f->values.n - 1;
}

ValueId fn_arg(Module *m, Fn *f, Type t) {
  ValueId v = add_value(m, f, t, NO_OP, f->args.n);
  vec_push(m->arena, f->args, v);
  return v;
}

Tier op_tier(const Fn *f, uint32_t nin, const ValueId *in) {
  Tier t = TIER_device;
  for (uint32_t i = 0; i < nin; i++)
    if (value_type(f, in[i])->tier > t) t = value_type(f, in[i])->tier;
  return t;
}

Tier module_tiers(const Module *m) {
  Tier last = TIER_device;
  for (uint32_t i = 0; i < m->globals.n; i++)
    if (m->globals.at[i]->type.tier > last) last = m->globals.at[i]->type.tier;
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (ValueId v = 0; v < m->fns.at[i]->values.n; v++)
      if (value_type(m->fns.at[i], v)->tier > last) last = value_type(m->fns.at[i], v)->tier;
  return last + 1;
}

Tier kernel_tier(const Fn *kernel) { return value_type(kernel, kernel->results.at[0])->tier; }

bool module_has(const Module *m, bool is(const Op *o)) {
  EACH_FN (m, f)
    EACH_OP (f, o)
      if (is(o)) return true;
  return false;
}

uint32_t module_calls(const Module *m, const Fn *f) {
  uint32_t n = 0;
  EACH_FN (m, caller)
    EACH_OP (caller, o) n += o->callee == f;
  return n;
}

bool kernel_on_host(const Module *m, const Fn *kernel) {
  return module_on_gpu(m) && kernel->results.n && kernel_tier(kernel) != TIER_device;
}

bool module_copies_stay(const Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (m->fns.at[i]->kind == FN_KERNEL && kernel_on_host(m, m->fns.at[i])) return true;
  return false;
}

Module *module_for_kernel(Module *m, const Fn *kernel) {
  if (!kernel_on_host(m, kernel)) return m;
  Module *made = ARENA_NEW(m->arena, Module);
  *made = *m, made->target = m->host_target;
  return made;
}

/* Says its type itself where its results are. */
static bool says_tier(OpCode c) {
  OpFamily f = op_family(c);
  return f == FAMILY_CALL || f == FAMILY_GLOBAL || f == FAMILY_MOVE;
}

/* An empty one, for ops that list no dims. Must not be written. */
static Group *no_group(void) {
  static const Group none;
  return (Group *)(uintptr_t)&none;
}

Op *fn_op(Module *m, Fn *f, OpCode c, uint32_t nin, const ValueId *in, uint32_t nout,
          const Type *out, Loc loc) {
  Op op = {
      .code = c, .nin = nin, .nout = nout, .out = f->values.n, .group = no_group(), .loc = loc};
  op.in = ARENA_ARRAY(m->arena, ValueId, nin + 1);
  if (nin) memcpy(op.in, in, nin * sizeof *in);
  bool given = !nin || says_tier(c);
  for (uint32_t i = 0; i < nout; i++)
    add_value(m, f, given ? out[i] : type_in_tier(out[i], op_tier(f, nin, in)), f->ops.n, i);
  vec_push(m->arena, f->ops, op);
  return &vec_last(f->ops);
}

void op_add_group(Module *m, Op *op, Group g) {
  Group *all = ARENA_ARRAY(m->arena, Group, op->ngroups + 1);
  if (op->ngroups) memcpy(all, op->group, sizeof g * (size_t)op->ngroups);
  all[op->ngroups++] = g;
  op->group = all;
}

void fn_result(Module *m, Fn *f, ValueId v) { vec_push(m->arena, f->results, v); }

const Type *value_type(const Fn *f, ValueId v) { return &f->values.at[v].type; }

int64_t value_dense_bytes(const Fn *f, ValueId v) { return type_dense_bytes(value_type(f, v)); }

void value_dense(Value *v) {
  int64_t stride = 1;
  v->storage.ordered = true;
  for (int i = v->type.rank; i-- > 0;)
    v->storage.stride[i] = stride, stride *= v->type.axis[i].size;
}

bool value_is_float(const Fn *f, ValueId v) {
  return elem_class(value_type(f, v)->elem) == CLASS_FLOAT;
}

bool value_is_dense(const Value *v) {
  int64_t stride = 1;
  for (int i = v->type.rank; i-- > 0; stride *= v->type.axis[i].size)
    if (v->storage.stride[i] != stride) return false;
  return v->storage.ordered;
}

const Op *value_def(const Fn *f, ValueId v) {
  OpId def = f->values.at[v].def;
  return def == NO_OP ? NULL : &f->ops.at[def];
}

const Op *fn_store_of(const Fn *f, const Global *global) {
  EACH_OP (f, o)
    if (o->code == OP_store && o->global == global) return o;
  return NULL;
}

Group group_dims(int n, const Str *dims) { return group_map(n, dims, -1, NULL); }

/* nto < 0: no arrow */
Group group_map(int nfrom, const Str *from, int nto, const Str *to) {
  if (nfrom > MAX_RANK || nto > MAX_RANK) bug("a group of more than %d dims", MAX_RANK);
  Group g = {.nfrom = nfrom, .nto = nto < 0 ? 0 : nto, .arrow = nto >= 0};
  for (int i = 0; i < g.nfrom; i++) g.from[i] = from[i];
  for (int i = 0; i < g.nto; i++) g.to[i] = to[i];
  return g;
}

static bool lists(int n, const Str *dims, Str dim) {
  for (int i = 0; i < n; i++)
    if (dims[i] == dim) return true;
  return false;
}

bool op_lists(const Op *o, Str dim) { return lists(o->group[0].nfrom, o->group[0].from, dim); }

bool op_mentions(const Op *o, Str dim) {
  for (int g = 0; g < o->ngroups; g++)
    if (lists(o->group[g].nfrom, o->group[g].from, dim) ||
        lists(o->group[g].nto, o->group[g].to, dim))
      return true;
  return false;
}

bool op_reads(const Op *o, ValueId v) {
  for (uint32_t i = 0; i < o->nin; i++)
    if (o->in[i] == v) return true;
  return false;
}

/* Kept in the order of attrs.def, which is the order of the text. */
static Attr *attr_slot(Module *m, AttrList *l, AttrKey k) {
  uint32_t at = 0;
  while (at < l->n && l->at[at].key < k) at++;
  if (at < l->n && l->at[at].key == k) return &l->at[at];
  vec_push(m->arena, *l, (Attr){0});
  memmove(l->at + at + 1, l->at + at, (l->n - 1 - at) * sizeof *l->at);
  l->at[at] = (Attr){.key = k};
  return &l->at[at];
}

void attr_set_int(Module *m, AttrList *l, AttrKey k, int64_t i) { attr_slot(m, l, k)->i = i; }
void attr_set_float(Module *m, AttrList *l, AttrKey k, double f) { attr_slot(m, l, k)->f = f; }
void attr_set_str(Module *m, AttrList *l, AttrKey k, Str s) { attr_slot(m, l, k)->s = s; }

void attr_set_ints(Module *m, AttrList *l, AttrKey k, int n, const int64_t *list) {
  Attr *a = attr_slot(m, l, k);
  a->i = n, a->list = ARENA_ARRAY(m->arena, int64_t, n + 1);
  if (n) memcpy(a->list, list, sizeof *list * (size_t)n);
}

const Attr *attr_get(const AttrList *l, AttrKey k) {
  for (uint32_t i = 0; i < l->n; i++)
    if (l->at[i].key == k) return &l->at[i];
  return NULL;
}

int64_t attr_int(const AttrList *l, AttrKey k, int64_t otherwise) {
  const Attr *a = attr_get(l, k);
  return a ? a->i : otherwise;
}

double attr_float(const AttrList *l, AttrKey k, double otherwise) {
  const Attr *a = attr_get(l, k);
  return a ? a->f : otherwise;
}

Str attr_str(const AttrList *l, AttrKey k, Str otherwise) {
  const Attr *a = attr_get(l, k);
  return a ? a->s : otherwise;
}

static void *copied(Module *m, const void *from, size_t bytes) {
  return bytes ? memcpy(arena_alloc(m->arena, bytes), from, bytes) : NULL;
}

/* All at once, in a size that the C compiler does not know: it copies one value by a string
   instruction, which is slower than the call. */
static void clone_results(Module *m, Fn *to, const Fn *from, const Op *o, ValueId *map) {
  uint32_t first = to->values.n;
  if (!o->nout) return;
  while (to->values.cap - first < o->nout)
    to->values.at =
        vec_grown(m->arena, to->values.at, first, &to->values.cap, sizeof *to->values.at);
  memcpy(to->values.at + first, from->values.at + o->out, sizeof *to->values.at * o->nout);
  to->values.n += o->nout;
  for (uint32_t i = 0; i < o->nout; i++) {
    map[o->out + i] = first + i;
    Value *v = &to->values.at[first + i];
    if (storage_has_base(&v->storage)) v->storage.base = map[v->storage.base];
    v->def = to->ops.n;
  }
}

Op *fn_clone_op(Module *m, Fn *to, const Fn *from, const Op *o, ValueId *map) {
  Op c = *o;
  c.out = to->values.n;
  c.in = ARENA_ARRAY(m->arena, ValueId, o->nin + 1);
  for (uint32_t i = 0; i < o->nin; i++) c.in[i] = map[o->in[i]];
  if (o->ngroups) c.group = copied(m, o->group, sizeof *o->group * (size_t)o->ngroups);
  c.attrs.at = copied(m, o->attrs.at, sizeof *o->attrs.at * o->attrs.n);
  c.attrs.cap = o->attrs.n;
  clone_results(m, to, from, o, map);
  vec_push(m->arena, to->ops, c);
  return &vec_last(to->ops);
}
