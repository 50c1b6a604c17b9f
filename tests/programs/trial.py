"""Random programs under two random plans each, in one process as far as it goes (trial.c).

    python3 trial.py TRIAL [--from N] [--count N] [--also N ..] [--routed] [--plans WORDS] [--text WORDS] [--keep FOLDER] [--words]

The same number gives the same program and plans. Files of programs that fail stay in FOLDER.
"""
import argparse, itertools, os, random, re, shutil, subprocess, sys, tempfile, time
from collections import Counter
from generate import Program
import plans

AT_ONCE = 50


def plans_of(n, r, text):
    return {'one': ['micro 8'], 'p0': plans.one(r, text), 'p1': plans.many(r, text)[0] if r.random() < .7
            else plans.one(r, text)}


def text_of(n):
    r = random.Random(n * 104729 + 7)
    text = plans.trained(r, Program(n, across=True, whole=True).text().replace('batch 4', f'batch {plans.BATCH}'))
    return text + plans.MACHINES + ''.join(f'plan {name} for M {{\n' + ''.join(f'  {l}\n' for l in lines) + '}\n'
                                           for name, lines in plans_of(n, r, text).items())


WORDS = {'mesh': r'^  mesh', 'zero': r'^  zero [1-3]', 'stages': r'-> pipe$', 'balanced': r' balanced',
         'ring': r' ring', 'activations': r' activations',
         'shared axis': r'^  place .*-> (\w+)\b(?s:.*)^  place .*-> \1\b', 'zero over tensor': r'^  zero .*tensor',
         'offload': r'^  offload', '16 bits': r'^  precision b?f16', 'saved on the host': r'offload = host'}


def words_of(text, plan):
    """The words of a plan whose pairs are counted, and each two of them that meet."""
    block = text.split(f'plan {plan} for M {{', 1)[1].split('\n}', 1)[0]
    have = [word for word, line in WORDS.items() if re.search(line, block, re.M)]
    have += ['frozen layers'] * ('@frozen' in text.split('model M')[0])
    return have + [f'{a} and {b}' for a, b in itertools.combinations(have, 2)]


def batch(trial, numbers, folder, keep):
    count = Counter()
    for n in numbers: open(f'{folder}/p{n}.shard', 'w').write(text_of(n))
    names = [f'p{n}.shard' for n in numbers]
    out = subprocess.run([trial, *names], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         errors='replace').stdout
    said, seen = [], set()
    for line in out.splitlines():
        word = line.split()
        if len(word) == 2 and word[0] == 'because': count[word[1]] += 1; continue
        if len(word) != 3 or word[0] not in names: said.append(line); continue
        count[word[2]] += 1
        if word[2] == 'equal': count.update(f'with {w}' for w in words_of(open(f'{folder}/{word[0]}').read(), word[1]))
        seen.add(word[0])
        if word[2] in ('wrong', 'rounding'): print('\n'.join(said[-12:] + [line]), flush=True)
        if word[2] == 'wrong' and keep: os.makedirs(keep, exist_ok=True); shutil.copy(f'{folder}/{word[0]}', keep)
        said = []
    for lost in sorted(set(names) - seen): print(f'{lost}: no answer'); count['wrong'] += 1
    return count


def main():
    p = argparse.ArgumentParser()
    p.add_argument('trial')
    p.add_argument('--from', dest='first', type=int, default=0)
    p.add_argument('--count', type=int, default=40)
    p.add_argument('--also', type=int, nargs='*', default=[])
    p.add_argument('--routed', action='store_true', help='of these numbers those with a layer of experts')
    p.add_argument('--plans', metavar='WORDS', help='of these numbers those with a plan that has one: "ring|balanced"')
    p.add_argument('--text', metavar='WORDS', help='of these numbers those whose program has one: "project"')
    p.add_argument('--keep')
    p.add_argument('--words', action='store_true', help='also the equal pairs by words of their plans')
    a = p.parse_args()
    count, began = Counter(), time.time()
    numbers = [n for n in range(a.first, a.first + a.count) if not a.routed or Program(n, across=True).routed()]
    if a.plans: numbers = [n for n in numbers if re.search(a.plans, text_of(n).split('plan one ')[1])]
    if a.text: numbers = [n for n in numbers if re.search(a.text, text_of(n).split('plan one ')[0])]
    numbers += a.also
    with tempfile.TemporaryDirectory() as folder:
        for i in range(0, len(numbers), AT_ONCE):
            count += batch(os.path.abspath(a.trial), numbers[i:i + AT_ONCE], folder, a.keep)
    seconds = time.time() - began
    codes = ', '.join(f'{v} {k}' for k, v in sorted(count.items()) if k[0] == 'E')
    print(f'programs {a.first}..{a.first + a.count - 1} {a.also or ""}, two plans each: '
          + ', '.join(f'{count[w]} {w}' for w in ('equal', 'rounding', 'refused', 'wrong')) +
          f' ({codes})' * bool(codes) + f'; {60 * len(numbers) / seconds:.0f} programs a minute')
    if a.words: print('equal with: ' + ', '.join(f'{w[5:]} {n}' for w, n in sorted(count.items()) if w[:5] == 'with '))
    sys.exit(count['wrong'] > 0 or not count['equal'])


if __name__ == '__main__': main()
