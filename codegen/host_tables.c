/* Host writer: the constant tables of runtime/rt.h: kernels, tensors, entries, settings, sources,
 * the program. */
#include "host.h"
#include "ir/schedule/background_order.h"
#include "ir/support/num.h"
#include "ir/cost/budget.h"
#include "ir/bytes.h"
#include "ir/cost/count.h"
#include "ir/cost/kernel_time.h"
#include "ir/schedule/flight.h"
#include "ir/phases.h"
#include "ir/plan/layer_range.h"
#include "ir/schedule/message.h"
#include "ir/plan/rank_slice.h"
#include "ir/shape/placement.h"
#include "ir/schedule/send_order.h"
#include "ir/schedule/stream_order.h"
#include "ir/plan/stage_class.h"
#include "cache.h"
#include <math.h>

static const char *const kind_words[] = {"RT_PARAM", "RT_STATE", "RT_INPUT", "RT_SCALAR",
                                         "RT_OUTPUT"}; /* by GlobalKind */
_Static_assert(COUNT_OF(kind_words) == GLOBAL_OUTPUT + 1, "a word per GlobalKind");

static const char *const elem_words[] = {
#define DTYPE(name, bytes, class) [ELEM_##name] = "RT_" #name,
#include "ir/dtypes.def"
#undef DTYPE
};
_Static_assert(COUNT_OF(elem_words) == ELEM_COUNT, "a word per Elem");

static const char *upper(HostWriter *writer, const char *s) {
  char *u = arena_strndup(writer->m->arena, s, strlen(s));
  for (char *p = u; *p; p++)
    if (*p >= 'a' && *p <= 'z') *p = (char)(*p - 'a' + 'A');
  return u;
}

/* ---- kernels ---- */

static int64_t of_phase(const Fn *k, AttrKey key, int phase) {
  const Attr *a = attr_get(&k->attrs, key);
  if (!a || a->i <= phase)
    bug("host: kernel %s has no %s in phase %d", k->name, attr_name(key), phase);
  return a->list[phase];
}

static void put_head(HostWriter *writer, const Fn *k, const char *symbol, int phases) {
  host_put(writer, "static const rt_kernel %s = {.name = ", symbol);
  host_string(writer, k->name);
  host_put(writer, ", .source = ");
  host_string(writer, host_source(writer, k->loc));
  host_put(writer, ", .phases = %d,\n    .phase = {", phases);
}

static uint32_t buffers_of(const Fn *k) {
  return k->args.n + k->results.n + (attr_get(&k->attrs, ATTR_workspace) != NULL);
}

static void put_cpu_kernel(HostWriter *writer, const Fn *k, const char *symbol, int phases) {
  host_put(writer, "rt_chunk");
  for (int p = 0; p < phases; p++) host_put(writer, "%s %s_p%d", p ? "," : "", symbol, p);
  host_put(writer, ";\n");
  put_head(writer, k, symbol, phases);
  for (int p = 0; p < phases; p++)
    host_put(writer, "%s{.run = %s_p%d, .chunks = %lld}", p ? ", " : "", symbol, p,
             (long long)of_phase(k, ATTR_chunks, p));
  host_put(writer, "}");
  if (kernel_on_host(writer->m, k)) host_put(writer, ",\n    .nbuffers = %u", buffers_of(k));
}

/* The kernel that takes k's place where a CTA may have its shared memory; NULL: none. */
static const Fn *larger_of(const Module *m, const Fn *k) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (!strcmp(attr_str(&m->fns.at[i]->attrs, ATTR_replaces, ""), k->name)) return m->fns.at[i];
  return NULL;
}

/* link.c defines the image. */
static void put_gpu_kernel(HostWriter *writer, const Fn *k, const char *symbol, int phases) {
  must(attr_get(&k->attrs, ATTR_threads), "host: kernel %s has no threads", k->name);
  host_put(writer, "extern const rt_image %s_image;\n", symbol);
  int maps = host_maps(writer, k, symbol);
  put_head(writer, k, symbol, phases);
  for (int p = 0; p < phases; p++)
    host_put(writer, "%s{.entry = \"%s_p%d\", .chunks = %lld, .threads = %lld, .shared = %lld}",
             p ? ", " : "", symbol, p, (long long)of_phase(k, ATTR_chunks, p),
             (long long)of_phase(k, ATTR_threads, p), (long long)of_phase(k, ATTR_shared, p));
  host_put(writer, "},\n    .image = &%s_image, .nbuffers = %u", symbol, buffers_of(k));
  const Fn *larger = larger_of(writer->m, k);
  if (larger) host_put(writer, ", .larger = &%s", kernel_symbol(writer->m, larger));
  if (maps) host_put(writer, ", .maps = %s_maps, .nmaps = %d", symbol, maps);
}

