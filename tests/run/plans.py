"""Plans compared with each other: python3 plans.py SHARDC

ZeRO stages 0 to 3 over two ranks train as two processes: without accumulation all four export the same bits, with it 0
= 1 and 2 = 3; a plan that runs twice writes the same checkpoint, with more threads too; LAMB the same over a mesh of
three and two; a rank sends per step exactly the elements that `shardc plan` says; a run resumes from a checkpoint of
stage 3 under four ranks and under one as under two, also if words and heads are padded for the ranks; `over` says which
ranks share. In bf16 a resumed run equals the uninterrupted one. `plan` counts weights, gradients and states as the ZeRO
paper does, and refuses with exit 3.
"""
import json, os, re, shutil, sys
from common import check, read, run, text_file, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
LAMB = ['a0', 'a1', 'a2', 'a3', 'b0', 'b1', 'b2', 'b3']      # without and with accumulation
STAGES = ''.join(f'plan {name}{z} for Small {{ mesh data = 2\n place Batch -> data\n {micro}\n zero {z} over data bucket = 8KiB }}\n'
                 for name, micro in (('z', ''), ('m', 'micro 2')) for z in range(4))
MODEL = '''use "gpt2"
variant Small of GPT2 { Pos = 8; Vocab = 251 pad 8; Embed = 18; Heads = 3 pad 4; Layers = 2 }
train t for Small {
  size  Seq = 8
  batch 8
  steps 6
  data  "text.txt" format = bytes
  optim adamw lr = 2e-3 betas = [0.9, 0.95] weight_decay = 0.1
  clip  1.0
}
plan one for Small { micro 8 }
plan half for Small { mesh data = 2
 place Batch -> data
 precision bf16
 zero 3 over data }
plan four for Small { mesh data = 2, tensor = 2
 place Batch -> data
 place Heads, Mlp, Vocab -> tensor else Seq
 zero 3 over data }
plan padded for Small { mesh data = 2, tensor = 2
 place Batch -> data
 place Heads, Mlp, Vocab -> tensor else Seq
 zero 3 over data bucket = 8KiB }
plan inside for Small { mesh data = 2, node = 2
 place Batch -> node, data
 zero 3 over data persist = 100 }
plan both for Small { mesh data = 2, node = 2
 place Batch -> node, data
 zero 3 bucket = 8KiB }
plan once for Small { mesh data = 2, node = 2
 place Batch -> node, data
 micro 1
 zero 3 keep_gathered = on }
''' + STAGES
FOUR = ['four', 'padded', 'inside', 'both', 'once']
TABLE = '''use "gpt2"
variant Wide of GPT2 { Pos = 1024; Vocab = 50304; Embed = 8192; Heads = 64; Layers = 90 }
train t for Wide { size Seq = 1024; batch 1024; steps 1; data "text.txt" format = u16; optim adamw lr = 1e-4; clip 1.0 }
machine small { node gpus = 8 arch = sm_80 memory = 40GiB reserve = 1.5GiB bf16 = 312TFLOPS
  link intra = 300GB/s inter = 25GB/s }
''' + ''.join(f'plan s{z}n{n} for Wide {{ mesh data = {n}\n place Batch -> data\n precision bf16\n zero {z} over data }}\n'
              for z in range(4) for n in (1, 16, 1024)) + '''plan tight for Wide { on small nodes = 2
 mesh data = 16
 place Batch -> data
 micro 1
 precision bf16
 zero 1 over data }
'''


def ranks(plan, *args):
    n = 1 if plan == 'one' else 4 if plan in FOUR else 6 if plan in LAMB else 2
    start = (f'./{plan}',) if n == 1 else (SHARDC, 'run', f'./{plan}', '-n', str(n), '--')
    return run(*start, *args, cwd=folder)


def exported(plan, out):
    shutil.rmtree(f'{folder}/{out}.export', ignore_errors=True)
    ranks(plan, 'export', '--out', f'{out}.export', '--resume', out)
    return read(f'{folder}/{out}.export/model.safetensors')


def losses(out): return [json.loads(line)['loss'] for line in open(f'{folder}/{out}/metrics.jsonl') if '"loss"' in line]


def planned(file, plan, expect=0):
    return json.loads(run(SHARDC, 'plan', file, '--plan', plan, '--json', cwd=folder, expect=expect)[0])


