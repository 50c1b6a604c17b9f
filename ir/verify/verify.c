/* The verifier: every rule that holds after pass m->after, as numbered constraints (docs/ir.md).

   Codes: E1101 structure and SSA, E1102 types, E1103 attributes, E1104 calls and loops, E1105
   globals and entries, E1106 to E1108 what passes fuse, order, memory promise (verify_storage.c),
   E1110 what select does (verify_kernel.c). A function whose SSA form is broken is not looked at
   further: the other checks follow operands without asking. */
#include "verify.h"
#include "ir/eights.h"
#include "ir/loop.h"
#include "ir/mask/lookup.h"
#include "ir/phases.h"
#include "ir/support/num.h"
#include "ir/plan/module_settings.h"
#include <stdlib.h>

void verify_report(Verifier *verifier, const char *code, VerifyPlace at, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(verifier->m->arena, format, args);
  va_end(args);
  verifier->failed = true;
  if (diag_full(verifier->m->ctx->diag)) return;
  Span span = at.span.file ? at.span : loc_span(verifier->m, at.loc);
  Report *r = diag_at(verifier->m->ctx->diag, code, span, "%s", text);
  diag_fact(r, "in function @%s after pass `%s`", verifier->fn ? verifier->fn->name : "-",
            verifier->m->after);
}

VerifyPlace verify_at_op(const Op *op) { return (VerifyPlace){op->span, op->loc}; }

VerifyPlace verify_at_fn(const Verifier *verifier) {
  return (VerifyPlace){verifier->fn->span, verifier->fn->loc};
}

VerifyPlace verify_at_value(const Verifier *verifier, ValueId v) {
  const Op *def = value_def(verifier->fn, v);
  return def ? verify_at_op(def) : verify_at_fn(verifier);
}

bool verify_is_dense(const Value *v) {
  int64_t dense = 1;
  for (int i = v->type.rank; i-- > 0; dense *= v->type.axis[i].size)
    if (v->type.axis[i].size > 1 && v->storage.stride[i] != dense) return false;
  return true;
}

ValueId verify_base(const Fn *f, ValueId v) {
  while (f->values.at[v].storage.view == VIEW_OF) v = f->values.at[v].storage.base;
  return v;
}

/* ---- names ---- */

static void check_type_names(Verifier *verifier, const Type *t, VerifyPlace at) {
  for (int i = 0; i < t->rank; i++) {
    if (!text_is_word(t->axis[i].dim))
      verify_report(verifier, "E1101", at, "[name-c1] `%s` is no dim name", t->axis[i].dim);
    if (t->axis[i].size < 1)
      verify_report(verifier, "E1102", at, "[type-c4] dim %s has size %lld", t->axis[i].dim,
                    (long long)t->axis[i].size);
    for (int j = 0; j < i; j++)
      if (t->axis[i].dim == t->axis[j].dim)
        verify_report(verifier, "E1102", at, "[type-c2] dim %s appears in a type twice",
                      t->axis[i].dim);
  }
}

static void check_global(Verifier *verifier, uint32_t index) {
  const Global *global = verifier->m->globals.at[index];
  VerifyPlace at = {global->span, global->loc};
  if (!text_is_symbol(global->name))
    verify_report(verifier, "E1101", at, "[name-c2] `%s` is no global name", global->name);
  if (module_global(verifier->m, global->name) != global)
    verify_report(verifier, "E1105", at, "[global-c3] two globals are called @%s", global->name);
  check_type_names(verifier, &global->type, at);
  bool input = global->kind == GLOBAL_INPUT && elem_class(global->type.elem) == CLASS_INT;
  if (global->of && !input)
    verify_report(verifier, "E1105", at, "[global-c4] only inputs of ints address a dim");
  if ((global->decay || global->frozen || global->ruled) && global->kind != GLOBAL_PARAM)
    verify_report(verifier, "E1105", at,
                  "[global-c5] only parameters are marked decay, frozen or ruled");
  if (global->within && (global->within->type.elem != global->type.elem || global->within->within))
    verify_report(verifier, "E1105", at, "[global-c10] @%s cannot be in @%s", global->name,
                  global->within->name);
}

