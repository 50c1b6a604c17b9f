/* Plans against the model: names exist (E0201, E0708, E0709), dims divide (E0701, E0704), no
   parameter is split twice over one axis (E0702), the batch equation holds (E0703). What a plan
   costs is not judged here. */
#include "frontend/sema_plan.h"
#include <string.h>

/* ---- mesh ---- */

static void read_mesh(PlanCheck *p) {
  const AstSetting *s = settings_line(p->item, "mesh");
  for (uint32_t i = 0; s && i < s->values.n; i++) {
    const AstPair *v = &s->values.at[i];
    if (v->key && v->value->kind == VALUE_NUMBER && v->value->number.integer)
      vec_push(p->e->arena, p->mesh,
               (PlanAxis){v->key->text, v->value->number.integral, v->value->span, false});
  }
}

static PlanAxis *find_axis(PlanCheck *p, Str name) {
  for (uint32_t i = 0; i < p->mesh.n; i++)
    if (p->mesh.at[i].name == name) return &p->mesh.at[i];
  return NULL;
}

static PlanAxis *need_axis(PlanCheck *p, Str name, Span at) {
  PlanAxis *a = find_axis(p, name);
  if (a) return a;
  VEC(const char *) names = {0};
  for (uint32_t i = 0; i < p->mesh.n; i++) vec_push(p->e->arena, names, p->mesh.at[i].name);
  const char *near = names.n ? diag_nearest(name, names.at, names.n) : NULL;
  Report *r = world_error(p->w, "E0708", at, "the mesh has no axis `%s`", name);
  if (near) diag_near(r, "an axis", near);
  else if (!p->mesh.n) diag_help(r, "add it to the plan: `mesh %s = 2`", name);
  return NULL;
}

/* ---- rules ---- */

static bool starts_path(const PlanCheck *p, Str path) {
  size_t n = strlen(path);
  for (uint32_t i = 0; i < p->e->params.n; i++) {
    Str param = p->e->params.at[i]->path;
    if (!strncmp(param, path, n) && (param[n] == '.' || !param[n])) return true;
  }
  return false;
}

static void names_nothing(PlanCheck *p, Span at, Str path) {
  VEC(const char *) names = {0};
  for (uint32_t i = 0; i < p->e->params.n; i++)
    vec_push(p->e->arena, names, p->e->params.at[i]->path);
  const char *near = names.n ? diag_nearest(path, names.at, names.n) : NULL;
  Report *r = world_error(p->w, "E0709", at, "`%s` names no parameter of model `%s`", path,
                          p->c->model->name);
  if (near) diag_near(r, "a parameter", near);
  else diag_help(r, "all rounds of a stack are a star, as in `h.*.w`");
}

static void read_operand(PlanCheck *p, PlaceLine *r, const AstValue *v, bool otherwise) {
  if (v->kind != VALUE_PATH) return;
  Str name = intern(p->e->ctx->names, v->path->text);
  Placed x = {name, v->span, otherwise};
  if (sizes_find(p->e->sizes, name)) vec_push(p->e->arena, r->dims, x);
  else if (starts_path(p, name)) vec_push(p->e->arena, r->paths, x);
  else if (v->path->parts.n < 2) explain_no_dim(p->w, v->span, name);
  else names_nothing(p, v->span, name);
}

/* Dims go to axes, paths to `none`. */
static void check_operands(PlanCheck *p, const PlaceLine *r) {
  if (!r->none && r->axes.n && r->paths.n) {
    Str path = r->paths.at[0].dim;
    Report *d = world_error(p->w, "E0602", r->paths.at[0].span,
                            "`place` splits dimensions over mesh axes, `%s` is none", path);
    diag_help(d, "name a dimension of it; `place %s -> none` keeps it whole", path);
  }
  if (r->none && r->dims.n) {
    Str dim = r->dims.at[0].dim;
    Report *d = world_error(p->w, "E0602", r->dims.at[0].span,
                            "`-> none` takes paths of parameters, `%s` is a dimension", dim);
    diag_help(d, "a dimension that no `place` line names is not split");
  }
}

