/* Host writer: one C function per body and entry.

   A body gets its frame, the addresses of its arguments in[] (in[0]: the loop counter) and of its
   results out[]. A loop computes both for each round: invariant addresses, base + i * stride for
   stacked ones, and for carried values
     - the same address in every round when the body updates them in place;
     - the slices of a saved result, when the body saves what it was given: round i reads slice i,
       writes the next one;
     - otherwise two buffers in turn, so chosen that the last round writes the loop's result.
   A result that continues an operand stands in its buffer, or begins with a copy of it.

   What flies over rounds (ir/flight.h): the loop starts an all-gather for a later round, and waits
   for the reduce-scatter of the one before; the round finds its buffer of each ring behind its
   arguments in in[]. */
#include "host.h"
#include "ir/bytes.h"
#include "ir/flight.h"
#include "ir/message.h"
#include "ir/placement.h"
#include "ir/turns.h"

typedef struct HostBody {
  HostWriter *h;
  const Fn *f;
  uint32_t *number; /* of each value, as printed */
} HostBody;

static const Value *value(const HostBody *b, ValueId v) { return &b->f->values.at[v]; }

static void number_values(HostBody *b) {
  const Fn *f = b->f;
  uint32_t n = 0;
  b->number = ARENA_ARRAY(b->h->m->arena, uint32_t, f->values.n + 1);
  for (uint32_t i = 0; i < f->args.n; i++) b->number[f->args.at[i]] = n++;
  for (OpId i = 0; i < f->ops.n; i++)
    for (uint32_t k = 0; k < f->ops.at[i].nout; k++) b->number[f->ops.at[i].out + k] = n++;
}

static const char *plus(HostBody *b, const char *base, int64_t offset) {
  return offset ? arena_printf(b->h->m->arena, "%s + %lld", base, (long long)offset) : base;
}

/* The variable that has the frame of a tier. */
static const char *frame_word(Tier t) { return t == TIER_device ? "frame" : tier_name(t); }

static const char *address(HostBody *b, ValueId v) {
  const Storage *s = &value(b, v)->storage;
  Arena *a = b->h->m->arena;
  must(s->at >= 0, "host: value %u of %s lies at %lld", v, b->f->name, (long long)s->at);
  switch (s->place) {
  case PLACE_FRAME: return plus(b, frame_word(value(b, v)->type.tier), s->at);
  case PLACE_ARG: return plus(b, arena_printf(a, "in[%u]", s->slot), s->at);
  case PLACE_RESULT: return plus(b, arena_printf(a, "out[%u]", s->slot), s->at);
  case PLACE_RING: return plus(b, arena_printf(a, "in[%u]", b->f->args.n + s->slot), s->at);
  case PLACE_GLOBAL: {
    const Global *g = b->h->m->globals.at[s->slot];
    return plus(b, arena_word(global_arena(g)), g->storage.at + s->at);
  }
  default: bug("host: value %u of %s has no place", v, b->f->name);
  }
}

static const char *label(HostBody *b, ValueId v) {
  const Storage *s = &value(b, v)->storage;
  const char *type = type_text(b->h->m, value_type(b->f, v));
  const char *name = s->place == PLACE_GLOBAL ? b->h->m->globals.at[s->slot]->name : "";
  return arena_printf(b->h->m->arena, "%%%u%s%s %s", b->number[v], *name ? " " : "", name, type);
}

static void put_label(HostBody *b, ValueId v, const char *end) {
  host_put(b->h, " /* ");
  host_comment(b->h, label(b, v));
  host_put(b->h, " */%s", end);
}

static void put_buffer(HostBody *b, const char *indent, ValueId v) {
  host_put(b->h, "%s%s,", indent, address(b, v));
  put_label(b, v, "\n");
}

/* ---- kernels ---- */

static void put_place(HostBody *b, const Op *o) {
  const char *source = host_source(b->h, o->loc);
  if (!*source) return;
  host_put(b->h, " /* ");
  host_comment(b->h, source);
  host_put(b->h, " */");
}

