/* Host writer: the constant tables of runtime/rt.h: kernels, tensors, entries, settings, sources,
 * the program. */
#include "host.h"
#include "ir/support/num.h"
#include "ir/budget.h"
#include "ir/bytes.h"
#include "ir/count.h"
#include "ir/flight.h"
#include "ir/message.h"
#include "ir/placement.h"
#include "ir/send_pairs.h"
#include "ir/stage_class.h"
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

static const char *upper(HostWriter *h, const char *s) {
  char *u = arena_strndup(h->m->arena, s, strlen(s));
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

static void put_head(HostWriter *h, const Fn *k, const char *symbol, int phases) {
  host_put(h, "static const rt_kernel %s = {.name = ", symbol);
  host_string(h, k->name);
  host_put(h, ", .source = ");
  host_string(h, host_source(h, k->loc));
  host_put(h, ", .phases = %d,\n    .phase = {", phases);
}

static uint32_t buffers_of(const Fn *k) {
  return k->args.n + k->results.n + (attr_get(&k->attrs, ATTR_workspace) != NULL);
}

static void put_spans(HostWriter *h, const Fn *k, const char *symbol) {
  host_put(h, "static const int64_t %s_spans[] = {", symbol);
  for (uint32_t i = 0; i < k->args.n + k->results.n; i++) {
    ValueId v = i < k->args.n ? k->args.at[i] : k->results.at[i - k->args.n];
    host_put(h, "%s%lld", i ? ", " : "", (long long)value_span_bytes(&k->values.at[v]));
  }
  const Attr *work = attr_get(&k->attrs, ATTR_workspace);
  if (work) host_put(h, ", %lld", (long long)work->i);
  host_put(h, "};\n");
}

static void put_cpu_kernel(HostWriter *h, const Fn *k, const char *symbol, int phases) {
  if (kernel_beside(h->m, k)) put_spans(h, k, symbol);
  host_put(h, "rt_chunk");
  for (int p = 0; p < phases; p++) host_put(h, "%s %s_p%d", p ? "," : "", symbol, p);
  host_put(h, ";\n");
  put_head(h, k, symbol, phases);
  for (int p = 0; p < phases; p++)
    host_put(h, "%s{.run = %s_p%d, .chunks = %lld}", p ? ", " : "", symbol, p,
             (long long)of_phase(k, ATTR_chunks, p));
  host_put(h, "}");
  if (kernel_beside(h->m, k))
    host_put(h, ",\n    .nbuffers = %u, .operands = %u, .spans = %s_spans", buffers_of(k),
             k->args.n, symbol);
}

/* The kernel that takes k's place where a CTA may have its shared memory; NULL: none. */
static const Fn *larger_of(const Module *m, const Fn *k) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    if (!strcmp(attr_str(&m->fns.at[i]->attrs, ATTR_replaces, ""), k->name)) return m->fns.at[i];
  return NULL;
}

/* link.c defines the image. */
static void put_gpu_kernel(HostWriter *h, const Fn *k, const char *symbol, int phases) {
  must(attr_get(&k->attrs, ATTR_threads), "host: kernel %s has no threads", k->name);
  host_put(h, "extern const rt_image %s_image;\n", symbol);
  put_head(h, k, symbol, phases);
  for (int p = 0; p < phases; p++)
    host_put(h, "%s{.entry = \"%s_p%d\", .chunks = %lld, .threads = %lld, .shared = %lld}",
             p ? ", " : "", symbol, p, (long long)of_phase(k, ATTR_chunks, p),
             (long long)of_phase(k, ATTR_threads, p), (long long)of_phase(k, ATTR_shared, p));
  host_put(h, "},\n    .image = &%s_image, .nbuffers = %u", symbol, buffers_of(k));
  const Fn *larger = larger_of(h->m, k);
  if (larger) host_put(h, ", .larger = &%s", kernel_symbol(h->m, larger));
}

static void put_kernel(HostWriter *h, const Fn *k) {
  const char *symbol = kernel_symbol(h->m, k);
  const Attr *chunks = attr_get(&k->attrs, ATTR_chunks);
  int phases = chunks ? (int)chunks->i : 0;
  if (phases < 1) bug("host: kernel %s has no chunks", k->name);
  if (module_on_gpu(h->m) && !kernel_beside(h->m, k)) put_gpu_kernel(h, k, symbol, phases);
  else put_cpu_kernel(h, k, symbol, phases);
  IrCount c = ir_count(h->m, k);
  host_put(h, ", .flop = %.17g, .bytes = %.17g};\n", c.flop, c.bytes);
}

