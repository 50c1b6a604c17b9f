/* Host writer: loops, round by round or in the turns of a schedule.

   A body gets its frame, the addresses of its arguments in[] (in[0]: the loop counter) and of its
   results out[]. A loop computes both for each round: invariant addresses, base + i * stride for
   stacked ones, and for carried values
     - the same address in every round when the body updates them in place;
     - the slices of a saved result, when the body saves its argument: round i reads slice i, writes
       the next one;
     - otherwise two buffers in turn, chosen so that the last round writes the loop's result.
   A result that continues an operand has its buffer, or begins with a copy of it.

   For messages that cross rounds (flight.h), the loop starts an all-gather for a later round, and
   waits for the reduce-scatter of the previous one; the round finds its buffer of each ring after
   its arguments in in[]. */
#include "host_body.h"
#include "ir/schedule/flight.h"
#include "ir/schedule/message.h"

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

static int64_t step_bytes(HostBody *host, const HostLoop *loop, ValueId v) {
  const Value *x = host_value(host, v);
  return x->storage.stride[type_find(&x->type, loop->dim)] * elem_bytes(x->type.elem);
}

/* In a stack of these rounds only, slice 0 is the first round's. */
static const char *slice(HostBody *host, const HostLoop *loop, ValueId v, const char *index) {
  int64_t step = step_bytes(host, loop, v),
          begin = loop_base(loop->o, value_type(host->f, v)) * step;
  int64_t slots = loop_slots(loop->o, value_type(host->f, v));
  Arena *arena = host->h->m->arena;
  if (slots)
    return arena_printf(arena, "%s + %s %% %lld * %lld", host_address(host, v), index,
                        (long long)slots, (long long)step);
  const char *at =
      arena_printf(arena, "%s + %s * %lld", host_address(host, v), index, (long long)step);
  return begin ? arena_printf(arena, "%s - %lld", at, (long long)-begin) : at;
}

static const char *second_buffer(HostBody *host, const HostLoop *loop, uint32_t j) {
  int64_t at = loop_second_at(loop->o, j);
  return host_plus(host, host_frame_word(host_value(host, loop->o->out + j)->type.tier),
                   at < 0 ? 0 : at);
}

/* Prepares carried value j before the first round. */
static void put_carry_start(HostBody *host, const HostLoop *loop, uint32_t j) {
  uint32_t saved = loop_saved(loop->o, j);
  ValueId r = loop->o->out + j;
  if (saved)
    host_put_copy(
        host,
        slice(host, loop, loop->o->out + saved,
              arena_printf(host->h->m->arena, "%lld",
                           (long long)(loop->first + (loop->reverse ? loop->trip - 1 : 0)))),
        loop->o->in[j]);
  else if (loop_returns_arg(loop->o, j, j + 1))
    host_put_copy(host, host_address(host, r), loop->o->in[j]);
}

static const char *carry_in(HostBody *host, const HostLoop *loop, uint32_t j) {
  const char *result = host_address(host, loop->o->out + j),
             *first = host_address(host, loop->o->in[j]);
  uint32_t saved = loop_saved(loop->o, j);
  if (saved) return slice(host, loop, loop->o->out + saved, "i");
  if (loop_returns_arg(loop->o, j, j + 1)) return result;
  if (loop->trip == 1) return first;
  const char *odd = loop->trip & 1 ? result : second_buffer(host, loop, j),
             *even = loop->trip & 1 ? second_buffer(host, loop, j) : result;
  return arena_printf(host->h->m->arena, "n == 0 ? %s : n & 1 ? %s : %s", first, odd, even);
}

