/* Host writer: one C function per body and entry. A body gets its frame, the addresses of its
   arguments in[] (in[0]: the loop counter) and of its results out[]; host_loops.c writes the loops
   that call it. */
#include "host_body.h"
#include "device_code.h"
#include "ir/bytes.h"
#include "ir/schedule/flight.h"
#include "ir/schedule/message.h"

const Value *host_value(const HostBody *host, ValueId v) { return &host->f->values.at[v]; }

static void number_values(HostBody *host) {
  const Fn *f = host->f;
  uint32_t n = 0;
  host->number = ARENA_ARRAY(host->h->m->arena, uint32_t, f->values.n + 1);
  for (uint32_t i = 0; i < f->args.n; i++) host->number[f->args.at[i]] = n++;
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nout; k++) host->number[f->ops.at[i].out + k] = n++;
}

const char *host_plus(HostBody *host, const char *base, int64_t offset) {
  return offset ? arena_printf(host->h->m->arena, "%s + %lld", base, (long long)offset) : base;
}

const char *host_frame_word(Tier t) { return t == TIER_device ? "frame" : tier_name(t); }

const char *host_address(HostBody *host, ValueId v) {
  const Storage *storage = &host_value(host, v)->storage;
  Arena *arena = host->h->m->arena;
  must(storage->at >= 0, "host: value %u of %s is at %lld", v, host->f->name,
       (long long)storage->at);
  switch (storage->place) {
  case PLACE_FRAME:
    return host_plus(host, host_frame_word(host_value(host, v)->type.tier), storage->at);
  case PLACE_ARG: return host_plus(host, arena_printf(arena, "in[%u]", storage->slot), storage->at);
  case PLACE_RESULT:
    return host_plus(host, arena_printf(arena, "out[%u]", storage->slot), storage->at);
  case PLACE_RING:
    return host_plus(host, arena_printf(arena, "in[%u]", host->f->args.n + storage->slot),
                     storage->at);
  case PLACE_GLOBAL: {
    const Global *global = host->h->m->globals.at[storage->slot];
    return host_plus(host, arena_word(global_arena(global)), global->storage.at + storage->at);
  }
  default: bug("host: value %u of %s has no place", v, host->f->name);
  }
}

static const char *label(HostBody *host, ValueId v) {
  const Storage *storage = &host_value(host, v)->storage;
  const char *type = type_text(host->h->m, value_type(host->f, v));
  const char *name =
      storage->place == PLACE_GLOBAL ? host->h->m->globals.at[storage->slot]->name : "";
  return arena_printf(host->h->m->arena, "%%%u%s%s %s", host->number[v], *name ? " " : "", name,
                      type);
}

void host_put_label(HostBody *host, ValueId v, const char *end) {
  host_put(host->h, " /* ");
  host_comment(host->h, label(host, v));
  host_put(host->h, " */%s", end);
}

static void put_buffer(HostBody *host, ValueId v) {
  host_put(host->h, "        %s,", host_address(host, v));
  host_put_label(host, v, "\n");
}

/* ---- kernels ---- */

static void put_place(HostBody *host, const Op *o) {
  const char *source = host_source(host->h, o->loc);
  if (!*source) return;
  host_put(host->h, " /* ");
  host_comment(host->h, source);
  host_put(host->h, " */");
}

const char *host_work_at(HostBody *host, const Op *o, Tier t) {
  must(!op_work(o, t) || attr_get(&o->attrs, tier_work(t)),
       "host: %s in %s has no place for its work", op_name(o->code), host->f->name);
  return host_plus(host, host_frame_word(t), attr_int(&o->attrs, tier_work(t), 0));
}

static void put_kernel(HostBody *host, const Op *o) {
  must(o->callee->kind == FN_KERNEL && o->nout == o->callee->results.n,
       "host: @%s is launched with %u results", o->callee->name, o->nout);
  host_put_tokens(host->h, "  ", o, "round");
  host_put(host->h, "  {");
  put_place(host, o);
  host_put(host->h, "\n    void *const buffers[] = {\n");
  for (uint32_t i = 0; i < o->nin; i++) put_buffer(host, o->in[i]);
  for (uint32_t i = 0; i < o->nout; i++) put_buffer(host, o->out + i);
  if (attr_int(&o->callee->attrs, ATTR_workspace, 0))
    host_put(host->h, "        %s, /* workspace */\n",
             host_work_at(host, o, kernel_tier(o->callee)));
  host_put(host->h, "    };\n");
  host_call(host->h, "    ", CALL_rt_launch);
  host_put(host->h, "&%s, buffers);\n  }\n", kernel_symbol(host->h->m, o->callee));
}

