/* The machine of a forecast (forecast.h): that of the plan; what its block leaves out is what its
   arch publishes (arch.def), and rates are what programs reach. Peaks of products stay as they are:
   kernel_time.c takes their share by the shape. The line `reached` of the block has precedence over
   the shares of the arch. */
#include "forecast.h"
#include "forecast_source.h"
#include "ir/support/num.h"
#include "ir/plan/module_settings.h"
#include "ir/shape/placement.h"
#include <string.h>

/* `said`, or what the arch publishes: `all` for `ranks` of them. */
static double take(Forecast *forecast, double said, const char *words, double all, double ranks,
                   RateUnit unit) {
  if (said > 0 || all <= 0) return said;
  forecast->rate[forecast->published++] = (PublishedRate){words, all, unit};
  return all / ranks;
}

/* The row of the machine's arch; of the target if that is another one for the same machine. NULL:
   there is none, or the programs are for another kind of device than the machine has. */
static const Arch *arch_of(const Module *m, const Machine *machine) {
  const Arch *arch = arch_find(machine_arch(m)),
             *target = m->target.name ? arch_find(m->target.name) : NULL;
  if (machine->gpus != module_on_gpu(m)) return NULL;
  return target && (!arch || !strcmp(arch->words, target->words)) ? target : arch;
}

static bool crosses(const Module *m, const Machine *machine) {
  for (int i = 0; i < (int)m->mesh.n; i++)
    if (axis_crosses(m, machine, i)) return true;
  return false;
}

static void take_latency(Forecast *forecast, const Module *m, const Arch *arch) {
  Machine *machine = &forecast->machine;
  if (crosses(m, machine))
    machine->latency =
        take(forecast, machine->latency, "link latency", arch->hop_between, 1, RATE_SECONDS);
}

Machine forecast_links(const Module *m) {
  Forecast forecast = {.machine = plan_machine(m)};
  const Arch *arch = machine_arch(m) ? arch_find(machine_arch(m)) : NULL;
  if (arch && (arch->processors > 0) == forecast.machine.gpus) take_latency(&forecast, m, arch);
  return forecast.machine;
}

/* A measured rate of a link or memory whose peak the block leaves out is all that it has. */
static double said_or_reached(const Module *m, double said, const char *key, double ranks) {
  return said > 0 ? said : module_amount(m, key) / ranks;
}

static void take_rates(Forecast *forecast, const Module *m) {
  Machine *machine = &forecast->machine;
  const Arch *arch = forecast->arch;
  int64_t said = module_whole(m, "machine.node.cores");
  double cores = machine->gpus ? 1 : (double)(said > 0 ? said : m->target.workers),
         ranks = machine->gpus ? 1 : (double)machine->in_node;
  const char *type = arena_printf(m->arena, "node %s", plan_precision(m));
  double peak = cores * arch_peak(arch, plan_precision(m));
  machine->flops = take(forecast, machine->flops, type, peak, ranks, RATE_FLOP);
  machine->hbm = take(forecast, machine->hbm, "node hbm", cores * arch->hbm, ranks, RATE_BYTES);
  machine->intra = said_or_reached(m, machine->intra, "machine.reached.intra", 1);
  machine->inter = said_or_reached(m, machine->inter, "machine.reached.inter", 1);
  machine->dram =
      said_or_reached(m, machine->dram, "machine.reached.dram", (double)machine->in_node);
  if (machine->gpus && mesh_ranks(m) > 1)
    machine->intra = take(forecast, machine->intra, "link intra", arch->intra, 1, RATE_BYTES);
  if (machine->gpus) /* inputs, snapshots, data that the plan offloads */
    machine->pcie = take(forecast, machine->pcie, "host pcie", arch->pcie, 1, RATE_BYTES);
  if (machine->gpus && machine->copy <= 0)
    forecast->rate[forecast->published++] = (PublishedRate){"host latency", 0, RATE_SECONDS};
  take_latency(forecast, m, arch);
}

/* The part of `all`, which the machine has, that the line `reached` gives by this key; else
   `share`. */
static double measured(Forecast *forecast, const Module *m, const char *key, double all,
                       double share) {
  double rate = module_amount(m, key);
  if (rate <= 0 || all <= 0) return share;
  forecast->measured = arena_list(m->arena, forecast->measured, "%s", strrchr(key, '.') + 1);
  return rate / all;
}

/* Threads of a rank wait for the slowest core after each kernel, ranks in messages. Stages of a
   pipeline have different work, so which of them are slow is left to their table (step.c). Ranks
   that share cores run on whichever is free. */
static double waiting_share(Forecast *forecast, const Module *m, Arch *own, bool stages) {
  Machine *machine = &forecast->machine;
  double share = 1, balance = own->balance;
  own->balance = 1;
  if (machine->gpus || machine->on_core > 1) return share;
  if (machine->threads > 1)
    share *= measured(forecast, m, "machine.reached.joined", 1, own->joined);
  if (mesh_ranks(m) <= 1) return share;
  balance = measured(forecast, m, "machine.reached.balance", 1, balance);
  *(stages ? &machine->balance : &own->balance) = balance;
  return share * own->balance;
}