/* For the rates that `--profile` writes as lines of a machine block. */
static void put_work(HostWriter *writer, const Fn *k) {
  static const char *const parts[KERNEL_PARTS] = {
      [PART_MEMORY] = "MEMORY", [PART_PRODUCTS] = "PRODUCTS", [PART_ATTENTION] = "ATTENTION"};
  static const Arch without_tiles = {0};
  const Arch *arch = arch_find(writer->m->target.name);
  IrCount count = ir_count(writer->m, k);
  KernelWork work = kernel_work(writer->m, arch ? arch : &without_tiles, k);
  host_put(writer, ", .flop = %.17g, .bytes = %.17g", count.flop, count.bytes);
  if (work.flop > 0)
    host_put(writer, ", .part = RT_PART_%s, .work = %.17g", parts[work.part], work.flop);
  host_put(writer, "};\n");
}

static void put_kernel(HostWriter *writer, const Fn *k) {
  const char *symbol = kernel_symbol(writer->m, k);
  const Attr *chunks = attr_get(&k->attrs, ATTR_chunks);
  int phases = chunks ? (int)chunks->i : 0;
  if (phases < 1) bug("host: kernel %s has no chunks", k->name);
  if (module_on_gpu(writer->m) && !kernel_on_host(writer->m, k))
    put_gpu_kernel(writer, k, symbol, phases);
  else put_cpu_kernel(writer, k, symbol, phases);
  put_work(writer, k);
}

void host_kernels(HostWriter *writer) {
  host_put(writer, "\n");
  for (uint32_t i = 0; i < writer->m->fns.n; i++)
    if (writer->m->fns.at[i]->kind == FN_KERNEL) put_kernel(writer, writer->m->fns.at[i]);
}

static int put_kernel_list(HostWriter *writer) {
  int n = 0;
  host_put(writer, "\nstatic const rt_kernel *const kernels[] = {\n");
  for (uint32_t i = 0; i < writer->m->fns.n; i++)
    if (writer->m->fns.at[i]->kind == FN_KERNEL &&
        !attr_get(&writer->m->fns.at[i]->attrs, ATTR_replaces))
      host_put(writer, "    &%s,\n", kernel_symbol(writer->m, writer->m->fns.at[i])), n++;
  host_put(writer, "    0,\n};\n");
  return n;
}

/* ---- ranks ---- */

/* Rows of functions before f, and of its ops before `end`. */
static uint32_t rows_before(const Module *m, const Fn *f, OpId end) {
  uint32_t n = 0;
  EACH_FN (m, g) {
    OpId ops = g == f ? end : g->ops.n;
    for (OpId k = 0; k < ops; k++) n += op_family(g->ops.at[k].code) == FAMILY_COLLECTIVE;
    if (g == f) break;
  }
  return n;
}

uint32_t host_count_collectives(const Module *m) { return rows_before(m, NULL, 0); }

uint32_t host_row(const Module *m, const Fn *f, OpId id) { return rows_before(m, f, id); }

static void put_collective(HostWriter *writer, const Fn *f, const Op *o, int sends) {
  const Type *in = value_type(f, o->nin ? o->in[0] : o->out);
  Message message = message_of(f, o);
  bool most = !strcmp(attr_str(&o->attrs, ATTR_reduce, ""), "max");
  host_put(writer, "    {");
  host_string(writer, arena_printf(writer->m->arena, "%s in %s", op_name(o->code), f->name));
  host_put(writer, ", ");
  host_string(writer, host_source(writer, o->loc));
  host_put(writer, ", RT_%s, %d, %s, %s, %lld, %lld, %lld", op_collective(o->code)->kind,
           mesh_find(writer->m, attr_str(&o->attrs, ATTR_axis, "")), most ? "RT_MAX" : "RT_SUM",
           upper(writer, elem_words[in->elem]), (long long)message.count,
           (long long)message.send_row, (long long)message.receive_row);
  if (message.pieces > 1) host_put(writer, ", %lld", (long long)message.piece);
  if (op_flies(o))
    host_put(writer, ", .times = %lld, .flights = %lld", (long long)message.times,
             (long long)flights_at_once(writer->m, f, o));
  if (op_is_p2p(o->code) && attr_int(&o->attrs, ATTR_reverse, 0)) host_put(writer, ", .back = 1");
  if (op_is_p2p(o->code) && attr_int(&o->attrs, ATTR_cyclic, 0)) host_put(writer, ", .cyclic = 1");
  if (o->code == OP_rotate)
    host_put(writer, ", .by = %lld", (long long)attr_int(&o->attrs, ATTR_by, 0));
  if (sends >= 0) host_put(writer, ", .sends = sends_%d", sends);
  host_put(writer, "},\n");
}