def held(out):
    """The newest checkpoint, as bytes of every rank, and the losses."""
    at = f'{folder}/{out}/latest'
    return losses(out), [(n, read(f'{at}/{n}')) for n in sorted(os.listdir(at)) if n.startswith('rank-')]


def norms_of_parameters():
    """LAMB: the stages agree bit by bit with each other, and with one rank, and send the planned bytes."""
    text = MODEL.replace('optim adamw lr = 2e-3 betas = [0.9, 0.95] weight_decay = 0.1',
                         'optim lamb lr = 2e-2 weight_decay = 0.1').replace('batch 8', 'batch 12')
    mesh = 'mesh data = 3, tensor = 2\n place Batch -> data\n place Heads, Mlp, Vocab -> tensor else Seq'
    for name in LAMB:
        text += f'plan {name} for Small {{ {mesh}\n {"micro 2" if name[0] == "b" else ""}\n zero {name[1]} over data bucket = 8KiB }}\n'
    open(f'{folder}/lamb.shard', 'w').write(text.replace('micro 8', 'micro 12'))
    bits = {}
    for plan in ['one', *LAMB]:
        run(SHARDC, 'compile', 'lamb.shard', '--plan', plan, '-o', plan, '--quick', '-q', cwd=folder)
        said = ranks(plan, 'train', '--out', f'lamb_{plan}', '--steps', '3', '--profile', '--check-memory')
        bits[plan] = exported(plan, f'lamb_{plan}')
        if plan == 'one': continue
        sent_as_planned('lamb.shard', plan, said)
        worst = max(abs(a - b) for a, b in zip(losses('lamb_one'), losses(f'lamb_{plan}')))
        check(worst < 2e-5, f'LAMB: losses of {plan} differ by {worst} from one rank')
    check(len({bits[f'a{z}'] for z in range(4)}) == 1, 'LAMB, stages without accumulation: other bits')
    check(bits['b0'] == bits['b1'] and bits['b2'] == bits['b3'], 'LAMB, stages with accumulation: other bits')


def both_accumulations():
    """The figures of `plan` for the choice not taken equal those for a plan that takes it."""
    open(f'{folder}/full.shard', 'w').write(MODEL.replace('bucket = 8KiB', 'bucket = 8KiB accumulate = full'))
    for plan in 'm2', 'm3':
        for file, taken in ('m.shard', 'shard'), ('full.shard', 'full'):
            p, other = planned(file, plan), planned('full.shard' if taken == 'shard' else 'm.shard', plan)
            for row in p['accumulate']:
                check(row['taken'] == (row['choice'] == taken), f'{plan}: {row}, {taken} is written')
                said, wire = (p if row['taken'] else other)['classes'][0]['bytes'], (p if row['taken']
                                                                                     else other)['communication'][0]
                check((row['total'], row['gradients'], row['elements_per_step'], row['bytes_per_step']) ==
                      (said['total'], said['gradients'], wire['elements_per_step'], wire['bytes_per_step']),
                      f'{plan}: {row} beside {said}')
    for plan in 'z2', 'm1': check('accumulate' not in planned('m.shard', plan), f'{plan} has no choice')
    text = ''.join(run(SHARDC, 'plan', 'm.shard', '--plan', 'm2', '--html', 'm2.html', cwd=folder))
    page = re.sub('<[^>]*>', ' ', open(f'{folder}/m2.html').read())
    for form, shown in ('text', text), ('page', page):
        check(re.search(r'accumulate = shard +\(chosen\)', shown), f'{form}: the choice of accumulation is missing')


def shares_of_states():
    """`over` names the axes over which a rank owns a part: those that split Batch, one of them, or any that hold the
    parameters whole."""
    text = MODEL
    for name, over in ('none', ''), ('one', ' over node'), ('two', ' over node, data'), ('words', ' over data node'):
        text += f'plan over_{name} for Small {{ mesh data = 2, node = 4\n place Batch -> data, node\n zero 3{over} }}\n'
    text += 'plan over_seq for Small { mesh data = 2, ctx = 2\n place Batch -> data\n place Seq -> ctx\n zero 3 over data, ctx }\n'
    open(f'{folder}/over.shard', 'w').write(text)
    whole = planned('over.shard', 'one')['classes'][0]['bytes']['optimizer']
    for name, ways in ('none', 8), ('one', 4), ('two', 8), ('words', 8), ('seq', 4):
        own = planned('over.shard', f'over_{name}')['classes'][0]['bytes']['optimizer']
        check(whole / ways <= own < 1.05 * whole / ways,
              f'over_{name}: {own} bytes of states of {whole}, a part of {ways} was asked for')