/* The shares of the arch, and what the machine block gives in place of them. */
static Arch *shares_of(Forecast *forecast, const Module *m, bool stages) {
  const Machine *machine = &forecast->machine;
  double ranks = (double)machine->in_node, in_rate = machine->gpus ? 1 : ranks;
  Arch *own = ARENA_NEW(m->arena, Arch);
  *own = *forecast->arch;
  own->products =
      measured(forecast, m, "machine.reached.products", in_rate * machine->flops, own->products);
  own->attention =
      measured(forecast, m, "machine.reached.attention", in_rate * machine->flops, own->attention);
  own->memory =
      measured(forecast, m, "machine.reached.memory", in_rate * machine->hbm, own->memory);
  own->launch = measured(forecast, m, "machine.reached.launch", 1, own->launch);
  double share = waiting_share(forecast, m, own, stages);
  own->products *= share, own->attention *= share, own->memory *= share;
  own->intra_share =
      measured(forecast, m, "machine.reached.intra", machine->intra, own->intra_share);
  double inter = measured(forecast, m, "machine.reached.inter", machine->inter, 0);
  if (inter > 0) own->inter_share = inter, own->out = own->rail = 0;
  own->pcie_share = measured(forecast, m, "machine.reached.pcie", machine->pcie, own->pcie_share);
  if (module_amount(m, "machine.reached.pcie") > 0) own->on_switch = 0; /* of each, with all */
  own->dram_share =
      measured(forecast, m, "machine.reached.dram", ranks * machine->dram, own->dram_share);
  return own;
}

/* Ranks that share a core compute while others of them wait for messages, which so take the time of
   a processor that carries them. */
static double shared_rate(const Machine *machine, double rate) {
  bool waits_hide = machine->on_core > 1 && machine->carries > rate;
  return (waits_hide ? machine->carries : rate) / machine->on_core;
}

static void reach(Machine *machine, Arch *arch) {
  double out = arch->out * (double)machine->in_node;
  machine->reach = arch;
  machine->hbm *= arch->memory;
  machine->intra = shared_rate(machine, arch->intra_share * machine->intra);
  arch->hop_inside *= machine->on_core;
  machine->inter *= arch->inter_share;
  if (out > 0 && out < machine->inter) machine->inter = out;
  machine->between *= arch->intra_share;
  if (arch->on_switch > 1) machine->pcie /= (double)min_i64(machine->in_node, arch->on_switch);
  machine->pcie *= arch->pcie_share, machine->dram *= arch->dram_share;
}

/* The line that no arch can replace; NULL: none is missing. */
static const char *missing(const Module *m, const Forecast *forecast) {
  const Machine *machine = &forecast->machine;
  if (machine->flops <= 0) return arena_printf(m->arena, "node %s", plan_precision(m));
  if (machine->hbm <= 0) return "node hbm";
  for (int i = 0; i < (int)m->mesh.n; i++)
    if (axis_crosses(m, machine, i) && machine->inter <= 0) return "link inter";
    else if (m->mesh.at[i].size > 1 && axis_rate(m, machine, i) <= 0) return "link intra";
  return NULL;
}

Forecast forecast_machine(const Module *m, bool stages) {
  Forecast forecast = {.measured = ""};
  if (!machine_arch(m)) return forecast;
  forecast.machine = plan_machine(m), forecast.arch = arch_of(m, &forecast.machine);
  if (!forecast.arch) return forecast;
  take_rates(&forecast, m);
  forecast.lacks = missing(m, &forecast);
  if (forecast.lacks) return forecast;
  reach(&forecast.machine, shares_of(&forecast, m, stages));
  double sharing = forecast.machine.gpus ? 1 : (double)forecast.machine.in_node;
  forecast.machine.records = kernel_records(m, sharing);
  forecast.machine.shapes = ARENA_NEW(m->arena, KernelShapes);
  return forecast;
}

Forecast plan_forecast(Module *const *programs, uint32_t n, const Fn *entry) {
  const Module *m = programs[0];
  if (!entry) return (Forecast){.measured = ""};
  Forecast forecast = forecast_machine(m, n > 1);
  if (!forecast.machine.reach) return forecast;
  forecast.step = plan_step_on(&forecast.machine, programs, n, entry);
  forecast.known = forecast.step.time.total > 0;
  if (!forecast.known) forecast.lacks = "host dram"; /* the only rate that nothing else gives */
  else find_sources(&forecast, m);
  return forecast;
}

void forecast_least(Machine *machine, Arch *whole) {
  *whole = *machine->reach;
  whole->processors = 0, whole->ramp = 0, whole->launch = 0, whole->packing = 0;
  if (whole->balance > 0)
    whole->products /= whole->balance, whole->attention /= whole->balance,
        machine->hbm /= whole->balance;
  machine->even = true;
  machine->reach = whole, machine->records = NULL;
}