static int row_of(const SendOrder *order, const Op *o) {
  for (uint32_t i = 0; i < order->rows.n; i++)
    if (order->rows.at[i].op == o) return (int)i;
  return -1;
}

/* When the sends of a row are passed to the library: by stage, runs of sends. */
static void put_sends(HostWriter *writer, const SendOrder *order, int number) {
  const SendRow *row = &order->rows.at[number];
  int axis = mesh_find(writer->m, attr_str(&row->op->attrs, ATTR_axis, ""));
  for (int64_t s = 0; s < order->stages[axis]; s++) {
    host_put(writer, "\nstatic const rt_sends sends_%d_%lld[] = {", number,
             (long long)(order->first[axis] + s));
    for (uint32_t i = 0; i < row->runs[s].n; i++) {
      const SendRun *run = &row->runs[s].at[i];
      host_put(writer, "{%lld, %lld, %d}, ", (long long)run->n, (long long)run->place.later,
               run->place.joins);
    }
    host_put(writer, "{0}};");
  }
  host_put(writer, "\nstatic const rt_sends *const sends_%d[] = {", number);
  for (int64_t s = 0; s < order->stages[axis]; s++)
    host_put(writer, "sends_%d_%lld, ", number, (long long)(order->first[axis] + s));
  host_put(writer, "}; /* %s in %s, by stage */\n", op_name(OP_send), row->of->name);
}

static void put_ranks(HostWriter *writer) {
  const Module *m = writer->m;
  uint32_t n = host_count_collectives(m);
  int64_t stride = 1;
  SendOrder order = send_order(m);
  if (!m->mesh.n) return;
  host_put(writer, "\nstatic const rt_axis mesh[] = {\n");
  for (uint32_t i = 0; i < m->mesh.n; i++) {
    host_put(writer, "    {");
    host_string(writer, m->mesh.at[i].name);
    host_put(writer, ", %lld, %lld},\n", (long long)m->mesh.at[i].size, (long long)stride);
    stride *= m->mesh.at[i].size;
  }
  host_put(writer, "};\n");
  for (uint32_t i = 0; i < order.rows.n; i++) put_sends(writer, &order, (int)i);
  if (n) host_put(writer, "\nstatic const rt_collective collectives[%u] = {\n", n);
  for (uint32_t i = 0; n && i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++)
      if (op_family(m->fns.at[i]->ops.at[k].code) == FAMILY_COLLECTIVE)
        put_collective(writer, m->fns.at[i], &m->fns.at[i]->ops.at[k],
                       row_of(&order, &m->fns.at[i]->ops.at[k]));
  if (n) host_put(writer, "};\n");
}

/* Which axes cut which dims, the coarsest cut first; samples that are dealt in parts. */
static void put_splits(HostWriter *writer, const Global *global) {
  const Module *m = writer->m;
  int axes[MAX_MESH], n = mesh_order(m, axes), splits = 0;
  for (int i = 0; i < n; i++) splits += is_split(global->placed.on[axes[i]]);
  if (!splits) return;
  host_put(writer, ", .nsplits = %d, .split = {", splits);
  for (int i = 0; i < n; i++)
    if (is_split(global->placed.on[axes[i]]))
      host_put(writer, "{%d, %d}, ", type_find(&global->type, global->placed.on[axes[i]]), axes[i]);
  host_put(writer, "}");
  Str batch = global->type.rank ? global->type.axis[0].dim : "";
  int64_t part = global->kind == GLOBAL_INPUT ? placement_part(m, &global->placed, batch) : 0;
  if (part && part < global->type.axis[0].size) host_put(writer, ", .part = %lld", (long long)part);
  int64_t chunks =
      global->type.rank ? stage_chunks(m, &global->placed, global->type.axis[0].dim) : 1;
  if (chunks > 1) host_put(writer, ", .chunks = %lld", (long long)chunks);
}

