/* Stand-in for libcuda.so.1: start, devices, contexts, names of errors, addresses of functions.
   What the devices are is read from the environment when the driver starts (docs/gpu.md lists the
   variables). Must not: look at the environment later. */
#include "cuda_standin.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

Driver standin_driver = {.lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};
static _Thread_local CUcontext current;

void standin_enter(void) { pthread_mutex_lock(&driver->lock); }

CUresult standin_leave(CUresult e) {
  pthread_mutex_unlock(&driver->lock);
  return e;
}

CUcontext standin_context(void) { return current; }

CUcontext standin_owner(CUdeviceptr at) {
  uint64_t first;
  int64_t n;
  for (int i = 0; i < driver->ndevices; i++)
    if (driver->context[i].machine && ptx_range(driver->context[i].machine, at, &first, &n))
      return &driver->context[i];
  return NULL;
}

CUresult standin_unsafe(void) {
  if (!driver->captures) return CU_SUCCESS;
  for (int i = 0; i < driver->ndevices; i++)
    for (CUstream s = driver->context[i].streams; s; s = s->next)
      if (s->capture) s->capture->broken = true;
  return CU_CAPTURE_UNSUPPORTED;
}

/* ---- start ---- */

static int64_t number(const char *name, int64_t otherwise) {
  char full[64];
  snprintf(full, sizeof full, "SHARDC_EMULATE_%s", name);
  const char *text = getenv(full);
  return text && *text ? strtoll(text, NULL, 0) : otherwise;
}

/* CUDA_VISIBLE_DEVICES: which of n, in order, and how many. */
static int visible(int n, int place[MOST_DEVICES]) {
  const char *text = getenv("CUDA_VISIBLE_DEVICES");
  int k = 0;
  for (; !text && k < n; k++) place[k] = k;
  for (const char *p = text; p && *p && k < MOST_DEVICES; p++) {
    char *end;
    long i = strtol(p, &end, 10);
    if (end == p || i < 0 || i >= n) break;
    place[k++] = (int)i;
    if (!*(p = end)) break;
  }
  return k;
}

/* SHARDC_EMULATE_SM: of each device, the last one of all that follow. */
static int sm_of(int place) {
  const char *text = getenv("SHARDC_EMULATE_SM");
  for (; text && place > 0 && strchr(text, ','); place--) text = strchr(text, ',') + 1;
  return text && *text ? atoi(text) : 90;
}

static void find_devices(void) {
  int place[MOST_DEVICES] = {0};
  int64_t n = number("DEVICES", 1);
  driver->ndevices = visible((int)(n < 0 ? 0 : n > MOST_DEVICES ? MOST_DEVICES : n), place);
  for (int i = 0; i < driver->ndevices; i++) {
    CUcontext c = &driver->context[i];
    c->number = i, c->place = place[i], c->sm = sm_of(place[i]);
  }
}

/* SHARDC_EMULATE_ACCOUNT: a file to which each process adds a line when it ends: its number, and
   the most bytes that it had at any time, pinned on the host and then of each device. */
static __attribute__((destructor)) void account(void) {
  const char *path = getenv("SHARDC_EMULATE_ACCOUNT");
  FILE *f = path && driver->started ? fopen(path, "a") : NULL;
  char line[256];
  int n = snprintf(line, sizeof line, "%d %lld", (int)getpid(), (long long)driver->most_host);
  if (!f) return;
  for (int i = 0; i < driver->ndevices && n < 200; i++)
    n += snprintf(line + n, sizeof line - (size_t)n, " %lld", (long long)driver->context[i].most);
  fprintf(f, "%s\n", line);
  fclose(f);
}

CUresult standin_told(const char *call) {
  size_t n = strlen(call);
  bool told = driver->fails && !strncmp(driver->fails, call, n) && driver->fails[n] == '=';
  return told ? atoi(driver->fails + n + 1) : CU_SUCCESS;
}

