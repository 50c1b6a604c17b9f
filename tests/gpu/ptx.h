/* The PTX machine: runs PTX text on ordinary memory, one warp after the other, and reports its
 * faults: memory out of bounds, misaligned, never written, raced for, still in flight; barriers and
 * warp instructions reached by some threads only; deadlocks.
 *
 * A device owns memory (addresses are numbers of its own, never host pointers) and runs the kernels
 * of modules parsed for it. PTX is data: every text gives a module or an error with its line, never
 * undefined behaviour. No state outside the device.
 *
 * Must not: know a kernel, the compiler or the CUDA driver. */
#ifndef TESTS_GPU_PTX_H
#define TESTS_GPU_PTX_H
#include <stdbool.h>
#include <stdint.h>

typedef struct PtxDevice PtxDevice; /* one device: its memory, its options */
typedef struct PtxModule PtxModule;

/* Zero of a field means its default. */
typedef struct PtxOptions {
  int64_t shared_limit; /* bytes of shared memory of a CTA: 101376 */
  bool late;            /* asynchronous data arrives as late as it may, not at once */
  bool check;           /* memory never written and races; bounds are always checked */
  uint64_t seed;        /* order of CTAs and warps; 0: ascending */
  int sm;               /* 80; a module for a newer one is refused */
  uint64_t base;        /* first device address: 0x7f0000000000 */
  int64_t memory;       /* bytes of device memory: 16 GiB of addresses */
  int64_t budget;       /* instructions of warps in one launch: 2^36 */
} PtxOptions;

PtxDevice *ptx_device_new(const PtxOptions *o); /* NULL: no address space left */
void ptx_device_free(PtxDevice *d);
/* false: not a launch option that can change; `late`, `check`, `seed`, `shared_limit`, `budget` can
 */
void ptx_device_options(PtxDevice *d, const PtxOptions *o);

/* Device memory. 0 and false: it does not fit, or the range is not inside one allocation. */
uint64_t ptx_alloc(PtxDevice *d, int64_t bytes); /* counts as never written */
bool ptx_release(PtxDevice *d, uint64_t at);
bool ptx_write(PtxDevice *d, uint64_t to, const void *from, int64_t bytes);
bool ptx_read(PtxDevice *d, void *to, uint64_t from, int64_t bytes);
bool ptx_copy(PtxDevice *d, uint64_t to, uint64_t from,
              int64_t bytes); /* also copies unwritten bytes */
bool ptx_set8(PtxDevice *d, uint64_t to, uint8_t value, int64_t count);
bool ptx_set16(PtxDevice *d, uint64_t to, uint16_t value, int64_t count);
bool ptx_set32(PtxDevice *d, uint64_t to, uint32_t value, int64_t count);
/* The allocation around an address: its first byte and size. */
bool ptx_range(const PtxDevice *d, uint64_t at, uint64_t *first, int64_t *bytes);
/* The first byte of the range that nobody wrote; -1: all are written. */
int64_t ptx_unwritten(const PtxDevice *d, uint64_t at, int64_t bytes);

PtxModule *ptx_parse(PtxDevice *d, const char *text, char *error, int error_bytes);
void ptx_module_free(PtxModule *m);
const char *ptx_entry_name(const PtxModule *m, int i); /* NULL after the last */
typedef struct PtxEntry {
  int params_bytes, nparams; /* of the parameter block */
  int64_t static_shared;
  uint32_t max_threads; /* of .maxntid or .reqntid; 0: not said */
} PtxEntry;
bool ptx_entry(const PtxModule *m, const char *name, PtxEntry *out);
/* Offset and size of a parameter in the block. */
bool ptx_param(const PtxModule *m, const char *name, int i, int *offset, int *bytes);
/* Address and size of a .global or .const variable. */
bool ptx_variable(const PtxModule *m, const char *name, uint64_t *at, int64_t *bytes);

/* Tensor maps: parameters of 128 bytes, aligned to 64, that describe a tensor for bulk copies. Dims
 * begin with the contiguous one; elements; strides of the others in bytes. */
enum { PTX_TENSOR_RANK = 5, PTX_TENSOR_BYTES = 128 };
typedef struct PtxTensor {
  uint64_t at, size[PTX_TENSOR_RANK], stride[PTX_TENSOR_RANK - 1];
  uint32_t box[PTX_TENSOR_RANK];
  int rank, element_bytes;
} PtxTensor;
const char *ptx_tensor_map(void *out, const PtxTensor *t); /* the rule it breaks; NULL: none */

typedef struct PtxLaunch {
  const char *entry;
  uint32_t grid[3], block[3];
  uint32_t shared; /* dynamic shared memory, bytes */
  const void *params;
  int params_bytes;
} PtxLaunch;
/* false: the first report, with kernel, PTX line, CTA and thread */
bool ptx_launch(PtxModule *m, const PtxLaunch *l, char *error, int error_bytes);
/* Instructions of warps and of lanes since the device was made. */
void ptx_counts(const PtxDevice *d, uint64_t *warp_steps, uint64_t *lane_steps);
/* Products (wgmma) of warpgroup i of all CTAs since the device was made, in warps. */
enum { PTX_GROUPS = 8 };
uint64_t ptx_products(const PtxDevice *d, int i);
#endif