/* Sizes without the padding that a split asked for. */
static void put_logical(HostWriter *writer, const Global *global) {
  bool any = false;
  int64_t logical[MAX_RANK] = {0};
  for (int i = 0; i < global->type.rank; i++) {
    Axis axis = global->type.axis[i];
    int64_t whole = axis.size * placement_ways(writer->m, &global->placed, axis.dim);
    bool kept = global->kind == GLOBAL_PARAM || global->kind == GLOBAL_STATE;
    logical[i] = kept ? placement_logical(writer->m, axis.dim, whole) : whole;
    if (logical[i] == whole) logical[i] = 0;
    any |= logical[i] != 0;
  }
  if (!any) return;
  host_put(writer, ", .logical = {");
  for (int i = 0; i < global->type.rank; i++) host_put(writer, "%lld, ", (long long)logical[i]);
  host_put(writer, "}");
}

/* A flat global that is whole on every rank is one bucket; a shard is [rounds, buckets, owner,
   piece]. */
static void put_flat(HostWriter *writer, const Global *global, uint32_t number) {
  const Type *t = &global->within->type;
  bool rounds = global->type.rank && t->rank && t->axis[0].dim == global->type.axis[0].dim;
  int64_t n = rounds ? t->axis[0].size : 1, round = type_count(t) / n, bucket = round;
  if (!placement_is_whole(&global->within->placed)) bucket = t->axis[t->rank - 1].size;
  int axes = 0;
  const char *list = "";
  for (uint32_t i = 0; i < writer->m->mesh.n; i++) {
    if (!is_split(global->within->placed.on[i])) continue;
    bucket *= writer->m->mesh.at[i].size;
    list = arena_list(writer->m->arena, list, "%u", i), axes++;
  }
  host_put(writer, "static const rt_flat flat_%u = {%lld, %lld, %lld, %lld, %d, {%s}}; /* %s */\n",
           number, (long long)bucket, (long long)global->begin, (long long)n, (long long)round,
           axes, axes ? list : "0", global->name);
}

/* ---- tensors ---- */

static int64_t of_size(const Module *m, const Global *global) {
  for (uint32_t i = 0; global->of && i < m->dims.n; i++)
    if (m->dims.at[i].name == global->of) return m->dims.at[i].size;
  return 0;
}

/* Distance, in tensors, from `number` to the next part of its stack, or back to the last one; 0:
   there is none. */
static int next_part(const Module *m, uint32_t number, int step) {
  Str name = layer_whole(m, m->globals.at[number]->name);
  int n = 0;
  for (uint32_t i = number + (uint32_t)step; i < m->globals.n; i += (uint32_t)step) {
    const Global *global = m->globals.at[i];
    n += global_is_tensor(m, global);
    if (layer_dim(m, global) && layer_whole(m, global->name) == name) return n;
  }
  return 0;
}

/* Outputs that tell of layers one by one say which the first is. */
static void put_part(HostWriter *writer, const Global *global, uint32_t number) {
  const Module *m = writer->m;
  const Dim *dim = global->type.rank ? dim_find(m, global->type.axis[0].dim) : NULL;
  if (!dim || !dim->part) return;
  host_put(writer, ", .first = %lld", (long long)dim->first);
  if (!layer_dim(m, global)) return;
  host_put(writer, ", .layers = %lld, .rest = %d", (long long)dim_find(m, dim->part)->size,
           next_part(m, number, 1));
}

/* Parts of a stack make one tensor, by the model's names. */
static void put_name(HostWriter *writer, const Global *global, uint32_t number) {
  bool part = layer_dim(writer->m, global), first = part && !next_part(writer->m, number, -1);
  host_string(writer, first ? layer_whole(writer->m, global->name) : global->name);
  host_put(writer, ", %s", part && !first ? "RT_REST" : kind_words[global->kind]);
}

static Str dim_name(const Module *m, Str name) {
  const Dim *dim = dim_find(m, name);
  return dim && dim->part ? dim->part : name;
}

