"""Adapters of low rank, `lora` in the train block: losses of 50 steps equal those of PEFT (lora.json: PEFT 0.21 and
PyTorch 2.15, from the base and the fresh adapters that this test exports); a base from a folder, a run or a checkpoint
leaves adapters fresh; nothing but adapters changes; exported adapters have PEFT's names and shapes, merged weights are
base + alpha / rank * b a; every plan computes the one-rank program, exactly; refusals.

    lora.py SHARDC EXAMPLES [golden: leaves `hf` and `fresh` in the folder of that name, for PEFT]
"""
import itertools, json, os, random, re, shutil, subprocess, sys
from common import HERE, check, entries, floats, read, run, workdir

SHARDC, EXAMPLES, WORK = os.path.abspath(sys.argv[1]), sys.argv[2], workdir()
os.chdir(WORK)
random.seed(7)
WORDS = [''.join(random.choices('abcdefgh', k=random.randrange(2, 7))) for _ in range(30)]
open('x.txt', 'w').write(' '.join(random.choices(WORDS, k=900)))

MODEL = '''use "llama"
variant Small of Llama3 { Vocab = 256; Embed = 64; Kv = 2; Group = 2; Head = 16; Mlp = 96; Layers = 2 }
dims { Rank = 4 }
train pre for Small {
  size Seq = 32; batch 4; steps 20
  data "x.txt" shuffle = off
  optim adamw lr = 3e-3
}
train tune for Small {
  size Seq = 32; batch 4; steps 50
  data "x.txt" shuffle = off
  lora Rank alpha = 8 of layers.*.attn, layers.*.mlp
  optim adamw lr = 1e-3
}
plan three for Small { mesh data = 2; place Batch -> data; zero 3 over data; micro 1 }
'''
open('m.shard', 'w').write(MODEL)
losses = lambda out: [json.loads(x)['loss'] for x in open(f'{out}/metrics.jsonl') if '"loss"' in x]


def compile_to(name, *args): run(SHARDC, 'compile', 'm.shard', '--model', 'Small', '-o', name, '--quick', *args)


def base():
    compile_to('pre', '--train', 'pre'), compile_to('tune', '--train', 'tune')
    run('./pre', 'train', '--out', 'r0'), run('./pre', 'export', '--resume=r0', '--out', 'hf')
    run('./tune', 'export', '--init', 'hf', '--out', 'fresh')
    if 'golden' in sys.argv: sys.exit(shutil.copytree('.', sys.argv[sys.argv.index('golden') + 1]) and 0)
    a, b = floats('fresh/adapter_model.safetensors'), floats('hf/model.safetensors')
    check(len(a) == 28 and all(any(v) == ('lora_A' in k) for k, v in a.items()), 'A is random, B is 0')
    for key, v in a.items():
        if 'lora_A' in key:
            n = len(v) // 4
            check(max(map(abs, v)) <= n ** -0.5 * 1.00001 and max(map(abs, v)) > 0.9 * n ** -0.5, f'range of {key}')


def trains():
    run('./tune', 'train', '--init', 'hf', '--out', 'r1')
    want, have = json.load(open(f'{HERE}/lora.json')), losses('r1')
    worst = max(abs(x - y) for x, y in zip(have, want, strict=True))
    check(worst < 1e-5, f'losses differ by {worst} from PEFT')
    run('./tune', 'train', '--init', 'r0', '--out', 'r2')
    run('./tune', 'train', '--init', 'r0/step-000020', '--out', 'r3')
    check(losses('r2') == have == losses('r3'), 'a base from a run')
    run('./tune', 'train', '--init', 'hf', '--steps', '30', '--out', 'r4')
    run('./tune', 'train', '--resume', '--out', 'r4')
    check(losses('r4') == have, 'a resumed run')