def sent_as_planned(file, plan, said):
    for axis in planned(file, plan)['communication']:
        sent, want = re.search(rf'^axis {axis["axis"]} +\d+ calls +(\d+) elements', ''.join(said),
                               re.M), axis['elements_per_step']
        check(sent and int(sent.group(1)) == 3 * want,
              f'{plan} sends {sent and sent.group(1)} elements in 3 steps, planned {want} each')


try:
    open(f'{folder}/m.shard', 'w').write(MODEL)
    open(f'{folder}/table.shard', 'w').write(TABLE)
    text_file(f'{folder}/text.txt')
    stages = [f'{name}{z}' for name in 'zm' for z in range(4)] + FOUR[1:]
    bits = {}
    for plan in ['one', 'half', 'four', *stages]:
        run(SHARDC, 'compile', 'm.shard', '--plan', plan, '-o', plan, '--quick', '-q', cwd=folder)
    for plan in ['one', *stages]:
        said = ranks(plan, 'train', '--out', f'run_{plan}', '--steps', '3', '--profile')
        if plan == 'one': continue
        bits[plan] = exported(plan, f'run_{plan}')
        sent_as_planned('m.shard', plan, said)
        worst = max(abs(a - b) for a, b in zip(losses('run_one'), losses(f'run_{plan}')))
        check(worst < 2e-5, f'losses of {plan} differ by {worst} from one rank')
    check(len({bits[f'z{z}'] for z in range(4)}) == 1, 'stages 0 to 3 without accumulation: other bits')
    check(bits['m0'] == bits['m1'] and bits['m2'] == bits['m3'], 'stages with accumulation: other bits')
    for threads in '1', '2':
        for plan in 'once', 'm3':
            ranks(plan, 'train', '--out', f'{plan}_{threads}', '--steps', '3', '--threads', threads)
            check(held(f'{plan}_{threads}') == held(f'run_{plan}'), f'{plan} again, with {threads} threads: other bits')

    moved = ['one', *FOUR]
    for plan in ['z3', *moved]: ranks(plan, 'train', '--resume', 'run_z3', '--out', f'on_{plan}', '--steps', '6')
    for plan in moved:
        worst = max(abs(a - b) for a, b in zip(losses('on_z3'), losses(f'on_{plan}')))
        check(worst < 2e-5, f'resumed under {plan}: losses differ by {worst}')
    for plan, out in (('padded', 'z3'), ('z3', 'padded')):
        check(exported(plan, f'run_{out}') == bits[out],
              f'padding: the checkpoint of {out}, exported by {plan}, has other bits')
    ranks('half', 'train', '--out', 'whole')
    ranks('half', 'train', '--out', 'parts', '--steps', '3'), ranks('half', 'train', '--out', 'parts', '--resume')
    check(exported('half', 'whole') == exported('half', 'parts'), 'a resumed run in bf16 gives other bits')

    count = 50304 * 8192 + 1024 * 8192 + 90 * (12 * 8192 * 8192 + 13 * 8192) + 2 * 8192
    for z in range(4):
        for n in (1, 16, 1024):
            bytes_ = planned('table.shard', f's{z}n{n}')['classes'][0]['bytes']
            have = (bytes_['weights'] + bytes_['gradients'] + bytes_['optimizer']) / count
            want = [16, 4 + 12 / n, 2 + 14 / n, 16 / n][z]
            check(abs(have - want) < 0.03 * want,
                  f'stage {z} over {n}: {have} bytes per parameter, the paper says {want}')
    check(not planned('table.shard', 'tight', expect=3)['fits'], 'a plan that is too large fits')
    both_accumulations()
    shares_of_states()
    norms_of_parameters()
    print('stages give the same bits, sent = planned, checkpoints move between plans, bytes as in the paper')
finally:
    shutil.rmtree(folder)
