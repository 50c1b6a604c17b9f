"""What programs of one executable have in common is made once and is there once: python3 classes.py SHARDC

A GPT of 12 layers for one rank, and over four stages, whose classes (first, middle, last) have a program each: three
programs take no more than 1.6 times the processor time and the bytes of one, with the cache of kernels cold. Kernels
of the same name and code are one symbol of the executable, and others of the same name have symbols of their own. Two
plans in one file share them as well.
"""
import collections, os, re, resource, shutil, subprocess, sys
from common import check, run, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MOST = 1.6
MODEL = '''use "gpt2"
variant Gpt of GPT2 { Pos = 256; Vocab = 50257 pad 128; Embed = 768; Heads = 12; Layers = 12 }
train t for Gpt { size Seq = 256; batch 16; steps 1; data "text.bin" format = u16; optim adamw lr = 2e-3; clip 1.0 }
plan one for Gpt { micro 2 }
plan stages for Gpt { mesh pipe = 4
 place Layers -> pipe
 micro 2 }
plan halves for Gpt { mesh data = 2
 place Batch -> data
 micro 2 }
'''


def compile(plan):
    """Seconds of all processors, kernels that were made, bytes."""
    shutil.rmtree(f'{folder}/cache', ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(SHARDC, 'compile', 'm.shard', '--plan', plan, '-o', 'm.exe', '-q', cwd=folder,
        env={'SHARDC_CACHE_DIR': f'{folder}/cache'})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    made = sum(len(names) for _, _, names in os.walk(f'{folder}/cache'))
    return took, made, os.path.getsize(f'{folder}/m.exe')


def phases():
    """Symbols of code by the name of their kernel and phase."""
    found = collections.defaultdict(list)
    for line in subprocess.run(['nm', f'{folder}/m.exe'], capture_output=True, text=True).stdout.splitlines():
        kind, symbol = line.split()[-2:]
        name = re.match(r'k_\w+_p\d', symbol)
        if kind in 'tTwW' and name: found[name[0]].append(symbol)
    return found


try:
    open(f'{folder}/m.shard', 'w').write(MODEL)
    tries = [(compile('one'), compile('stages')) for _ in range(2)]
    one, three = (min(t[i] for t in tries) for i in (0, 1))
    print('one program and three, seconds of processors, kernels made, bytes:', one, three)
    check(three[0] <= MOST * one[0], 'three classes take too much time')
    check(three[1] <= MOST * one[1], 'kernels of three classes are made more than once')
    check(three[2] <= MOST * one[2], 'the file of three classes is too large')
    symbols = phases()
    check(len(symbols) > 50, f'{len(symbols)} kernels')
    for name, of in symbols.items():
        check(len(of) == len(set(of)) and all('.' in s for s in of), f'{name} is there as {of}')
    check(any(len(of) > 1 for of in symbols.values()), 'no name means two things in two classes')
    both = compile('one,halves')
    check(both[2] <= MOST * one[2], f'the file of two plans is too large: {both}')
finally:
    shutil.rmtree(folder)
