"""`shardc verify`: python3 verify.py SHARDC SEEDED

Plans of one model (which the plan names) agree with one rank and with each other, one plan twice to the bit, bf16
within its rounding, also a plan for another machine than this one; a tolerance below rounding names a step and a tensor
(exit 3); a run that fails is exit 4. Parameters whose gradient is 0 in mathematics (`c`, biases of keys) are rounding
under any plan and no difference; a fault (SEEDED is a compiler with one, tests/faults/verify_faults.c) is.
"""
import array, json, math, os, shutil, subprocess, sys
from common import EXAMPLES, check, npy, text_file, workdir

(SHARDC, SEEDED), folder = map(os.path.abspath, sys.argv[1:3]), workdir()
MODEL = '''use "gpt2"
dims { In = 6; Out = 7 }
variant Small of GPT2 { Pos = 8; Vocab = 256; Embed = 16; Heads = 4; Layers = 2 }
variant Other of GPT2 { Pos = 8; Vocab = 256; Embed = 32; Heads = 4; Layers = 1 }
train t for Small { size Seq = 8; batch 8; steps 6; data "text.txt" format = bytes; optim adamw lr = 2e-3; clip 1.0 }
machine far { node gpus = 8 arch = sm_80 memory = 40GiB bf16 = 312TFLOPS }
model Keys {
  input x [Batch, Seq, In] f32
  input y [Batch, Seq] of Out
  sub query = Linear[In -> Heads, Head]
  sub key   = Linear[In -> Heads, Head]
  sub value = Linear[In -> Heads, Head]
  param w [Heads, Head, Out] ~ normal(0.5)
  param c [] = 0
  loss cross_entropy[Out](dot[Heads, Head](attention[Seq -> Key; Head](query(x), key(x), value(x)), w) + c, y)
}
train k for Keys { size Seq = 8; batch 8; steps 6; data columns(x = "x.f32", y = "y.npy"); optim adamw lr = 3e-3 }
plan k4 for Keys { micro 4 }
plan k_data for Keys { mesh data = 2
 place Batch -> data }
plan k_heads for Keys { mesh tensor = 2
 place Heads -> tensor }
plan k_zero for Keys { mesh data = 4
 place Batch -> data
 zero 2 over data bucket = 1KiB }
plan k_half for Keys { mesh data = 2
 place Batch -> data
 precision bf16 }
plan k_f16 for Keys { precision f16 }
plan one for Small { micro 8 }
plan z0 for Small { mesh data = 2
 place Batch -> data
 zero 0 over data bucket = 8KiB }
plan z3 for Small { mesh data = 2
 place Batch -> data
 zero 3 over data bucket = 8KiB }
plan bytes for Small { mesh data = 2
 place Batch -> data
 zero 3 over data
 precision f32 reduce = int8 gather = int8 }
plan narrow for Small { mesh data = 2
 place Batch -> data
 zero 3 over data
 precision f32 reduce = bf16 }
plan cut for Small { on far
 mesh data = 2, tensor = 2
 micro 2
 place Batch -> data
 place Heads, Mlp, Vocab -> tensor else Seq
 precision bf16
 recompute h.* keep = input }
'''


def verify(*args, expect=0, fault=None, from_stdin=False):
    env = dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1', TMPDIR=folder)
    if fault: env['SHARDC_FAULT'] = fault
    p = subprocess.run([SEEDED if fault else SHARDC, 'verify', '-' if from_stdin else 'm.shard', *args], cwd=folder,
                       input=MODEL if from_stdin else None, capture_output=True, text=True, timeout=1200, env=env)
    check(p.returncode == expect, f'verify {args}: exit {p.returncode}, expected {expect}\n{p.stdout}{p.stderr}')
    check(not [f for f in os.listdir(folder) if f.startswith('shardc-')], 'a folder stays')
    return p.stdout, p.stderr


def same_kernels():
    """`compile`, `verify` and `run` with --quick make the same kernels: the latter two find all in the cache."""
    cache = f'{folder}/cache'
    env = dict(os.environ, SHARDC_PATH=EXAMPLES, NO_COLOR='1', SHARDC_CACHE_DIR=cache)
    made = []
    for words in (['compile', '-o', 'quick'], ['verify', '--against', 'z3', '--steps', '1'], ['run']):
        options = ['m.shard', '--plan', 'z3', '--target', 'native', '--quick', *words[1:]]
        more = ['--', 'train', '--steps', '1', '--out', 'out'] if words == ['run'] else []
        p = subprocess.run([SHARDC, words[0], *options, *more], cwd=folder, capture_output=True, text=True, env=env)
        check(p.returncode == 0, f'{words}: {p.stderr}')
        made.append(sorted(name for _, _, names in os.walk(cache) for name in names))
    check(made[0] and made[1] == made[0] == made[2], f'{[len(names) for names in made]} kernels')