void host_kernels(HostWriter *h) {
  host_put(h, "\n");
  for (uint32_t i = 0; i < h->m->fns.n; i++)
    if (h->m->fns.at[i]->kind == FN_KERNEL) put_kernel(h, h->m->fns.at[i]);
}

static int put_kernel_list(HostWriter *h) {
  int n = 0;
  host_put(h, "\nstatic const rt_kernel *const kernels[] = {\n");
  for (uint32_t i = 0; i < h->m->fns.n; i++)
    if (h->m->fns.at[i]->kind == FN_KERNEL && !attr_get(&h->m->fns.at[i]->attrs, ATTR_replaces))
      host_put(h, "    &%s,\n", kernel_symbol(h->m, h->m->fns.at[i])), n++;
  host_put(h, "    0,\n};\n");
  return n;
}

/* ---- ranks ---- */

/* Rows of functions before f, and of its ops before `end`. */
static uint32_t rows_before(const Module *m, const Fn *f, OpId end) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *g = m->fns.at[i];
    OpId ops = g == f ? end : g->ops.n;
    for (OpId k = 0; k < ops; k++) n += op_family(g->ops.at[k].code) == FAMILY_COLLECTIVE;
    if (g == f) break;
  }
  return n;
}

uint32_t host_count_collectives(const Module *m) { return rows_before(m, NULL, 0); }

uint32_t host_row(const Module *m, const Fn *f, OpId id) { return rows_before(m, f, id); }

bool host_flies(const Module *m) {
  for (uint32_t i = 0; i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++)
      if (op_flies(&m->fns.at[i]->ops.at[k])) return true;
  return false;
}

static void put_collective(HostWriter *h, const SendPairs *pairs, const Fn *f, const Op *o) {
  static const char *const words[OP_COUNT] = {[OP_all_reduce] = "RT_ALL_REDUCE",
                                              [OP_reduce_scatter] = "RT_REDUCE_SCATTER",
                                              [OP_all_gather] = "RT_ALL_GATHER",
                                              [OP_all_to_all] = "RT_ALL_TO_ALL",
                                              [OP_send] = "RT_SEND",
                                              [OP_receive] = "RT_RECEIVE"};
  const Type *in = value_type(f, o->nin ? o->in[0] : o->out);
  Message x = message_of(f, o);
  bool most = !strcmp(attr_str(&o->attrs, ATTR_reduce, ""), "max");
  host_put(h, "    {");
  host_string(h, arena_printf(h->m->arena, "%s in %s", op_name(o->code), f->name));
  host_put(h, ", ");
  host_string(h, host_source(h, o->loc));
  host_put(h, ", %s, %d, %s, %s, %lld, %lld, %lld", words[o->code],
           mesh_find(h->m, attr_str(&o->attrs, ATTR_axis, "")), most ? "RT_MAX" : "RT_SUM",
           upper(h, elem_words[in->elem]), (long long)x.count, (long long)x.send_row,
           (long long)x.receive_row);
  if (x.pieces > 1) host_put(h, ", %lld", (long long)x.piece);
  if (op_flies(o))
    host_put(h, ", .times = %lld, .flights = %lld", (long long)x.times,
             (long long)flights_at_once(h->m, f, o));
  if (op_is_hop(o->code) && attr_int(&o->attrs, ATTR_reverse, 0)) host_put(h, ", .back = 1");
  if (op_is_hop(o->code) && attr_int(&o->attrs, ATTR_wrap, 0)) host_put(h, ", .wrap = 1");
  if (send_is_alone(pairs, o)) host_put(h, ", .alone = 1");
  host_put(h, "},\n");
}

static void put_ranks(HostWriter *h) {
  const Module *m = h->m;
  uint32_t n = host_count_collectives(m);
  int64_t stride = 1;
  SendPairs pairs = send_pairs(m);
  if (!m->mesh.n) return;
  host_put(h, "\nstatic const rt_axis mesh[] = {\n");
  for (uint32_t i = 0; i < m->mesh.n; i++) {
    host_put(h, "    {");
    host_string(h, m->mesh.at[i].name);
    host_put(h, ", %lld, %lld},\n", (long long)m->mesh.at[i].size, (long long)stride);
    stride *= m->mesh.at[i].size;
  }
  host_put(h, "};\n");
  if (n) host_put(h, "\nstatic const rt_collective collectives[%u] = {\n", n);
  for (uint32_t i = 0; n && i < m->fns.n; i++)
    for (OpId k = 0; k < m->fns.at[i]->ops.n; k++)
      if (op_family(m->fns.at[i]->ops.at[k].code) == FAMILY_COLLECTIVE)
        put_collective(h, &pairs, m->fns.at[i], &m->fns.at[i]->ops.at[k]);
  if (n) host_put(h, "};\n");
}

