/* A module as one JSON object, for tools: the same contents as its text without storage. Values are
   numbered as in the text. It is written only; the text is the form that is read back. */
#include "driver/cmd.h"
#include "ir/support/num.h"
#include "ir/cost/count.h"
#include <math.h>
#include <stdlib.h>

static void put_key(FILE *out, bool first, const char *name) {
  if (!first) putc(',', out);
  json_put_string(out, name);
  putc(':', out);
}

static void put_text(FILE *out, bool first, const char *name, const char *text) {
  put_key(out, first, name);
  json_put_string(out, text);
}

static void put_type(FILE *out, const Type *t) {
  fprintf(out, "{\"elem\":\"%s\",\"dims\":[", elem_name(t->elem));
  for (int i = 0; i < t->rank; i++)
    fprintf(out, "%s{\"name\":\"%s\",\"size\":%lld}", i ? "," : "", t->axis[i].dim,
            (long long)t->axis[i].size);
  fputs("]}", out);
}

static void put_value(FILE *out, bool first, const uint32_t *number, const Fn *f, ValueId v) {
  fprintf(out, "%s{\"id\":%u,\"type\":", first ? "" : ",", number[v]);
  put_type(out, value_type(f, v));
  putc('}', out);
}

static void put_names(FILE *out, const char *key, int n, const Str *names) {
  fprintf(out, "\"%s\":[", key);
  for (int i = 0; i < n; i++) fprintf(out, "%s\"%s\"", i ? "," : "", names[i]);
  putc(']', out);
}

static void put_groups(FILE *out, const Op *o) {
  if (!o->ngroups) return;
  put_key(out, false, "groups");
  for (int i = 0; i < o->ngroups; i++) {
    fputs(i ? ",{" : "[{", out);
    put_names(out, "from", o->group[i].nfrom, o->group[i].from);
    putc(',', out);
    put_names(out, "to", o->group[i].nto, o->group[i].to);
    putc('}', out);
  }
  putc(']', out);
}

static void put_attr(FILE *out, const Attr *attr) {
  switch (attr_kind(attr->key)) {
  case ATTR_INT: fprintf(out, "%lld", (long long)attr->i); break;
  case ATTR_FLOAT:
    if (isfinite(attr->f)) fprintf(out, "%.17g", attr->f);
    else fprintf(out, "\"%g\"", attr->f);
    break;
  case ATTR_STR: json_put_string(out, attr->s); break;
  case ATTR_INTS:
    putc('[', out);
    for (int64_t i = 0; i < attr->i; i++)
      fprintf(out, "%s%lld", i ? "," : "", (long long)attr->list[i]);
    putc(']', out);
  }
}

static void put_attrs(FILE *out, const AttrList *list) {
  if (!list->n) return;
  put_key(out, false, "attrs");
  for (uint32_t i = 0; i < list->n; i++) {
    putc(i ? ',' : '{', out);
    put_key(out, true, attr_name(list->at[i].key));
    put_attr(out, &list->at[i]);
  }
  putc('}', out);
}

static void put_loc(FILE *out, Loc l) {
  if (l.file)
    fprintf(out, ",\"loc\":{\"file\":%u,\"line\":%u,\"column\":%u,\"length\":%u}", l.file, l.line,
            l.column, l.length);
}

static void put_op(FILE *out, const Fn *f, const Op *o, const uint32_t *number) {
  putc('{', out);
  put_text(out, true, "op", op_name(o->code));
  if (o->global) put_text(out, false, "global", o->global->name);
  if (o->callee) put_text(out, false, "function", o->callee->name);
  fputs(",\"operands\":[", out);
  for (uint32_t i = 0; i < o->nin; i++) fprintf(out, "%s%u", i ? "," : "", number[o->in[i]]);
  fputs("],\"results\":[", out);
  for (uint32_t i = 0; i < o->nout; i++) put_value(out, !i, number, f, o->out + i);
  putc(']', out);
  put_groups(out, o);
  put_attrs(out, &o->attrs);
  put_loc(out, o->loc);
  putc('}', out);
}

static uint32_t *numbers(Arena *a, const Fn *f) {
  uint32_t n = 0, *number = ARENA_ARRAY(a, uint32_t, f->values.n + 1);
  for (uint32_t i = 0; i < f->args.n; i++) number[f->args.at[i]] = n++;
  for (uint32_t i = 0; i < f->ops.n; i++)
    for (uint32_t r = 0; r < f->ops.at[i].nout; r++) number[f->ops.at[i].out + r] = n++;
  return number;
}