static void check_fn_name(Verifier *verifier) {
  const Fn *f = verifier->fn;
  VerifyPlace at = verify_at_fn(verifier);
  if (!text_is_symbol(f->name))
    verify_report(verifier, "E1101", at, "[name-c3] `%s` is no function name", f->name);
  if (module_fn(verifier->m, f->name) != f)
    verify_report(verifier, "E1101", at, "[fn-c1] two functions are called @%s", f->name);
  if (f->kind == FN_ENTRY && (f->args.n || f->results.n))
    verify_report(verifier, "E1105", at, "[fn-c2] entry @%s has arguments or results", f->name);
}

/* Generated code has names of their own for functions, made by text_symbol. Pass `select` sees to
 * it that they differ. */
static void check_symbols(Verifier *verifier) {
  const Module *m = verifier->m;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    verifier->fn = m->fns.at[i];
    const Fn *other = symbol_twin(m, i);
    if (other)
      verify_report(verifier, "E1101", verify_at_fn(verifier),
                    "[name-c4] @%s and @%s have one name in C", verifier->fn->name, other->name);
  }
}

/* ---- settings ---- */

static bool whole_between(const char *text, double least, double most) {
  char *end;
  double x = strtod(text, &end);
  return *text && !*end && x >= least && x <= most && x == (double)(int64_t)x;
}

/* Code generation divides by some facts and sizes its buffers by others. A target whose row has not
   been filled in yet has no known device. */
static void check_target(Verifier *verifier, const TargetFacts *facts) {
  VerifyPlace at = {.span = facts->span};
  bool open = facts->name && facts->rest;
  for (TargetFact f = 0; f < TARGET_FACTS; f++) {
    int64_t value = target_get(facts, f);
    if (!target_fact_allows(f, value))
      verify_report(verifier, "E1103", at, "[target-c1] no machine has %s = %lld",
                    target_fact_name(f), (long long)value);
    if (!open && !target_fact_of(f, facts->device) && facts->given >> f & 1)
      verify_report(verifier, "E1103", at, "[target-c3] a %s has no `%s`",
                    device_name(facts->device), target_fact_name(f));
  }
  TargetFact owed = target_lacks(facts);
  if (owed < TARGET_FACTS)
    verify_report(verifier, "E1103", at,
                  "[target-c2] target %s lacks `%s`: `..` takes the compiler's", facts->name,
                  target_fact_name(owed));
}

static void check_host_target(Verifier *verifier) {
  const TargetFacts *facts = &verifier->m->host_target;
  if (facts->name && (!module_on_gpu(verifier->m) || facts->device == DEVICE_GPU))
    verify_report(verifier, "E1103", (VerifyPlace){.span = facts->span},
                  "[target-c4] only a GPU has a second target, and that one is a processor");
}

/* Whole numbers of plans and of training, from which passes work out sizes. Words that they do not
   know they refuse themselves. */
static const struct {
  const char *key;
  double least, most;
} plan_numbers[] = {
    {"plan.zero", 0, 3},      {"plan.zero.bucket", 1, 1e18},    {"plan.zero.persist", 0, 1e18},
    {"plan.micro", 0, 1e15},  {"plan.on.nodes", 1, 1e15},       {"train.batch", 1, 1e15},
    {"train.steps", 1, 1e15}, {"machine.node.memory", 0, 1e18}, {"machine.node.reserve", 0, 1e18},
};

static void check_settings(Verifier *verifier) {
  for (size_t i = 0; i < sizeof plan_numbers / sizeof *plan_numbers; i++) {
    Str text = module_said(verifier->m, plan_numbers[i].key);
    if (text && !whole_between(text, plan_numbers[i].least, plan_numbers[i].most))
      verify_report(verifier, "E1103", (VerifyPlace){0},
                    "[setting-c1] %s = \"%s\" is none from %.15g to %.15g", plan_numbers[i].key,
                    text, plan_numbers[i].least, plan_numbers[i].most);
  }
}