def exports():
    for word, out in ((), 'ad'), (('--merge',), 'mg'): run('./tune', 'export', '--resume=r1', '--out', out, *word)
    check(not os.path.exists('ad/model.safetensors') and os.path.exists('mg/config.json'), 'files')
    config = json.load(open('ad/adapter_config.json'))
    words = [config[k] for k in ('r', 'lora_alpha', 'task_type', 'fan_in_fan_out')]
    names = [f'{x}_proj' for x in ('q', 'k', 'v', 'o', 'gate', 'up', 'down')]
    check(words == [4, 8, 'CAUSAL_LM', False] and config['target_modules'] == names, str(config))
    adapters = floats('ad/adapter_model.safetensors')
    whole, start = floats('mg/model.safetensors'), floats('hf/model.safetensors')
    check(set(whole) == set(start) and len(adapters) == 28, 'names')
    changed = set()
    for key, a in adapters.items():
        if 'lora_B' in key: continue
        name = key.removeprefix('base_model.model.').replace('lora_A.', '')
        b = adapters[key.replace('lora_A', 'lora_B')]
        n, m = len(a) // 4, len(b) // 4
        changed.add(name)
        for o, i in random.sample(list(itertools.product(range(m), range(n))), 200):
            want = start[name][o * n + i] + 2 * sum(b[o * 4 + r] * a[r * n + i] for r in range(4))
            check(abs(want - whole[name][o * n + i]) < 1e-6, f'{name} [{o}, {i}]')
    check(all(whole[k] == start[k] for k in start if k not in changed) and len(changed) == 14, 'the rest is the base')
    run('./pre', 'eval', '--init', 'mg', '--data', 'x.txt', '--valid', 'x.txt')
    for exe, run_of, said in ('tune', 'r1', 'adapters are exported without one'), ('pre', 'r0', 'does not exist'):
        told = run(f'./{exe}', 'export', f'--resume={run_of}', '--out', 'x', '--tokenizer', 'none', expect=
                   2 if exe == 'tune' else 4)[1]
        check(said in told, f'--tokenizer of {exe}: {told}')
    said = run('./pre', 'eval', '--init', 'r1', '--valid', 'x.txt', expect=4)[1]
    check('has the adapter layers.*.' in said and '`export --merge`' in said, f'adapters that nothing reads: {said}')
    run('./tune', 'eval', '--resume=r1', '--valid', 'x.txt', '--dump', 'all.safetensors')
    said = run('./pre', 'eval', '--init', 'all.safetensors', '--valid', 'x.txt', expect=4)[1]
    check('lora_a is in the file, but the model has no parameter for it' in said, f'adapters of a dump: {said}')
    check('--merge: the model was compiled without' in run('./pre', 'export', '--resume=r0', '--out', 'x', '--merge',
                                                           expect=2)[1], '--merge without adapters')
    head = entries(read('ad/adapter_model.safetensors'))
    shapes = {k.split('layers.0.')[1]: shape for k, (_, shape, _) in head.items() if 'layers.0.' in k}
    check(shapes['self_attn.o_proj.lora_A.weight'] == [4, 64] and shapes['mlp.down_proj.lora_B.weight'] == [64, 4]
          and shapes['mlp.down_proj.lora_A.weight'] == [4, 96], str(shapes))


def ranks():
    """Two ranks of zero 3: the same losses, and a checkpoint in parts exports the same adapters."""
    compile_to('two', '--train', 'tune', '--plan', 'three')
    run(SHARDC, 'run', './two', '-n', '2', '--', 'train', '--init', 'hf', '--out', 'r5')
    check(max(abs(x - y) for x, y in zip(losses('r5'), losses('r1'), strict=True)) < 2e-6, 'two ranks')
    run('./tune', 'export', '--resume=r5', '--out', 'ad5')
    a, b = floats('ad/adapter_model.safetensors'), floats('ad5/adapter_model.safetensors')
    check(max(abs(x - y) for k in a for x, y in zip(a[k], b[k])) < 1e-4, 'adapters of two ranks')


PLANS = ['mesh data = 2, tensor = 2; place Batch -> data; place Kv, Mlp, Vocab -> tensor else Seq; zero %d over data; '
         'micro 1', 'mesh data = 2, pipe = 2; place Batch -> data; place Layers -> pipe; zero %d over data; micro 1']
OPTIMS = 'adamw', 'sgd momentum = 0.9', 'lamb', 'adamw states = bf16'


def plans():
    """Zero stages x tensor or pipeline x optimizers, exactly equal to one rank."""
    for i, (plan, zero) in enumerate(itertools.product(PLANS, range(4))):
        if 'pipe' in plan and zero > 1: plan = plan.replace('micro 1', 'micro 1; pipeline gpipe')
        text = MODEL.split('plan three')[0].replace('adamw lr = 1e-3', f'{OPTIMS[i % 4]} lr = 1e-3')
        open('p.shard', 'w').write(text + f'plan p for Small {{ {plan % zero} }}\n')
        run(SHARDC, 'equal', 'p.shard', '--model', 'Small', '--train', 'tune', '--plan', 'p')


