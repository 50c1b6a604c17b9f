"""Preferences (examples/dpo.shard): the loss of golden sums of log probabilities; both networks begin as one base, no
checkpoint has the reference, `export` writes one tensor of each name, the policy's; adapters of the policy alone; every
plan computes the one-rank program, exactly.

    dpo.py SHARDC EXAMPLES
"""
import itertools, json, math, os, random, re, struct, sys
from common import check, floats, npy, read, run, workdir

SHARDC, EXAMPLES, WORK = os.path.abspath(sys.argv[1]), sys.argv[2], workdir()
os.chdir(WORK)
random.seed(3)
losses = lambda out: [json.loads(x)['loss'] for x in open(f'{out}/metrics.jsonl') if '"loss"' in x]


def save(name, rows, kind):
    """An array of NumPy, of two dims or one."""
    shape = (len(rows), len(rows[0])) if isinstance(rows[0], list) else (len(rows),)
    npy(name, kind, shape, list(itertools.chain(*rows)) if len(shape) == 2 else rows)


def golden():
    """torch: -logsigmoid(0.1 ((c - rc) - (r - rr))).mean() is 0.6687719."""
    given = dict(c=[-10, -12], r=[-11, -9], rc=[-10.5, -12.5], rr=[-10.5, -9.5])
    for name, values in given.items(): save(name + '.npy', values, '<f4')
    columns = ', '.join(f'{k} = "{k}.npy"' for k in given)
    open('g.shard', 'w').write(f'''use "std"
dims {{ Batch }}
model G {{
  input c, r, rc, rr [Batch] f32
  param zero [] = 0
  loss mean[Batch](softplus(zero - 0.1 * ((c - rc) - (r - rr))))
}}
train t for G {{ batch 2; steps 1; data columns({columns}); optim sgd }}
''')
    run(SHARDC, 'compile', 'g.shard', '-o', 'g', '--quick'), run('./g', 'train', '--out', 'rg')
    check(abs(losses('rg')[0] - 0.6687719) < 1e-7, f'{losses("rg")}')


BASE = '''use "llama"
variant Small of Llama3 { Vocab = 8; Embed = 32; Kv = 2; Group = 2; Head = 8; Mlp = 64; Layers = 2 }
train t for Small { size Seq = 8; batch 4; steps 2; data "tokens.bin" format = bytes; optim adamw }
'''
TRAIN = '''use "dpo"
train t for TinyDPO {
  size Seq = 8; batch 4; steps 10
  data columns(chosen = "c.npy", chosen_targets = "ct.npy", rejected = "j.npy", rejected_targets = "jt.npy")
  %s
  optim adamw lr = 1e-2
}
'''
LORA = 'lora Rank alpha = 32 of policy.layers.*.attn, policy.layers.*.mlp'


def begin():
    open('tokens.bin', 'wb').write(bytes(random.randrange(8) for _ in range(400)))
    for name in 'cj':
        save(name + '.npy', [[random.randrange(8) for _ in range(8)] for _ in range(16)], '<i4')
        save(name + 't.npy', [[-100] * 3 + [random.randrange(8) for _ in range(5)] for _ in range(16)], '<i4')
    open('base.shard', 'w').write(BASE)
    run(SHARDC, 'compile', 'base.shard', '--model', 'Small', '-o', 'base', '--quick')
    run('./base', 'train', '--out', 'r0'), run('./base', 'export', '--resume=r0', '--out', 'hf')


def names(path):
    """The names of tensors in the file; a name that is written twice is listed twice."""
    data = read(path)
    return re.findall(r'"([^"]+)":\{"dtype"', data[8:8 + struct.unpack('<Q', data[:8])[0]].decode())


def trains():
    for what, line in ('whole', ''), ('low', LORA):
        open(f'{what}.shard', 'w').write(TRAIN % line)
        run(SHARDC, 'compile', f'{what}.shard', '--model', 'TinyDPO', '--train', 't', '-o', what, '--quick')
        run(f'./{what}', 'train', '--init', 'hf', '--out', f'r_{what}')
        have = losses(f'r_{what}')
        check(abs(have[0] - math.log(2)) < 1e-6 and have[-1] < have[0] - 0.01, f'{what}: {have}')
        merge = ['--merge'] if line else []
        run(f'./{what}', 'export', f'--resume=r_{what}', '--out', f'x_{what}', *merge)
        have, want = names(f'x_{what}/model.safetensors'), names('hf/model.safetensors')
        check(sorted(have) == sorted(want), f'{what}: {have}')
        check(read(f'x_{what}/config.json') == read('hf/config.json'), 'config.json')
        a, b = floats(f'x_{what}/model.safetensors'), floats('hf/model.safetensors')
        check(a['model.layers.1.mlp.up_proj.weight'] != b['model.layers.1.mlp.up_proj.weight'], f'{what}: no change')
    own = floats('r_whole/step-000010/rank-00000.safetensors')
    check('policy.embed.m' in own and not any(k.startswith('reference') for k in own), f'{list(own)}')
    run('./low', 'export', '--resume=r_low', '--out', 'ad')
    have = names('ad/adapter_model.safetensors')
    check(len(have) == 28 and all('.lora_' in k for k in have), f'{have}')


PLANS = ['mesh data = 2, tensor = 2; place Batch -> data; place Kv, Mlp, Vocab -> tensor else Seq; zero %d over data; '
         'micro 1', 'mesh data = 2; place Batch -> data; zero %d over data; micro 2; precision bf16']


def plans():
    for i, (plan, zero) in enumerate(itertools.product(PLANS, range(4))):
        open('p.shard', 'w').write(TRAIN % ('', LORA)[i % 2] + f'plan p for TinyDPO {{ {plan % zero} }}\n')
        run(SHARDC, 'equal', 'p.shard', '--model', 'TinyDPO', '--train', 't', '--plan', 'p')


for case in golden, begin, trains, plans:
    case()
    print(case.__name__, 'good', flush=True)