/* ---- SSA ---- */

static bool check_defs(Verifier *verifier, OpId id) {
  const Fn *f = verifier->fn;
  const Op *op = &f->ops.at[id];
  for (uint32_t r = 0; r < op->nout; r++) {
    ValueId out = op->out + r;
    if (out >= f->values.n || f->values.at[out].def != id || f->values.at[out].result != r)
      return verify_report(verifier, "E1101", verify_at_op(op),
                           "[ssa-c2] result %u of %s is another op's", r, op_name(op->code)),
             false;
  }
  return true;
}

static bool check_uses(Verifier *verifier, OpId id) {
  const Fn *f = verifier->fn;
  const Op *op = &f->ops.at[id];
  for (uint32_t i = 0; i < op->nin; i++) {
    ValueId in = op->in[i];
    OpId def = in < f->values.n ? f->values.at[in].def : id;
    if (def != NO_OP && def >= id)
      return verify_report(verifier, "E1101", verify_at_op(op),
                           "[ssa-c1] operand %u of %s is not defined above", i, op_name(op->code)),
             false;
  }
  return true;
}

static bool check_ends(Verifier *verifier) {
  const Fn *f = verifier->fn;
  for (uint32_t i = 0; i < f->args.n; i++) {
    ValueId a = f->args.at[i];
    if (a >= f->values.n || f->values.at[a].def != NO_OP || f->values.at[a].result != i)
      return verify_report(verifier, "E1101", verify_at_fn(verifier),
                           "[ssa-c3] argument %u is no argument", i),
             false;
  }
  for (uint32_t i = 0; i < f->results.n; i++) {
    ValueId r = f->results.at[i];
    OpId def = r < f->values.n ? f->values.at[r].def : f->ops.n;
    if (def != NO_OP && def >= f->ops.n)
      return verify_report(verifier, "E1101", verify_at_fn(verifier),
                           "[ssa-c4] result %u is not defined", i),
             false;
  }
  return true;
}

static bool check_ssa(Verifier *verifier) {
  bool fine = check_ends(verifier);
  for (OpId i = 0; i < verifier->fn->ops.n && fine; i++)
    fine = check_defs(verifier, i) && check_uses(verifier, i);
  return fine;
}

/* ---- types ---- */

static const char *type_code(const Op *op) {
  OpFamily family = op_family(op->code);
  if (family == FAMILY_CALL) return "E1104";
  return family == FAMILY_GLOBAL ? "E1105" : "E1102";
}

static void check_result_types(Verifier *verifier, const Op *op, const Type *want) {
  for (uint32_t r = 0; r < op->nout; r++) {
    const Type *have = value_type(verifier->fn, op->out + r);
    bool same = verifier->fence >= FENCE_ORDERED || op_family(op->code) == FAMILY_CALL
                    ? have->elem == want[r].elem && have->tier == want[r].tier &&
                          type_same_dims(have, &want[r])
                    : type_equal(have, &want[r]);
    if (!same)
      verify_report(verifier, type_code(op), verify_at_op(op),
                    "[type-c3] result %u of %s is %s, expected %s", r, op_name(op->code),
                    type_text(verifier->m, have), type_text(verifier->m, &want[r]));
    check_type_names(verifier, have, verify_at_op(op));
  }
}

static void check_types(Verifier *verifier, const Op *op) {
  Type *want = ARENA_ARRAY(verifier->m->arena, Type, op->nout + 1);
  const char *why = shape_infer(verifier->m, verifier->fn, op, want);
  if (why) verify_report(verifier, type_code(op), verify_at_op(op), "%s", why);
  else check_result_types(verifier, op, want);
}

/* ---- attributes ---- */

#define A(key) ((AttrMask)1 << ATTR_##key)

