/* Part of `shardc plan`: the memory of a rank on its device, by purpose; of classes of ranks
   (stage_class.h) a column for each, in JSON a list. One class, all ranks alike, has shares of the
   whole instead. */
#include "plan_report.h"
#include "ir/plan/stage_class.h"
#include "ir/schedule/send_order.h"
#include "ir/shape/placement.h"
#include "runtime/base/recorder.h"

void plan_parts(const Planned *planned, const Budget *b, PlanPart out[PLAN_PARTS]) {
  const PlanPart parts[PLAN_PARTS] = {{"weights", b->weights},
                                      {"gradients", b->gradients},
                                      {"optimizer", b->optimizer},
                                      {"saved", b->saved},
                                      {"working", b->working},
                                      {"buffers", b->buffers},
                                      {"reserve", planned->machine.reserve}};
  memcpy(out, parts, sizeof parts);
}

static int64_t all_bytes(const Planned *planned, uint32_t class) {
  return planned->class[class].need.total + planned->machine.reserve;
}

static void say_total(Sheet *sheet, const Planned *planned, const char *template) {
  bool known = planned->machine.memory;
  sheet_say(sheet, "  {:-10}", as_text("total"));
  for (uint32_t i = 0; i < planned->programs.n; i++)
    sheet_say(sheet, template, as_count(i), as_bytes((double)all_bytes(planned, i)));
  if (known) sheet_say(sheet, "  of {capacity:-}: ", as_bytes((double)planned->machine.memory));
  sheet_say_if(sheet, known, "{fits}", as_flag(planned->fits, "fits", "does not fit"));
  sheet_say(sheet, "\n");
}

static void say_alike(Sheet *sheet, const Planned *planned) {
  const PlannedClass *class = &planned->class[0];
  PlanPart parts[PLAN_PARTS];
  plan_parts(planned, &class->need, parts);
  sheet_heads(sheet, EVERYWHERE,
              mesh_ranks(planned->m) == 1 ? "bytes of the rank" : "bytes of each rank");
  for (int i = 0; i < PLAN_PARTS; i++) {
    double bytes = (double)parts[i].bytes;
    sheet_say(sheet, "  {:-10} {classes.0.bytes.*:12}  {:7}{:-}\n", as_text(parts[i].name),
              as_text(parts[i].name), as_bytes(bytes),
              as_share(bytes / (double)all_bytes(planned, 0)),
              as_text(plan_formula(planned->m, i, parts[i].bytes)));
  }
  say_total(sheet, planned, " {classes.*.bytes.total:12}");
  sheet_say_if(sheet, class->need.sampling, "  to sample, {classes.0.sampling} more\n",
               as_bytes((double)class->need.sampling));
  sheet_put(sheet, "{classes.0.flop_per_step}", as_flop(class->flop));
}

/* ---- classes of ranks ---- */

/* The numbers of layers of stages of a class, if they differ: 3, 3, 2 */
static const char *layers_text(Module *m) {
  StageClass class = module_class(m);
  const char *text = "";
  bool alike = stage_layers(m, class.first) == stage_layers(m, class.last);
  for (int64_t s = class.first; s <= (alike ? class.first : class.last); s++)
    text = arena_list(m->arena, text, "%lld", (long long)stage_layers(m, s));
  return text;
}

/* For `uneven`: FLOP of the slowest stage, and of the slowest stage in the best partition of the
   layers. */
static void say_stage_flop(Sheet *sheet, const Module *m) {
  double slowest, least;
  Str text = module_setting(m, "made.stage_flop", NULL);
  if (!text || sscanf(text, "%lf %lf", &slowest, &least) != 2) return;
  sheet_say(sheet,
            "  the slowest stage computes {stage_flop.slowest} FLOP; with any numbers of layers "
            "{stage_flop.least} at least\n",
            as_flop(slowest), as_flop(least));
}

/* A figure of each class, under this key; NULL: only as text. */
static void say_row(Sheet *sheet, const Planned *planned, const char *name, const char *key,
                    const Figure row[STAGE_CLASSES]) {
  sheet_say(sheet, "  {:-10}", as_text(name));
  for (uint32_t i = 0; i < planned->programs.n; i++)
    if (key)
      sheet_say(sheet, arena_printf(planned->m->arena, " {classes.*.%s:16}", key), as_count(i),
                row[i]);
    else sheet_say(sheet, " {:16}", row[i]);
}

/* The part of `buffers` for sends on GPUs over NCCL: 3 x 2.00 KiB */
static const char *slots_text(const Module *m) {
  return arena_printf(m->arena, "%lld x %s", (long long)module_send_slots(m),
                      arena_amount(m->arena, (double)module_send_slot(m)));
}