try:
    open(f'{folder}/m.shard', 'w').write(MODEL)
    text_file(f'{folder}/text.txt')
    array.array('f', [math.sin(7 * i * i) for i in range(16 * 8 * 6)]).tofile(open(f'{folder}/x.f32', 'wb'))
    npy(f'{folder}/y.npy', '<i4', (16, 8), [i * i % 7 for i in range(16 * 8)])
    j = json.loads(verify('--plan', 'z3', '--against', 'z3', '--steps', '2', '--json')[0])
    check(j['agrees'] and j['same_bits'] and j['steps'] == 2 and j['tensors'] > 20, f'{j}')
    check('they agree' in verify('--plan', 'z3', '--against', 'z0', from_stdin=True)[0], 'stages 3 and 0')
    j = json.loads(verify('--plan', 'bytes', '--against', 'z3', '--json')[0])
    check(j['agrees'] and not j['same_bits'] and j['tolerance']['loss'] == 2e-2, f'{j}')
    j = json.loads(verify('--plan', 'narrow', '--json')[0])
    check(j['agrees'] and j['tolerance']['loss'] == 2e-2, f'{j}')
    j = json.loads(verify('--plan', 'z3', '--json')[0])
    check(j['agrees'] and not j['same_bits'] and j['steps'] == 3 and j['against'] == ''
          and j['tolerance']['loss'] == 1e-5, f'{j}')
    with_states = j['tensors']
    out, err = verify('--plan', 'z3', '--set', 'train.optim.states=bf16', '--json')
    j = json.loads(out)
    check(j['agrees'] and j['tensors'] == with_states, f'states of 16 bits are compared: {j}')
    out, err = verify('--plan', 'z3', '--set', 'train.optim.states=bf16', '--set', 'train.optim.betas=[0.9,0.95]',
                      '--steps', '6', '--tol', '5e-6')
    check('they agree' in out and ' decides ' in out, f'a number of 16 bits next to the other one is rounding: {out}')
    out, err = verify('--plan', 'k_data', '--set', 'train.optim.states=bf16', '--no-verify', fault='scaled:0', expect=3)
    check('they differ' in out, f'a fault of states of 16 bits: {out}')
    out, err = verify('--plan', 'z0', '--set', 'train.optim=onebit_adam', '--steps', '1')
    check('not compared: ' in out and 'onebit.momentum' in out, f'states that one rank keeps otherwise: {out}')
    out, err = verify('--plan', 'cut', '--against', 'one')
    check('they agree' in out and 'tolerance 0.02' in out and not err, out + err)
    out, err = verify('--plan', 'cut', '--tol', '1e-7', expect=3)
    check('they differ' in out and 'E0802' in err and 'the loss of step 1 is' in err
          and 'the first tensor that differs is `wte`' in err, out + err)
    j = json.loads(verify('--plan', 'cut', '--tol', '1e-7', '--json', expect=3)[0])
    check(not j['agrees'] and j['first_step'] == 1 and j['first_tensor'] == 'wte', f'{j}')
    for plan, *quick in ('k4',), ('k_data', '--quick'), ('k_heads', '--quick'), ('k_zero', '--quick'), ('k_half',):
        out, err = verify('--plan', plan, *quick)
        check('they agree' in out and not err, out + err)
        check(plan not in ('k4', 'k_data') or ' decides ' in out and ('key.b' in out or ': c' in out), out)
    out, err = verify('--plan', 'k_f16', '--set', 'train.delay.after=1', '--set', 'train.clip=0.1')
    check('they agree' in out and not err, f'gradients wait with their loss scale: {out}{err}')
    for fault, plan in ('scaled:0', 'k_data'), ('scaled:1', 'k_zero'), ('lost:0', 'k_data'), ('left:0', 'k4'), \
            ('swapped:0', 'z3'), ('scaled:0', 'k_half'):
        out, err = verify('--plan', plan, '--no-verify', '--quick', fault=fault, expect=3)
        check('they differ' in out and 'E0802' in err, out + err)
    same_kernels()
    check('R0201' in verify('--plan', 'z0', '--', '--data', 'none.txt', expect=4)[1], 'what the run said')
    check('E0201' in verify('--plan', 'zz', expect=1)[1], 'a plan that is not there')
    check('--plan' in verify(expect=2)[1] and '--steps' in verify('--plan', 'z0', '--steps', '0', expect=2)[1],
          'wrong usage')
    print('plans agree, and where they do not it is told')
finally:
    shutil.rmtree(folder)