static const char *work_at(HostBody *b, const Op *o, Tier t) {
  must(!op_work(o, t) || attr_get(&o->attrs, tier_work(t)),
       "host: %s in %s has no place for its work", op_name(o->code), b->f->name);
  return plus(b, frame_word(t), attr_int(&o->attrs, tier_work(t), 0));
}

static void put_kernel(HostBody *b, const Op *o) {
  must(o->callee->kind == FN_KERNEL && o->nout == o->callee->results.n,
       "host: @%s is launched with %u results", o->callee->name, o->nout);
  host_put(b->h, "  {");
  put_place(b, o);
  host_put(b->h, "\n    void *const buffers[] = {\n");
  for (uint32_t i = 0; i < o->nin; i++) put_buffer(b, "        ", o->in[i]);
  for (uint32_t i = 0; i < o->nout; i++) put_buffer(b, "        ", o->out + i);
  if (attr_int(&o->callee->attrs, ATTR_workspace, 0))
    host_put(b->h, "        %s, /* workspace */\n", work_at(b, o, kernel_tier(o->callee)));
  host_put(b->h, "    };\n");
  host_call(b->h, "    ", CALL_rt_launch);
  host_put(b->h, "&%s, buffers);\n  }\n", kernel_symbol(b->h->m, o->callee));
}

/* ---- loops ---- */

typedef struct HostLoop {
  const Op *o;
  uint32_t carry, invariant;
  int64_t trip, first;
  bool reverse;
  Str dim;
  FlightList flights; /* of the body, over rounds */
} HostLoop;

static HostLoop loop_of(const Module *m, const Op *o) {
  must(o->ngroups == 1 && o->callee->args.n == o->nin + 1,
       "host: loop body %s does not fit its call", o->callee->name);
  return (HostLoop){o,
                    (uint32_t)attr_int(&o->attrs, ATTR_carry, 0),
                    (uint32_t)attr_int(&o->attrs, ATTR_invariant, 0),
                    attr_int(&o->attrs, ATTR_trip, 0),
                    loop_first(o),
                    attr_int(&o->attrs, ATTR_reverse, 0) != 0,
                    o->group[0].from[0],
                    flights_over(m->arena, o->callee)};
}

static bool is_arg(const Op *o, uint32_t result, uint32_t arg) {
  const Storage *s = &o->callee->values.at[o->callee->results.at[result]].storage;
  return s->place == PLACE_ARG && s->slot == arg;
}

/* The stacked result whose slices are the buffers of carried value j, or 0. */
static uint32_t saved_as(const HostLoop *l, uint32_t j) {
  for (uint32_t i = l->carry; i < l->o->nout; i++)
    if (is_arg(l->o, i, j + 1)) return i;
  return 0;
}

static int64_t step_bytes(HostBody *b, const HostLoop *l, ValueId v) {
  const Value *x = value(b, v);
  return x->storage.stride[type_find(&x->type, l->dim)] * elem_bytes(x->type.elem);
}

/* From the first element to the last. */
static int64_t value_bytes(HostBody *b, ValueId v) {
  const Value *x = value(b, v);
  int64_t last = 0;
  for (int i = 0; i < x->type.rank; i++) last += (x->type.axis[i].size - 1) * x->storage.stride[i];
  return (last + 1) * elem_bytes(x->type.elem);
}

/* Of a stack of the rounds alone slice 0 is the first round's. */
static const char *slice(HostBody *b, const HostLoop *l, ValueId v, const char *index) {
  int64_t step = step_bytes(b, l, v), begin = loop_base(l->o, value_type(b->f, v)) * step;
  int64_t slots = loop_slots(l->o, value_type(b->f, v));
  Arena *a = b->h->m->arena;
  if (slots)
    return arena_printf(a, "%s + %s %% %lld * %lld", address(b, v), index, (long long)slots,
                        (long long)step);
  const char *at = arena_printf(a, "%s + %s * %lld", address(b, v), index, (long long)step);
  return begin ? arena_printf(a, "%s - %lld", at, (long long)-begin) : at;
}

