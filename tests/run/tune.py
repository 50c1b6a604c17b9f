"""Tuning from end to end: records are written, obeyed, shown in the IR, demanded, and broken ones do no harm.

    python3 tune.py SHARDC MODEL.shard
"""
import os, random, re, sys
from common import check, read, run, workdir

shardc, model = sys.argv[1], sys.argv[2]
d = workdir()
small = ['-D', 'Seq=16', '-D', 'Batch=4', '--set', 'train.steps=3']
tune = [shardc, 'tune', model, *small, '--candidates', '2', '--rounds', '1', '-o', f'{d}/a.tune']

_, said = run(*tune, '--only', 'gemm')
records = [l.split('\t') for l in read(f'{d}/a.tune').decode().splitlines() if not l.startswith('#')]
check(records and all(len(r) == 12 and r[0] == 'contract' for r in records), 'records of gemm: ' + said)
for r in records: check(re.fullmatch(r'f32-b\d+-m\d+-n\d+-k\d+-[0-9a-f]{16}', r[1]), 'key ' + r[1])
check('0 of' in run(*tune, '--only', 'gemm')[1], 'what has a record was measured again')
_, said = run(shardc, 'tune', model, *small, '--only', 'attention_grad', '--candidates', '1', '--rounds', '1',
              '--rivals', '1', '-o', f'{d}/other.tune')
check(re.search(r'rivals: [\d.]+ us, best of \d+ cuts [\d.]+ us, reached [\d.]+ %', said), 'rivals: ' + said)
_, said = run(shardc, 'compile', model, *small, '-o', f'{d}/no', '--tune-db', f'{d}/a.tune', '--require-tuned',
              expect=1)
check('E1206' in said and 'attention' in said and 'contract' not in said, 'the gap is not named: ' + said)
run(*tune)
run(shardc, 'compile', model, *small, '-o', f'{d}/tuned', '--tune-db', f'{d}/a.tune', '--require-tuned', '--dump-ir',
    f'{d}/ir', '-q')

# the IR contains the cut of each record; every dump compiles to the same executable without the file
lines = [l.split('\t') for l in read(f'{d}/a.tune').decode().splitlines() if not l.startswith('#')]
names = sorted(os.listdir(f'{d}/ir'))
last = read(f'{d}/ir/{names[-1]}').decode()
check(last.count('tuned = "record"') == len(lines), 'kernels with records in the IR')
for r in lines: check('tile = [' + r[6].replace(' ', ', ') + ']' in last, 'cut ' + r[6])
for name in names[::4] + [names[-1]]:
    run(shardc, 'compile', f'{d}/ir/{name}', '-o', f'{d}/again', '--require-tuned', '-q')
    check(read(f'{d}/again') == read(f'{d}/tuned'), f'compiled from {name}: other bytes')
run(shardc, 'compile', f'{d}/ir/{names[-1]}', '-o', f'{d}/no', '--tune-db', f'{d}/a.tune', expect=2)

# an edited cut is used if it fits, and ignored with a warning if it does not
old = '\t'.join(records[0][:7])
edited = read(f'{d}/a.tune').decode().replace(old, '\t'.join(records[0][:6] + ['4 1 1 1 1 1 1 0 1 1']))
open(f'{d}/edited.tune', 'w').write(edited)
out, _ = run(shardc, 'dump', model, *small, '--after', 'select', '--tune-db', f'{d}/edited.tune')
check('tile = [4, 1, 1, 1, 1, 1, 1, 0, 1, 1]' in out, 'an edited cut is not obeyed')
open(f'{d}/edited.tune', 'w').write(edited.replace('4 1 1 1 1 1 1 0 1 1', '33 9 1 1 1 1 1 0 1 1'))
_, said = run(shardc, 'dump', model, *small, '--after', 'select', '--tune-db', f'{d}/edited.tune')
check('W1207' in said, 'no warning about a cut that does not fit: ' + said)
ir = read(f'{d}/ir/{names[0]}').decode()
open(f'{d}/edited.ir', 'w').write(re.sub(r'(set tune\.contract\S+ = )"[^"]*"', r'\1"0 0 0"', ir, count=1))
_, said = run(shardc, 'compile', f'{d}/edited.ir', '-o', f'{d}/no', expect=1)
check('E1205' in said, 'no error about a setting that does not fit: ' + said)

# two files joined by cat are one; broken files only warn
whole = read(f'{d}/a.tune')
open(f'{d}/twice.tune', 'wb').write(whole + whole)
out, _ = run(shardc, 'dump', model, *small, '--after', 'select', '--tune-db', f'{d}/twice.tune')
check(out.count('tuned =') == out.count('family = "contract"') + out.count('family = "attention'), 'joined by cat')
rng = random.Random(3)
for i in range(12):
    bytes_ = bytearray(whole)
    for _ in range(rng.choice([1, 5, 50])):
        bytes_[rng.randrange(len(bytes_))] = rng.choice([0, 9, 10, 32, 57, 255, rng.randrange(256)])
    open(f'{d}/broken.tune', 'wb').write(bytes_[:rng.choice([len(bytes_), rng.randrange(len(bytes_))])])
    run(shardc, 'dump', model, *small, '--after', 'select', '--tune-db', f'{d}/broken.tune')
run(shardc, 'dump', model, '--tune-db', f'{d}/absent.tune', expect=4)
run(shardc, 'tune', model, '--only', 'conv', expect=2)
run(shardc, 'tune', model, '--rounds', '0', expect=2)
print(f'{len(lines)} records')