static void read_target(PlanCheck *p, PlaceLine *r, const AstSetting *s) {
  bool otherwise = false;
  for (uint32_t i = 0; i < s->target.n; i++) {
    const AstValue *v = s->target.at[i].value;
    if (v->kind != VALUE_PATH || s->target.at[i].key) continue;
    Str name = intern(p->e->ctx->names, v->path->text);
    if (!strcmp(name, "else")) otherwise = true;
    else if (otherwise) read_operand(p, r, v, true);
    else if (!strcmp(name, "none")) r->none = true;
    else {
      PlanAxis *a = need_axis(p, name, v->span);
      if (a && a->placed) {
        world_error(p->w, "E0606", v->span, "mesh axis `%s` is written twice in `place` lines",
                    name);
        continue;
      }
      if (a) a->placed = true, r->target = v->span;
      if (a) vec_push(p->e->arena, r->axes, a);
    }
  }
}

static void read_rules(PlanCheck *p) {
  for (uint32_t i = 0; i < p->item->block->settings.n; i++) {
    const AstSetting *s = p->item->block->settings.at[i];
    if (strcmp(s->path->text, "place") || s->arrow != ARROW_RIGHT) continue;
    PlaceLine r = {.line = s};
    for (uint32_t k = 0; k < s->values.n; k++)
      if (!s->values.at[k].key) read_operand(p, &r, s->values.at[k].value, false);
    read_target(p, &r, s);
    check_operands(p, &r);
    vec_push(p->e->arena, p->rules, r);
  }
}

static int64_t ranks_of(const PlaceLine *r) {
  int64_t n = 1;
  for (uint32_t i = 0; i < r->axes.n; i++) n *= r->axes.at[i]->size;
  return n;
}

static Str axes_text(PlanCheck *p, const PlaceLine *r) {
  Str s = "";
  for (uint32_t i = 0; i < r->axes.n; i++)
    s = arena_printf(p->e->arena, "%s%s%s", s, i ? ", " : "", r->axes.at[i]->name);
  return s;
}

static bool param_has(const Param *q, Str dim) {
  return dims_has(&q->dims, dim) || dims_has(&q->lead, dim);
}

/* ---- E0701, E0704 ---- */

static const char *last_part(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot ? dot + 1 : path;
}

/* GPT2.h.*.attn.c_attn, c_attn_b, c_proj: names of one place are not repeated. */
static void fact_params(PlanCheck *p, Report *r, Str dim) {
  Str text = NULL, before = NULL;
  uint32_t n = 0;
  for (uint32_t i = 0; i < p->e->params.n; i++) {
    Str path = p->e->params.at[i]->path;
    if (!param_has(p->e->params.at[i], dim) || n++ >= 6) continue;
    size_t folder = (size_t)(last_part(path) - path);
    bool same =
        before && (size_t)(last_part(before) - before) == folder && !strncmp(before, path, folder);
    if (!text) text = arena_printf(p->e->arena, "%s.%s", p->c->base->name.text, path);
    else text = arena_printf(p->e->arena, "%s, %s", text, same ? last_part(path) : path);
    before = path;
  }
  if (text) diag_fact(r, "`%s` is a dimension of %s%s", dim, text, n > 6 ? ", .." : "");
}

static int64_t gcd(int64_t a, int64_t b) {
  while (b) {
    int64_t t = a % b;
    a = b, b = t;
  }
  return a;
}

static void help_divisors(PlanCheck *p, Report *r, const PlaceLine *rule) {
  int64_t common = 0;
  Str names = "", list = "";
  uint32_t n = 0, before = 0, seen = 0;
  for (uint32_t i = 0; i < rule->dims.n; i++) before += !rule->dims.at[i].otherwise;
  for (uint32_t i = 0; i < rule->dims.n; i++) {
    const Placed *d = &rule->dims.at[i];
    int64_t size = stored_size_of(p->e->sizes, d->dim);
    if (d->otherwise || size <= 0) continue;
    common = gcd(common, size);
    names = arena_printf(p->e->arena, "%s%s%s", names,
                         !seen                ? ""
                         : seen + 1 == before ? " and "
                                              : ", ",
                         d->dim);
    seen++;
  }
  for (int64_t k = 1; k <= common && k <= 4096 && n < 16; k++)
    if (common % k == 0)
      list = arena_printf(p->e->arena, "%s%s%lld", list, n++ ? ", " : "", (long long)k);
  diag_help(r, "%s sizes that divide %s: %s", axes_text(p, rule), names, list);
}