static const AttrMask fn_attrs[] = {
    [FN_ENTRY] = A(phase) | A(from) | A(every) | A(frame) | A(live) | A(host_frame) | A(host_live) |
                 A(compulsory_bytes),
    [FN_BODY] = A(frame) | A(live) | A(host_frame) | A(host_live) | A(compulsory_bytes),
    [FN_KERNEL] = A(family) | A(variant) | A(tile) | A(chunks) | A(threads) | A(shared) |
                  A(scratch) | A(workspace) | A(nontemporal) | A(align) | A(apart) | A(codes) |
                  A(skips) | A(spare) | A(tuned) | A(replaces),
};
_Static_assert(COUNT_OF(fn_attrs) == FN_KERNEL + 1, "a row per FnKind");

static void check_attrs(Verifier *verifier, const AttrList *list, OpAttrs rule, const char *name,
                        VerifyPlace at) {
  AttrMask have = 0;
  for (uint32_t i = 0; i < list->n; i++) {
    have |= (AttrMask)1 << list->at[i].key;
    if (i && list->at[i - 1].key >= list->at[i].key)
      verify_report(verifier, "E1103", at, "[attr-c3] attributes of %s are out of order", name);
    bool flag = list->at[i].key == ATTR_reverse || list->at[i].key == ATTR_inverse ||
                list->at[i].key == ATTR_gradient;
    if (flag && list->at[i].i != 0 && list->at[i].i != 1)
      verify_report(verifier, "E1103", at, "[attr-c4] `%s` is 0 or 1", attr_name(list->at[i].key));
  }
  AttrMask missing = rule.needed & ~have, strange = have & ~(rule.needed | rule.allowed);
  if (!(missing | strange)) return;
  for (int k = 0; k < ATTR_COUNT; k++) {
    if (missing >> k & 1)
      verify_report(verifier, "E1103", at, "[attr-c1] %s needs attribute `%s`", name,
                    attr_name((AttrKey)k));
    if (strange >> k & 1)
      verify_report(verifier, "E1103", at, "[attr-c2] %s has no attribute `%s`", name,
                    attr_name((AttrKey)k));
  }
}

static void check_phase(Verifier *verifier, const AttrList *attrs, VerifyPlace at) {
  Str word = attr_str(attrs, ATTR_phase, NULL);
  if (word && phase_find(word) == PHASE_none)
    verify_report(verifier, "E1103", at, "[phase-c1] `%s` is no phase of training", word);
}

/* Only the layers of a stack have a path, and stages. */
static void check_rounds(Verifier *verifier, const Op *op) {
  Str word = attr_str(&op->attrs, ATTR_rounds, NULL);
  LoopRounds rounds = word ? rounds_find(word) : ROUNDS_layers;
  bool stack = attr_get(&op->attrs, ATTR_path) || attr_get(&op->attrs, ATTR_stages);
  if (rounds == ROUNDS_COUNT)
    verify_report(verifier, "E1103", verify_at_op(op), "[rounds-c1] `%s` is no kind of rounds",
                  word);
  else if (rounds != ROUNDS_layers && stack)
    verify_report(verifier, "E1103", verify_at_op(op), "[rounds-c2] %s are no layers of a stack",
                  word);
}

static void check_phase_entry(Verifier *verifier) {
  const Fn *f = verifier->fn;
  VerifyPlace at = verify_at_fn(verifier);
  Phase p = fn_phase(f);
  check_phase(verifier, &f->attrs, at);
  if (p != PHASE_none && module_phase(verifier->m, p) != f)
    verify_report(verifier, "E1105", at, "[phase-c2] two entries have the phase `%s`",
                  phase_name(p));
  if (phase_replaces(p) && module_later_step(verifier->m) != f)
    verify_report(verifier, "E1105", at, "[phase-c3] two entries replace `step`");
  if (attr_get(&f->attrs, ATTR_from) && !phase_replaces(p))
    verify_report(verifier, "E1105", at, "[phase-c4] entry @%s has `from`, but replaces no step",
                  f->name);
  if ((p == PHASE_look) != (attr_int(&f->attrs, ATTR_every, 0) > 0))
    verify_report(verifier, "E1105", at, "[phase-c5] phase `look` and `every` belong together");
}

/* ---- calls, globals ---- */

