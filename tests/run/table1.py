"""The ZeRO paper's table 1: python3 table1.py SHARDC

Weights, gradients and optimizer states of a rank, for 7.5B, 128B and 1T parameters, over 1 to 1024 ranks, stages 1 to
3, as `plan` counts them, are 4 + 12/N, 2 + 14/N and 16/N bytes per parameter (Adam in bf16, f32 masters); padding,
norms and position tables make less than half a per cent. The additional memory for messages, the paper's CB, does not
grow with the model.
"""
import json, os, shutil, sys
from common import check, run, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODELS = {'A': (72, 2944, 32), 'B': (125, 9216, 72), 'C': (128, 25600, 200)}      # 7.6e9, 128e9, 1008e9 parameters
BUCKET, SHORT = 25 << 20, 8 * (16 << 10)
RANKS = (1, 4, 16, 64, 256, 1024)
PLANS = [(z, n) for z in (1, 2, 3) for n in RANKS]
FORMULA = {1: lambda n: 4 + 12 / n, 2: lambda n: 2 + 14 / n, 3: lambda n: 16 / n}


def model(name, layers, embed, heads):
    plans = ''.join(f'plan {name}{z}n{n} for {name} {{ mesh data = {n}\n place Batch -> data\n precision bf16\n zero {z} over data }}\n'
                    for z, n in PLANS)
    return f'''variant {name} of GPT2 {{ Pos = 1024; Vocab = 50304; Embed = {embed}; Heads = {heads}; Layers = {layers} }}
train t{name} for {name} {{ size Seq = 1024; batch 1024; steps 1; data "t.bin" format = u16; optim adamw lr = 1e-4; clip 1.0 }}
{plans}'''


try:
    open(f'{folder}/m.shard', 'w').write('use "gpt2"\n' + ''.join(model(name, *m) for name, m in MODELS.items()))
    sizes = {}
    for name, (layers, embed, _) in MODELS.items():
        count = (50304 + 1024 + 2) * embed + layers * (12 * embed * embed + 13 * embed)
        names = ','.join(f'{name}{z}n{n}' for z, n in PLANS)
        rows = json.loads(run(SHARDC, 'plan', 'm.shard', '--plan', names, '--json', cwd=folder)[0])
        for (z, n), row in zip(PLANS, rows, strict=True):
            bytes_ = row['classes'][0]['bytes']
            have, want = (bytes_['weights'] + bytes_['gradients'] + bytes_['optimizer']) / count, FORMULA[z](n)
            check(abs(have - want) < 0.005 * want,
                  f'{count:.3g} parameters, stage {z}, {n} ranks: {have} bytes each, the paper says {want}')
            messages = [c['largest_message_bytes'] for axis in row['communication'] for c in axis['collectives']]
            check(max(messages, default=0) <= BUCKET, f'{name}, stage {z}, {n} ranks: messages of {messages} bytes')
            if n > 1: sizes.setdefault((z, n), []).append(bytes_['buffers'])
    # a message's part of cast weights; under stage 3 they are gathered from where they are kept; short sums as one
    for (z, n), have in sizes.items():
        least, most = (0, SHORT) if z == 3 else (BUCKET / 2 / n, BUCKET / n + SHORT)
        check(all(least <= b <= most for b in have),
              f'stage {z}, {n} ranks: buffers of {have} bytes, from {least} to {most} wanted')
    print(f'{len(MODELS) * len(PLANS)} cells of table 1')
finally:
    shutil.rmtree(folder)