/* Where it costs no more than an eighth. */
static void help_padding(Report *r, const Placed *d, int64_t size, int64_t ranks) {
  int64_t stored = (size + ranks - 1) / ranks * ranks;
  if (stored - size <= size / 8)
    diag_help(r, "or store it padded: `%s = %lld pad %lld` among the dims is %lld, which divides",
              d->dim, (long long)size, (long long)ranks, (long long)stored);
}

bool plan_is_stack_dim(const PlanCheck *p, Str dim) {
  for (uint32_t i = 0; i < p->e->params.n; i++)
    if (dims_has(&p->e->params.at[i]->lead, dim)) return true;
  return false;
}

static int64_t largest_divisor(int64_t size, int64_t most) {
  while (size % most) most--;
  return most;
}

static void uneven_stages(PlanCheck *p, const Placed *d, int64_t size, int64_t ranks) {
  if (settings_on(p->item, ITEM_PLAN, "pipeline", "uneven")) return;
  Report *r = world_error(p->w, "E0704", d->span, "%lld layers over %lld stages", (long long)size,
                          (long long)ranks);
  diag_label(r, "`%s` is not a multiple of %lld", d->dim, (long long)ranks);
  diag_help(r, "as many stages as divide the layers, such as %lld",
            (long long)largest_divisor(size, ranks));
}

static void check_divides(PlanCheck *p, const PlaceLine *rule) {
  int64_t ranks = ranks_of(rule);
  for (uint32_t i = 0; i < rule->dims.n; i++) {
    const Placed *d = &rule->dims.at[i];
    int64_t size = stored_size_of(p->e->sizes, d->dim);
    if (size <= 0 || size % ranks == 0 || !strcmp(d->dim, "Batch")) continue;
    if (plan_is_stack_dim(p, d->dim)) {
      uneven_stages(p, d, size, ranks);
      continue;
    }
    Report *r =
        world_error(p->w, "E0701", d->span, "cannot split `%s` (%lld) over mesh axis `%s` (%lld)",
                    d->dim, (long long)size, axes_text(p, rule), (long long)ranks);
    diag_label(r, "%lld is not a multiple of %lld", (long long)size, (long long)ranks);
    fact_params(p, r, d->dim);
    help_divisors(p, r, rule);
    help_padding(r, d, size, ranks);
  }
}

/* ---- E0702 ---- */

static bool kept_whole(const PlanCheck *p, const PlaceLine *before, Str path) {
  for (uint32_t i = 0; i < p->rules.n && &p->rules.at[i] != before; i++)
    for (uint32_t k = 0; p->rules.at[i].none && k < p->rules.at[i].paths.n; k++)
      if (p->rules.at[i].paths.at[k].dim == path) return true;
  return false;
}

static Str names_but(PlanCheck *p, const PlaceLine *rule, const Placed *without) {
  Str s = "";
  for (uint32_t i = 0; i < rule->dims.n; i++) {
    const Placed *d = &rule->dims.at[i];
    if (!d->otherwise && d != without)
      s = arena_printf(p->e->arena, "%s%s%s", s, *s ? ", " : "", d->dim);
  }
  return s;
}

/* The operands of the line between these, the second one left out. */
static Str names_between(PlanCheck *p, const Placed *from, const Placed *end) {
  Str s = "";
  for (const Placed *d = from; d < end; d++)
    s = arena_printf(p->e->arena, "%s%s%s", s, *s ? ", " : "", d->dim);
  return s;
}