def drops():
    """Steps drop inputs of adapters: not in the first, whose B is 0, and not in `eval`; exactly under plans."""
    text = MODEL.replace('alpha = 8 of', 'alpha = 8 dropout = 0.25 of')
    open('d.shard', 'w').write(text)
    run(SHARDC, 'compile', 'd.shard', '--model', 'Small', '--train', 'tune', '-o', 'drop', '--quick')
    run('./drop', 'train', '--init', 'hf', '--out', 'rd')
    have, plain = losses('rd'), losses('r1')
    check(have[0] == plain[0] and have[-1] != plain[-1] and abs(have[-1] - plain[-1]) < 0.2, f'{have}, {plain}')
    run('./drop', 'export', '--resume=rd', '--out', 'add')
    check(json.load(open('add/adapter_config.json'))['lora_dropout'] == 0.25, 'adapter_config.json')
    said = [''.join(run(f'./{name}', 'eval', '--resume=rd', '--valid', 'x.txt')) for name in ('drop', 'drop', 'tune')]
    loss = [re.search(r'loss ([0-9.]+)', s).group(1) for s in said]
    check(loss[0] == loss[1] == loss[2], f'{loss}')
    for plan in PLANS:
        open('p.shard', 'w').write(text.split('plan three')[0] + f'plan p for Small {{ {plan % 1} }}\n')
        run(SHARDC, 'equal', 'p.shard', '--model', 'Small', '--train', 'tune', '--plan', 'p')


def refusals():
    line = 'lora Rank alpha = 8 of layers.*.attn, layers.*.mlp'
    for word, code, says in (
            ('lora Rank of layers.*.attn', 'E0602', 'for example `alpha = 8`'),
            ('lora Rank alpha = 8', 'E0602', 'needs `of` and weights'),
            ('lora R alpha = 8 of layers.*.attn', 'E0201', '`dims { R = 8 }` declares'),
            ('lora Rank alpha = 8 of layers.*.atn', 'E0709', 'layers.*.atn'),
            ('lora Rank alpha = 8 of layers[0..1].attn', 'E0901', 'all of them: `layers.*.attn`'),
            ('lora Rank alpha = 8 of embed', 'E0602', 'no `dot` reads'),
            ('lora Rank alpha = 8 of layers.*.norm1', 'E0602', 'no `dot` reads'),
            ('lora Embed alpha = 8 of layers.*.attn', 'E0203', 'a dim of its own'),
            ('lora Rank alpha = 0 of layers.*.attn', 'E0602', 'alpha'),
            ('lora rank = 8 alpha = 8 of layers.*.attn', 'E0602', ''),
            (line + '\n  optim muon of embed', 'E0602', 'only frozen parameters')):
        open('bad.shard', 'w').write(re.sub('train pre .*?\n}\n', '', MODEL, flags=re.S).replace(line, word))
        p = subprocess.run([SHARDC, 'dump', 'bad.shard'], capture_output=True, text=True)
        check(p.returncode == 1 and code in p.stderr and says in p.stderr, f'{word}: {p.stderr}')
    tied = '''use "std"
dims { Batch, Seq; Vocab = 16; Embed = 8; Rank = 2 }
model T {
  input tokens, targets [Batch, Seq] of Vocab
  param table [Vocab, Embed] ~ normal(1)
  loss cross_entropy[Vocab](dot[Embed](table[Vocab = tokens], table), targets)
}
train t for T { size Seq = 4; batch 2; steps 1; data "x.txt"; lora Rank alpha = 2 of table; optim adamw }
'''
    open('bad.shard', 'w').write(tied)
    p = subprocess.run([SHARDC, 'dump', 'bad.shard'], capture_output=True, text=True)
    check('other operators than `dot` read `table`' in p.stderr, p.stderr)


def transposed():
    """GPT-2's files hold [inputs, outputs]: adapters have the shapes of PEFT all the same."""
    open('g.shard', 'w').write('use "gpt2"\n'
                               'variant S of GPT2 { Vocab = 256; Pos = 16; Embed = 32; Heads = 2; Layers = 1 }\n'
                               'dims { Rank = 2 }\ntrain t for S { size Seq = 16; batch 2; steps 1; data "x.txt"\n'
                               '  lora Rank alpha = 2 of h.*.attn, h.*.mlp\n  optim adamw }\n')
    run(SHARDC, 'compile', 'g.shard', '--model', 'S', '-o', 'g', '--quick')
    run('./g', 'train', '--out', 'rg'), run('./g', 'export', '--resume=rg', '--out', 'ag')
    head = entries(read('ag/adapter_model.safetensors'))
    shape = {re.sub(r'.*h\.0\.', '', k): of for k, (_, of, _) in head.items()}
    check(shape['attn.c_attn.lora_A.weight'] == [2, 32] and shape['attn.c_attn.lora_B.weight'] == [96, 2], str(shape))
    check(shape['mlp.c_proj.lora_A.weight'] == [2, 128] and shape['mlp.c_proj.lora_B.weight'] == [32, 2], str(shape))
    check('base_model.model.transformer.h.0.attn.c_attn.lora_A.weight' in head, str(list(head)))
    check(json.load(open('ag/adapter_config.json'))['fan_in_fan_out'] is True, 'fan_in_fan_out')


for case in base, trains, exports, ranks, plans, drops, refusals, transposed:
    case()
    print(case.__name__, 'good', flush=True)