static const char *carry_out(HostBody *host, const HostLoop *loop, uint32_t j) {
  const char *result = host_address(host, loop->o->out + j);
  uint32_t saved = loop_saved(loop->o, j);
  if (loop_returns_arg(loop->o, j, j + 1) || loop->trip == 1) return result;
  if (saved)
    return arena_printf(
        host->h->m->arena, "n == %lld ? %s : %s", (long long)loop->trip - 1, result,
        slice(host, loop, loop->o->out + saved, loop->reverse ? "(i - 1)" : "(i + 1)"));
  const char *odd = loop->trip & 1 ? second_buffer(host, loop, j) : result,
             *even = loop->trip & 1 ? result : second_buffer(host, loop, j);
  return arena_printf(host->h->m->arena, "n & 1 ? %s : %s", odd, even);
}

static const char *ring_at(HostBody *host, const HostLoop *loop, uint32_t i, const char *round) {
  Ring r = loop_ring(loop->o, i);
  const char *at = host_plus(host, "frame", r.at);
  if (r.buffers < 2) return at;
  return arena_printf(host->h->m->arena, "%s + %s %% %lld * %lld", at, round, (long long)r.buffers,
                      (long long)r.bytes);
}

/* The slice that round `round` takes has this number. */
static const char *slice_of(HostBody *host, const HostLoop *loop, const char *round) {
  Arena *arena = host->h->m->arena;
  if (loop->reverse)
    return arena_printf(arena, "(%lld - %s)", (long long)(loop->first + loop->trip - 1), round);
  return loop->first ? arena_printf(arena, "(%lld + %s)", (long long)loop->first, round) : round;
}

/* Starts the all-gather that round `round` waits for. */
static void put_fetch(HostBody *host, const HostLoop *loop, uint32_t i, const char *round) {
  const Flight *flight = &loop->flights.at[i];
  const Fn *body = loop->o->callee;
  const Op *o = &body->ops.at[flight->op];
  Message message = message_of(body, o);
  int64_t size = elem_bytes(value_type(body, o->out)->elem);
  bool many = message.times > 1;
  host_put_tokens(host->h, "      ", o, round);
  host_put(host->h, "     ");
  host_put_flight(host, o, true);
  if (many)
    host_put(host->h, "      for (int64_t k = 0; k < %lld; k++) /* messages of %lld bytes */\n  ",
             (long long)message.times, (long long)message.bytes);
  host_call(host->h, "      ", CALL_rt_start);
  host_put(host->h, "&collectives[%u], %s", host_row(host->h->m, body, flight->op),
           slice(host, loop, loop->o->in[flight->role - 1], slice_of(host, loop, round)));
  if (many) host_put(host->h, " + k * %lld", (long long)(message.send_step * size));
  host_put(host->h, ", %s", ring_at(host, loop, i, round));
  if (many) host_put(host->h, " + k * %lld", (long long)(message.receive_step * size));
  host_put(host->h, ", 0);");
  host_put_label(host, loop->o->in[flight->role - 1], "\n");
}

/* Before the first round: what the first rounds wait for. */
static void put_first_fetches(HostBody *host, const HostLoop *loop) {
  for (uint32_t i = 0; i < loop->flights.n; i++) {
    int64_t ahead = -loop->flights.at[i].rounds;
    if (ahead <= 0) continue;
    host_put(host->h, "  for (int64_t n = 0; n < %lld; n++) {\n",
             (long long)(ahead < loop->trip ? ahead : loop->trip));
    put_fetch(host, loop, i, "n");
    host_put(host->h, "  }\n");
  }
}

static void put_fetches(HostBody *host, const HostLoop *loop) {
  for (uint32_t i = 0; i < loop->flights.n; i++) {
    int64_t ahead = -loop->flights.at[i].rounds;
    if (ahead <= 0 || ahead >= loop->trip) continue;
    host_put(host->h, "    if (n < %lld) { /* %lld round%s ahead */\n",
             (long long)(loop->trip - ahead), (long long)ahead, ahead > 1 ? "s" : "");
    put_fetch(host, loop, i, arena_printf(host->h->m->arena, "(n + %lld)", (long long)ahead));
    host_put(host->h, "    }\n");
  }
}