static void put_copy(HostBody *b, const char *to, ValueId from) {
  const char *have = address(b, from);
  if (!strcmp(to, have)) return;
  host_call(b->h, "  ", CALL_rt_copy);
  host_put(b->h, "%s, %s, %lld);", to, have, (long long)value_bytes(b, from));
  put_label(b, from, "\n");
}

static const char *second_buffer(HostBody *b, const HostLoop *l, uint32_t j) {
  const Attr *slots = attr_get(&l->o->attrs, ATTR_slots);
  Tier t = value(b, l->o->out + j)->type.tier;
  return plus(b, frame_word(t), slots && slots->list[j] >= 0 ? slots->list[j] : 0);
}

/* What carried value j needs before the first round. */
static void put_carry_start(HostBody *b, const HostLoop *l, uint32_t j) {
  uint32_t saved = saved_as(l, j);
  ValueId r = l->o->out + j;
  if (saved)
    put_copy(b,
             slice(b, l, l->o->out + saved,
                   arena_printf(b->h->m->arena, "%lld",
                                (long long)(l->first + (l->reverse ? l->trip - 1 : 0)))),
             l->o->in[j]);
  else if (is_arg(l->o, j, j + 1)) put_copy(b, address(b, r), l->o->in[j]);
}

static const char *carry_in(HostBody *b, const HostLoop *l, uint32_t j) {
  const char *result = address(b, l->o->out + j), *first = address(b, l->o->in[j]);
  uint32_t saved = saved_as(l, j);
  if (saved) return slice(b, l, l->o->out + saved, "i");
  if (is_arg(l->o, j, j + 1)) return result;
  if (l->trip == 1) return first;
  const char *odd = l->trip & 1 ? result : second_buffer(b, l, j),
             *even = l->trip & 1 ? second_buffer(b, l, j) : result;
  return arena_printf(b->h->m->arena, "n == 0 ? %s : n & 1 ? %s : %s", first, odd, even);
}

static const char *carry_out(HostBody *b, const HostLoop *l, uint32_t j) {
  const char *result = address(b, l->o->out + j);
  uint32_t saved = saved_as(l, j);
  if (is_arg(l->o, j, j + 1) || l->trip == 1) return result;
  if (saved)
    return arena_printf(b->h->m->arena, "n == %lld ? %s : %s", (long long)l->trip - 1, result,
                        slice(b, l, l->o->out + saved, l->reverse ? "(i - 1)" : "(i + 1)"));
  const char *odd = l->trip & 1 ? second_buffer(b, l, j) : result,
             *even = l->trip & 1 ? result : second_buffer(b, l, j);
  return arena_printf(b->h->m->arena, "n & 1 ? %s : %s", odd, even);
}

/* ---- what flies ---- */

/* In the words of those who know NCCL, or MPI. */
static void put_flight(HostBody *b, const Op *o, bool starts) {
  static const char *const kinds[OP_COUNT][2] = {
      [OP_all_reduce] = {"ncclAllReduce", "all-reduce"},
      [OP_reduce_scatter] = {"ncclReduceScatter", "reduce-scatter"},
      [OP_all_gather] = {"ncclAllGather", "all-gather"},
      [OP_all_to_all] = {"ncclSend and ncclRecv", "all-to-all"}};
  const char *const *kind = kinds[o->code];
  if (module_on_gpu(b->h->m))
    host_put(b->h,
             starts ? " /* cudaEventRecord here; %s on the stream of messages, behind that */\n"
                    : " /* cudaStreamWaitEvent: behind that %s */\n",
             kind[0]);
  else
    host_put(b->h,
             starts ? " /* the thread that communicates begins this %s */\n"
                    : " /* until that %s is over */\n",
             kind[1]);
}

static const char *ring_at(HostBody *b, const HostLoop *l, uint32_t i, const char *round) {
  Ring r = loop_ring(l->o, i);
  const char *at = plus(b, "frame", r.at);
  if (r.buffers < 2) return at;
  return arena_printf(b->h->m->arena, "%s + %s %% %lld * %lld", at, round, (long long)r.buffers,
                      (long long)r.bytes);
}

