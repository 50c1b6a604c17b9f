/* Which parameters form a group, and the layout of groups.

   Parameters form a group if their updates read alike (zero_slice.c: same ops, same numbers), the
   same axes cut them, and their gradients are summed over the same axes. There is one group per
   stack and one for all parameters outside of stacks; parameters that `offload` puts on the host
   have groups of their own. A parameter that is not of this form keeps its state on every rank; a
   warning says so, except for scalars.

   Parameters that no update writes have groups of their own in stage 3, if ranks hold them alike:
   they are sharded and gathered as the others are. States with rules of their own stay whole; a
   warning says so of those that are as large as a parameter, such as an average of it. */
#include "ir/made.h"
#include "ir/support/num.h"
#include "zero_slice.h"
#include "ir/plan/layer_range.h"
#include "ir/plan/module_settings.h"
#include <string.h>

/* Do several ranks of an axis hold it alike, and does the plan partition over that axis? */
static bool is_repeated(const Zero *zero, const Global *global) {
  for (uint32_t i = 0; i < zero->m->mesh.n; i++)
    if (zero->m->mesh.at[i].size > 1 && zero_partitions(zero, zero->m->mesh.at[i].name) &&
        !global->placed.on[i])
      return true;
  return false;
}

static void note_whole(Zero *zero, const Global *global, const char *why) {
  if (!zero->stage || !is_repeated(zero, global)) return;
  if (!zero->named.n) zero->why = why;
  vec_push(zero->m->arena, zero->named, global);
}

/* The dim of the stack that a parameter belongs to: paths of stacked ones have a star. */
Axis zero_rounds_of(const Global *global) {
  return strchr(global->name, '*') ? global->type.axis[0] : (Axis){0};
}

static Str region_of(const Zero *zero, const Global *global) {
  const char *star = strchr(global->name, '*');
  return star && star > global->name
             ? arena_strndup(zero->m->arena, global->name, (size_t)(star - global->name - 1))
             : "root";
}

static bool same_group(const ZeroGroup *a, const ZeroGroup *b) {
  if (a->rounds.dim != b->rounds.dim || a->naxes != b->naxes || a->nothers != b->nothers ||
      a->stage != b->stage || a->frozen != b->frozen || a->hosted != b->hosted ||
      a->complete != b->complete || strcmp(a->name, b->name))
    return false;
  for (int i = 0; i < ZERO_AXES; i++)
    if (a->axis[i] != b->axis[i] || a->others[i] != b->others[i]) return false;
  return !strcmp(a->member.at[0].signature, b->member.at[0].signature);
}

static void add_member(Zero *zero, ZeroGroup key, ZeroMember member) {
  Arena *arena = zero->m->arena;
  must(key.frozen || (member.leaf != NO_VALUE && member.sum != NO_VALUE),
       "zero: @%s has no gradient", member.param->name);
  vec_push(arena, key.member, member);
  for (uint32_t i = 0; i < zero->group.n; i++)
    if (same_group(&zero->group.at[i], &key)) {
      vec_push(arena, zero->group.at[i].member, member);
      return;
    }
  vec_push(arena, zero->group, key);
}

/* Small parameters stay whole. */
static int stage_of(const GroupSlice *slice, const ZeroGroup *group) {
  const Global *global = slice->member.param;
  int64_t count = type_count(&global->type) / (group->rounds.dim ? group->rounds.size : 1);
  int64_t bytes = count * elem_bytes(group->copied ? group->narrow : global->type.elem);
  return slice->z->stage == 3 && bytes <= slice->z->persist ? 2 : slice->z->stage;
}

unsigned zero_hosted(const Zero *zero, const Global *param) {
  unsigned bits = 0;
  for (OffloadWord i = 0; i < OFFLOAD_WORDS; i++)
    bits |= (unsigned)plan_offloads(zero->m, i, param->name) << i;
  return bits;
}

