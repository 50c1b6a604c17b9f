"""An executable builds and stores once the parts that its programs share: python3 classes.py SHARDC

A GPT of 12 layers for one rank, and over four stages, whose classes (first, middle, last) have a program each: three
programs build hardly more kernels than one, with the cache of kernels cold, and take no more than 1.6 times its bytes:
kernels that differ only in their names count as one. Kernels of the same name and code are one
symbol of the executable, and others of the same name have symbols of their own. Two plans in one file share them as
well; an edit that renumbers all later kernels of a step rebuilds few of them.
"""
import collections, os, re, shutil, subprocess, sys
from common import check, kernels_in, read, run, workdir

SHARDC, folder = os.path.abspath(sys.argv[1]), workdir()
MOST, MORE_KERNELS = 1.6, 1.05
GPT2 = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'examples', 'gpt2.shard')
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


def compile(plan, cold=True):
    """Compiles a plan; returns the number of kernels in the cache, and bytes."""
    if cold: shutil.rmtree(f'{folder}/cache', ignore_errors=True)
    run(SHARDC, 'compile', '--quick', 'm.shard', '--plan', plan, '-o', 'm.exe', '-q', cwd=folder,
        env={'SHARDC_CACHE_DIR': f'{folder}/cache'})
    made = kernels_in(f'{folder}/cache')
    return made, os.path.getsize(f'{folder}/m.exe')


def edited():
    """The model with a norm before all layers, whose kernels come before all others of a step."""
    text = re.sub(r'^weights .*?^}', '', read(GPT2).decode(), flags=re.M | re.S)
    text = text.replace('  sub ln_f ', '  sub ln_0 = LayerNorm[Embed]\n  sub ln_f ')
    text = re.sub(r'x = (wte\[.*?\] \+ wpe\[.*\])$', r'x = ln_0(\1)', text, flags=re.M)
    check(text.count('ln_0') == 2, text)
    open(f'{folder}/edited.shard', 'w').write(text)
    open(f'{folder}/m.shard', 'w').write(MODEL.replace('"gpt2"', '"./edited.shard"'))
    return compile('one', cold=False)


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
    one, three = compile('one'), compile('stages')
    print('one program and three, kernels made, bytes:', one, three)
    check(three[0] <= MORE_KERNELS * one[0], 'kernels of three classes are made more than once')
    check(three[1] <= MOST * one[1], 'the file of three classes is too large')
    symbols = phases()
    check(len(symbols) > 50, f'{len(symbols)} kernels')
    for name, of in symbols.items():
        check(len(of) == len(set(of)) and all('.' in s for s in of), f'{name} is there as {of}')
    check(any(len(of) > 1 for of in symbols.values()), 'no name means two things in two classes')
    both = compile('one,halves')
    check(both[1] <= MOST * one[1], f'the file of two plans is too large: {both}')
    compile('one')
    again = edited()[0] - one[0]
    print('kernels made for one norm more:', again)
    check(0 < again <= 9, 'an edit makes kernels again that it does not touch')
finally:
    shutil.rmtree(folder)
