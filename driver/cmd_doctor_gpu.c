/* `shardc doctor` on GPUs: the driver, the devices and what they can run, the stand-in, NCCL. Loads
   the libraries as an executable would. Must not: use a device beyond asking what it is. */
#include "doctor.h"
#include "codegen/codegen.h"
#include "runtime/device/cuda.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

typedef int IntCall(int *);

static int number_from(void *library, const char *name) {
  void *address = library ? dlsym(library, name) : NULL;
  IntCall *call;
  int n = 0;
  memcpy(&call, &address, sizeof call);
  return address && !call(&n) ? n : 0;
}

/* Whether the driver reads the target's PTX: 7.x came with CUDA 11.x. */
static bool reads(const CudaApi *api, const Target *t) {
  int major = 0, minor = 0;
  bool known = sscanf(t->features, "+ptx%1d%1d", &major, &minor) == 2;
  return !known || api->version >= 1000 * (major + 4) + 10 * minor;
}

/* The newest target that a GPU can run with this driver. */
static const char *target_for(Arena *a, const CudaApi *api, int sm) {
  const char *best = NULL, *lacks = "too old for shardc";
  for (int i = 0; target_name(i); i++) {
    const Target *t = target_find(target_name(i));
    if (t->facts.device != DEVICE_GPU || t->facts.sm > sm) continue;
    if (reads(api, t)) best = t->name;
    else lacks = "its driver is too old for shardc";
  }
  return best ? arena_printf(a, "--target %s", best) : lacks;
}

static void add_gpu(Doctor *d, const CudaApi *api, int i) {
  CudaDevice x;
  Fault f = {0};
  const char *name = arena_printf(d->arena, "GPU %d", i);
  if (!rt_cuda_device(api, i, &x, &f)) {
    doctor_add(d, name, NULL, NEED_GPU, arena_printf(d->arena, "%s", f.what));
    return;
  }
  doctor_add(d, name,
             arena_printf(d->arena,
                          "%s, compute capability %d.%d (%s), %.1f GiB, %d multiprocessors, %d KiB "
                          "of shared memory per CTA",
                          x.name, x.sm / 10, x.sm % 10, target_for(d->arena, api, x.sm),
                          (double)x.bytes / (1 << 30), x.multiprocessors, x.shared_limit >> 10),
             NEED_NOTHING, "");
}

static void add_driver(Doctor *d) {
  CudaApi api;
  Fault f = {0};
  int gpus = 0;
  bool works = rt_cuda_load(&api, &f);
  if (works) api.cuDeviceGetCount(&gpus);
  doctor_add(
      d, "NVIDIA driver",
      works ? arena_printf(d->arena, "%s, CUDA %d.%d, %d GPU%s", api.path, api.version / 1000,
                           api.version % 1000 / 10, gpus, gpus == 1 ? "" : "s")
            : NULL,
      NEED_GPU,
      api.library ? arena_printf(d->arena, "%s\n%-17s   %s", f.what, "", f.help)
                  : "install the driver of the GPU (Debian: nvidia-driver; under WSL that of "
                    "Windows); it brings libcuda.so.1");
  if (api.library) d->found.at[d->found.n - 1].lacks = "cannot be used";
  for (int i = 0; i < gpus; i++) add_gpu(d, &api, i);
}

static void add_stand_in(Doctor *d) {
  const char *looked, *lib = library_folder(d->arena, &looked);
  const char *path = arena_printf(d->arena, "%s/emulate/libcuda.so.1", lib ? lib : looked);
  doctor_add(d, "stand-in GPU", access(path, R_OK) ? NULL : path, NEED_NOTHING,
             "`run --emulate` needs it; it is built with shardc's tests");
}

void doctor_nccl(Doctor *d) {
  const char *given = getenv("SHARDC_LIBNCCL"), *path = given && *given ? given : "libnccl.so.2";
  int v = number_from(dlopen(path, RTLD_LAZY | RTLD_LOCAL), "ncclGetVersion");
  int major = v < 10000 ? v / 1000 : v / 10000,
      minor = v < 10000 ? v % 1000 / 100 : v % 10000 / 100;
  doctor_add(
      d, "NCCL", v ? arena_printf(d->arena, "%d.%d.%d", major, minor, v % 100) : NULL, NEED_RANKS,
      "libnccl.so.2 comes from NVIDIA (package libnccl2 of its repository); only messages between "
      "GPUs need it");
}

void doctor_gpu(Doctor *d) {
  add_driver(d);
  add_stand_in(d);
}