/* The slice that round `round` takes has this number. */
static const char *slice_of(HostBody *b, const HostLoop *l, const char *round) {
  Arena *a = b->h->m->arena;
  if (l->reverse) return arena_printf(a, "(%lld - %s)", (long long)(l->first + l->trip - 1), round);
  return l->first ? arena_printf(a, "(%lld + %s)", (long long)l->first, round) : round;
}

/* Starts the all-gather that round `round` waits for. */
static void put_fetch(HostBody *b, const HostLoop *l, uint32_t i, const char *round) {
  const Flight *x = &l->flights.at[i];
  const Fn *body = l->o->callee;
  const Op *o = &body->ops.at[x->op];
  Message m = message_of(body, o);
  int64_t size = elem_bytes(value_type(body, o->out)->elem);
  bool many = m.times > 1;
  host_put(b->h, "     ");
  put_flight(b, o, true);
  if (many)
    host_put(b->h, "      for (int64_t k = 0; k < %lld; k++) /* messages of %lld bytes */\n  ",
             (long long)m.times, (long long)m.bytes);
  host_call(b->h, "      ", CALL_rt_start);
  host_put(b->h, "&collectives[%u], %s", host_row(b->h->m, body, x->op),
           slice(b, l, l->o->in[x->role - 1], slice_of(b, l, round)));
  if (many) host_put(b->h, " + k * %lld", (long long)(m.send_step * size));
  host_put(b->h, ", %s", ring_at(b, l, i, round));
  if (many) host_put(b->h, " + k * %lld", (long long)(m.receive_step * size));
  host_put(b->h, ", 0);");
  put_label(b, l->o->in[x->role - 1], "\n");
}

/* Before the first round: what the first rounds wait for. */
static void put_first_fetches(HostBody *b, const HostLoop *l) {
  for (uint32_t i = 0; i < l->flights.n; i++) {
    int64_t ahead = -l->flights.at[i].rounds;
    if (ahead <= 0) continue;
    host_put(b->h, "  for (int64_t n = 0; n < %lld; n++) {\n",
             (long long)(ahead < l->trip ? ahead : l->trip));
    put_fetch(b, l, i, "n");
    host_put(b->h, "  }\n");
  }
}

static void put_fetches(HostBody *b, const HostLoop *l) {
  for (uint32_t i = 0; i < l->flights.n; i++) {
    int64_t ahead = -l->flights.at[i].rounds;
    if (ahead <= 0 || ahead >= l->trip) continue;
    host_put(b->h, "    if (n < %lld) { /* %lld round%s ahead */\n", (long long)(l->trip - ahead),
             (long long)ahead, ahead > 1 ? "s" : "");
    put_fetch(b, l, i, arena_printf(b->h->m->arena, "(n + %lld)", (long long)ahead));
    host_put(b->h, "    }\n");
  }
}

static void put_drains(HostBody *b, const HostLoop *l, const char *before) {
  for (uint32_t i = 0; i < l->flights.n; i++) {
    const Flight *x = &l->flights.at[i];
    if (x->rounds <= 0) continue;
    const Op *o = &l->o->callee->ops.at[x->op];
    host_call(b->h, before, CALL_rt_wait);
    host_put(b->h, "&collectives[%u], %lld);", host_row(b->h->m, l->o->callee, x->op),
             (long long)message_of(l->o->callee, o).times);
    put_flight(b, o, false);
  }
}

static void put_loop_inputs(HostBody *b, const HostLoop *l) {
  const Op *o = l->o;
  host_put(b->h, "    char *const into[] = {\n");
  host_call(b->h, "        ", CALL_rt_counter);
  host_put(b->h, "i),\n");
  for (uint32_t k = 0; k < o->nin; k++) {
    const char *at = k < l->carry                  ? carry_in(b, l, k)
                     : k < l->carry + l->invariant ? address(b, o->in[k])
                                                   : slice(b, l, o->in[k], "i");
    host_put(b->h, "        %s,", at);
    put_label(b, o->in[k], "\n");
  }
  for (uint32_t i = 0; i < l->flights.n; i++)
    host_put(b->h, "        %s, /* ring %u */\n", ring_at(b, l, i, "n"), i);
  host_put(b->h, "    };\n");
}

