/* Products with wgmma and bulk tensor copies, by hand: what a generator for sm_90a should write, checked and timed.

     nvcc -O3 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -o wgmma bench/cuda/wgmma.cu
     ./wgmma check | time

   c[M, N] = a b in bf16 with f32 sums. An operand lies with k contiguous (ORDER 0: a[M, K], b[N, K]) or with its
   rows contiguous (1: a[K, M], b[K, N]); both are read as they lie, in boxes of 64 elements = 128 bytes, swizzled:

     k contiguous      box 64 (k) x rows       descriptor: 1024 bytes from 8 rows to the next 8; k + 16 is 32 bytes on
     rows contiguous   boxes 64 (rows) x 64    1024 bytes from 8 k to the next 8, 8192 to the next 64 rows; k + 16: 2048

   One CTA per multiprocessor, three warpgroups. The first issues copies into a ring of tiles of k; `full` and `empty`
   are mbarriers. The others multiply: both on one tile, half of its rows each, or (PING) each on a tile of its own in
   turn; then `order` keeps a warpgroup from waiting for a lap of the ring that is more than one ahead, which the
   parity of an mbarrier cannot tell. Results leave through shared memory while the ring fills for the next tile.

   Must not: be linked into anything; sizes that are no multiples of the tile are not handled. */
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <vector>

constexpr int KT = 64;   /* elements of k in a tile */
constexpr int GROUP = 8; /* rows of tiles that follow each other, for the second-level cache */

/* ---- instructions ---- */

__device__ __forceinline__ uint64_t descriptor(uint32_t at, uint32_t leading, uint32_t stride) {
  const uint64_t SWIZZLE_128 = (uint64_t)1 << 62;
  return (uint64_t)((at & 0x3ffff) >> 4) | (uint64_t)(leading >> 4) << 16 |
         (uint64_t)(stride >> 4) << 32 | SWIZZLE_128;
}
__device__ __forceinline__ void barrier_init(uint32_t b, int n) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(n) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t b, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(b) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t b, int parity) {
  asm volatile("{\n.reg .pred p;\nAGAIN:\n mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
               "@p bra DONE;\nbra AGAIN;\nDONE:\n}\n" ::"r"(b),
               "r"(parity)
               : "memory");
}
__device__ __forceinline__ void copy_in(uint32_t to, const CUtensorMap *m, int x, int y,
                                        uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
               "[%1, {%2, %3}], [%4];" ::"r"(to),
               "l"(m), "r"(x), "r"(y), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void copy_out(const CUtensorMap *m, int x, int y, uint32_t from) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(m),
      "r"(x), "r"(y), "r"(from)
      : "memory");
}
__device__ __forceinline__ void async_fence() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* d += a b of 64 x N x 16, or d = a b without KEEP. D8: eight operands of the list of sums. */
#define D8(i)                                                                                      \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),      \
      "+f"(d[i + 6]), "+f"(d[i + 7])
#define D64(i)                                                                                     \
  D8(i), D8(i + 8), D8(i + 16), D8(i + 24), D8(i + 32), D8(i + 40), D8(i + 48), D8(i + 56)
#define NAMES_64                                                                                   \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25," \
  "%26,%27,%28,%29,%30,%31,"                                                                       \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%"  \
  "55,%56,%57,%58,%59,%60,%61,%62,%63"
#define NAMES_128                                                                                  \
  NAMES_64 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84," \
           "%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"                                          \
           "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%"    \
           "113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
template <int N, int OA, int OB>
__device__ __forceinline__ void multiply(float *d, uint64_t a, uint64_t b, int keep) {
  if constexpr (N == 128)
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, "
                 "0;\nwgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" NAMES_64
                 "}, %64, %65, p, 1, 1, %67, %68;\n}\n"
                 : D64(0)
                 : "l"(a), "l"(b), "r"(keep), "n"(OA), "n"(OB));
  else
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %130, "
                 "0;\nwgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" NAMES_128
                 "}, %128, %129, p, 1, 1, %131, %132;\n}\n"
                 : D64(0), D64(64)
                 : "l"(a), "l"(b), "r"(keep), "n"(OA), "n"(OB));
}

