"""Numbers of the optimizer that a run is given (--lr, --weight-decay, --clip, --set): the bits of an executable that was
compiled with them, for every optimizer, on one rank and under plans; kept by a resumed run; refused where the
executable cannot take them.

    rates.py SHARDC
"""
import json, os, shutil, sys
from common import check, read, run, workdir

SHARDC = os.path.abspath(sys.argv[1])
os.chdir(workdir())
MODEL = '''use "llama"
variant Small of Llama3 { Vocab = 256; Embed = 32; Kv = 2; Group = 2; Head = 8; Mlp = 48; Layers = 2 }
train t for Small { size Seq = 16; batch 4; steps 4; data "x.txt"; save every = 2
  clip 1
  %s
}
plan z for Small { mesh data = 2; place Batch -> data; zero 3 over data; micro 1 }
plan p for Small { mesh pipe = 2; place Layers -> pipe; micro 1 }
plan t for Small { mesh tensor = 2; place Kv, Mlp, Vocab -> tensor; zero 0 }
plan h for Small { precision bf16 master = f32 }
'''
DECAY = 'weight_decay = 0.1'
RULES = {'adamw': ('z', 'h'), 'sgd momentum = 0.9': ('t',), 'lamb': ('p',), 'lion': ('z',), 'adafactor': ('z', 't'),
         'schedule_free': ('p',)}
GIVEN = {'lr': '3e-3', 'weight-decay': '0.3', 'clip': '0.25'}
KEYS = {'lr': 'train.optim.lr', 'weight-decay': 'train.optim.weight_decay', 'clip': 'train.clip'}


def compile(out, *more): run(SHARDC, 'compile', 'm.shard', '--model', 'Small', '-o', out, '--quick', '-q', *more)


def write(lines): open('m.shard', 'w').write(MODEL % lines)


def trained(exe, *more, ranks=1, expect=0):
    shutil.rmtree('r', True)
    start = [SHARDC, 'run', f'./{exe}', '-n', str(ranks), '--'] if ranks > 1 else [f'./{exe}']
    said = run(*start, 'train', '--out', 'r', '--dump', 'd', *more, expect=expect)[1]
    return said + ('' if expect else read('d').hex())


def same_bits():
    for rule, plans in RULES.items():
        write(f'optim {rule} lr = 1e-3 {DECAY}\n  lr {"constant" if "free" in rule else "cosine"} warmup = 2')
        for plan in (None, *plans):
            at, ranks = (['--plan', plan] if plan else []), 1 if plan in (None, 'h') else 2
            compile('as_is', *at), compile('with', *at, *(f'--set={KEYS[k]}={v}' for k, v in GIVEN.items()))
            quiet = ['--quiet']
            given = trained('as_is', *quiet, *(f'--{k}={v}' for k, v in GIVEN.items()), ranks=ranks)
            check(given == trained('with', *quiet, ranks=ranks), f'{rule}, plan {plan}: other bits')
            check(given != trained('as_is', *quiet, ranks=ranks), f'{rule}, plan {plan}: no effect')


def groups():
    write(f'optim adamw {DECAY}\n  optim lion of layers.*.mlp\n  optim muon {DECAY} of layers.*.attn')
    one = ['--set=train.optim.1.lr=3e-3', '--set=train.optim.2.weight_decay=0']
    compile('as_is'), compile('z', '--plan', 'z')
    said = trained('as_is', '--lr', '1', expect=2)
    check('3 lines `optim` have one each' in said and '--set train.optim.lr=1' in said, said)
    check('2 lines `optim`' in trained('as_is', '--weight-decay', '1', expect=2), 'two decays')
    lines = (f'optim adamw {DECAY}\n  optim lion lr = 3e-3 of layers.*.mlp\n'
             f'  optim muon weight_decay = 1e-9 of layers.*.attn')
    write(lines), compile('with'), compile('with_z', '--plan', 'z')
    given = one[:1] + ['--set=train.optim.2.weight_decay=1e-9', '--quiet']
    check(trained('as_is', *given) == trained('with', '--quiet'), 'a line: other bits')
    check(trained('z', *given, ranks=2) == trained('with_z', '--quiet', ranks=2), 'a line, two ranks: other bits')
    check(trained('as_is', *one, '--quiet') != trained('as_is', '--quiet'), 'a decay of 0 is a number')