static void put_tensor(HostWriter *writer, const Global *global, uint32_t number) {
  const Type *t = &global->type;
  const Global *place = global->within ? global->within : global;
  host_put(writer, "    {");
  put_name(writer, global, number);
  host_put(writer, ", %s, %d, {", upper(writer, elem_words[t->elem]), t->rank);
  for (int i = 0; i < t->rank; i++) {
    if (i) host_put(writer, ", ");
    host_string(writer, dim_name(writer->m, t->axis[i].dim));
  }
  host_put(writer, "%s}, {", t->rank ? "" : "0");
  for (int i = 0; i < t->rank; i++)
    host_put(writer, "%s%lld", i ? ", " : "", (long long)t->axis[i].size);
  host_put(writer, "%s}, ", t->rank ? "" : "0");
  if (global->of) host_string(writer, global->of);
  host_put(writer, global->of ? ", %lld" : "0, %lld", (long long)of_size(writer->m, global));
  host_put(writer, ", %s, %lld, %lld", arena_constant(global_arena(place)),
           (long long)place->storage.at, (long long)global_bytes(writer->m, global));
  if (module_on_gpu(writer->m))
    host_put(writer, ", .view = %lld, .ahead = %lld", (long long)module_view_at(writer->m, global),
             (long long)module_ahead_at(writer->m, global));
  put_splits(writer, global);
  put_logical(writer, global);
  put_part(writer, global, number);
  if (global->within) host_put(writer, ", .flat = &flat_%u", number);
  static const char *const stages[] = {"ALL", "FIRST", "LAST", "ENDS"};
  if (global->kind == GLOBAL_PARAM && global->frozen) host_put(writer, ", .frozen = true");
  if (global->kind == GLOBAL_PARAM && global->ruled) host_put(writer, ", .ruled = true");
  if (global->stages) host_put(writer, ", .stages = RT_STAGES_%s", stages[global->stages]);
  host_put(writer, "},\n");
}

static uint32_t put_tensors(HostWriter *writer) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < writer->m->globals.n; i++)
    if (writer->m->globals.at[i]->within) put_flat(writer, writer->m->globals.at[i], i);
  host_put(writer, "\nstatic const rt_tensor tensors[] = {\n");
  for (uint32_t i = 0; i < writer->m->globals.n; i++) {
    if (!global_is_tensor(writer->m, writer->m->globals.at[i])) continue;
    put_tensor(writer, writer->m->globals.at[i], i), n++;
  }
  host_put(writer, "    {0},\n};\n");
  return n;
}

/* ---- entries ---- */

static const char *phase_word(const Fn *f) {
  Phase p = fn_phase(f);
  return p == PHASE_none ? "none" : phase_name(p);
}

static int put_entries(HostWriter *writer) {
  int n = 0;
  host_put(writer, "\nstatic const rt_entry entries[] = {\n");
  EACH_FN (writer->m, f) {
    if (f->kind != FN_ENTRY) continue;
    IrCount count = ir_count(writer->m, f);
    double least = attr_float(&f->attrs, ATTR_compulsory_bytes, 0);
    host_put(writer, "    {");
    host_string(writer, f->name);
    host_put(writer,
             ", run_%s, %lld, %lld, %.17g, %.17g, %.17g, %lld, %lld, RT_PHASE_%s, %lld, %lld},\n",
             host_c_name(writer, f->name), (long long)attr_int(&f->attrs, ATTR_frame, 0),
             (long long)attr_int(&f->attrs, ATTR_live, 0), count.flop, count.bytes,
             isfinite(least) ? least : 0, (long long)attr_int(&f->attrs, tier_frame(TIER_host), 0),
             (long long)attr_int(&f->attrs, tier_live(TIER_host), 0), phase_word(f),
             (long long)fn_phase_from(f), (long long)attr_int(&f->attrs, ATTR_every, 0));
    n++;
  }
  host_put(writer, "    {0},\n};\n");
  return n;
}

/* ---- settings and sources ---- */

/* All but the times of tuning records, which only forecasts read. */
static SettingRows settings_of(const Module *m) {
  SettingRows rows = module_rows(m);
  uint32_t n = 0;
  for (uint32_t i = 0; i < rows.n; i++)
    if (!kernel_record_holds(rows.at[i].key)) rows.at[n++] = rows.at[i];
  rows.n = n;
  return rows;
}