/* Which axes cut which dims, the coarsest cut first; samples that are dealt in parts. */
static void put_splits(HostWriter *h, const Global *g) {
  const Module *m = h->m;
  int axes[MAX_MESH], n = mesh_order(m, axes), splits = 0;
  for (int i = 0; i < n; i++) splits += is_split(g->placed.on[axes[i]]);
  if (!splits) return;
  host_put(h, ", .nsplits = %d, .split = {", splits);
  for (int i = 0; i < n; i++)
    if (is_split(g->placed.on[axes[i]]))
      host_put(h, "{%d, %d}, ", type_find(&g->type, g->placed.on[axes[i]]), axes[i]);
  host_put(h, "}");
  Str batch = g->type.rank ? g->type.axis[0].dim : "";
  int64_t part = g->kind == GLOBAL_INPUT ? placement_part(m, &g->placed, batch) : 0;
  if (part && part < g->type.axis[0].size) host_put(h, ", .part = %lld", (long long)part);
  int64_t chunks = g->type.rank ? stage_chunks(m, &g->placed, g->type.axis[0].dim) : 1;
  if (chunks > 1) host_put(h, ", .chunks = %lld", (long long)chunks);
}

/* Sizes without the padding that a split asked for. */
static void put_logical(HostWriter *h, const Global *g) {
  bool any = false;
  int64_t logical[MAX_RANK] = {0};
  for (int i = 0; i < g->type.rank; i++) {
    Axis a = g->type.axis[i];
    int64_t whole = a.size * placement_ways(h->m, &g->placed, a.dim);
    bool kept = g->kind == GLOBAL_PARAM || g->kind == GLOBAL_STATE;
    logical[i] = kept ? placement_logical(h->m, a.dim, whole) : whole;
    if (logical[i] == whole) logical[i] = 0;
    any |= logical[i] != 0;
  }
  if (!any) return;
  host_put(h, ", .logical = {");
  for (int i = 0; i < g->type.rank; i++) host_put(h, "%lld, ", (long long)logical[i]);
  host_put(h, "}");
}

/* A flat global that is whole on every rank is one bucket; a shard is [rounds, buckets, owner,
   piece]. */
static void put_flat(HostWriter *h, const Global *g, uint32_t number) {
  const Type *t = &g->within->type;
  bool rounds = g->type.rank && t->rank && t->axis[0].dim == g->type.axis[0].dim;
  int64_t n = rounds ? t->axis[0].size : 1, round = type_count(t) / n, bucket = round;
  if (!placement_is_whole(&g->within->placed)) bucket = t->axis[t->rank - 1].size;
  int axes = 0;
  const char *list = "";
  for (uint32_t i = 0; i < h->m->mesh.n; i++) {
    if (!is_split(g->within->placed.on[i])) continue;
    bucket *= h->m->mesh.at[i].size;
    list = arena_printf(h->m->arena, "%s%s%u", list, axes++ ? ", " : "", i);
  }
  host_put(h, "static const rt_flat flat_%u = {%lld, %lld, %lld, %lld, %d, {%s}}; /* %s */\n",
           number, (long long)bucket, (long long)g->begin, (long long)n, (long long)round, axes,
           axes ? list : "0", g->name);
}

/* ---- tensors ---- */

static int64_t of_size(const Module *m, const Global *g) {
  for (uint32_t i = 0; g->of && i < m->dims.n; i++)
    if (m->dims.at[i].name == g->of) return m->dims.at[i].size;
  return 0;
}

static void put_tensor(HostWriter *h, const Global *g, uint32_t number) {
  const Type *t = &g->type;
  const Global *place = g->within ? g->within : g;
  host_put(h, "    {");
  host_string(h, g->name);
  host_put(h, ", %s, %s, %d, {", kind_words[g->kind], upper(h, elem_words[t->elem]), t->rank);
  for (int i = 0; i < t->rank; i++) {
    if (i) host_put(h, ", ");
    host_string(h, t->axis[i].dim);
  }
  host_put(h, "%s}, {", t->rank ? "" : "0");
  for (int i = 0; i < t->rank; i++)
    host_put(h, "%s%lld", i ? ", " : "", (long long)t->axis[i].size);
  host_put(h, "%s}, ", t->rank ? "" : "0");
  if (g->of) host_string(h, g->of);
  host_put(h, g->of ? ", %lld" : "0, %lld", (long long)of_size(h->m, g));
  host_put(h, ", %s, %lld, %lld", arena_constant(global_arena(place)), (long long)place->storage.at,
           (long long)global_bytes(h->m, g));
  if (module_on_gpu(h->m))
    host_put(h, ", .view = %lld, .ahead = %lld", (long long)module_view_at(h->m, g),
             (long long)module_ahead_at(h->m, g));
  put_splits(h, g);
  put_logical(h, g);
  if (g->within) host_put(h, ", .flat = &flat_%u", number);
  static const char *const stages[] = {"ALL", "FIRST", "LAST", "ENDS"};
  if (g->stages) host_put(h, ", .stages = RT_STAGES_%s", stages[g->stages]);
  host_put(h, "},\n");
}