static void put_drains(HostBody *host, const HostLoop *loop, const char *before) {
  for (uint32_t i = 0; i < loop->flights.n; i++) {
    const Flight *flight = &loop->flights.at[i];
    if (flight->rounds <= 0) continue;
    const Op *o = &loop->o->callee->ops.at[flight->op];
    host_call(host->h, before, CALL_rt_wait);
    host_put(host->h, "&collectives[%u], %lld);", host_row(host->h->m, loop->o->callee, flight->op),
             (long long)message_of(loop->o->callee, o).times);
    host_put_flight(host, o, false);
  }
}

static void put_loop_inputs(HostBody *host, const HostLoop *loop) {
  const Op *o = loop->o;
  host_put(host->h, "    char *const into[] = {\n");
  host_call(host->h, "        ", CALL_rt_counter);
  host_put(host->h, "i),\n");
  for (uint32_t k = 0; k < o->nin; k++) {
    const char *at = k < loop->carry                     ? carry_in(host, loop, k)
                     : k < loop->carry + loop->invariant ? host_address(host, o->in[k])
                                                         : slice(host, loop, o->in[k], "i");
    host_put(host->h, "        %s,", at);
    host_put_label(host, o->in[k], "\n");
  }
  for (uint32_t i = 0; i < loop->flights.n; i++)
    host_put(host->h, "        %s, /* ring %u */\n", ring_at(host, loop, i, "n"), i);
  host_put(host->h, "    };\n");
}

static void put_loop_outputs(HostBody *host, const HostLoop *loop) {
  const Op *o = loop->o;
  host_put(host->h, "    char *const from[] = {\n");
  for (uint32_t k = 0; k < o->nout; k++) {
    host_put(host->h, "        %s,",
             k < loop->carry ? carry_out(host, loop, k) : slice(host, loop, o->out + k, "i"));
    host_put_label(host, o->out + k, "\n");
  }
  if (!o->nout) host_put(host->h, "        0,\n");
  host_put(host->h, "    };\n");
}

/* Before the first round. */
static HostLoop put_start(HostBody *host, const Op *o) {
  HostLoop loop = loop_of(host->h->m, o);
  host_put_tokens(host->h, "  ", o, "round");
  for (uint32_t k = loop.carry; k < o->nout; k++)
    if (loop_continues(o, k) != NO_VALUE)
      host_put_copy(host, host_address(host, o->out + k), o->in[loop_continues(o, k)]);
  for (uint32_t j = 0; j < loop.carry; j++) put_carry_start(host, &loop, j);
  put_first_fetches(host, &loop);
  return loop;
}

/* Round n. */
static void put_round(HostBody *host, const HostLoop *loop) {
  if (loop->reverse)
    host_put(host->h, "    const int64_t i = %lld - n;\n",
             (long long)(loop->first + loop->trip - 1));
  else if (loop->first)
    host_put(host->h, "    const int64_t i = %lld + n;\n", (long long)loop->first);
  else host_put(host->h, "    const int64_t i = n;\n");
  put_fetches(host, loop);
  put_loop_inputs(host, loop);
  put_loop_outputs(host, loop);
  host_put(host->h, "    body_%s(rt, ", host_c_name(host->h, loop->o->callee->name));
  for (Tier t = 0; t < host->h->tiers; t++)
    host_put(host->h, "%s, ", host_work_at(host, loop->o, t));
  host_put(host->h, "n, into, from);\n");
  put_drains(host, loop, "    if (n > 0) ");
  host_put(host->h, "  }\n");
}

static void put_source(HostBody *host, const Op *o) {
  const char *source = host_source(host->h, o->loc);
  host_comment(host->h, arena_printf(host->h->m->arena, "%s%s", *source ? ", " : "", source));
  host_put(host->h, " */\n");
}