/* ---- the kernel ---- */

template <int BM, int BN, int OA, int OB, int STAGES, bool PING> struct Tile {
  static constexpr int MINE = PING ? BM : BM / 2; /* rows of a multiplying warpgroup */
  static constexpr int BYTES = (BM + BN) * 2 * KT, OUT = MINE * BN * 2,
                       SHARED = STAGES * BYTES + 2 * OUT + 16 * STAGES + 16 + 1024;
  uint32_t ring, out, bars;
  int M, N, tiles, kt;
  __device__ Tile(char *shared, int m, int n, int k)
      : M(m), N(n), tiles(m / BM * (n / BN)), kt(k / KT) {
    ring = ((uint32_t)__cvta_generic_to_shared(shared) + 1023) & ~1023u,
    out = ring + STAGES * BYTES, bars = out + 2 * OUT;
  }
  __device__ uint32_t full(int s) const { return bars + s * 8; }
  __device__ uint32_t empty(int s) const { return bars + (STAGES + s) * 8; }
  __device__ uint32_t order(int i) const { return bars + (2 * STAGES + (i & 1)) * 8; }
  __device__ void init() const {
    for (int s = 0; s < STAGES; s++) barrier_init(full(s), 1), barrier_init(empty(s), PING ? 1 : 2);
    barrier_init(order(0), 1), barrier_init(order(1), 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    async_fence();
  }
  __device__ void at(int id, int &row, int &column) const {
    int width = GROUP * (N / BN), first = id / width * GROUP, size = min(M / BM - first, GROUP);
    row = (first + id % width % size) * BM, column = id % width / size * BN;
  }
  template <int ROWS, int ORDER>
  __device__ void fetch(uint32_t to, const CUtensorMap *m, int row, int k, uint32_t full) const {
    if constexpr (!ORDER) copy_in(to, m, k, row, full);
    else
      for (int i = 0; i < ROWS / 64; i++) copy_in(to + i * 8192, m, row + i * 64, k, full);
  }
  __device__ void produce(const CUtensorMap *ma, const CUtensorMap *mb) const {
    for (int id = blockIdx.x, n = 0; id < tiles; id += gridDim.x) {
      int row, column;
      at(id, row, column);
      for (int t = 0; t < kt; t++, n++) {
        int s = n % STAGES;
        barrier_wait(empty(s), (n / STAGES & 1) ^ 1);
        barrier_expect(full(s), BYTES);
        fetch<BM, OA>(ring + s * BYTES, ma, row, t * KT, full(s));
        fetch<BN, OB>(ring + s * BYTES + BM * 128, mb, column, t * KT, full(s));
      }
    }
  }
  /* All of k for the tile that is turn `turn` of this CTA. */
  __device__ void sums(float (*d)[BN / 2], int turn, int group, int thread) const {
    int n = turn * kt;
    if (PING && turn) barrier_wait(order(turn - 1), (turn - 1) >> 1 & 1);
    for (int t = 0; t < kt; t++, n++) {
      uint32_t a = ring + n % STAGES * BYTES, b = a + BM * 128;
      barrier_wait(full(n % STAGES), n / STAGES & 1);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int k = 0; k < KT / 16; k++)
#pragma unroll
        for (int i = 0; i < MINE / 64; i++) {
          uint32_t rows = a + ((PING ? 0 : group * (MINE / 64)) + i) * 8192;
          multiply<BN, OA, OB>(
              d[i],
              OA ? descriptor(rows + k * 2048, 8192, 1024) : descriptor(rows + k * 32, 16, 1024),
              OB ? descriptor(b + k * 2048, 8192, 1024) : descriptor(b + k * 32, 16, 1024), t + k);
        }
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
      if (t && !thread) barrier_arrive(empty((n - 1) % STAGES));
    }
    if (PING && !thread) barrier_arrive(order(turn));
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (!thread) barrier_arrive(empty((n - 1) % STAGES));
  }
  /* Through this warpgroup's part of shared memory, 64 columns after the other, once its last store has left. */
  __device__ void store(float (*d)[BN / 2], const CUtensorMap *mc, int row, int column, int group,
                        int thread) const {
    int lane = thread & 31, warp = thread >> 5;
    uint32_t mine = out + group * OUT;
    if (!thread) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
#pragma unroll
    for (int i = 0; i < MINE / 64; i++)
#pragma unroll
      for (int b = 0; b < BN / 8; b += 2) {
        int r = i * 64 + warp * 16 + (lane >> 3 & 1) * 8 + (lane & 7), c = b + (lane >> 4);
        uint32_t v[4], to = mine + (c >> 3) * MINE * 128 + r * 128 + (((c & 7) ^ (r & 7)) << 4);
#pragma unroll
        for (int x = 0; x < 4; x++) {
          __nv_bfloat162 h = __floats2bfloat162_rn(d[i][b * 4 + 2 * x], d[i][b * 4 + 2 * x + 1]);
          v[x] = *(uint32_t *)&h;
        }
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                     "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3])
                     : "memory");
      }
    async_fence();
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
    if (thread) return;
    for (int c = 0; c < BN / 64; c++)
      copy_out(mc, column + c * 64, row + (PING ? 0 : group * MINE), mine + c * MINE * 128);
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
};