static uint32_t put_tensors(HostWriter *h) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < h->m->globals.n; i++)
    if (h->m->globals.at[i]->within) put_flat(h, h->m->globals.at[i], i);
  host_put(h, "\nstatic const rt_tensor tensors[] = {\n");
  for (uint32_t i = 0; i < h->m->globals.n; i++) {
    if (!global_is_tensor(h->m, h->m->globals.at[i])) continue;
    put_tensor(h, h->m->globals.at[i], i), n++;
  }
  host_put(h, "    {0},\n};\n");
  return n;
}

/* ---- entries ---- */

static int put_entries(HostWriter *h) {
  int n = 0;
  host_put(h, "\nstatic const rt_entry entries[] = {\n");
  for (uint32_t i = 0; i < h->m->fns.n; i++) {
    const Fn *f = h->m->fns.at[i];
    if (f->kind != FN_ENTRY) continue;
    IrCount c = ir_count(h->m, f);
    double least = attr_float(&f->attrs, ATTR_compulsory_bytes, 0);
    host_put(h, "    {");
    host_string(h, f->name);
    host_put(h, ", run_%s, %lld, %lld, %.17g, %.17g, %.17g, %lld, %lld, %lld},\n",
             host_c_name(h, f->name), (long long)attr_int(&f->attrs, ATTR_frame, 0),
             (long long)attr_int(&f->attrs, ATTR_live, 0), c.flop, c.bytes,
             isfinite(least) ? least : 0, (long long)attr_int(&f->attrs, tier_frame(TIER_host), 0),
             (long long)attr_int(&f->attrs, tier_live(TIER_host), 0), (long long)entry_receives(f));
    n++;
  }
  host_put(h, "    {0},\n};\n");
  return n;
}

/* ---- settings and sources ---- */

static void put_settings(HostWriter *h) {
  host_put(h, "\nstatic const rt_setting settings[] = {\n");
  for (uint32_t i = 0; i < h->m->settings.n; i++) {
    host_put(h, "    {");
    host_string(h, h->m->settings.at[i].key);
    host_put(h, ", ");
    host_string(h, h->m->settings.at[i].value);
    host_put(h, "},\n");
  }
  host_put(h, "    {0},\n};\n");
}

static void put_sources(HostWriter *h) {
  host_put(h, "\nstatic const char *const sources[] = {\n");
  for (uint32_t i = 0; i < h->m->sources.n; i++) {
    host_put(h, "    ");
    host_string(h, h->m->sources.at[i].name);
    host_put(h, ",\n    ");
    host_string(h, h->m->sources.at[i].text);
    host_put(h, ",\n");
  }
  host_put(h, "    0,\n};\n");
}

/* ---- the program ---- */

static int64_t arena_end(const Module *m, GlobalArena arena) {
  int64_t end = 0;
  for (uint32_t i = 0; i < m->globals.n; i++) {
    const Global *g = m->globals.at[i];
    if (g->within) continue;
    int64_t to = round_up(g->storage.at + global_bytes(m, g), CACHE_LINE);
    if (global_arena(g) == arena && to > end) end = to;
  }
  return end;
}

static int64_t arena_bytes(const Module *m, GlobalArena a) {
  bool frames = a == arena_of_frames(arena_tier(a));
  return frames       ? module_frame(m, arena_tier(a))
         : a == IN_IO ? arena_end(m, a) + module_device_words(m)
                      : arena_end(m, a);
}

static int64_t largest_scratch(const Module *m) {
  int64_t most = 0;
  for (uint32_t i = 0; i < m->fns.n; i++) {
    const Fn *f = m->fns.at[i];
    int64_t n = f->kind == FN_KERNEL ? attr_int(&f->attrs, ATTR_scratch, 0) : 0;
    if (n > most) most = n;
  }
  return most;
}

