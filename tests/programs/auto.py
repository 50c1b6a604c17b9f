"""Random programs under random plans whose memory is too small, with `offload auto`: python3 auto.py SHARDC FIRST LAST

Each program runs under a plan of plans.py on GPUs with enough memory, then on GPUs with a part of that memory and
`offload auto`. `verify` trains under both: the results agree, or no possible move frees enough memory (E0801). The
results also agree for the lines of N0601 written into the plan. In about half of the programs something moves; every
second program has its stacks in subs.
"""
import json, os, random, re, subprocess, sys, tempfile
from collections import Counter
from generate import Program, in_subs
import plans
from run import write_data

MACHINE = '''machine %s {
  node gpus = 64 arch = sm_80 memory = %s reserve = 1KiB f32 = 10TFLOPS hbm = 900GB/s
  host memory = 1GiB pcie = 16GB/s latency = 10us cores = 2 dram = 60GB/s
}
'''


def plan_of(r, text):
    lines, _ = plans.many(r, text)
    lines = [l.replace('pipeline auto', 'pipeline one_f_one_b') for l in lines
             if not l.startswith(('on ', 'deterministic', 'offload'))]      # `offload auto` goes with neither
    return lines + ['micro 1'] * (not any(l.startswith('micro') for l in lines))


def said(shardc, folder, *words):
    p = subprocess.run([shardc, *words], cwd=folder, capture_output=True, text=True, timeout=1200,
                       env=dict(os.environ, NO_COLOR='1'))
    return p.returncode, p.stdout, p.stderr


def write(text, lines, memory, folder, moved='offload auto -> host'):
    block = ''.join(f'  {l}\n' for l in lines)
    near, auto = (f'plan {name} for M {{\n  on {on}\n{block}{more}\n}}\n'
                  for name, on, more in (('near', 'roomy', ''), ('auto', 'tight', f'  {moved}')))
    open(f'{folder}/p.shard', 'w').write(text + MACHINE % ('roomy', '1GiB') + MACHINE % ('tight', memory) + near + auto)


def agree(shardc, n, folder):
    code, out, err = said(shardc, folder, 'verify', 'p.shard', '--plan', 'auto', '--against', 'near', '--steps', '2')
    if code == 0 and 'they agree' in out: return err
    if 'error[E0801]' in err: return None
    raise RuntimeError(f'program {n}: exit {code}\n{out[-1500:]}{err[-3000:]}')


def trial(shardc, n, folder):
    r = random.Random(n * 7919 + 3)
    text = plans.trained(r, Program(n, across=True).text().replace('batch 4', f'batch {plans.BATCH}'))
    lines = plan_of(r, text)
    if n % 2: text = in_subs(text)
    for k in re.findall(r'^  sub a(\d+) = A', text, re.M):
        lines = [re.sub(rf'\bs{k}\b', f'a{k}.s{k}', l) for l in lines]
    write(text, lines, '1GiB', folder)
    code, out, err = said(shardc, folder, 'plan', 'p.shard', '--plan', 'near', '--json')
    if code:
        return 'refused' if re.search(r'error\[E(07|0602|0901)', err) else f'exit {code}: {err}'
    need = json.loads(out)['classes'][0]['bytes']
    memory = 1024 + int((need['total'] - need.get('reserve', 0)) * r.choice([.95, .9, .8, .7, .5]))
    write(text, lines, f'{memory / 1024}KiB', folder)
    notes = agree(shardc, n, folder)
    if notes is None: return 'too small'
    chosen = re.search(r'N0601\]: `offload (.*) -> host` was chosen', notes)[1]
    if chosen == 'nothing': return 'fits'
    write(text, lines, f'{memory / 1024}KiB', folder, '\n  '.join(f'offload {l} -> host' for l in chosen.split('; ')))
    return 'moved' if agree(shardc, n, folder) is not None else f'`{chosen}` does not fit'


def main():
    shardc, count = os.path.abspath(sys.argv[1]), Counter()
    first, last = int(sys.argv[2]), int(sys.argv[3])
    with tempfile.TemporaryDirectory() as folder:
        write_data(folder, plans.BATCH * 4)
        for n in range(first, last):
            try: word = trial(shardc, n, folder)
            except (RuntimeError, subprocess.TimeoutExpired) as e: word = str(e)
            count[word if word in ('refused', 'too small', 'fits', 'moved') else 'wrong'] += 1
            if word not in count: print(f'program {n}: {word}', flush=True)
    print(', '.join(f'{count[w]} {w}' for w in ('moved', 'fits', 'too small', 'refused', 'wrong')))
    sys.exit(count['wrong'] > 0 or count['moved'] < (last - first) // 8)


if __name__ == '__main__': main()
