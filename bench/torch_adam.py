"""The peers of bench/host_update: PyTorch's fused AdamW and DeepSpeed's CPUAdam, over one tensor of f32.

    python3 torch_adam.py PARAMETERS THREADS CSRC [bf16]

bf16: gradients come in that type. Neither peer accepts bf16 gradients with f32 parameters, so a step begins with a
cast.

CSRC: the folder of that name of DeepSpeed's sources; its csrc/adam is built with the flags of its own builder (kept by
PyTorch among its extensions). The first line on stdout is {"ready": true, ..}, after a step of each that does not
count; then each line of standard input, `torch` or `deepspeed`, is a step, answered with its processor time in seconds,
per thread. Threads that wait sleep (OMP_WAIT_POLICY), so that waiting counts for nothing. Must not: fall back to
anything slower: without AVX2 there is no answer.
"""
import os
os.environ.update(OMP_WAIT_POLICY='passive')
import json, sys, time
import torch
from torch.utils.cpp_extension import load

N, THREADS, CSRC = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
RATE, BETA1, BETA2, EPS, DECAY = 1e-4, 0.9, 0.95, 1e-8, 0.1
torch.set_num_threads(THREADS)
torch.manual_seed(0)


def built():
    flags = open('/proc/cpuinfo').read().split('flags', 1)[1].split('\n', 1)[0].split()
    width = '-D__AVX512__' if 'avx512f' in flags else '-D__AVX256__' if 'avx2' in flags else sys.exit('no AVX2')
    return load(name='shardc_bench_cpu_adam', sources=[f'{CSRC}/adam/cpu_adam.cpp', f'{CSRC}/adam/cpu_adam_impl.cpp'],
                extra_include_paths=[f'{CSRC}/includes'], with_cuda=False,
                extra_cflags=['-O3', '-g', '-Wno-reorder', '-fopenmp', '-march=native', width, '-D__DISABLE_CUDA__'])


def small(): return torch.randn(N).mul_(0.02)


class Torch:
    def __init__(self):
        p = torch.nn.Parameter(small())
        self.gradient = p.grad = small()
        self.adam = torch.optim.AdamW([p], lr=RATE, betas=(BETA1, BETA2), eps=EPS, weight_decay=DECAY, fused=True)

    def step(self): self.adam.step()


class DeepSpeed:
    def __init__(self):
        self.op, self.at = built(), 0
        self.op.create_adam(0, RATE, BETA1, BETA2, EPS, DECAY, True, False)
        self.gradient = small()
        self.tensors = small(), self.gradient, torch.zeros(N), torch.zeros(N)

    def step(self):
        self.at += 1
        self.op.adam_update(0, self.at, RATE, BETA1, BETA2, EPS, DECAY, True, *self.tensors)


def timed(peer):
    start = time.process_time()
    if arrived is not None: peer.gradient.copy_(arrived)
    peer.step()
    return (time.process_time() - start) / THREADS


arrived = small().bfloat16() if 'bf16' in sys.argv else None
peers = dict(torch=Torch(), deepspeed=DeepSpeed())
for p in peers.values(): p.step()
print(json.dumps(dict(ready=True, torch=torch.__version__)), flush=True)
for line in sys.stdin: print(timed(peers[line.strip()]), flush=True)