def resumed():
    write(f'optim adamw {DECAY}')
    compile('m'), compile('z', '--plan', 'z'), compile('with', '--set=train.optim.lr=3e-3')
    trained('with', '--steps', '4', '--clip', '0.5')
    whole = read('d')
    trained('m', '--steps', '2', '--lr', '3e-3', '--clip', '0.5')
    said = run('./m', 'train', '--out', 'r', '--resume', '--dump', 'd')[1]
    check(read('d') == whole and 'train.optim.lr is 3e-3, as the resumed run was told' in said, said)
    state = json.loads(read('r/latest/state.json'))
    check(state['given'] == {'train.optim.lr': '3e-3', 'train.clip': '0.5'}, f'{state["given"]}')
    check(state['settings']['train.optim.lr'] == '0.001', 'settings are the compiled ones')
    said = run('./m', 'train', '--out', 'r2', '--resume=r', '--steps', '5', '--lr', '1e-4')[1]
    check('train.clip is 0.5' in said and 'train.optim.lr is' not in said, said)
    check(json.loads(read('r2/latest/state.json'))['given'] == {'train.optim.lr': '1e-4', 'train.clip': '0.5'}, 'both')
    said = run(SHARDC, 'run', './z', '-n', '2', '--', 'train', '--out', 'r3', '--resume=r', '--steps', '5')[1]
    check(said.count('train.optim.lr is 3e-3') == 1, said)
    last = json.loads(open('r3/metrics.jsonl').read().splitlines()[-1])
    check(abs(last['lr'] - 3e-3) < 1e-9, f'{last}')
    write('optim adamw weight_decay = 0'), compile('none')
    trained('m', '--steps', '2', '--weight-decay', '0.2')
    said = run('./none', 'train', '--out', 'r4', '--resume=r')[1]
    check('train.optim.weight_decay was 0.2 in the resumed run, this executable has it compiled in' in said, said)


def refused():
    write('optim adamw weight_decay = 0')
    text = open('m.shard').read().replace('clip 1\n', '\n', 1)
    open('m.shard', 'w').write(text)
    compile('m')
    for options, words in ((('--lr', '0'), 'takes a number above 0'), (('--lr', 'x'), 'a number from 0, not `x`'),
                           (('--lr', '-1'), 'a number from 0'), (('--set', 'train.optim.lr=-1'), 'above 0, not `-1`'),
                           (('--set', 'train.optim.lr=nan'), 'above 0'), (('--lr', '1e999'), 'a number from 0'),
                           (('--lr', '1', '--set', 'train.optim.lr=1'), 'is given twice'),
                           (('--weight-decay', '1'), '--set train.optim.weight_decay=1'),
                           (('--clip', '1'), 'compile again with --set train.clip=1'),
                           (('--lr', '1e-50'), 'in 32 bits it is 0'), (('--clip', '1e39'), 'without clipping'),
                           (('--lr', '1e39'), 'in 32 bits it is infinite'), (('--lr', '\n1'), 'above 0'),
                           (('--set', 'train.clip=1'), 'compile again with --set train.clip=1'),
                           (('--set', 'train.data=x'), 'no setting `train.data`'),
                           (('--set', 'train.optim.1.lr=1'), 'no setting `train.optim.1.lr`'),
                           (('--set', 'train.optim.betas=1'), 'train.optim.betas is compiled in'),
                           (('--learning-rate', '1'), 'did you mean --lr?'), (('--wd', '1'), '--weight-decay?')):
        said = trained('m', *options, expect=2)
        check(words in said, f'{options}: {said}')
    check('no option of `eval`' in run('./m', 'eval', '--lr', '1', expect=2)[1], 'eval')


open('x.txt', 'w').write('Rates of learning. ' * 99)
for case in same_bits, groups, resumed, refused:
    case()
    print(case.__name__, 'good', flush=True)
