/* `shardc doctor` on GPUs: the driver, the devices and their targets, the stand-in, NCCL. Loads the
   libraries as an executable would. Must not: use a device except to query its properties. */
#include "doctor.h"
#include "codegen/codegen.h"
#include "runtime/device/cuda/cuda.h"
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

/* Can the driver read the target's PTX? 7.x came with CUDA 11.x. */
static bool reads(const CudaApi *api, const Target *target) {
  int major = 0, minor = 0;
  bool known = sscanf(target->features, "+ptx%1d%1d", &major, &minor) == 2;
  return !known || api->version >= 1000 * (major + 4) + 10 * minor;
}

/* The newest target that a GPU can run with this driver. */
static const char *target_for(Arena *arena, const CudaApi *api, int sm) {
  const char *best = NULL, *lacks = "too old for shardc";
  for (int i = 0; target_name(i); i++) {
    const Target *target = target_find(target_name(i));
    bool runs = target->alone ? target->facts.sm == sm : target->facts.sm <= sm;
    if (target->facts.device != DEVICE_GPU || !runs) continue;
    if (reads(api, target)) best = target->name;
    else lacks = "its driver is too old for shardc";
  }
  return best ? arena_printf(arena, "--target %s", best) : lacks;
}

static void add_gpu(Doctor *doctor, const CudaApi *api, int i) {
  CudaDevice device;
  Fault f = {0};
  const char *name = arena_printf(doctor->arena, "GPU %d", i);
  if (!rt_cuda_device(api, i, &device, &f)) {
    doctor_add_fault(doctor, name, NEED_GPU, &f);
    return;
  }
  doctor_add(doctor, name,
             arena_printf(doctor->arena,
                          "%s, compute capability %d.%d (%s), %.1f GiB, %d multiprocessors, %d KiB "
                          "of shared memory per CTA",
                          device.name, device.sm / 10, device.sm % 10,
                          target_for(doctor->arena, api, device.sm),
                          (double)device.bytes / (1 << 30), device.multiprocessors,
                          device.shared_limit >> 10),
             NEED_NOTHING, "");
}

static void add_driver(Doctor *doctor) {
  CudaApi api;
  Fault f = {0};
  int gpus = 0;
  bool works = rt_cuda_load(&api, &f);
  if (works) api.cuDeviceGetCount(&gpus);
  if (works)
    doctor_add(doctor, "NVIDIA driver",
               arena_printf(doctor->arena, "%s, CUDA %d.%d, %d GPU%s", api.path, api.version / 1000,
                            api.version % 1000 / 10, gpus, gpus == 1 ? "" : "s"),
               NEED_GPU, "");
  else if (api.library) doctor_add_fault(doctor, "NVIDIA driver", NEED_GPU, &f);
  else
    doctor_add(doctor, "NVIDIA driver", NULL, NEED_GPU,
               "install the driver of the GPU (Debian: nvidia-driver; under WSL that of Windows); "
               "it brings libcuda.so.1");
  for (int i = 0; i < gpus; i++) add_gpu(doctor, &api, i);
}

static const char *standin_file(Arena *arena, const char *name) {
  const char *looked, *lib = library_folder(arena, &looked);
  return arena_printf(arena, "%s/emulate/%s", lib ? lib : looked, name);
}

const char *standin_path(Arena *arena) { return standin_file(arena, "libcuda.so.1"); }

void standin_use(Arena *arena) {
  setenv("SHARDC_LIBCUDA", standin_path(arena), 1);
  setenv("SHARDC_LIBNCCL", standin_file(arena, "libnccl.so.2"), 1);
}

static void add_stand_in(Doctor *doctor) {
  const char *path = standin_path(doctor->arena);
  doctor_add(doctor, "stand-in GPU", access(path, R_OK) ? NULL : path, NEED_NOTHING,
             "`run --emulate` needs it; it is built with shardc's tests");
}

void doctor_gpu_messages(Doctor *doctor) {
  const char *given = getenv("SHARDC_LIBNCCL"), *path = given && *given ? given : "libnccl.so.2";
  int v = number_from(dlopen(path, RTLD_LAZY | RTLD_LOCAL), "ncclGetVersion");
  int major = v < 10000 ? v / 1000 : v / 10000,
      minor = v < 10000 ? v % 1000 / 100 : v % 10000 / 100;
  doctor_add(
      doctor, "NCCL", v ? arena_printf(doctor->arena, "%d.%d.%d", major, minor, v % 100) : NULL,
      NEED_RANKS,
      "libnccl.so.2 comes from NVIDIA (package libnccl2 of its repository); only messages between "
      "GPUs need it");
}

void doctor_gpu(Doctor *doctor) {
  doctor_program(doctor, "ptxas", "/usr/local/cuda/bin:/usr/lib/nvidia-cuda-toolkit/bin", "release",
                 NEED_GPU, "comes with the CUDA toolkit (Debian: nvidia-cuda-toolkit)");
  add_driver(doctor);
  add_stand_in(doctor);
}
