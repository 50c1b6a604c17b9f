"""Saved inputs split over the tensor axis (`recompute .. over`, Pa of ZeRO): python3 kept.py SHARDC

What a rank keeps of its layers' inputs is that without the word by the number of ranks of the axis, to the byte, under
every stage of ZeRO, with micro-batches, in bf16 and for a part of the layers; with `else Seq`, which splits them
already, nothing changes. Then C1 to C4 of the paper's third table for the models of 100B and 170B of its fifth.
"""
import json, os, shutil, sys
from common import EXAMPLES, check, run, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 64; Vocab = 256; Embed = 64; Heads = 8; Layers = 8 }
train t for Small {
  size  Seq = 64
  batch 16
  steps 1
  data  "text.txt" format = bytes
  optim adamw lr = 1e-3
}
'''


def plans(file, names):
    return json.loads(run(SHARDC, 'plan', file, '--plan', ','.join(names), '--json', cwd=folder)[0])


def saved(p): return p['classes'][0]['bytes']['saved']


def small():
    text, cases = MODEL, []
    for zero in range(4):
        for tensor, micro, precision, layers, seq in ((2, 8, 'f32', '.*', ''), (4, 2, 'bf16', '.*', ''),
                                                      (8, 1, 'f32', '[0..3]', ''), (2, 2, 'bf16', '.*', ' else Seq')):
            for over in '', ' over tensor':
                text += (f'plan p{len(cases)} for Small {{\n  mesh data = 2, tensor = {tensor}\n'
                         f'  micro {micro}\n  place Batch -> data\n  place Heads, Mlp, Vocab -> tensor{seq}\n  zero {zero} over data\n  precision {precision}\n'
                         f'  recompute h{layers} keep = input{over}\n'
                         + ('  recompute h[4..7] keep = input\n' if layers != '.*' else '') + '}\n')
                cases.append((tensor, micro, precision, layers, seq))
    open(f'{folder}/m.shard', 'w').write(text)
    found = plans('m.shard', [f'p{i}' for i in range(len(cases))])
    for i in range(0, len(cases), 2):
        tensor, micro, precision, layers, seq = cases[i]
        whole, split = saved(found[i]), saved(found[i + 1])
        want = 8 * micro * 64 * 64 * (2 if precision == 'bf16' else 4)
        check(whole == (want // tensor if seq else want), f'{cases[i]}: {whole} bytes, {want} by the formula')
        want = whole if seq else whole // tensor if layers == '.*' else whole // 2 + whole // 2 // tensor
        check(split == want, f'{cases[i]}: {split} bytes, {whole} without the word')
    return len(found)


def paper():
    """Gigabytes of each configuration, and which one has room in 32 GiB. (The paper's own 170B also needed its saved
    inputs in host memory.)"""
    text, fits = open(f'{EXAMPLES}/zero_paper.shard').read(), {}
    text = text.replace('gpus = 16 ', 'gpus = 16 memory = 32GiB ')
    for model, layers, micro, batch in (('GPT_100B', 125, 32, 800), ('GPT_170B', 212, 12, 300)):
        other = text.replace('Layers = 125', f'Layers = {layers}').replace('batch 800', f'batch {batch}')
        open(f'{folder}/paper.shard', 'w').write(other.replace('micro     32', f'micro     {micro}'))
        c = {}
        for name in 'c1', 'c2', 'c3', 'c4':
            said = run(SHARDC, 'plan', 'paper.shard', '--plan', name, '--json', cwd=folder,
                       expect=0 if name == 'c4' else 3)[0]
            p = json.loads(said.splitlines()[0])
            c[name] = p['classes'][0]['bytes']
            fits[model, name] = c[name]['total'] <= 32 << 30
        inputs = layers * micro * 1024 * 8192 * 2
        for whole, split in ('c1', 'c2'), ('c3', 'c4'):
            have = c[whole]['saved'], c[split]['saved']
            check(have == (inputs, inputs // 16), f'{model}: {have} bytes are kept of {inputs}')
        order = sorted(c, key=lambda n: -c[n]['total'])
        check(order == ['c1', 'c3', 'c2', 'c4'], f'{model}: {order}')
        print(model, {n: round(c[n]['total'] / 2**30, 1) for n in c})
    check([k for k, f in fits.items() if f] == [('GPT_100B', 'c4'), ('GPT_170B', 'c4')], f'{fits}')


n = small()
paper()
shutil.rmtree(folder)
print(f'{n} plans')