/* Under `gpipe` the rounds of two loops are the turns of the schedule. */
void host_put_loop(HostBody *host, const Op *o, const ScheduleLoops *schedule) {
  HostLoop loop = put_start(host, o);
  int turn = schedule_loop_number(schedule, (OpId)(o - host->f->ops.at));
  host_put(host->h, "  for (int64_t n = 0; n < %lld; n++) { /* %s", (long long)loop.trip, loop.dim);
  put_source(host, o);
  if (turn >= 0) host_put_turn(host->h, &schedule->table, turn);
  put_round(host, &loop);
  if (turn >= 0) host_put_turns_end(host->h);
  put_drains(host, &loop, "  ");
}

/* ---- loops whose rounds take turns (ir/schedule/pipeline_schedule.h) ---- */

/* The round of one loop, as the branch that takes it. */
static void put_turn(HostBody *host, const ScheduleLoops *loops, int loop, const HostLoop *rounds) {
  static const struct {
    const char *counter, *what;
  } words[] = {{"ahead", "forward of the next part"},
               {"back", "backward of the oldest part in flight"},
               {"done", "gradients of weights, of the oldest part that waits for them"}};
  host_put(host->h, "{ /* %s", words[loop].what);
  put_source(host, &host->f->ops.at[loops->loop[loop]]);
  host_put(host->h, "    const int64_t n = %s++;\n", words[loop].counter);
  host_put_turn(host->h, &loops->table, loop);
  put_round(host, rounds);
}

/* The chunk that is next. */
static void put_chunk_turns(HostBody *host, const ScheduleLoops *loops, const HostLoop *rounds) {
  host_put_next_chunk(host->h, &loops->table);
  for (int i = 0; i < loops->n; i++) {
    host_put(host->h, "    case %d: { /* %s of chunk %lld", i,
             schedule_loop_kind(&loops->table, i) == TURN_FORWARD ? "forward" : "backward",
             (long long)schedule_loop_chunk(&loops->table, i));
    put_source(host, &host->f->ops.at[loops->loop[i]]);
    host_put(host->h, "    const int64_t n = over[%d]++;\n", i);
    host_put_turn(host->h, &loops->table, i);
    put_round(host, &rounds[i]);
    host_put(host->h, "    break;\n");
  }
  host_put(host->h, "    }\n  }\n");
}

static void put_two_or_three(HostBody *host, const ScheduleLoops *loops, const HostLoop *rounds) {
  long long parts = loops->table.parts;
  host_put(host->h, "  for (int64_t ahead = 0, back = 0%s; %s < %lld;)\n",
           loops->n > 2 ? ", done = 0" : "", loops->n > 2 ? "done" : "back", parts);
  if (loops->n > 2) {
    host_put(host->h, "  if (back == %lld || back - done > table[stage].waiting) ", parts);
    put_turn(host, loops, TURN_WEIGHTS, &rounds[TURN_WEIGHTS]);
    host_put(host->h, "  else ");
  } else {
    host_put(host->h, "  ");
  }
  host_put(host->h, "if (ahead < %lld && ahead - back < table[stage].in_flight) ", parts);
  put_turn(host, loops, TURN_FORWARD, &rounds[TURN_FORWARD]);
  host_put(host->h, "  else ");
  put_turn(host, loops, TURN_BACKWARD, &rounds[TURN_BACKWARD]);
}

void host_put_loops_in_turn(HostBody *host, const ScheduleLoops *loops) {
  HostLoop rounds[TURN_LOOPS];
  host_put(host->h, "  {\n");
  host_put_turn_table(host->h, &loops->table,
                      attr_str(&host->f->ops.at[loops->loop[0]].attrs, ATTR_axis, ""));
  for (int i = 0; i < loops->n; i++) rounds[i] = put_start(host, &host->f->ops.at[loops->loop[i]]);
  if (schedule_has_chunks(&loops->table)) put_chunk_turns(host, loops, rounds);
  else put_two_or_three(host, loops, rounds);
  host_put_turns_end(host->h);
  for (int i = 0; i < loops->n; i++) put_drains(host, &rounds[i], "  ");
  host_put(host->h, "  }\n");
}