/* No update writes it: of stage 3 the parameter itself is a matter. */
static void read_frozen(Zero *zero, Global *global, ZeroGroup key) {
  if (zero->stage < 3 || zero_alike(zero, global) == 1 || zero_round_bytes(global) <= zero->persist)
    return;
  GroupSlice slice = slice_begin(zero, global, key.rounds);
  key.stage = 3, key.frozen = key.complete = true;
  if (!slice_take_alike(&slice, &key)) {
    note_whole(zero, global, "it is whole over too many axes");
    return;
  }
  slice.member.signature = slice_home(&slice);
  if (!key.rounds.dim)
    slice.member.signature =
        arena_printf(zero->m->arena, "%s%s", slice.member.signature, slice_region(&slice));
  add_member(zero, key, slice.member);
}

static bool is_parameters_size(const Zero *zero, const Global *state) {
  EACH_GLOBAL (zero->m, global)
    if (global->kind == GLOBAL_PARAM && !global->ruled && fn_store_of(zero->step, global) &&
        type_same_dims(&global->type, &state->type))
      return true;
  return false;
}

static void read_param(Zero *zero, Global *global) {
  unsigned hosted = zero_hosted(zero, global);
  ZeroGroup key = {
      .name = region_of(zero, global), .rounds = zero_rounds_of(global), .hosted = hosted};
  if (!global->type.rank) return;
  if (global->ruled) {
    if (is_parameters_size(zero, global))
      note_whole(zero, global, "every rank computes its `update` line");
    return;
  }
  if (!fn_store_of(zero->step, global)) read_frozen(zero, global, key);
  if (!zero->naxes && !(hosted & HOSTED_UPDATE)) return;
  if (!fn_store_of(zero->step, global)) return;
  GroupSlice slice = slice_begin(zero, global, key.rounds);
  if (!slice_read(&slice, &key)) {
    note_whole(zero, global, slice.why);
    return;
  }
  if (key.ways < zero_alike(zero, global))
    note_whole(zero, global, "its gradient is a sum over some of these axes alone");
  slice.member.chain = slice.chain.at, slice.member.nchain = slice.chain.n;
  slice.member.number = slice_numbers(&slice, &key.measured);
  slice.member.whole = slice_wholes(&slice);
  slice.member.signature = arena_printf(zero->m->arena, "%s of %s", slice_words(&slice),
                                        elem_name(value_type(slice.f, slice.member.sum)->elem));
  slice_find_copy(&slice);
  key.copied = slice.member.copied, key.narrow = slice.member.narrow;
  if (key.copied)
    slice.member.signature =
        arena_printf(zero->m->arena, "%s as %s", slice.member.signature, elem_name(key.narrow));
  if (!key.rounds.dim)
    slice.member.signature =
        arena_printf(zero->m->arena, "%s%s", slice.member.signature, slice_region(&slice));
  key.nstates = slice.nstates;
  key.stage = stage_of(&slice, &key);
  add_member(zero, key, slice.member);
}

/* A group whose members begin at buckets has at least this number of buckets: the padding is at
   most one of them per member. */
enum { FINE = 1024 };

/* Bytes of an element in a message: the widest of the gradient, the weight, and the values that are
   gathered for an update that needs whole matrices. */
static int64_t wire_bytes(const Zero *zero, const ZeroGroup *group) {
  const ZeroMember *member = &group->member.at[0];
  int64_t gradient = elem_bytes(zero->asked ? zero->reduce : member->elem),
          weight = elem_bytes(group->copied ? group->narrow : member->param->type.elem);
  int64_t bytes = group->frozen || (group->stage && weight > gradient) ? weight : gradient;
  if (member->part == NO_VALUE || !group->stage) return bytes;
  int64_t part = elem_bytes(value_type(zero->step, member->part)->elem);
  return part > bytes ? part : bytes;
}

/* Pieces begin at multiples of 64 bytes, and are whole blocks if they are sent in 8 bits. At the
   small sizes of a comparison that would leave the last ranks with padding alone. */
static int64_t piece_unit(const Zero *zero, const ZeroGroup *group) {
  int64_t line = 64 / elem_bytes(group->member.at[0].param->type.elem);
  if (module_setting(zero->m, "made.tight", NULL)) return zero->unit;
  return round_up(zero->unit, line);
}

