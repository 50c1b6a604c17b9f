/* Rows of arch.def: what a machine of an arch publishes, and what programs reach of it. */
#ifndef SHARDC_ARCH_H
#define SHARDC_ARCH_H
#include <stdbool.h>

typedef struct Arch {
  const char *name, *words, *as;
  double f32, tf32, bf16, f16; /* operations per second at most; 0: it has no such products */
  double hbm, intra, pcie;     /* bytes per second */
  int processors;              /* multiprocessors of a GPU; 0: a core */
  int rows, columns;           /* of the tile of a product that one of them computes */
  int widest;                  /* .. which may have up to that number of columns; 0: no more */
  double ramp;                 /* the ends of a tile take as long as this number of terms */
  double products, attention;  /* share of the peak, without the ends of tiles */
  struct { /* products whose operands are filled by bulk copies; 0: the arch has none */
    double products, ramp; /* the same two of these */
    double leave;          /* their ramp, if results leave by bulk copies as well, and */
    double element;        /* .. terms more for each element that comes so (a residual) */
  } bulk;
  struct { /* attention by warpgroups, by a model (attention_time.h); 0: the arch has none */
    double products, unit; /* share of the peak of its products; that by which its work is counted,
                              so that `attention` times `reached` applies to all kernels */
  } groups;
  double function, packing; /* operations of a product in whose time a function of a number (exp)
                               is computed: of a processor, or in products by warpgroups, which do
                               nothing else meanwhile; a number of a left operand is packed */
  double joined;  /* of a rank of processors with several threads: share of the time in which they
                    compute; they wait for the slowest one after each kernel */
  double balance; /* of several ranks of processors: share of the time of kernels and of waits for
                     the slowest rank that kernels take; of a forecast: that its rates include */
  double memory;  /* share of hbm */
  double apart;   /* how often bytes of other kernels than these are moved: 1, if
                                      programs fuse as much as those of this compiler */
  double scores;  /* bytes moved for each score of attention; 0: none are stored */
  double pack, unpack;             /* bytes moved in addition for each number whose sign a kernel
                                      packs, unpacks: 0, if that is done in the kernel */
  double launch;                   /* seconds from one kernel to the next */
  double intra_share, inter_share; /* share of the links of a long message */
  double out;                      /* bytes per second to other nodes for each GPU; 0: no limit */
  double rail; /* .. of a ring that reduces, scatters or gathers: one network card; 0: no limit */
  double pcie_share, dram_share;
  int on_switch; /* GPUs that share the PCIe link of a switch; 0: each has its own */
  /* With gradients on the host a step does one thing after the other: the kernels' stream copies
     gradients of each micro-batch, and adds them on the GPU to the sum so far, which it copies from
     the host; the last ones are f32. The host takes their norm and scales them, updates, and copies
     parameters meanwhile. */
  bool offload_in_turn;
  double hop_inside, hop_between; /* seconds of a hop of a message, in a node and between nodes */
  double error, error_of_ranks;   /* expected, of the forecast of a step of one rank, of several */
  const char *checked;            /* by what: words; NULL: by nothing, its shares are guesses */
  bool ranks_checked;             /* .. also of several ranks: messages are no guesses */
} Arch;

const Arch *arch_find(const char *name); /* NULL: there is no such row */
double arch_peak(const Arch *arch, const char *precision);
/* "sm_70 (V100 SXM)" is no target: programs for it cannot be compiled. */
bool arch_only_planned(const Arch *arch);
#endif
