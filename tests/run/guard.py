"""A step that is not finite changes nothing: the run ends with the state before it saved, names gradients and layers,
or leaves the step out; after that it goes on as if the step had not been.

    python3 guard.py SHARDC
"""
import array, json, os, shutil, sys
from common import check, read, run, workdir

SHARDC, WORK = os.path.abspath(sys.argv[1]), workdir()
BATCH, FEAT, STEPS = 4, 6, 10
# A zero row stays zero in every layer; in layer 2 alone the derivative at zero is infinite. The gradients of layer 2
# and of the layers after it are finite; those of the layers before it are not.
MODEL = '''use "std"
dims { Batch; Feat = 6; Wide = 5; Deep = 4 }
layer Block(x: [Batch, Wide]) -> [Batch, Wide] with c = 1 {
  param w [Wide] ~ normal(0.3)
  return x + w * (sqrt(abs(x) + c) - sqrt(c))
}
model Deep {
  input x [Batch, Feat] f32
  param up [Feat, Wide] ~ normal(0.4)
  param head [Wide] ~ normal(0.4)
  stack h [Deep] of Block with c = [1, 1, 0, 1]
  loss mean[Batch]((dot[Wide](h(dot[Feat](x, up)), head) - 1)^2)
}
train t for Deep {
  batch 4
  steps 10
  data  columns(x = "good.f32") shuffle = off
  optim OPTIM
  MORE
}
'''


def data(name, zero=None, nan=None):
    rows = [[((7 * i + 3 * k) % 11) / 11 + 0.1 for k in range(FEAT)] for i in range(BATCH * STEPS)]
    if zero is not None: rows[BATCH * zero + 1] = [0.0] * FEAT
    if nan is not None: rows[BATCH * nan + 2][3] = float('nan')
    array.array('f', sum(rows, [])).tofile(open(f'{WORK}/{name}.f32', 'wb'))


def compiled(name, more='', optim='adamw'):
    open(f'{WORK}/{name}.shard', 'w').write(MODEL.replace('MORE', more).replace('OPTIM', optim))
    run(SHARDC, 'compile', f'{WORK}/{name}.shard', '-o', f'{WORK}/{name}', '-q', '--quick')
    return f'{WORK}/{name}'


def train(exe, source, out, *more, expect=0):
    if '--resume' not in more: shutil.rmtree(f'{WORK}/{out}', ignore_errors=True)
    return run(exe, 'train', '--data', f'x={source}.f32', '--out', out, *more, cwd=WORK, expect=expect)[1]


def weights(out):
    last = sorted(x for x in os.listdir(f'{WORK}/{out}') if x.startswith('step-'))[-1]
    return last, read(f'{WORK}/{out}/{last}/rank-00000.safetensors')


def lines(out): return [json.loads(x) for x in open(f'{WORK}/{out}/metrics.jsonl')]


data('good'), data('zero', zero=4), data('nan', nan=6)
for optim in 'adamw', 'sgd momentum = 0.9', 'lamb':
    exe = compiled('stop', optim=optim)
    train(exe, 'good', 'four', '--steps', '4'), train(exe, 'good', 'six', '--steps', '6')
    said = train(exe, 'zero', 'a', expect=5)
    check('R0601' in said and 'step 5: a gradient is not finite' in said, said)
    nonfinite, clean = said.split('not finite: ')[1].split('\n')[0], said.split('clean: ')[1].split('\n')[0]
    check('up' in nonfinite and 'h.*.w (layers 0..1)' in nonfinite and 'head' not in nonfinite,
          f'nonfinite: {nonfinite}')
    check('head' in clean and 'h.*.w (layers 2..3)' in clean and 'parameters and states' in clean, f'clean: {clean}')
    check(weights('a') == weights('four') and 'step-000004' in said, f'{optim}: the state before the fault is saved')
    check('skipped' in lines('a')[-1] and lines('a')[-1]['step'] == 5, 'metrics')
    train(exe, 'good', 'a', '--resume')
    train(exe, 'good', 'whole')
    check(weights('a') == weights('whole'), f'{optim}: goes on as if nothing had been')
    said = train(exe, 'nan', 'b', expect=5)
    check('step 7: the loss is not finite' in said and weights('b') == weights('six'), said)
    said = train(exe, 'nan', 'c', '--save-every', '0', expect=5)
    check('the data holds numbers that are not finite: inputs x (' in said and 'learning rate' not in said, said)
    check('nothing was saved' in said and not [x for x in os.listdir(f'{WORK}/c') if x.startswith('step-')], said)