void host_put_copy(HostBody *host, const char *to, ValueId from) {
  const char *have = host_address(host, from);
  if (!strcmp(to, have)) return;
  host_call(host->h, "  ", CALL_rt_copy);
  host_put(host->h, "%s, %s, %lld);", to, have,
           (long long)value_span_bytes(host_value(host, from)));
  host_put_label(host, from, "\n");
}

void host_put_flight(HostBody *host, const Op *o, bool starts) {
  const Collective *facts = op_collective(o->code);
  const DeviceCode *code = target_of(host->h->m)->code;
  if (code->record)
    host_put(host->h,
             starts ? " /* %s; after that %s on the stream of messages */\n"
                    : " /* %s: after that %s */\n",
             starts ? code->record : code->await, facts->library);
  else
    host_put(host->h,
             starts ? " /* the thread that communicates begins this %s */\n"
                    : " /* until that %s is over */\n",
             facts->words);
}

/* ---- ranks ---- */

static void put_message(HostBody *host, const char *at, int64_t step, int64_t size, ValueId v) {
  host_put(host->h, "             %s", at);
  if (step) host_put(host->h, " + i * %lld", (long long)(step * size));
  host_put(host->h, ",");
  host_put_label(host, v, "\n");
}

/* A collective that the loop has started for this round needs only the wait. */
static void put_collective(HostBody *host, const Op *o) {
  if (attr_int(&o->attrs, ATTR_flight, 0) < 0) return;
  OpId id = (OpId)(o - host->f->ops.at);
  Message message = message_of(host->f, o);
  int64_t size = elem_bytes(value_type(host->f, o->out)->elem);
  bool many = message.times > 1, works = attr_int(&o->attrs, ATTR_workspace, 0) != 0;
  host_put_tokens(host->h, "  ", o, "round");
  if (op_flies(o)) host_put(host->h, " "), host_put_flight(host, o, true);
  if (many)
    host_put(host->h, "  for (int64_t i = 0; i < %lld; i++) /* messages of %lld bytes */\n  ",
             (long long)message.times, (long long)message.bytes);
  host_call(host->h, "  ", op_flies(o) ? CALL_rt_start : CALL_rt_collect);
  host_put(host->h, "&collectives[%u],", host_row(host->h->m, host->f, id));
  put_place(host, o);
  host_put(host->h, "\n");
  if (o->nin)
    put_message(host, host_address(host, o->in[0]), many ? message.send_step : 0, size, o->in[0]);
  else host_put(host->h, "             0, /* nothing is sent */\n");
  put_message(host, host_address(host, o->out), many ? message.receive_step : 0, size, o->out);
  host_put(host->h, "             %s);\n", works ? host_work_at(host, o, TIER_device) : "0");
}

static void put_wait(HostBody *host, const Op *o) {
  const Op *start = flight_start(host->f, o);
  if (!start) bug("host: a wait of %s for nothing", host->f->name);
  host_call(host->h, "  ", CALL_rt_wait);
  host_put(host->h, "&collectives[%u], %lld);",
           host_row(host->h->m, host->f, (OpId)(start - host->f->ops.at)),
           (long long)message_of(host->f, start).times);
  host_put_label(host, o->out, "");
  host_put_flight(host, start, false);
}

/* ---- between memories ---- */

static void put_move(HostBody *host, const Op *o) {
  bool up = value_type(host->f, o->out)->tier == TIER_device;
  const char *way = !up                                   ? "RT_WAY_DOWN"
                    : attr_int(&o->attrs, ATTR_direct, 0) ? "RT_WAY_DIRECT"
                                                          : "RT_WAY_UP";
  host_put_tokens(host->h, "  ", o, "round");
  host_call(host->h, "  ", CALL_rt_move);
  host_put(host->h, "%s, %s, %lld, %s);", host_address(host, o->out), host_address(host, o->in[0]),
           (long long)value_span_bytes(host_value(host, o->in[0])), way);
  host_put_label(host, o->in[0], "\n");
}