static void split_twice(PlanCheck *p, const PlaceLine *rule, const Param *q, const Placed *first,
                        const Placed *second) {
  Str axis = axes_text(p, rule);
  Dims all = q->dims;
  Report *r = world_error(p->w, "E0702", second->span,
                          "`%s` would be split twice over mesh axis `%s`", q->path, axis);
  diag_label(r, "`%s` already takes `%s` in %s", first->dim, axis, dims_text(p->e->ctx, &all));
  diag_help(r, "drop `%s`, or order the choice: `place %s -> %s else %s`", second->dim,
            names_but(p, rule, second), axis, second->dim);
  for (uint32_t i = 0; i < rule->dims.n; i++)
    if (rule->dims.at[i].otherwise) return; /* the order is written already */
  const AstPair *last = &vec_last(rule->line->target);
  diag_edit(r,
            (Span){first->span.file, first->span.offset,
                   second->span.offset + second->span.length - first->span.offset},
            "%s", names_between(p, first, second));
  diag_edit(r, (Span){last->span.file, last->span.offset + last->span.length, 0}, " else %s",
            second->dim);
}

static void check_once(PlanCheck *p, const PlaceLine *rule) {
  for (uint32_t i = 0; i < p->e->params.n; i++) {
    const Param *q = p->e->params.at[i];
    const Placed *first = NULL;
    if (kept_whole(p, rule, q->path)) continue;
    for (uint32_t k = 0; k < rule->dims.n; k++) {
      const Placed *d = &rule->dims.at[k];
      if (d->otherwise || !param_has(q, d->dim)) continue;
      if (first) {
        split_twice(p, rule, q, first, d);
        return;
      }
      first = d;
    }
  }
}

/* ---- E0703 ---- */

static const PlaceLine *batch_rule(const PlanCheck *p) {
  for (uint32_t i = 0; i < p->rules.n; i++)
    for (uint32_t k = 0; k < p->rules.at[i].dims.n; k++)
      if (!strcmp(p->rules.at[i].dims.at[k].dim, "Batch")) return &p->rules.at[i];
  return NULL;
}

static Str equation(PlanCheck *p, const PlaceLine *rule, int64_t micro, bool has_micro) {
  Str names = "", sizes = "";
  uint32_t n = rule ? rule->axes.n : 0;
  for (uint32_t i = 0; i < n; i++) {
    names = arena_printf(p->e->arena, "%s%s%s", names, i ? " x " : "", rule->axes.at[i]->name);
    sizes = arena_printf(p->e->arena, "%s%s%lld", sizes, i ? " x " : "",
                         (long long)rule->axes.at[i]->size);
  }
  if (has_micro) {
    names = arena_printf(p->e->arena, "%s%smicro", names, n ? " x " : "");
    sizes = arena_printf(p->e->arena, "%s%s%lld", sizes, n ? " x " : "", (long long)micro);
  }
  int64_t product = (rule ? ranks_of(rule) : 1) * micro;
  if (n + has_micro < 2) return arena_printf(p->e->arena, "%s = %s", names, sizes);
  return arena_printf(p->e->arena, "%s = %s = %lld", names, sizes, (long long)product);
}

static void help_micro(Report *r, const AstValue *written, int64_t share, int64_t micro) {
  int64_t below = micro < share ? micro : share, above = micro;
  while (below > 1 && share % below) below--;
  while (above < share && share % above) above++;
  if (written) diag_edit(r, written->span, "%lld", (long long)below);
  if (above > share || above == below)
    diag_help(r, "nearest that divides: micro = %lld (%lld accumulation steps)", (long long)below,
              (long long)(share / below));
  else
    diag_help(r, "nearest that divide: micro = %lld (%lld accumulation steps) or %lld (%lld)",
              (long long)below, (long long)(share / below), (long long)above,
              (long long)(share / above));
}

