"""The largest models on GPUs of 32 GB with host memory: python3 offload_sizes.py SHARDC

`plan` of the sizes of "ZeRO-Offload: Democratizing Billion-Scale Model Training", figure 7 and table 3, on its machine
(16 V100 and 1.5 TB of host memory in a node), with its batch sizes: a model that fits in the paper fits in `plan`, and
a model that does not fit in the paper without offload does not fit in `plan`. (Table 3 has no 30 billion: its 20 and 40
are 8192 wide.) Also saved inputs, of "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", figure 6:
150 billion parameters over 400 GPUs with saved inputs on the host (C5). Only bytes: the compiler builds no kernels for
the paper's GPU, so a newer GPU's name has its memory.
"""
import os, sys
from common import check, planned, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant Big of GPT2 { Pos = 1024; Vocab = 50257; Embed = %d; Heads = %d; Layers = %d }
train t for Big { size Seq = 1024; batch %d; steps 10; data "none.bin" format = u16; optim adamw; clip 1.0 }
machine dgx2 {
  node gpus = 16 arch = sm_80 memory = 32GiB f16 = 125TFLOPS hbm = 900GB/s
  host memory = 1.5TB pcie = 16GB/s cores = 48 dram = 120GB/s
  link intra = 150GB/s inter = 100GB/s
}
plan p for Big {
  on dgx2 nodes = %d
  mesh %s
  place Batch -> data
  %s
  zero 2 over data
  micro %d
  precision f16 master = f32
  recompute h.* keep = input%s
  %s
}
'''
TENSOR = 'place Heads, Mlp, Vocab -> tensor'


def plan(layers, embed, tensor, data, batch, offload, kept=''):
    mesh = f'tensor = {tensor}, data = {data}' if tensor > 1 else f'data = {data}'
    text = MODEL % (embed, embed // 128, layers, batch * data, (tensor * data + 15) // 16, mesh,
                    TENSOR if tensor > 1 else '', batch, kept, 'offload optimizer, grads -> host' if offload else '')
    return planned(SHARDC, folder, text)


# billions of parameters, layers, width, ranks of tensor and data, the batch of a rank
SIZES = [(13, 65, 4096, 1, 1, 4), (30, 37, 8192, 4, 1, 8), (70, 69, 9216, 8, 2, 8)]

for size, *shape in SIZES:
    told, said = plan(*shape, offload=True)
    c = told['classes'][0]
    check(told['fits'], f'{size}B on {told["ranks"]} GPUs: {said}')
    parameters = c['bytes']['weights'] / 2 * shape[2]
    check(abs(parameters / 1e9 / size - 1) < 0.05, f'{size}B: {parameters / 1e9:.2f} billion parameters')
    down, up = told['classes'][0]['moved_per_step']['down'], told['classes'][0]['moved_per_step']['up']
    # 2 bytes of every parameter, only the rank's own part; small parameters are kept in f32 and uploaded in 4 bytes
    own = c['bytes']['weights'] / shape[3]
    check(0.99 * own < down <= 1.01 * own and own <= up < 1.01 * own, f'{size}B: {down} down, {up} up, {own} of each')
    # 2 bytes of every parameter, the gradient of one group (a layer's, or the table's), and activations
    layers, embed, tensor, data, batch = shape
    group, here = 2 * max(12 * embed**2, 50257 * embed / data) / tensor, c['bytes']
    held = batch * 1024 * embed * 2 * layers
    check(here['optimizer'] <= 192 and here['gradients'] <= 1.01 * group, f'{size}B: {here}, a group {group}')
    check(held <= here['saved'] <= 1.05 * held, f'{size}B: {here}, {held} kept')
    near, said = plan(*shape, offload=False)
    check(not near['fits'] and 'E0801' in said, f'{size}B without offload: {said}')
    print(f'{size}B on {told["ranks"]}: {c["bytes"]["total"] / 2**30:.1f} GiB of 32, and '
          f'{c["host"]["total"] / 2**30:.1f} GiB on the host; without offload '
          f'{near["classes"][0]["bytes"]["total"] / 2**30:.1f} GiB')

# figure 6 and table 7: 16 ranks of tensor, 25 of data, a batch of 16 for each. The paper's largest model for C4, whose
# saved inputs are split over tensor, has 140 billion parameters; `plan` fits 150 billion for C4, and C5 needs less by
# exactly these inputs.
kept = {}
for size, layers, there in (140, 175, ''), (150, 187, ''), (150, 187, ' offload = host'):
    told, said = plan(layers, 8192, 16, 25, 16, False, ' over tensor' + there)
    c = kept[size, there] = told['classes'][0]
    check(told['fits'] and told['ranks'] == 400, f'{size}B: {said}')
    print(f'{size}B on 400{there}: {c["bytes"]["total"] / 2**30:.1f} GiB, of what layers keep '
          f'{c["bytes"]["saved"] / 2**30:.1f} here and {c["host"]["saved"] / 2**30:.1f} on the host')
saved = kept[150, '']['bytes']['saved']
c5 = kept[150, ' offload = host']
check(c5['bytes']['saved'] == 0 and c5['host']['saved'] == saved == c5['moved_per_step']['down'], f'C5: {c5}')
SLOTS = 32 * 2**25  # at most, through which copies go
check(c5['moved_per_step']['up'] == saved, f'C5: {c5}')
check(c5['bytes']['total'] <= kept[150, '']['bytes']['total'] - saved * 0.99 + SLOTS, f'C5: {c5}')