static bool stands_before(const Module *m, const Fn *a, const Fn *b) {
  for (uint32_t i = 0; i < m->fns.n && m->fns.at[i] != b; i++)
    if (m->fns.at[i] == a) return true;
  return false;
}

static void check_symbol(Verifier *verifier, const Op *op) {
  bool calls = op_family(op->code) == FAMILY_CALL, touches = op_family(op->code) == FAMILY_GLOBAL;
  VerifyPlace at = verify_at_op(op);
  if (calls != (op->callee != NULL) || touches != (op->global != NULL)) {
    verify_report(verifier, "E1101", at, "[op-c3] %s has the wrong kind of symbol",
                  op_name(op->code));
  } else if (calls) {
    FnKind kind = op->code == OP_kernel ? FN_KERNEL : FN_BODY;
    if (op->callee->kind != kind)
      verify_report(verifier, "E1104", at, "[call-c4] @%s is no %s", op->callee->name,
                    text_fn_kinds[kind]);
    if (!stands_before(verifier->m, op->callee, verifier->fn))
      verify_report(verifier, "E1104", at, "[call-c5] @%s is not defined before @%s",
                    op->callee->name, verifier->fn->name);
  }
  if (verifier->fn->kind == FN_KERNEL && (calls || touches))
    verify_report(verifier, "E1104", at, "[call-c6] %s inside of a kernel", op_name(op->code));
}

static void check_lookup(Verifier *verifier, const Op *op) {
  bool whole = attr_get(&op->attrs, ATTR_columns) && attr_get(&op->attrs, ATTR_runs);
  if (op->code != OP_lookup || !whole || lookup_is_sound(op)) return;
  verify_report(verifier, "E1103", verify_at_op(op),
                "[lookup-c1] runs of 2^31 bits at most, as many set ones as others, are positive "
                "but for the first, and rows have columns");
}

static void check_quantize(Verifier *verifier, const Op *op) {
  if (op->code != OP_quantize || !attr_get(&op->attrs, ATTR_format)) return;
  if (eights_format_of(op) && value_type(verifier->fn, op->out)->elem == ELEM_f32) return;
  verify_report(verifier, "E1103", verify_at_op(op),
                "[quantize-c1] the format is e4m3 or e5m2, and numbers are f32");
}

/* Both operands of a product, which a pass before `quantize` marked. */
static void check_eights(Verifier *verifier, const Op *op) {
  const Attr *eights = attr_get(&op->attrs, ATTR_eights);
  bool sound = !eights || eights->i == 2;
  for (uint32_t i = 0; eights && sound && i < 2; i++)
    sound = eights->list[i] >= 0 && eights->list[i] < EIGHTS_COUNT;
  if (sound) return;
  verify_report(verifier, "E1103", verify_at_op(op),
                "[dot-c2] eights are two kinds of operands, 0 to %d", EIGHTS_COUNT - 1);
}

static void check_store(Verifier *verifier, OpId id) {
  const Op *op = &verifier->fn->ops.at[id];
  if (op_family(op->code) != FAMILY_GLOBAL || !op->global) return;
  VerifyPlace at = verify_at_op(op);
  if (module_global(verifier->m, op->global->name) != op->global)
    verify_report(verifier, "E1105", at, "[global-c6] @%s is not in the module", op->global->name);
  if (verifier->fn->kind == FN_BODY)
    verify_report(verifier, "E1105", at, "[global-c7] %s outside of an entry", op_name(op->code));
  if (op->global->within)
    verify_report(verifier, "E1105", at,
                  "[global-c11] @%s is in @%s: that one is loaded and stored", op->global->name,
                  op->global->within->name);
  if (op->code != OP_store) return;
  if (op->global->kind == GLOBAL_INPUT || op->global->kind == GLOBAL_SCALAR)
    verify_report(verifier, "E1105", at, "[global-c8] @%s is set by the runtime", op->global->name);
  for (OpId i = 0; i < id; i++)
    if (verifier->fn->ops.at[i].code == OP_store && verifier->fn->ops.at[i].global == op->global)
      verify_report(verifier, "E1105", at, "[global-c9] @%s is stored twice", op->global->name);
}