static void check_batch(PlanCheck *p) {
  const AstItem *train = p->c->train ? p->c->train->item : NULL;
  const AstValue *written = settings_value(train, "batch", NULL),
                 *micro_at = settings_value(p->item, "micro", NULL);
  int64_t batch = size_of(p->e->sizes, intern(p->e->ctx->names, "Batch"));
  if (batch <= 0) batch = settings_integer(train, ITEM_TRAIN, "batch", NULL);
  int64_t micro = micro_at ? settings_integer(p->item, ITEM_PLAN, "micro", NULL) : 1;
  const PlaceLine *rule = batch_rule(p);
  int64_t splits = rule ? ranks_of(rule) : 1;
  if (!written || batch < 1 || micro < 1 || batch % (splits * micro) == 0) return;
  Span at = micro_at ? micro_at->span : rule->target;
  Report *r = world_error(p->w, "E0703", at, "batch %lld is not a multiple of %s", (long long)batch,
                          equation(p, rule, micro, micro_at != NULL));
  diag_label(r, "%lld / %lld accumulation steps is not a whole number", (long long)batch,
             (long long)(splits * micro));
  diag_also(r, written->span, "batch %lld (train `%s`)", (long long)batch, train->name.text);
  for (uint32_t i = 0; rule && i < rule->axes.n; i++)
    diag_also(r, rule->axes.at[i]->value, "%s = %lld", rule->axes.at[i]->name,
              (long long)rule->axes.at[i]->size);
  if (batch % splits == 0) help_micro(r, micro_at, batch / splits, micro);
  else if (batch < splits) diag_help(r, "a batch of %lld", (long long)splits);
  else
    diag_help(r, "a batch of %lld or %lld", (long long)(batch / splits * splits),
              (long long)((batch / splits + 1) * splits));
}

/* ---- names behind `over`, paths of recompute ---- */

static void check_over(PlanCheck *p, const AstSetting *s) {
  const AstValue **v;
  uint32_t n = setting_over(p->e->ctx, s, &v);
  for (uint32_t i = 0; i < n; i++)
    if (v[i]->kind == VALUE_PATH)
      need_axis(p, intern(p->e->ctx->names, v[i]->path->text), v[i]->span);
}

/* h[0..5]: six of the rounds that there are. */
static void check_rounds(PlanCheck *p, const AstValue *v, Str stack) {
  const AstPart *part = v->path->parts.n > 1 ? &v->path->parts.at[1] : NULL;
  size_t n = strlen(stack);
  if (!part || (part->kind != PART_RANGE && part->kind != PART_INDEX)) return;
  for (uint32_t i = 0; i < p->e->params.n; i++) {
    const Param *q = p->e->params.at[i];
    if (strncmp(q->path, stack, n) || q->path[n] != '.' || !q->lead.n) continue;
    int64_t rounds = size_of(p->e->sizes, q->lead.at[0]);
    int64_t last = part->kind == PART_RANGE ? part->last : part->first;
    bool turned = part->kind == PART_RANGE && part->last < part->first;
    if (rounds <= 0 || (!turned && last < rounds)) return;
    Report *r = turned ? world_error(p->w, "E0709", part->span, "the range `%s` is turned round",
                                     v->path->text)
                       : world_error(p->w, "E0709", part->span, "`%s` has no round %lld", stack,
                                     (long long)last);
    diag_label(r, "its rounds are 0 .. %lld, both ends included", (long long)rounds - 1);
    if (turned) {
      diag_help(r, "`%s[%lld..%lld]`", stack, (long long)part->last, (long long)part->first);
      diag_edit(r, v->span, "%s[%lld..%lld]", stack, (long long)part->last, (long long)part->first);
    } else if (part->kind == PART_RANGE && part->first < rounds) {
      diag_help(r, "`%s[%lld..%lld]`", stack, (long long)part->first, (long long)rounds - 1);
      diag_edit(r, v->span, "%s[%lld..%lld]", stack, (long long)part->first, (long long)rounds - 1);
    }
    return;
  }
}