static void put_settings(HostWriter *writer) {
  host_put(writer, "\nstatic const rt_setting settings[] = {\n");
  SettingRows rows = settings_of(writer->m);
  for (uint32_t i = 0; i < rows.n; i++) {
    host_put(writer, "    {");
    host_string(writer, rows.at[i].key);
    host_put(writer, ", ");
    host_string(writer, rows.at[i].value);
    host_put(writer, "},\n");
  }
  host_put(writer, "    {0},\n};\n");
}

static void put_sources(HostWriter *writer) {
  host_put(writer, "\nstatic const char *const sources[] = {\n");
  for (uint32_t i = 0; i < writer->m->sources.n; i++) {
    host_put(writer, "    ");
    host_string(writer, writer->m->sources.at[i].name);
    host_put(writer, ",\n    ");
    host_string(writer, writer->m->sources.at[i].text);
    host_put(writer, ",\n");
  }
  host_put(writer, "    0,\n};\n");
}

/* ---- the program ---- */

static int64_t arena_end(const Module *m, GlobalArena arena) {
  int64_t end = 0;
  EACH_GLOBAL (m, global) {
    if (global->within) continue;
    int64_t to = round_up(global->storage.at + global_bytes(m, global), CACHE_LINE);
    if (global_arena(global) == arena && to > end) end = to;
  }
  return end;
}

static int64_t arena_bytes(const Module *m, GlobalArena a) {
  bool frames = a == arena_of_frames(arena_tier(a));
  return frames             ? module_frame(m, arena_tier(a))
         : a == IN_IO       ? arena_end(m, a) + module_device_words(m)
         : a == IN_SNAPSHOT ? module_snapshot(m)
                            : arena_end(m, a);
}

static int64_t largest_scratch(const Module *m) {
  int64_t most = 0;
  EACH_FN (m, f) {
    int64_t n = f->kind == FN_KERNEL ? attr_int(&f->attrs, ATTR_scratch, 0) : 0;
    if (n > most) most = n;
  }
  return most;
}

/* Programs of classes have the hash of all of them. */
static const char *hash_of(HostWriter *writer) {
  Str all = module_setting(writer->m, "made.program", NULL);
  if (all) return all;
  return hash_words(writer->m->arena, hash_text(hash_begin(), ir_print(writer->m, NULL)), 32);
}

static void put_class(HostWriter *writer) {
  StageClass c = module_class(writer->m);
  if (!*c.name) return;
  host_put(writer,
           "    .stages = \"%s\",\n    .stage_axis = %d,\n    .stage_first = %lld,\n"
           "    .stage_last = %lld,\n",
           c.name, c.axis, (long long)c.first, (long long)c.last);
}

static void put_pinned(HostWriter *writer) {
  Pinned pinned = module_pinned(writer->m);
  host_put(writer, "    .counters_at = %lld,\n", (long long)arena_end(writer->m, IN_IO));
  host_put(writer, "    .ahead_at = %lld,\n    .send_slot = %lld,\n    .send_slots = %lld,\n",
           (long long)(arena_bytes(writer->m, IN_IO) - module_ahead(writer->m)),
           (long long)module_send_slot(writer->m), (long long)module_send_slots(writer->m));
  host_put(writer, "    .move_slot = %lld,\n", (long long)module_move_slot(writer->m));
  host_put(writer, "    .move_slots = {%lld, %lld},\n",
           (long long)module_move_slots(writer->m, false),
           (long long)module_move_slots(writer->m, true));
  host_put(writer, "    .most_back = %lld,\n", (long long)module_most_back(writer->m));
  host_put(writer, "    .host_view = %lld,\n    .host_window = %lld,\n    .host_messages = %lld,\n",
           (long long)pinned.view, (long long)pinned.window, (long long)pinned.messages);
  host_put(writer, "    .host_ahead = %lld,\n", (long long)pinned.ahead);
}

/* On which kernels of the program run; NULL: all are a GPU's. */
static const TargetFacts *processor_of(const Module *m) {
  if (!module_on_gpu(m)) return &m->target;
  return m->host_target.name ? &m->host_target : NULL;
}

static int put_snapshot(HostWriter *writer) {
  SnapshotRanges ranges = module_snapshot_ranges(writer->m);
  if (ranges.n) host_put(writer, "\nstatic const rt_range snapshot[] = {\n");
  for (uint32_t i = 0; i < ranges.n; i++)
    host_put(writer, "    {%s, %lld, %lld, %lld},\n", arena_constant(ranges.at[i].arena),
             (long long)ranges.at[i].from, (long long)ranges.at[i].bytes,
             (long long)ranges.at[i].at);
  if (ranges.n) host_put(writer, "};\n");
  return (int)ranges.n;
}