static int64_t least_bucket(const Zero *zero, const ZeroGroup *group) {
  int64_t least = group->ways * piece_unit(zero, group) * wire_bytes(zero, group);
  return least < 64 * group->ways ? 64 * group->ways : least;
}

/* The value in the file was checked at its position; that of the command line, or of a dump, is
   checked by this function. */
static void too_small(const Zero *zero, const ZeroGroup *group) {
  int64_t least = least_bucket(zero, group);
  Report *report = diag_at(zero->m->ctx->diag, "E0602", (Span){0},
                           "`zero` cannot cut `%s` in buckets of %lld bytes over %lld ranks",
                           group->name, (long long)zero->bucket_bytes, (long long)group->ways);
  diag_help(report, "`plan.zero.bucket` must be at least %lld per rank, i.e. %lld",
            (long long)(least / group->ways), (long long)least);
}

/* A message of a bucket has at most `bucket_bytes`; false: a smaller one is asked for. */
static bool lay_out(Zero *zero, ZeroGroup *group) {
  must(group->member.n && group->ways > 0, "zero: group %s of %u members over %lld ranks",
       group->name, group->member.n, (long long)group->ways);
  int64_t unit = group->ways * piece_unit(zero, group),
          most = zero->bucket_bytes / wire_bytes(zero, group) / unit * unit, all = 0;
  for (uint32_t i = 0; i < group->member.n; i++) {
    ZeroMember *member = &group->member.at[i];
    member->count = type_count(&member->param->type) / (group->rounds.dim ? group->rounds.size : 1);
    all += member->count;
  }
  group->buckets = most > 0 ? ceil_div(all, most) : 1;
  if (group->measured && group->buckets < FINE) group->buckets = FINE;
  int64_t bucket = round_up(ceil_div(all, group->buckets), unit), at = 0;
  for (uint32_t i = 0; i < group->member.n; i++) {
    ZeroMember *member = &group->member.at[i];
    member->begin = at, at += group->measured ? round_up(member->count, bucket) : member->count;
  }
  if (group->measured) group->buckets = at / bucket;
  group->piece = bucket / group->ways;
  must(at <= group->buckets * bucket && bucket % group->ways == 0,
       "zero: %lld elements of %s in %lld buckets of %lld", (long long)at, group->name,
       (long long)group->buckets, (long long)bucket);
  return most > 0;
}

static void name_group(Zero *zero, ZeroGroup *group, uint32_t i) {
  const Module *m = zero->m;
  uint32_t same = 1;
  for (uint32_t k = 0; k < i; k++) same += !strcmp(zero->group.at[k].name, group->name);
  LayerPart part = {.at = strlen(group->name)}; /* h2.0_3, whose layers stay the last word */
  layer_part(group->name, &part);
  Str name = same > 1 ? arena_printf(zero->m->arena, "%.*s'%u%s", (int)part.at, group->name, same,
                                     group->name + part.at)
                      : group->name;
  group->name = name_made(m, MADE_GROUP "%s", name);
  group->flat = name_made(m, "Flat'%u", i), group->bucket = name_made(m, "Bucket'%u", i);
  group->part = name_made(m, MADE_PIECE "%u", i);
  for (int k = 0; k < group->naxes; k++)
    group->owner[k] = name_made(m, MADE_OWNER "%u'%s", i, group->axis[k]);
}

void zero_find_groups(Zero *zero) {
  for (uint32_t i = 0; i < zero->m->globals.n; i++)
    if (zero->m->globals.at[i]->kind == GLOBAL_PARAM) read_param(zero, zero->m->globals.at[i]);
  ZeroGroup *wide = NULL; /* of those that need larger buckets the one that needs the largest */
  for (uint32_t i = 0; i < zero->group.n; i++) {
    ZeroGroup *group = &zero->group.at[i];
    if (!lay_out(zero, group) && (!wide || least_bucket(zero, group) > least_bucket(zero, wide)))
      wide = group;
  }
  if (wide) too_small(zero, wide);
  for (uint32_t i = zero->group.n; i-- > 0;) name_group(zero, &zero->group.at[i], i);
}