static void put_fn(FILE *out, const Module *m, const Fn *f) {
  static const char *const kinds[] = {"entry", "body", "kernel"};
  _Static_assert(COUNT_OF(kinds) == FN_KERNEL + 1, "a word per FnKind");
  const uint32_t *number = numbers(m->arena, f);
  putc('{', out);
  put_text(out, true, "name", f->name);
  put_text(out, false, "kind", kinds[f->kind]);
  fputs(",\"args\":[", out);
  for (uint32_t i = 0; i < f->args.n; i++) put_value(out, !i, number, f, f->args.at[i]);
  fputs("],\"ops\":[", out);
  for (uint32_t i = 0; i < f->ops.n; i++) {
    fputs(i ? ",\n" : "\n", out);
    put_op(out, f, &f->ops.at[i], number);
  }
  fputs("],\"results\":[", out);
  for (uint32_t i = 0; i < f->results.n; i++)
    fprintf(out, "%s%u", i ? "," : "", number[f->results.at[i]]);
  putc(']', out);
  put_attrs(out, &f->attrs);
  put_loc(out, f->loc);
  putc('}', out);
}

static void put_globals(FILE *out, const Module *m) {
  static const char *const kinds[] = {"param", "state", "input", "scalar", "output"};
  _Static_assert(COUNT_OF(kinds) == GLOBAL_OUTPUT + 1, "a word per GlobalKind");
  fputs(",\n\"globals\":[", out);
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *global = m->globals.at[i];
    fputs(i ? ",\n{" : "\n{", out);
    put_text(out, true, "name", global->name);
    put_text(out, false, "kind", kinds[global->kind]);
    fputs(",\"type\":", out);
    put_type(out, &global->type);
    if (global->of) put_text(out, false, "of", global->of);
    putc('}', out);
  }
  putc(']', out);
}

/* The facts of its device, as numbers; no name where the module has no target. */
static void put_target(FILE *out, const char *word, const TargetFacts *t) {
  fprintf(out, ",\n\"%s\":{", word);
  if (t->name) put_text(out, true, "name", t->name);
  fprintf(out, "%s\"device\":\"%s\"", t->name ? "," : "", device_name(t->device));
  for (TargetFact f = 0; f < TARGET_FACTS; f++)
    if (f != TARGET_device && target_fact_of(f, t->device))
      fprintf(out, ",\"%s\":%lld", target_fact_name(f), (long long)target_get(t, f));
  putc('}', out);
}

static void put_head(FILE *out, const Module *m) {
  IrCount count = module_count(m);
  fputs("{\"schema\":1", out);
  put_text(out, false, "model", m->model);
  put_text(out, false, "after", m->after);
  fprintf(out, ",\"flop\":%.17g,\"bytes\":%.17g,\"peak\":%lld,\"kernels\":%u,\n\"dims\":[",
          count.flop, count.bytes, (long long)count.peak, count.kernels);
  for (uint32_t i = 0; i < m->dims.n; i++)
    fprintf(out, "%s{\"name\":\"%s\",\"size\":%lld,\"stored\":%lld}", i ? "," : "",
            m->dims.at[i].name, (long long)m->dims.at[i].size, (long long)m->dims.at[i].stored);
  fputs("]", out);
  put_target(out, "target", &m->target);
  if (m->host_target.name) put_target(out, "host_target", &m->host_target);
  fputs(",\n\"settings\":{", out);
  SettingRows rows = module_rows(m);
  for (uint32_t i = 0; i < rows.n; i++) put_text(out, !i, rows.at[i].key, rows.at[i].value);
  fputs("}", out);
}

char *module_json(Module *m, const Fn *only, size_t *n) {
  char *text = NULL;
  bool first = true;
  FILE *out = heap_stream(&text, n);
  if (!out) bug("no memory");
  put_head(out, m);
  put_globals(out, m);
  fputs(",\n\"functions\":[", out);
  for (uint32_t i = 0; i < m->fns.n; i++) {
    if (only && m->fns.at[i] != only) continue;
    fputs(first ? "\n" : ",\n", out);
    put_fn(out, m, m->fns.at[i]);
    first = false;
  }
  fputs("]}\n", out);
  fclose(out);
  char *copy = arena_strndup(m->arena, text, *n);
  free(text);
  return copy;
}