static void check_path(PlanCheck *p, const AstValue *v) {
  if (v->kind != VALUE_PATH || !v->path->parts.n) return;
  Str first = v->path->parts.at[0].name;
  if (starts_path(p, first)) {
    check_rounds(p, v, first);
    return;
  }
  Report *r = world_error(p->w, "E0709", v->span, "`%s` names no part of model `%s`", v->path->text,
                          p->c->model->name);
  diag_label(r, "no stack, sub or parameter `%s`", first);
}

static void check_lines(PlanCheck *p) {
  for (uint32_t i = 0; i < p->item->block->settings.n; i++) {
    const AstSetting *s = p->item->block->settings.at[i];
    const AstValue **v;
    bool recompute = !strcmp(s->path->text, "recompute");
    if (recompute || !strcmp(s->path->text, "zero")) check_over(p, s);
    uint32_t n = recompute ? setting_operands(p->e->ctx, s, &v) : 0;
    for (uint32_t k = 0; k < n; k++) check_path(p, v[k]);
    if (recompute) check_recompute(p->e, s);
  }
}

/* Only `precision f16` scales gradients; pass `wire` says so of what --set asks for. */
static void check_reduce(PlanCheck *p) {
  const AstValue *reduce = settings_value(p->item, "precision", "reduce");
  Str type = settings_word(p->e->ctx, p->item, ITEM_PLAN, "precision", NULL);
  if (!reduce || reduce->kind != VALUE_PATH || strcmp(reduce->path->text, "f16")) return;
  if (type && !strcmp(type, "f16")) return;
  Report *r = world_error(p->w, "E0602", reduce->span, "gradients in messages of f16 want a scale");
  diag_label(r, "below 6e-8 they would be 0");
  diag_help(r, "`reduce = bf16`, or `precision f16`, which scales them");
  diag_edit(r, reduce->span, "bf16");
}

/* ---- warnings: what works, slowly ---- */

/* Ranks along an axis that cuts nothing all do the same. */
static void warn_idle(PlanCheck *p) {
  for (uint32_t i = 0; i < p->mesh.n; i++) {
    const PlanAxis *a = &p->mesh.at[i];
    if (a->size < 2 || a->placed) continue;
    world_warn(
        p->w, "W0704", a->value,
        arena_printf(p->e->arena, "nothing is split over mesh axis `%s`: %lld ranks do the same",
                     a->name, (long long)a->size),
        arena_printf(p->e->arena, "`place DIM -> %s`, for data parallelism `place Batch -> %s`",
                     a->name, a->name));
  }
}

/* Without `over`, the axes that split Batch are meant. */
static void warn_whole(PlanCheck *p) {
  const AstSetting *zero = settings_line(p->item, "zero");
  const AstValue *stage = settings_value(p->item, "zero", NULL), **over;
  if (!stage || stage->kind != VALUE_NUMBER || stage->number.integral < 1 || batch_rule(p) ||
      setting_over(p->e->ctx, zero, &over))
    return;
  long long z = stage->number.integral;
  world_warn(
      p->w, "W0703", zero->span,
      arena_printf(p->e->arena, "`zero %lld` partitions nothing: no mesh axis splits Batch", z),
      p->mesh.n ? arena_printf(p->e->arena, "`place Batch -> %s`, or `zero %lld over %s`",
                               p->mesh.at[0].name, z, p->mesh.at[0].name)
                : "`mesh data = N` and `place Batch -> data` say whose ranks share");
}

/* Ranks that share what `zero` partitions: of the axes behind `over`, or of those that
   cut Batch. */
static int64_t ranks_of_zero(PlanCheck *p, const AstSetting *zero) {
  const AstValue **over;
  int64_t ranks = 1;
  uint32_t n = setting_over(p->e->ctx, zero, &over);
  const PlaceLine *rule = batch_rule(p);
  for (uint32_t i = 0; i < n; i++) {
    Str name = over[i]->kind == VALUE_PATH ? intern(p->e->ctx->names, over[i]->path->text) : NULL;
    const PlanAxis *a = name ? find_axis(p, name) : NULL;
    if (a) ranks *= a->size;
  }
  return n ? ranks : rule ? ranks_of(rule) : 1;
}