static void put_background(HostWriter *writer) {
  host_put(writer, "    .background = {\n");
  for (BackgroundOp op = 0; op < BACKGROUNDS; op++) {
    const Background *background = &writer->m->background[op];
    if (!background->there) continue;
    host_put(writer, "        [RT_BACKGROUND_%s] = {true, 0", background_name(op));
    for (BackgroundOp other = 0; other < BACKGROUNDS; other++)
      if (background->after >> other & 1)
        host_put(writer, " | 1 << RT_BACKGROUND_%s", background_name(other));
    host_put(writer, ", 0");
    for (OpStream stream = STREAM_down; stream < STREAMS; stream++)
      if (background->streams >> stream & 1)
        host_put(writer, " | 1 << %s", host_stream_word(stream));
    host_put(writer, "},\n");
  }
  host_put(writer, "    },\n");
}

static void put_program(HostWriter *writer, uint32_t tensors, int kernels, int entries,
                        int ranges) {
  const Module *m = writer->m;
  host_put(writer,
           "\nconst rt_program RT_PROGRAM = {\n#ifdef RT_NEXT\n    .next = &RT_NEXT,\n#endif\n");
  host_put(writer, "    .abi = RT_ABI_VERSION,\n    .model = ");
  host_string(writer, m->model);
  host_put(writer, ",\n    .compiler = \"shardc " SHARDC_VERSION "\",\n    .hash = \"%s\",\n    ",
           hash_of(writer));
  if (m->compared) host_put(writer, ".equal = "), host_string(writer, m->compared);
  host_put(writer, "%s.target = ", m->compared ? ",\n    " : "");
  host_string(writer, m->target.name ? m->target.name : "");
  const TargetFacts *cpu = processor_of(m);
  if (module_on_gpu(m)) host_put(writer, ",\n    .sm = %d", (int)m->target.sm);
  if (module_on_gpu(m) && target_of(m)->alone) host_put(writer, ",\n    .alone = true");
  if (cpu) host_put(writer, ",\n    .needs = \"%s\"", target_find(cpu->name)->needs);
  host_put(writer, ",\n    .workers = %d,\n", cpu ? (int)cpu->workers : (int)m->target.workers);
  host_put(writer, "    .scratch = %lld,\n    .arena_bytes = {", (long long)largest_scratch(m));
  for (GlobalArena a = 0; a < IN_ARENAS; a++)
    host_put(writer, "%s%lld", a ? ", " : "", (long long)arena_bytes(m, a));
  host_put(writer, "},\n");
  host_put(writer, "    .counters = %lld,\n", (long long)module_counters(m));
  if (module_on_gpu(m)) put_pinned(writer);
  host_put(writer, "    .tensors = tensors,\n    .ntensors = %u,\n", tensors);
  if (ranges) host_put(writer, "    .snapshot = snapshot,\n    .nsnapshot = %d,\n", ranges);
  put_background(writer);
  host_put(writer, "    .entries = entries,\n    .nentries = %d,\n", entries);
  host_put(writer, "    .kernels = kernels,\n    .nkernels = %d,\n", kernels);
  host_put(writer, "    .communicator = ");
  host_string(writer, module_setting(m, "comm", "local"));
  host_put(writer, ",\n");
  if (m->mesh.n) host_put(writer, "    .mesh = mesh,\n    .naxes = %u,\n", m->mesh.n);
  if (host_count_collectives(m))
    host_put(writer, "    .collectives = collectives,\n    .ncollectives = %u,\n",
             host_count_collectives(m));
  if (module_has(m, op_flies)) host_put(writer, "    .flies = true,\n");
  put_class(writer);
  host_put(writer, "    .settings = settings,\n    .nsettings = %u,\n    .sources = sources,\n};\n",
           settings_of(m).n);
}

void host_tables(HostWriter *writer) {
  put_ranks(writer);
  uint32_t tensors = put_tensors(writer);
  int kernels = put_kernel_list(writer), entries = put_entries(writer),
      ranges = put_snapshot(writer);
  put_settings(writer);
  put_sources(writer);
  put_program(writer, tensors, kernels, entries, ranges);
}