static void put_loop_outputs(HostBody *b, const HostLoop *l) {
  const Op *o = l->o;
  host_put(b->h, "    char *const from[] = {\n");
  for (uint32_t k = 0; k < o->nout; k++) {
    host_put(b->h, "        %s,", k < l->carry ? carry_out(b, l, k) : slice(b, l, o->out + k, "i"));
    put_label(b, o->out + k, "\n");
  }
  if (!o->nout) host_put(b->h, "        0,\n");
  host_put(b->h, "    };\n");
}

/* Before the first round. */
static HostLoop put_start(HostBody *b, const Op *o) {
  HostLoop l = loop_of(b->h->m, o);
  for (uint32_t k = l.carry; k < o->nout; k++)
    if (loop_continues(o, k) != NO_VALUE)
      put_copy(b, address(b, o->out + k), o->in[loop_continues(o, k)]);
  for (uint32_t j = 0; j < l.carry; j++) put_carry_start(b, &l, j);
  put_first_fetches(b, &l);
  return l;
}

/* Round n. */
static void put_round(HostBody *b, const HostLoop *l) {
  if (l->reverse)
    host_put(b->h, "    const int64_t i = %lld - n;\n", (long long)(l->first + l->trip - 1));
  else if (l->first) host_put(b->h, "    const int64_t i = %lld + n;\n", (long long)l->first);
  else host_put(b->h, "    const int64_t i = n;\n");
  put_fetches(b, l);
  put_loop_inputs(b, l);
  put_loop_outputs(b, l);
  host_put(b->h, "    body_%s(rt, ", host_c_name(b->h, l->o->callee->name));
  for (Tier t = 0; t < b->h->tiers; t++) host_put(b->h, "%s, ", work_at(b, l->o, t));
  host_put(b->h, "into, from);\n");
  put_drains(b, l, "    if (n > 0) ");
  host_put(b->h, "  }\n");
}

static void put_source(HostBody *b, const Op *o) {
  const char *source = host_source(b->h, o->loc);
  host_comment(b->h, arena_printf(b->h->m->arena, "%s%s", *source ? ", " : "", source));
  host_put(b->h, " */\n");
}

static void put_loop(HostBody *b, const Op *o) {
  HostLoop l = put_start(b, o);
  host_put(b->h, "  for (int64_t n = 0; n < %lld; n++) { /* %s", (long long)l.trip, l.dim);
  put_source(b, o);
  put_round(b, &l);
  put_drains(b, &l, "  ");
}

/* ---- loops whose rounds take turns (ir/turns.h) ---- */

/* The round of one loop, as the branch that takes it. */
static void put_turn(HostBody *b, const TurnLoops *t, int loop, const HostLoop *rounds) {
  static const struct {
    const char *counter, *what;
  } words[] = {{"ahead", "forward of the next part"},
               {"back", "backward of the oldest part in flight"},
               {"done", "gradients of weights, of the oldest part that waits for them"}};
  host_put(b->h, "{ /* %s", words[loop].what);
  put_source(b, &b->f->ops.at[t->loop[loop]]);
  host_put(b->h, "    const int64_t n = %s++;\n", words[loop].counter);
  put_round(b, rounds);
}

/* The chunk that is next. */
static void put_chunk_turns(HostBody *b, const TurnLoops *t, const HostLoop *rounds) {
  host_put_next_chunk(b->h, &t->table);
  for (int i = 0; i < t->n; i++) {
    host_put(b->h, "    case %d: { /* %s of chunk %lld", i,
             turn_kind(&t->table, i) == TURN_FORWARD ? "forward" : "backward",
             (long long)turn_chunk(&t->table, i));
    put_source(b, &b->f->ops.at[t->loop[i]]);
    host_put(b->h, "    const int64_t n = over[%d]++;\n", i);
    put_round(b, &rounds[i]);
    host_put(b->h, "    break;\n");
  }
  host_put(b->h, "    }\n  }\n");
}