EXPORT CUresult cuInit(unsigned flags) {
  if (flags) return CU_INVALID_VALUE;
  standin_enter();
  if (!driver->started) {
    find_devices();
    driver->version = (int)number("DRIVER", 12040);
    driver->shared = number("SHARED", 101376), driver->memory = number("MEMORY", 8ll << 30);
    driver->used = number("USED", 0), driver->seed = (uint64_t)number("SEED", 0);
    driver->late = number("LATE", 0), driver->check = number("CHECK", 0);
    driver->log = number("LOG", 0), driver->order = number("ORDER", 0), driver->started = true;
    driver->fails = getenv("SHARDC_EMULATE_FAIL"), driver->name = getenv("SHARDC_EMULATE_NAME");
    driver->drops = getenv("SHARDC_EMULATE_DROP");
  }
  CUresult e = standin_told("cuInit");
  return standin_leave(e ? e : driver->ndevices ? CU_SUCCESS : CU_NO_DEVICE);
}

EXPORT CUresult cuDriverGetVersion(int *version) {
  *version = driver->started ? driver->version : (int)number("DRIVER", 12040);
  return CU_SUCCESS;
}

/* ---- errors ---- */

static const struct {
  CUresult e;
  const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "CUDA-capable device(s) is/are busy or unavailable"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
     "the provided PTX was compiled with an unsupported toolchain."},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
     "system has unsupported display driver / cuda driver combination"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"}};

static CUresult error_text(CUresult e, const char **out, bool name) {
  *out = NULL;
  for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].e == e) return *out = name ? errors[i].name : errors[i].text, CU_SUCCESS;
  return CU_INVALID_VALUE;
}

EXPORT CUresult cuGetErrorName(CUresult e, const char **text) { return error_text(e, text, true); }
EXPORT CUresult cuGetErrorString(CUresult e, const char **text) {
  return error_text(e, text, false);
}

/* ---- devices ---- */

EXPORT CUresult cuDeviceGetCount(int *n) {
  *n = driver->ndevices;
  return driver->started ? CU_SUCCESS : CU_NOT_INITIALIZED;
}

EXPORT CUresult cuDeviceGet(CUdevice *d, int i) {
  if (!driver->started) return CU_NOT_INITIALIZED;
  if (i < 0 || i >= driver->ndevices) return CU_INVALID_DEVICE;
  *d = i;
  return CU_SUCCESS;
}

EXPORT CUresult cuDeviceGetName(char *name, int n, CUdevice d) {
  if (d < 0 || d >= driver->ndevices) return CU_INVALID_DEVICE;
  if (driver->name) snprintf(name, (size_t)n, "%s", driver->name);
  else snprintf(name, (size_t)n, "shardc stand-in %d", driver->context[d].place);
  return CU_SUCCESS;
}

static const struct {
  int attribute, value;
} facts[] = {{1, 1024},  {2, 1024},     {3, 1024},   {4, 64},       {5, 2147483647}, {6, 65535},
             {7, 65535}, {8, 49152},    {10, 32},    {12, 65536},   {13, 1410000},   {16, 8},
             {31, 1},    {36, 1215000}, {37, 5120},  {38, 4 << 20}, {39, 2048},      {40, 1},
             {41, 1},    {81, 102400},  {82, 65536}, {106, 32},     {115, 1}};

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice d) {
  if (d < 0 || d >= driver->ndevices) return CU_INVALID_DEVICE;
  *value = 0;
  if (attribute == CU_MAJOR) *value = driver->context[d].sm / 10;
  if (attribute == CU_MINOR) *value = driver->context[d].sm % 10;
  if (attribute == CU_SHARED_LIMIT) *value = (int)driver->shared;
  for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
    if (facts[i].attribute == attribute) *value = facts[i].value;
  return CU_SUCCESS;
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice d) {
  *bytes = (size_t)driver->memory;
  return d < 0 || d >= driver->ndevices ? CU_INVALID_DEVICE : CU_SUCCESS;
}

