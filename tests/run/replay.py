"""Every pass of a given example: the dump parses and prints to the same bytes, and the passes after it give the IR of
the last pass, of which code generation is a function. Compiling from every third dump gives a byte-identical
executable.

    python3 replay.py SHARDC EXAMPLE.shard[:MODEL] [compile options, such as -D Seq=8]
"""
import os, shutil, sys
from common import check, read, run, workdir

shardc, example, options = sys.argv[1], sys.argv[2], sys.argv[3:]
d = workdir()
run(shardc, 'compile', example, '-o', f'{d}/direct', '--dump-ir', f'{d}/ir', '--quick', *options)
want = read(f'{d}/direct')
run(shardc, 'compile', example, '-o', f'{d}/again', '--quick', *options)
check(read(f'{d}/again') == want, 'compiling twice gives different bytes')
dumps = sorted(f for f in os.listdir(f'{d}/ir') if f.endswith('.ir'))
check(len(dumps) >= 10, f'only {len(dumps)} dumps')
last = dumps[-1].split('-', 1)[1].removesuffix('.ir')
for n, f in enumerate(dumps):
    path = f'{d}/ir/{f}'
    printed, _ = run(shardc, 'dump', path)
    check(printed.encode() == read(path), f'{f}: printing what was read gives other bytes')
    if f != dumps[-1]:
        run(shardc, 'dump', path, '--after', last, '-o', f'{d}/last.ir')
        check(read(f'{d}/last.ir') == read(f'{d}/ir/{dumps[-1]}'), f'{f}: the passes after it give other IR')
        if n % 3: continue
    run(shardc, 'compile', path, '-o', f'{d}/from-{f}', '--quick')
    check(read(f'{d}/from-{f}') == want, f'{f}: the executable compiled from this dump differs')
print(f'{len(dumps)} dumps of {os.path.basename(example)}: same text, same executable')
shutil.rmtree(d)