/* Programs of classes have the hash of all of them. */
static const char *hash_of(HostWriter *h) {
  Str all = module_setting(h->m, "made.program", NULL);
  if (all) return all;
  return hash_words(h->m->arena, hash_text(hash_begin(), ir_print(h->m, NULL)), 32);
}

static void put_class(HostWriter *h) {
  StageClass c = module_class(h->m);
  if (!*c.name) return;
  host_put(h,
           "    .stages = \"%s\",\n    .stage_axis = %d,\n    .stage_first = %lld,\n"
           "    .stage_last = %lld,\n",
           c.name, c.axis, (long long)c.first, (long long)c.last);
}

static void put_pinned(HostWriter *h) {
  Pinned p = module_pinned(h->m);
  host_put(h, "    .counters_at = %lld,\n", (long long)arena_end(h->m, IN_IO));
  host_put(h, "    .ahead_at = %lld,\n    .send_slot = %lld,\n    .move_slot = %lld,\n",
           (long long)(arena_bytes(h->m, IN_IO) - module_ahead(h->m)),
           (long long)module_send_slot(h->m), (long long)module_move_slot(h->m));
  host_put(h, "    .move_slots = {%lld, %lld},\n", (long long)module_move_slots(h->m, false),
           (long long)module_move_slots(h->m, true));
  host_put(h, "    .host_view = %lld,\n    .host_window = %lld,\n    .host_messages = %lld,\n",
           (long long)p.view, (long long)p.window, (long long)p.messages);
  host_put(h, "    .host_ahead = %lld,\n", (long long)p.ahead);
}

/* On which kernels of the program run; NULL: all are a GPU's. */
static const TargetFacts *processor_of(const Module *m) {
  if (!module_on_gpu(m)) return &m->target;
  return m->beside.name ? &m->beside : NULL;
}

static void put_program(HostWriter *h, uint32_t tensors, int kernels, int entries) {
  const Module *m = h->m;
  host_put(h, "\nconst rt_program RT_PROGRAM = {\n#ifdef RT_NEXT\n    .next = &RT_NEXT,\n#endif\n");
  host_put(h, "    .abi = RT_ABI_VERSION,\n    .model = ");
  host_string(h, m->model);
  host_put(h,
           ",\n    .compiler = \"shardc " SHARDC_VERSION "\",\n    .hash = \"%s\",\n    .target = ",
           hash_of(h));
  host_string(h, m->target.name ? m->target.name : "");
  const TargetFacts *cpu = processor_of(m);
  if (module_on_gpu(m)) host_put(h, ",\n    .sm = %d", (int)m->target.sm);
  if (cpu) host_put(h, ",\n    .needs = \"%s\"", target_find(cpu->name)->needs);
  host_put(h, ",\n    .workers = %d,\n", cpu ? (int)cpu->workers : (int)m->target.workers);
  host_put(h, "    .scratch = %lld,\n    .arena_bytes = {", (long long)largest_scratch(m));
  for (GlobalArena a = 0; a < IN_ARENAS; a++)
    host_put(h, "%s%lld", a ? ", " : "", (long long)arena_bytes(m, a));
  host_put(h, "},\n");
  host_put(h, "    .counters = %lld,\n", (long long)module_counters(m));
  if (module_on_gpu(m)) put_pinned(h);
  host_put(h, "    .tensors = tensors,\n    .ntensors = %u,\n", tensors);
  host_put(h, "    .entries = entries,\n    .nentries = %d,\n", entries);
  host_put(h, "    .kernels = kernels,\n    .nkernels = %d,\n", kernels);
  host_put(h, "    .communicator = ");
  host_string(h, module_setting(m, "comm", "local"));
  host_put(h, ",\n");
  if (m->mesh.n) host_put(h, "    .mesh = mesh,\n    .naxes = %u,\n", m->mesh.n);
  if (host_count_collectives(m))
    host_put(h, "    .collectives = collectives,\n    .ncollectives = %u,\n",
             host_count_collectives(m));
  if (host_flies(m)) host_put(h, "    .flies = true,\n");
  put_class(h);
  host_put(h, "    .settings = settings,\n    .nsettings = %u,\n    .sources = sources,\n};\n",
           m->settings.n);
}

void host_tables(HostWriter *h) {
  put_ranks(h);
  uint32_t tensors = put_tensors(h);
  int kernels = put_kernel_list(h), entries = put_entries(h);
  put_settings(h);
  put_sources(h);
  put_program(h, tensors, kernels, entries);
}