BIG = """use "std"
dims { Batch; Feat = 2 }
model M {
  input x [Batch, Feat] f32
  param a [Feat] = 1
  param b [Feat] = 1
  loss %s * mean[*](x * a + x * b)
}
train t for M { batch 2; steps 1; data columns(x = "good.f32"); optim sgd lr = 1 }
"""
for scale, bad in ('2.2e19', 'none'), ('1e20', 'a, b'):  # only the sum overflows; the squares as well
    with open(f'{WORK}/big.shard', 'w') as file: file.write(BIG % scale)
    with open(f'{WORK}/ones.f32', 'wb') as ones: ones.write(b'\0\0\x80?' * 64)
    run(SHARDC, 'compile', f'{WORK}/big.shard', '-o', f'{WORK}/big')
    said = train(f'{WORK}/big', 'ones', 'big.run', expect=5)
    check('or squares of gradients add up to more' in said and f'sums of squares not finite: {bad}\n' in said, said)

exe = compiled('skip', 'on_nan skip max = 1')
said = train(exe, 'nan', 'd')
check('warning[R0601]' in said and '1 of 1 steps in a row' in said, said)
check([x['step'] for x in lines('d') if 'skipped' in x] == [7] and len(lines('d')) == STEPS, 'one step is left out')
data('two', nan=6)
bad = array.array('f', read(f'{WORK}/two.f32')); bad[(7 * BATCH + 1) * FEAT] = float('inf')
bad.tofile(open(f'{WORK}/two.f32', 'wb'))
check('step 8' in train(exe, 'two', 'e', expect=5), 'two in a row are too many')

exe = compiled('off', 'on_nan off')
said = train(exe, 'zero', 'f', expect=5)
check('after step 6' in said or 'a tensor after step' in said, said)                 # seen one step later, in the loss
exe = compiled('clipped', 'clip 0.5')
check('a gradient' in train(exe, 'zero', 'g', expect=5), 'with clipping')
exe = compiled('parts', '}\nplan p for Deep { micro 2')
check('h.*.w (layers 0..1)' in train(exe, 'zero', 'h', expect=5), 'with micro-batches')
# faults before the first step: weights that are not finite, a loss that never is
exe = compiled('stop')
train(exe, 'good', 'one', '--steps', '1')
raw = bytearray(open(f'{WORK}/one/{weights("one")[0]}/rank-00000.safetensors', 'rb').read())
head = json.loads(raw[8:8 + int.from_bytes(raw[:8], 'little')])
at = 8 + int.from_bytes(raw[:8], 'little') + head['head']['data_offsets'][0]
raw[at:at + 4] = array.array('f', [float('nan')]).tobytes()
open(f'{WORK}/nan.st', 'wb').write(raw)
said = train(exe, 'good', 'g', '--init', 'nan.st', expect=5)
check('not finite before the step: perhaps in the file of --init, head (1)' in said
      and 'parameters and states' not in said, said)
kept = MODEL
MODEL = kept.replace('dot[Feat](x, up)', 'dot[Feat](relu(x), up)')
said = train(compiled('relu'), 'nan', 'i', expect=5)
check('step 7: the loss is not finite' in said, said)
MODEL = kept.replace('- 1)^2', '- exp(1000 + 0 * dot[Wide](head, head)))^2')
said = train(compiled('constant'), 'good', 'h', expect=5)
check('no step was applied yet' in said and 'data, parameters and states' in said and 'rate, warm' not in said, said)
shutil.rmtree(WORK)