EXPORT CUresult cuDeviceGetUuid_v2(char uuid[16], CUdevice d) {
  memset(uuid, 0, 16), memcpy(uuid, "shardc", 6), uuid[15] = (char)d;
  return CU_SUCCESS;
}

EXPORT CUresult cuDeviceGetPCIBusId(char *text, int n, CUdevice d) {
  snprintf(text, (size_t)n, "0000:%02X:00.0", driver->context[d].place + 1);
  return CU_SUCCESS;
}

EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b) {
  *can = a != b;
  return CU_SUCCESS;
}

/* ---- contexts ---- */

static CUresult retain(CUcontext c) {
  PtxOptions o = {.shared_limit = driver->shared,
                  .late = driver->late,
                  .check = driver->check,
                  .seed = driver->seed,
                  .sm = c->sm,
                  .base = 0x100000000000u + ((uint64_t)c->number << 40),
                  .memory = driver->memory};
  CUresult e = standin_told("cuDevicePrimaryCtxRetain");
  if (e) return e;
  if (c->users++) return CU_SUCCESS;
  c->machine = ptx_device_new(&o), c->sticky = CU_SUCCESS;
  c->streams = calloc(1, sizeof *c->streams);
  if (!c->machine || !c->streams) return c->users = 0, CU_OUT_OF_MEMORY;
  c->streams->context = c;
  return CU_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice d) {
  if (!driver->started) return CU_NOT_INITIALIZED;
  if (d < 0 || d >= driver->ndevices) return CU_INVALID_DEVICE;
  standin_enter();
  *context = &driver->context[d];
  return standin_leave(retain(*context));
}

static void destroy(CUcontext c) {
  for (CUstream s = c->streams, next; s; s = next)
    next = s->next, standin_queue_free(&s->queue), free(s);
  ptx_device_free(c->machine);
  c->machine = NULL, c->streams = NULL;
}

EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
  if (d < 0 || d >= driver->ndevices) return CU_INVALID_DEVICE;
  standin_enter();
  CUcontext c = &driver->context[d];
  if (!c->users) return standin_leave(CU_INVALID_CONTEXT);
  if (--c->users == 0) destroy(c);
  return standin_leave(CU_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice d, unsigned *flags, int *active) {
  *flags = 0, *active = driver->context[d].users > 0;
  return CU_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext c) {
  current = c;
  return CU_SUCCESS;
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *c) {
  *c = current;
  return CU_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice(CUdevice *d) {
  if (!current) return CU_INVALID_CONTEXT;
  *d = current->number;
  return CU_SUCCESS;
}

EXPORT CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  *least = 0, *greatest = -5;
  return CU_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void) {
  if (!current) return CU_INVALID_CONTEXT;
  standin_enter();
  CUresult e = standin_unsafe();
  return standin_leave(e ? e : standin_flush_all(current));
}

/* ---- addresses of functions ---- */

/* Names without a version mean the newest one in this library. */
static void *exported(const char *name) {
  static const char *const versions[] = {"_v3", "_v2", ""};
  char full[128];
  Dl_info own;
  void *self = dladdr((void *)(uintptr_t)cuInit, &own)
                   ? dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD)
                   : NULL;
  for (size_t i = 0; i < 3; i++) {
    snprintf(full, sizeof full, "%s%s", name, versions[i]);
    void *at = dlsym(self ? self : RTLD_DEFAULT, full);
    if (at) return at;
  }
  return NULL;
}

EXPORT CUresult cuGetProcAddress_v2(const char *name, void **at, int version, uint64_t flags,
                                    int *status) {
  (void)version, (void)flags;
  *at = strncmp(name, "cu", 2) ? NULL : exported(name);
  if (status) *status = *at ? 0 : 1;
  if (!*at && driver->log) fprintf(stderr, "stand-in GPU: no function %s\n", name);
  return *at ? CU_SUCCESS : CU_NOT_FOUND;
}

EXPORT CUresult cuGetProcAddress(const char *name, void **at, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, at, version, flags, NULL);
}