/* Every rank has a piece of every bucket, and pieces begin at multiples of 64 bytes. */
static void check_bucket(PlanCheck *p) {
  enum { PIECE = 64 };
  const AstSetting *zero = settings_line(p->item, "zero");
  const AstValue *bucket = zero ? setting_option(zero, "bucket") : NULL;
  if (!bucket) return;
  int64_t ranks = ranks_of_zero(p, zero), least = ranks * PIECE,
          have = settings_integer(p->item, ITEM_PLAN, "zero", "bucket");
  if (have >= least) return;
  Report *r = world_error(p->w, "E0602", bucket->span, "a bucket of %lld bytes for %lld ranks",
                          (long long)have, (long long)ranks);
  diag_label(r, "every rank owns a piece of each, of %d bytes at least", PIECE);
  diag_help(r, "`bucket = %lld` is the least; 25MiB is what `zero` takes without it",
            (long long)least);
  diag_edit(r, bucket->span, "%lld", (long long)least);
}

/* (stages - 1) of (micro-batches + stages - 1) steps of a stage are idle. */
static void warn_bubble(PlanCheck *p) {
  const AstItem *train = p->c->train ? p->c->train->item : NULL;
  int64_t batch = settings_integer(train, ITEM_TRAIN, "batch", NULL), stages = 1, splits = 1;
  int64_t micro = settings_integer(p->item, ITEM_PLAN, "micro", NULL);
  Str kind = settings_word(p->e->ctx, p->item, ITEM_PLAN, "pipeline", NULL);
  int64_t chunks = kind && !strcmp(kind, "interleaved")
                       ? settings_integer(p->item, ITEM_PLAN, "pipeline", "chunks")
                       : 1;
  const PlaceLine *split = batch_rule(p), *cut = NULL;
  for (uint32_t i = 0; i < p->rules.n; i++)
    for (uint32_t k = 0; k < p->rules.at[i].dims.n; k++)
      if (plan_is_stack_dim(p, p->rules.at[i].dims.at[k].dim)) cut = &p->rules.at[i];
  if (!cut || batch < 1 || micro < 1 || chunks < 1 || (kind && !strcmp(kind, "zero_bubble")))
    return;
  stages = ranks_of(cut);
  if (split) splits = ranks_of(split);
  int64_t count = batch / (splits * micro);
  bool alone = kind && !strcmp(kind, "sequential"); /* one micro-batch at a time */
  double idle = (double)(stages - 1) / (double)((alone ? 1 : count * chunks) + stages - 1);
  if (count < 1 || idle <= 0.2) return;
  if (alone) {
    world_warn(
        p->w, "W0702", cut->target,
        arena_printf(p->e->arena,
                     "%.0f %% of the time of the layers is a bubble: %lld stages, one at work",
                     100 * idle, (long long)stages),
        "fewer stages: `pipeline sequential` is for memory, no rank makes it faster");
    return;
  }
  world_warn(p->w, "W0702", cut->target,
             arena_printf(p->e->arena,
                          "%.0f %% of the time is a bubble: %lld stages, %lld micro-batches",
                          100 * idle, (long long)stages, (long long)count),
             "more micro-batches (a smaller `micro`), or fewer stages");
}

void check_plan(Eval *e, const Choice *c, const AstItem *plan) {
  PlanCheck p = {.e = e, .w = e->w, .c = c, .item = plan};
  if (!plan->block) return;
  read_mesh(&p);
  read_rules(&p);
  check_machine(&p);
  for (uint32_t i = 0; i < p.rules.n; i++)
    if (p.rules.at[i].axes.n) check_divides(&p, &p.rules.at[i]), check_once(&p, &p.rules.at[i]);
  check_batch(&p);
  check_reduce(&p);
  for (uint32_t i = 0; i < p.rules.n; i++) warn_spans(&p, &p.rules.at[i]);
  warn_bubble(&p);
  warn_idle(&p);
  warn_whole(&p);
  check_bucket(&p);
  check_flights(&p);
  check_onebit_plan(&p);
  check_lines(&p);
}
