"""The time of a step with states on the host, by the bound of `plan`: python3 offload_time.py SHARDC

The machine of "ZeRO-Offload: Democratizing Billion-Scale Model Training" (V100 with 32 GB, PCIe of 16 GB/s each way,
120 GB/s of host memory for what 16 GPUs share; peaks, not what kernels reach: copies are the harder to hide), the sizes
and micro-batches of its table 3, 512 sequences a step. 10 billion parameters on one GPU lose against the computation
alone what docs/papers.md says. Figure 8: what does not fit without the host fits, and small micro-batches, which the
largest models need, cost most. Figure 11: of 10 billion over many GPUs ZeRO-2 without the host comes in late, and then
is the faster one. Figure 14: with one micro-batch a step, more samples hide more; without the host no step is slower,
where it fits. Figure 9: with one micro-batch a step and delayed updates, the GPU waits less for the host. If no update
waits for a norm, rounds of the backward loop update with the gradients that they compute, and the GPU waits at most
three fifths as long. Bounds: the walk of ir/cost/timeline_host.c, no measurement.
"""
import os, sys
from common import EXAMPLES, check, planned, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
PAPERS, OFFLOAD = (open(f'{EXAMPLES}/../docs/{page}.md').read() for page in ('papers', 'offload'))
MODEL = '''use "gpt2"
variant Big of GPT2 { Pos = 1024; Vocab = 50257; Embed = %d; Heads = %d; Layers = %d }
train t for Big { size Seq = 1024; batch %d; steps 10; data "none.bin" format = u16; optim adamw; %s }
machine dgx2 {
  node gpus = 16 arch = sm_80 memory = 32GiB f16 = 125TFLOPS bf16 = 125TFLOPS hbm = 900GB/s
  host memory = 1.5TB pcie = 16GB/s latency = 10us cores = 48 dram = 120GB/s
  link intra = 150GB/s inter = 100GB/s
}
plan p for Big {
  on dgx2 nodes = %d
  mesh data = %d
  place Batch -> data
  zero 2 over data%s
  micro %d
  precision %s master = f32
  recompute h.* keep = input
  %s
}
'''


def plan(layers, embed, micro, ranks=1, batch=512, host=True, more='clip 1.0', type='f16', grads='grads'):
    text = MODEL % (embed, embed // 128, layers, batch, more, (ranks + 15) // 16, ranks, ' overlap = on' * (ranks > 1),
                    micro, type, f'offload optimizer, {grads} -> host' * host)
    told = planned(SHARDC, folder, text)[0]
    told['tflops'] = told['flop_per_step'] / told['seconds_per_step'] / 1e12
    return told


SIZES = {1: (20, 2048, 32), 2: (40, 2048, 32), 4: (64, 2304, 32), 6: (53, 3072, 16), 8: (72, 3072, 16),
         10: (50, 4096, 8), 12: (60, 4096, 4), 13: (65, 4096, 4)}


def one_gpu():
    rate = {}
    for size, shape in SIZES.items():
        with_host, alone = plan(*shape), plan(*shape, host=False)
        check(with_host['fits'], f'{size}B does not fit')
        check(alone['fits'] == (size == 1), f'{size}B without the host: fits {alone["fits"]}')
        lost = with_host['seconds_per_step'] / alone['seconds_per_step'] - 1
        rate[size] = with_host['tflops']
        print(f'{size}B, one GPU: {rate[size]:.1f} TFLOPS, {100 * lost:.1f} % more than the computation alone')
        if size == 10: check(f'10 billion on one GPU lose {100 * lost:.1f} %' in PAPERS, f'docs/papers.md: {lost}')
    check(min(rate[12], rate[13]) < min(rate[s] for s in rate if s < 12), f'small micro-batches: {rate}')


def many_gpus():
    """The field `pays` of a plan: true up to some number of GPUs, false above it."""
    pays = []
    for ranks in 1, 2, 4, 8, 16, 32, 64, 128:
        shape = (*SIZES[10][:2], 8 if ranks <= 64 else 4, ranks)
        a = plan(*shape)
        without = a['offload']['without']
        check(a['fits'], f'10B on {ranks} does not fit')
        shorter = without['fits'] and without['seconds_per_step'] < a['seconds_per_step']
        check(a['offload']['pays'] != shorter, f'10B on {ranks}: {a["offload"]}')
        pays.append(a['offload']['pays'])
        print(f'10B on {ranks}: {a["seconds_per_step"]:.3g} s, without the host {without["seconds_per_step"]:.3g}, '
              f'fits {without["fits"]}; offload pays: {pays[-1]}')
        for left in a['offload']['left']:
            check(left['best'] <= left['fits'], f'10B on {ranks}: {left}')
        if ranks == 64:   # as the plan that has no such line
            b = plan(*shape, host=False)
            check(all(b[k] == without[k] for k in ('fits', 'seconds_per_step')), f'{b} {without}')
    check(pays[0] and not pays[-2] and not pays[-1] and pays == sorted(pays, reverse=True), f'offload pays: {pays}')


def one_micro_batch():
    last = 0
    for batch in 1, 8, 16, 32:
        a, b = plan(*SIZES[1][:2], batch, batch=batch), plan(*SIZES[1][:2], batch, batch=batch, host=False)
        print(f'1B, {batch} a step: {a["tflops"]:.1f} TFLOPS, without the host {b["tflops"]:.1f}, fits {b["fits"]}')
        check(last < a['tflops'] <= b['tflops'] and a['fits'], f'{batch} a step: {last}, {a["tflops"]}, {b["tflops"]}')
        last = a['tflops']


def one_step_late():
    for size in 1, 4, 10:
        told = plan(*SIZES[size], batch=SIZES[size][2], more='clip 1.0; delay after = 4')
        late = told['late']
        print(f'{size}B, one micro-batch: {told["seconds_per_step"]:.3g} s, late {late["seconds_per_step"]:.3g} s')
        waits, less = told['seconds']['away'], late['seconds']['away']
        check(less <= waits, f'{size}B: {told["seconds"]}, late {late}')
        row = f'the GPU waits {less:.2f} s a step for the host, {waits:.2f} s without the delay'
        shown = f'delayed, of which the GPU waits {waits:.2f} s and {less:.2f} s'
        if size == 10: check(row in PAPERS and shown in OFFLOAD, f'docs/papers.md: {row}; docs/offload.md: {shown}')


def no_norm():
    """Without a norm, updates start as gradients arrive, so a step waits less for the host."""
    for ranks in 1, 2, 8:
        shape = (*SIZES[10], ranks, ranks * SIZES[10][2])
        clipped, free = (plan(*shape, type='bf16', **more) for more in ({}, {'more': 'on_nan off'}))
        away = [a['seconds']['away'] for a in (clipped, free)]
        print(f'10B on {ranks}, one micro-batch: {clipped["seconds_per_step"]:.3g} s, without a norm '
              f'{free["seconds_per_step"]:.3g} s; waiting {[round(s, 2) for s in away]}')
        check(away[1] <= 0.6 * away[0], f'10B on {ranks}: {away}')


one_gpu()
one_step_late()
no_norm()
many_gpus()
one_micro_batch()