template <int BM, int BN, int OA, int OB, int STAGES, bool PING>
__global__ void __launch_bounds__(384, 1)
    product(const __grid_constant__ CUtensorMap ma, const __grid_constant__ CUtensorMap mb,
            const __grid_constant__ CUtensorMap mc, int M, int N, int K) {
  extern __shared__ char shared[];
  typedef Tile<BM, BN, OA, OB, STAGES, PING> T;
  T t(shared, M, N, K);
  if (!threadIdx.x) t.init();
  __syncthreads();
  int group = (int)(threadIdx.x >> 7) - 1, thread = threadIdx.x & 127;
  if (group < 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (!thread) t.produce(&ma, &mb);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  float d[T::MINE / 64][BN / 2];
  for (int id = blockIdx.x, turn = 0; id < t.tiles; id += gridDim.x, turn++) {
    if (PING && (turn & 1) != group) continue;
    int row, column;
    t.at(id, row, column);
    t.sums(d, turn, group, thread);
    t.store(d, &mc, row, column, group, thread);
  }
  if (!thread) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* ---- check and time ---- */

#define OK(x)                                                                                      \
  do {                                                                                             \
    cudaError_t e = (x);                                                                           \
    if (e) {                                                                                       \
      printf("%s: %s\n", #x, cudaGetErrorString(e));                                               \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)
typedef CUresult (*Encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *,
                           const cuuint64_t *, const cuuint64_t *, const cuuint32_t *,
                           const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle,
                           CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
static Encode encode;

static CUtensorMap map(void *p, long inner, long outer, int rows) {
  CUtensorMap m;
  cuuint64_t dims[2] = {(cuuint64_t)inner, (cuuint64_t)outer}, strides[1] = {(cuuint64_t)inner * 2};
  cuuint32_t box[2] = {64, (cuuint32_t)rows}, one[2] = {1, 1};
  CUresult r = encode(&m, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, p, dims, strides, box, one,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (r) printf("cuTensorMapEncodeTiled: %d\n", (int)r), exit(1);
  return m;
}

struct Operand {
  std::vector<__nv_bfloat16> host;
  __nv_bfloat16 *device;
  Operand(long n, bool random) : host(n) {
    static uint32_t seed = 1;
    if (random)
      for (auto &x : host)
        seed = seed * 1664525u + 1013904223u,
        x = __float2bfloat16((float)(seed >> 16) / 32768.f - 1);
    OK(cudaMalloc(&device, 2 * n));
    OK(cudaMemcpy(device, host.data(), 2 * n, cudaMemcpyHostToDevice));
  }
  ~Operand() { cudaFree(device); }
  double at(long i) const { return (double)__bfloat162float(host[i]); }
};

template <int OA, int OB>
int wrong(const Operand &a, const Operand &b, Operand &c, int M, int N, int K) {
  int bad = 0;
  OK(cudaMemcpy(c.host.data(), c.device, 2 * c.host.size(), cudaMemcpyDeviceToHost));
  for (long r = 0; r < M; r += 37)
    for (long q = 0; q < N; q++) {
      double want = 0;
      for (long k = 0; k < K; k++)
        want += a.at(OA ? k * M + r : r * K + k) * b.at(OB ? k * N + q : q * K + k);
      bad += !(fabs(want - c.at(r * N + q)) <= 5e-3 * (1 + fabs(want)));
    }
  return bad;
}

template <int BM, int BN, int OA, int OB, int STAGES, bool PING>
void one(int M, int N, int K, bool check) {
  typedef Tile<BM, BN, OA, OB, STAGES, PING> T;
  auto *kernel = product<BM, BN, OA, OB, STAGES, PING>;
  OK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, T::SHARED));
  Operand a((long)M * K, true), b((long)N * K, true), c((long)M * N, false);
  CUtensorMap ma = OA ? map(a.device, M, K, 64) : map(a.device, K, M, BM),
              mb = OB ? map(b.device, N, K, 64) : map(b.device, K, N, BN);
  CUtensorMap mc = map(c.device, N, M, T::MINE);
  int processors, tiles = M / BM * (N / BN), runs = check ? 1 : 20;
  OK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  int grid = tiles < processors ? tiles : processors;
  cudaEvent_t start, end;
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&end));
  for (int i = -3; i < runs; i++) {
    if (!i) OK(cudaEventRecord(start));
    kernel<<<grid, 384, T::SHARED>>>(ma, mb, mc, M, N, K);
  }
  OK(cudaGetLastError());
  OK(cudaEventRecord(end));
  OK(cudaDeviceSynchronize());
  float ms;
  OK(cudaEventElapsedTime(&ms, start, end));
  printf("%d x %d x %d, tile %d x %d%s, order %d %d: ", M, N, K, BM, BN, PING ? " in turn" : "", OA,
         OB);
  if (check) printf("%d wrong\n", wrong<OA, OB>(a, b, c, M, N, K));
  else printf("%.1f us, %.0f TFLOP/s\n", 1e3 * ms / runs, 2e-9 * M * N * K * runs / ms);
  fflush(stdout);
}

template <int BM, int BN, int STAGES, bool PING> void orders(int M, int N, int K, bool check) {
  one<BM, BN, 0, 0, STAGES, PING>(M, N, K, check);
  one<BM, BN, 0, 1, STAGES, PING>(M, N, K, check);
  one<BM, BN, 1, 1, STAGES, PING>(M, N, K, check);
}

int main(int n, char **v) {
  const int sizes[][3] = {{8192, 8192, 8192},
                          {16384, 2304, 768},
                          {16384, 768, 768},
                          {16384, 3072, 768},
                          {16384, 768, 3072}};
  bool check = n > 1 && v[1][0] == 'c';
  cudaDriverEntryPointQueryResult found;
  OK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000,
                                      cudaEnableDefault, &found));
  for (auto &s : sizes) {
    int M = check ? 5120 : s[0], N = check ? 1024 : s[1], K = check ? 512 : s[2];
    orders<128, 256, 3, false>(M, N, K, check);
    orders<128, 128, 5, true>(M, N, K, check);
    orders<64, 256, 4, true>(M, N, K, check);
    if (check) break;
  }
}