/* ---- stores ---- */

static void put_store(HostBody *host, const Op *o) {
  const Storage *storage = &host_value(host, o->in[0])->storage;
  if (storage->place == PLACE_GLOBAL && host->h->m->globals.at[storage->slot] == o->global &&
      storage->at == 0)
    return;
  host_put_tokens(host->h, "  ", o, "round");
  host_put_copy(host, host_plus(host, arena_word(global_arena(o->global)), o->global->storage.at),
                o->in[0]);
}

/* ---- functions ---- */

static bool touches(const HostBody *host, GlobalArena arena) {
  for (ValueId v = 0; v < host->f->values.n; v++) {
    const Storage *storage = &host_value(host, v)->storage;
    if (storage->place == PLACE_GLOBAL &&
        global_arena(host->h->m->globals.at[storage->slot]) == arena)
      return true;
  }
  for (OpId i = 0; i < host->f->ops.n; i++)
    if (host->f->ops.at[i].code == OP_store && global_arena(host->f->ops.at[i].global) == arena)
      return true;
  return false;
}

/* Even a body without a frame of its own is handed one. */
static bool has_loop(const Fn *f) {
  for (OpId i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_loop) return true;
  return false;
}

static void put_arenas(HostBody *host) {
  for (GlobalArena a = 0; a < IN_ARENAS; a++)
    if (touches(host, a))
      host_put(host->h, "  char *const %s = rt->arena[%s];\n", arena_word(a), arena_constant(a));
  for (Tier t = 0; t < host->h->tiers && host->f->kind == FN_ENTRY; t++)
    if (attr_int(&host->f->attrs, tier_frame(t), 0) || has_loop(host->f))
      host_put(host->h, "  char *const %s = rt->arena[%s];\n", host_frame_word(t),
               arena_constant(arena_of_frames(t)));
}

static void put_head(HostBody *host) {
  const char *name = host_c_name(host->h, host->f->name);
  long long frame = (long long)attr_int(&host->f->attrs, ATTR_frame, 0),
            live = (long long)attr_int(&host->f->attrs, ATTR_live, 0);
  host_put(host->h, "\n/* %s: %lld bytes of work, at least %lld needed at once */\n", host->f->name,
           frame, live);
  if (host->f->kind == FN_ENTRY) host_put(host->h, "static void run_%s(rt_ctx *rt) {\n", name);
  else {
    host_put(host->h, "static void body_%s(rt_ctx *rt, ", name);
    for (Tier t = 0; t < host->h->tiers; t++) host_put(host->h, "char *%s, ", host_frame_word(t));
    host_put(host->h,
             "int64_t round, char *const *in, char *const *out) {\n  (void)rt, (void)round, ");
    for (Tier t = 0; t < host->h->tiers; t++) host_put(host->h, "(void)%s, ", host_frame_word(t));
    host_put(host->h, "(void)in, (void)out;\n");
  }
}

void host_function(HostWriter *writer, const Fn *f) {
  HostBody host = {.h = writer, .f = f};
  number_values(&host);
  put_head(&host);
  put_arenas(&host);
  if (f->kind == FN_ENTRY) host_put(writer, "  (void)rt;\n");
  ScheduleLoops loops, schedule = {.n = 0};
  if (f->kind == FN_ENTRY) schedule_of_batch(writer->m->arena, f, 1, &schedule);
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    if (schedule_find(f, i, &loops))
      host_put_loops_in_turn(&host, &loops), i = schedule_end(&loops);
    else if (o->code == OP_kernel) put_kernel(&host, o);
    else if (o->code == OP_loop) host_put_loop(&host, o, &schedule);
    else if (o->code == OP_store) put_store(&host, o);
    else if (op_family(o->code) == FAMILY_COLLECTIVE) put_collective(&host, o);
    else if (o->code == OP_wait) put_wait(&host, o);
    else if (o->code == OP_move) put_move(&host, o);
  }
  host_put(writer, "}\n");
}