/* ---- driver ---- */

static void check_op(Verifier *verifier, OpId id) {
  const Op *op = &verifier->fn->ops.at[id];
  check_symbol(verifier, op);
  check_types(verifier, op);
  check_lookup(verifier, op);
  check_quantize(verifier, op);
  check_eights(verifier, op);
  OpAttrs rule = op_attrs(op->code);
  rule.allowed |= A(names);
  check_attrs(verifier, &op->attrs, rule, op_name(op->code), verify_at_op(op));
  check_phase(verifier, &op->attrs, verify_at_op(op));
  check_rounds(verifier, op);
  check_store(verifier, id);
}

static void check_lists_of(Verifier *verifier) {
  for (OpId i = 0; i < verifier->fn->ops.n && !verifier->failed; i++)
    if (op_family(verifier->fn->ops.at[i].code) == FAMILY_ATTENTION)
      verify_listed(verifier, &verifier->fn->ops.at[i]);
}

static void check_fn(Verifier *verifier, const Fn *f) {
  verifier->fn = f;
  check_fn_name(verifier);
  for (uint32_t i = 0; i < f->args.n; i++)
    check_type_names(verifier, value_type(f, f->args.at[i]), verify_at_fn(verifier));
  check_attrs(verifier, &f->attrs, (OpAttrs){0, fn_attrs[f->kind]}, f->name,
              verify_at_fn(verifier));
  if (f->kind == FN_ENTRY) check_phase_entry(verifier);
  for (OpId i = 0; i < f->ops.n; i++) check_op(verifier, i);
  check_lists_of(verifier);
  if (!verifier->failed) verify_turns(verifier);
  if (verifier->fence >= FENCE_FUSED) verify_fused(verifier), verify_family(verifier);
  if (verifier->fence < FENCE_SELECTED) verify_landed(verifier);
  verify_shards(verifier);
  if (!verifier->failed) verify_tiers(verifier);
}

/* Storage is looked at only where all functions are sound so far: its rules follow calls. */
static void check_storage(Verifier *verifier) {
  if (verifier->fence >= FENCE_ORDERED) verify_coded(verifier);
  if (verifier->failed) return; /* the checks of all functions divide by runs of codes */
  if (verifier->fence >= FENCE_PLACED) verify_arenas(verifier);
  for (uint32_t i = 0; i < verifier->m->fns.n; i++) {
    verifier->fn = verifier->m->fns.at[i];
    if (verifier->fence >= FENCE_ORDERED) verify_ordered(verifier);
    if (verifier->fence >= FENCE_SELECTED && !verifier->failed)
      verify_selected(verifier), verify_messages(verifier), verify_flights(verifier);
    if (verifier->fence >= FENCE_PLACED && !verifier->failed) verify_placed(verifier);
  }
  if (verifier->fence >= FENCE_SELECTED && !verifier->failed) verify_buffers(verifier);
  if (verifier->fence >= FENCE_SELECTED && !verifier->failed) verify_codes(verifier);
}

bool ir_verify(Module *m) {
  Verifier verifier = {.m = m, .fence = module_fence(m)};
  bool sound = true;
  for (uint32_t i = 0; i < m->globals.n; i++) check_global(&verifier, i);
  check_target(&verifier, &m->target), check_target(&verifier, &m->host_target),
      check_host_target(&verifier);
  check_settings(&verifier);
  if (verifier.fence >= FENCE_SELECTED) check_symbols(&verifier);
  verify_lists(&verifier);
  verify_layers(&verifier);
  verify_global_tiers(&verifier);
  if (!verifier.failed) verify_flats(&verifier);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    verifier.fn = m->fns.at[i];
    sound &= check_ssa(&verifier);
  }
  for (uint32_t i = 0; i < m->fns.n && sound; i++) check_fn(&verifier, m->fns.at[i]);
  if (!verifier.failed) verify_parts(&verifier);
  if (!verifier.failed) verify_uniform(&verifier);
  if (!verifier.failed) check_storage(&verifier);
  return !verifier.failed;
}