static void put_two_or_three(HostBody *b, const TurnLoops *t, const HostLoop *rounds) {
  long long parts = t->table.parts;
  host_put(b->h, "  for (int64_t ahead = 0, back = 0%s; %s < %lld;)\n",
           t->n > 2 ? ", done = 0" : "", t->n > 2 ? "done" : "back", parts);
  if (t->n > 2) {
    host_put(b->h, "  if (back == %lld || back - done > table[stage].waiting) ", parts);
    put_turn(b, t, TURN_WEIGHTS, &rounds[TURN_WEIGHTS]);
    host_put(b->h, "  else ");
  } else {
    host_put(b->h, "  ");
  }
  host_put(b->h, "if (ahead < %lld && ahead - back < table[stage].in_flight) ", parts);
  put_turn(b, t, TURN_FORWARD, &rounds[TURN_FORWARD]);
  host_put(b->h, "  else ");
  put_turn(b, t, TURN_BACKWARD, &rounds[TURN_BACKWARD]);
}

static void put_turns(HostBody *b, const TurnLoops *t) {
  HostLoop rounds[TURN_LOOPS];
  host_put(b->h, "  {\n");
  host_put_turn_table(b->h, &t->table, attr_str(&b->f->ops.at[t->loop[0]].attrs, ATTR_axis, ""));
  for (int i = 0; i < t->n; i++) rounds[i] = put_start(b, &b->f->ops.at[t->loop[i]]);
  if (turns_interleave(&t->table)) put_chunk_turns(b, t, rounds);
  else put_two_or_three(b, t, rounds);
  for (int i = 0; i < t->n; i++) put_drains(b, &rounds[i], "  ");
  host_put(b->h, "  }\n");
}

/* ---- ranks ---- */

static void put_message(HostBody *b, const char *at, int64_t step, int64_t size, ValueId v) {
  host_put(b->h, "             %s", at);
  if (step) host_put(b->h, " + i * %lld", (long long)(step * size));
  host_put(b->h, ",");
  put_label(b, v, "\n");
}

/* What the loop has started for this round is waited for alone. */
static void put_collective(HostBody *b, const Op *o) {
  if (attr_int(&o->attrs, ATTR_flight, 0) < 0) return;
  OpId id = (OpId)(o - b->f->ops.at);
  Message x = message_of(b->f, o);
  int64_t size = elem_bytes(value_type(b->f, o->out)->elem);
  bool many = x.times > 1, works = attr_int(&o->attrs, ATTR_workspace, 0) != 0;
  if (op_flies(o)) host_put(b->h, " "), put_flight(b, o, true);
  if (many)
    host_put(b->h, "  for (int64_t i = 0; i < %lld; i++) /* messages of %lld bytes */\n  ",
             (long long)x.times, (long long)x.bytes);
  host_call(b->h, "  ", op_flies(o) ? CALL_rt_start : CALL_rt_collect);
  host_put(b->h, "&collectives[%u],", host_row(b->h->m, b->f, id));
  put_place(b, o);
  host_put(b->h, "\n");
  if (o->nin) put_message(b, address(b, o->in[0]), many ? x.send_step : 0, size, o->in[0]);
  else host_put(b->h, "             0, /* nothing is sent */\n");
  put_message(b, address(b, o->out), many ? x.receive_step : 0, size, o->out);
  host_put(b->h, "             %s);\n", works ? work_at(b, o, TIER_device) : "0");
}

static void put_wait(HostBody *b, const Op *o) {
  const Op *start = flight_start(b->f, o);
  if (!start) bug("host: a wait of %s for nothing", b->f->name);
  host_call(b->h, "  ", CALL_rt_wait);
  host_put(b->h, "&collectives[%u], %lld);", host_row(b->h->m, b->f, (OpId)(start - b->f->ops.at)),
           (long long)message_of(b->f, start).times);
  put_label(b, o->out, "");
  put_flight(b, start, false);
}

/* ---- between memories ---- */

