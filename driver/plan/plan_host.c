/* Part of `shardc plan`: the memory of the host, and the copies between it and the device. The text
   shows the class of ranks that has the most host memory, JSON all classes; JSON also has the
   messages of each class, of which `communication` has the most of any. */
#include "plan_report.h"
#include "ir/plan/stage_class.h"
#include "ir/schedule/send_order.h"

typedef struct HostPart {
  const char *key, *name;
  int64_t bytes;
} HostPart;

/* = optimizer 3.00 MiB + working 1.00 MiB */
static void say_sum(Sheet *sheet, bool shown, const char *key, const HostPart *part, int n) {
  const char *sign = "=";
  for (int i = 0; i < n; i++) {
    bool any = shown && part[i].bytes;
    sheet_say_if(sheet, any, " {} {} {*.*}", as_text(sign), as_text(part[i].name), as_text(key),
                 as_text(part[i].key), as_bytes((double)part[i].bytes));
    if (any) sign = "+";
  }
}

void plan_moves(Sheet *sheet, bool shown, const char *words, const Moves *moves) {
  sheet_say_if(sheet, shown,
               "  {} copies {moved_per_step.down} to the host and {moved_per_step.up} to the "
               "device, in {moved_per_step.copies} copies\n",
               as_text(words), as_bytes(moves->down), as_bytes(moves->up), as_count(moves->calls));
}

/* in the host's memory, the same memory, 4.00 MiB
     = optimizer 3.00 MiB + working 1.00 MiB */
static void say_host(Sheet *sheet, const Planned *planned, const Module *m, bool shown) {
  HostBudget host = module_host(m);
  Moves moves = module_moves(m);
  const HostPart parts[] = {
      {"weights", "weights", host.weights},       {"gradients", "gradients", host.gradients},
      {"optimizer", "optimizer", host.optimizer}, {"saved", "saved", host.saved},
      {"working", "working", host.working},       {"snapshot", "snapshot", host.snapshot}};
  const char *class = planned->programs.n < 2 ? "" : module_class_name(m);
  shown = shown && host.total;
  sheet_say_if(sheet, shown, "in the host's memory, {}{host.total}{}{}\n ",
               as_text(planned->need.apart ? "" : "the same memory, "),
               as_bytes((double)host.total), as_text(*class ? " on a rank of " : ""),
               as_text(class));
  say_sum(sheet, shown, "host", parts, COUNT_OF(parts));
  sheet_say_if(sheet, shown, "\n");
  plan_moves(sheet, shown, "a step", &moves);
}

/* host, pinned     1.04 MiB  = view 12.00 KiB + window 1.00 MiB + next inputs 8.00 KiB */
static int64_t say_pinned(Sheet *sheet, const Module *m, bool shown) {
  Pinned pinned = module_pinned(m);
  const HostPart parts[] = {{"view", "view", pinned.view},
                            {"window", "window", pinned.window},
                            {"messages", "messages", pinned.messages},
                            {"ahead", "next inputs", pinned.ahead}};
  int64_t all = pinned_all(&pinned);
  shown = shown && all;
  sheet_say_if(sheet, shown, "host, pinned {host_pinned.total:12} ", as_bytes((double)all));
  say_sum(sheet, shown, "host_pinned", parts, COUNT_OF(parts));
  sheet_say_if(sheet, shown, "\n");
  return all;
}

/* By axis, of one entry or of two. */
static void put_sends(Sheet *sheet, const char *key, const Module *m, const Fn *entry,
                      const Fn *more) {
  sheet_open(sheet, key);
  for (int axis = 0; axis < (int)m->mesh.n; axis++) {
    Figure name = as_text(m->mesh.at[axis].name);
    double elements = 0, bytes = 0;
    const Fn *const entries[] = {entry, more};
    for (int k = 0; k < 2; k++) {
      TrafficList list = entries[k] ? entry_traffic(m, entries[k]) : (TrafficList){0};
      for (uint32_t i = 0; i < list.n; i++)
        if (list.at[i].axis == axis) elements += list.at[i].elements, bytes += list.at[i].bytes;
    }
    sheet_put(sheet, "{*.elements}{*.bytes}", name, as_count(elements), name, as_bytes(bytes));
  }
  sheet_close(sheet);
}

static void put_class(Sheet *sheet, const Planned *planned, const Module *m) {
  sheet_put(sheet, "{send_slots.count}{send_slots.bytes}", as_count((double)module_send_slots(m)),
            as_bytes((double)module_send_slot(m)));
  put_sends(sheet, "sends_per_step", m, ir_main_entry(m), NULL);
  if (!plan_freezes(planned)) return;
  put_sends(sheet, "sends_per_frozen_step", m, module_later_step(m), NULL);
  put_sends(sheet, "sends_at_freeze", m, module_phase(m, PHASE_derive),
            module_phase(m, PHASE_freeze));
  const Fn *thaw = module_phase(m, PHASE_thaw);
  if (thaw) put_sends(sheet, "sends_at_renewal", m, thaw, NULL);
}

void topic_host(Sheet *sheet, const Planned *planned) {
  int64_t pinned = 0, has = planned->machine.host;
  for (uint32_t i = 0; i < planned->programs.n; i++) {
    const Module *m = planned->programs.at[i];
    bool shown = m == planned->hosting;
    sheet_open(sheet, arena_printf(planned->m->arena, "classes.%u", i));
    put_class(sheet, planned, m);
    say_host(sheet, planned, m, shown);
    int64_t own = say_pinned(sheet, m, shown);
    if (shown) pinned = own;
    sheet_close(sheet);
  }
  if (has)
    sheet_say_if(sheet, pinned, "host, in all {host_bytes:12}  of {host_capacity} for a rank\n",
                 as_bytes((double)(pinned + planned->host.total)), as_bytes((double)has));
  else if (pinned && planned->host.total)
    sheet_say(sheet, "host: its machine does not say how much memory there is\n");
}