static void say_part(Sheet *sheet, const Planned *planned, int part) {
  Figure row[STAGE_CLASSES];
  PlanPart parts[PLAN_PARTS];
  for (uint32_t i = 0; i < planned->programs.n; i++)
    plan_parts(planned, &planned->class[i].need, parts),
        row[i] = as_bytes((double)parts[part].bytes);
  const char *name = parts[part].name;
  say_row(sheet, planned, name, arena_printf(planned->m->arena, "bytes.%s", name), row);
  sheet_say(sheet, "\n");
}

static void say_classes(Sheet *sheet, const Planned *planned) {
  Arena *arena = planned->m->arena;
  const char *heads = "bytes of a rank of";
  Figure ranks[STAGE_CLASSES], layers[STAGE_CLASSES], slots[STAGE_CLASSES], host[STAGE_CLASSES],
      sampling[STAGE_CLASSES], flop[STAGE_CLASSES];
  for (uint32_t i = 0; i < planned->programs.n; i++) {
    const PlannedClass *class = &planned->class[i];
    heads = arena_printf(arena, i ? "%s%17s" : "%s%11s", heads, class->name);
    ranks[i] = as_count((double)class->count);
    layers[i] = as_text(layers_text(planned->programs.at[i]));
    slots[i] = as_text(slots_text(planned->programs.at[i]));
    host[i] = as_bytes((double)class->need.host);
    sampling[i] = as_bytes((double)class->need.sampling), flop[i] = as_flop(class->flop);
  }
  sheet_heads(sheet, EVERYWHERE, heads);
  say_row(sheet, planned, "ranks", NULL, ranks), sheet_say(sheet, "\n");
  say_row(sheet, planned, "layers", NULL, layers), sheet_say(sheet, "\n");
  say_stage_flop(sheet, planned->m);
  for (int part = 0; part < PLAN_PARTS; part++) say_part(sheet, planned, part);
  say_total(sheet, planned, " {classes.*.bytes.total:16}");
  if (module_send_slots(planned->m))
    say_row(sheet, planned, "send slots", NULL, slots),
        sheet_say(sheet, "  {:-}\n", as_text("in buffers"));
  if (planned->host.total) say_row(sheet, planned, "host", NULL, host), sheet_say(sheet, "\n");
  say_row(sheet, planned, "to sample", "sampling", sampling), sheet_say(sheet, "\n");
  say_row(sheet, planned, "FLOP", "flop_per_step", flop), sheet_say(sheet, "\n");
}

/* The buffers alive at the peak. */
static void draw_moment(Sheet *sheet, const Planned *planned) {
  enum { LARGEST = 8 };
  static const char *const uses[] = {"working", "gradient", "saved", "buffer"};
  _Static_assert(COUNT_OF(uses) == USE_COUNT, "a word per Use");
  sheet_heads(sheet, ON_PAGE, "the largest buffers at the peak  for  bytes");
  for (uint32_t i = 0; i < planned->timeline.alive.n && i < LARGEST; i++) {
    const Alive *alive = &planned->timeline.alive.at[i];
    sheet_page(sheet, "  {:-}{:-}{:1}\n", as_text(plan_buffer(planned, alive)),
               as_text(uses[alive->use]), as_bytes((double)alive->bytes));
  }
}

/* The class that needs the most, whose memory is drawn. */
static const char *drawn_ranks(const Planned *planned) {
  for (uint32_t k = 0; k < planned->programs.n && planned->programs.n > 1; k++)
    if (planned->programs.at[k] == planned->m)
      return arena_printf(planned->m->arena, "stages `%s`, which need the most",
                          planned->class[k].name);
  int64_t ranks = mesh_ranks(planned->m);
  return ranks > 1 ? arena_printf(planned->m->arena, "ranks 0–%lld", (long long)ranks - 1)
                   : "the rank";
}

/* In the page cache of its host and on the disk of the run directory, not in its arenas. */
static void say_recorder(Sheet *sheet, const Planned *planned) {
  sheet_say_if(sheet, mesh_ranks(planned->m) > 1,
               "  flight recorder of a rank, {recorder} in the run directory\n",
               as_bytes((double)sizeof(Record)));
}

static void draw_memory(FILE *file, const void *planned) { plan_svg(file, planned); }

void topic_memory(Sheet *sheet, const Planned *planned) {
  sheet_page(sheet, "Memory over a step: {}\n", as_text(drawn_ranks(planned)));
  sheet_draw(sheet, draw_memory, planned);
  for (uint32_t i = 0; i < planned->programs.n; i++) {
    const PlannedClass *class = &planned->class[i];
    const char *layers = layers_text(planned->programs.at[i]);
    if (*class->name)
      sheet_put(sheet, "{classes.*.stages}{classes.*.layers}", as_count(i), as_text(class->name),
                as_count(i), as_json(arena_printf(planned->m->arena, "[%s]", layers)));
    sheet_put(sheet, "{classes.*.ranks}", as_count(i), as_text(class->ranks));
  }
  if (planned->programs.n > 1) say_classes(sheet, planned);
  else say_alike(sheet, planned);
  say_recorder(sheet, planned);
  draw_moment(sheet, planned);
}