static void put_move(HostBody *b, const Op *o) {
  bool up = value_type(b->f, o->out)->tier == TIER_device;
  host_call(b->h, "  ", CALL_rt_move);
  host_put(b->h, "%s, %s, %lld, %s);", address(b, o->out), address(b, o->in[0]),
           (long long)value_bytes(b, o->in[0]), up ? "true" : "false");
  put_label(b, o->in[0], "\n");
}

/* ---- stores ---- */

static void put_store(HostBody *b, const Op *o) {
  const Storage *s = &value(b, o->in[0])->storage;
  if (s->place == PLACE_GLOBAL && b->h->m->globals.at[s->slot] == o->global && s->at == 0) return;
  put_copy(b, plus(b, arena_word(global_arena(o->global)), o->global->storage.at), o->in[0]);
}

/* ---- functions ---- */

static bool touches(const HostBody *b, GlobalArena arena) {
  for (ValueId v = 0; v < b->f->values.n; v++) {
    const Storage *s = &value(b, v)->storage;
    if (s->place == PLACE_GLOBAL && global_arena(b->h->m->globals.at[s->slot]) == arena)
      return true;
  }
  for (OpId i = 0; i < b->f->ops.n; i++)
    if (b->f->ops.at[i].code == OP_store && global_arena(b->f->ops.at[i].global) == arena)
      return true;
  return false;
}

/* Even a body without a frame of its own is handed one. */
static bool has_loop(const Fn *f) {
  for (OpId i = 0; i < f->ops.n; i++)
    if (f->ops.at[i].code == OP_loop) return true;
  return false;
}

static void put_arenas(HostBody *b) {
  for (GlobalArena a = 0; a < IN_ARENAS; a++)
    if (touches(b, a))
      host_put(b->h, "  char *const %s = rt->arena[%s];\n", arena_word(a), arena_constant(a));
  for (Tier t = 0; t < b->h->tiers && b->f->kind == FN_ENTRY; t++)
    if (attr_int(&b->f->attrs, tier_frame(t), 0) || has_loop(b->f))
      host_put(b->h, "  char *const %s = rt->arena[%s];\n", frame_word(t),
               arena_constant(arena_of_frames(t)));
}

static void put_head(HostBody *b) {
  const char *name = host_c_name(b->h, b->f->name);
  long long frame = (long long)attr_int(&b->f->attrs, ATTR_frame, 0),
            live = (long long)attr_int(&b->f->attrs, ATTR_live, 0);
  host_put(b->h, "\n/* %s: %lld bytes of work, at least %lld needed at once */\n", b->f->name,
           frame, live);
  if (b->f->kind == FN_ENTRY) host_put(b->h, "static void run_%s(rt_ctx *rt) {\n", name);
  else {
    host_put(b->h, "static void body_%s(rt_ctx *rt, ", name);
    for (Tier t = 0; t < b->h->tiers; t++) host_put(b->h, "char *%s, ", frame_word(t));
    host_put(b->h, "char *const *in, char *const *out) {\n  (void)rt, ");
    for (Tier t = 0; t < b->h->tiers; t++) host_put(b->h, "(void)%s, ", frame_word(t));
    host_put(b->h, "(void)in, (void)out;\n");
  }
}

void host_function(HostWriter *h, const Fn *f) {
  HostBody b = {.h = h, .f = f};
  number_values(&b);
  put_head(&b);
  put_arenas(&b);
  if (f->kind == FN_ENTRY) host_put(h, "  (void)rt;\n");
  for (OpId i = 0; i < f->ops.n; i++) {
    const Op *o = &f->ops.at[i];
    TurnLoops t;
    if (turns_begin(f, i, &t)) put_turns(&b, &t), i = turns_end(&t);
    else if (o->code == OP_kernel) put_kernel(&b, o);
    else if (o->code == OP_loop) put_loop(&b, o);
    else if (o->code == OP_store) put_store(&b, o);
    else if (op_family(o->code) == FAMILY_COLLECTIVE) put_collective(&b, o);
    else if (o->code == OP_wait) put_wait(&b, o);
    else if (o->code == OP_move) put_move(&b, o);
  }
  host_put(h, "}\n");
}
