"""Bad input of every kind: a diagnostic with a code, the right exit code, nothing half-written, no crash.

    python3 badinput.py SHARDC EXAMPLE.shard
"""
import os, random, re, shutil, sys
from common import check, read, run, text_file, workdir

shardc, example = sys.argv[1:3]
d = workdir()
exe, data = f'{d}/model', text_file(f'{d}/text.txt')


def refused(code, expect, *command, **more):
    out, err = run(*command, expect=expect, **more)
    check(re.search(code, out + err), f'{" ".join(command)}: no {code} in\n{out}{err}')
    check(not os.path.exists(f'{d}/half'), f'{" ".join(command)}: left something half-written')


refused('compile|usage', 2, shardc)
refused('compile', 2, shardc, 'compil', example)
refused('--model', 2, shardc, 'compile', example, '--modle', 'x')
refused('E', 4, shardc, 'compile', f'{d}/absent.shard', '-o', f'{d}/half')
refused('E0201', 1, shardc, 'compile', example, '--model', 'Absent', '-o', f'{d}/half')
open(f'{d}/broken.shard', 'w').write(open(example).read().replace('layer ', 'leyer ', 1))
refused(r'E0101', 1, shardc, 'compile', f'{d}/broken.shard', '-o', f'{d}/half')
refused('E', 4, shardc, 'compile', example, '-o', '/proc/half')

run(shardc, 'compile', example, '-o', exe, '--quick', '--set', 'train.batch=4', '--set', 'train.steps=6')
open(f'{d}/empty', 'wb').close()
open(f'{d}/short', 'wb').write(b'too short')
refused('R0', 2, exe, 'train', '--stesp', '3')
refused('R0', 4, exe, 'train', '--data', f'{d}/absent', '--out', f'{d}/half')
refused('R0', 4, exe, 'train', '--data', f'{d}/empty', '--out', f'{d}/half')
refused('R0', 4, exe, 'train', '--data', f'{d}/short', '--out', f'{d}/half')
refused('R0401', 1, exe, 'train', '--data', data, '--out', '/proc/half')

run(exe, 'train', '--data', data, '--out', f'{d}/good', '--save-every', '2')
step = sorted(x for x in os.listdir(f'{d}/good') if x.startswith('step-'))[-1]
rng = random.Random(2)
for k in range(20):
    shutil.rmtree(f'{d}/bad', ignore_errors=True); shutil.copytree(f'{d}/good/{step}', f'{d}/bad')
    f = rng.choice(sorted(os.listdir(f'{d}/bad')))
    b = bytearray(read(f'{d}/bad/{f}'))
    if k % 2: b[rng.randrange(len(b))] ^= 1 << rng.randrange(8)
    else: b = b[:rng.randrange(len(b))]
    open(f'{d}/bad/{f}', 'wb').write(b)
    refused('R0', 4, exe, 'train', '--data', data, '--steps', '12', '--resume', f'{d}/bad', '--out', f'{d}/half')
    shutil.rmtree(f'{d}/half', ignore_errors=True)

text, _ = run(shardc, 'dump', example, '--after', 'grad')
for k in range(60):
    b = bytearray(text.encode())
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(b))
        if k % 3 == 0: b[at] = rng.randrange(32, 127)
        elif k % 3 == 1: del b[at:at + rng.randrange(1, 40)]
        else: b[at:at] = b[at // 2:at // 2 + rng.randrange(1, 30)]
    open(f'{d}/damaged.ir', 'wb').write(b)
    import subprocess
    p = subprocess.run([shardc, 'compile', f'{d}/damaged.ir', '--quick', '-o', f'{d}/maybe'], capture_output=True,
                       text=True, timeout=1200)
    check(p.returncode in (0, 1), f'damaged IR {k}: exit code {p.returncode}\n{p.stderr[-2000:]}')
    if p.returncode:
        check(re.search(r'E\d{4}', p.stderr) and '-->' in p.stderr,
              f'damaged IR {k}: no positioned diagnostic\n{p.stderr}')
renamed = text.replace('Embed:', 'Embe:', 1)
open(f'{d}/renamed.ir', 'w').write(renamed)
refused(r'E1\d\d\d', 1, shardc, 'compile', f'{d}/renamed.ir', '-o', f'{d}/half')
print('bad input is refused with a code everywhere')
shutil.rmtree(d)
