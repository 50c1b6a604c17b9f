"""Executables that are built on one machine and measured on another without the compiler: bench/cpu --pack DIR, then
DIR/cpu.

A pack is a folder: bench/cpu and what it reads, bench_peak, and one compressed executable for each program, target and
number of workers, listed in pack.json. It needs Python 3 and glibc; PyTorch for the parts that compare with it. The
richest target that the machine runs is taken; an executable refuses machines that it cannot run on. Must not: measure
anything; take an executable that is not listed.
"""
import gzip, json, os, shutil, subprocess, sys

TARGETS = ('x86_64_v4_amx', 'x86_64_v4_fp16', 'x86_64_v4_bf16', 'x86_64_v4', 'x86_64_v3')     # richest first
FILES = ('cpu', 'pack.py', 'torch_gpt2.py', 'torch_block.py', 'torch_attention.py')


def read(folder):
    """The list of a pack; None if the folder has no pack."""
    try:
        with open(f'{folder}/pack.json') as f: return json.load(f)
    except FileNotFoundError: return None


def compress(path, to):
    with open(path, 'rb') as f, gzip.GzipFile(to, 'wb', mtime=0) as z: shutil.copyfileobj(f, z)


def make(folder, here, peak, programs, targets, workers, compile_, work):
    """programs: rows of (name, source, options). An executable that the folder already has is kept and not rebuilt."""
    os.makedirs(f'{folder}/bin', exist_ok=True)
    listed = read(folder) or []
    for f in FILES: shutil.copy(f'{here}/{f}', folder)
    shutil.copy(peak, f'{folder}/bin/peak')
    for n in workers:
        for target in targets:
            for name, source, options in programs:
                row = dict(name=name, target=target, workers=n, file=f'bin/{name}-{target}-{n}.gz')
                if row in listed: continue
                print(row['file'], file=sys.stderr)
                compile_(source, f'{work}/packed', '--target', target, '--workers', str(n), *options)
                compress(f'{work}/packed', f"{folder}/{row['file']}")
                listed.append(row)
                with open(f'{folder}/pack.json', 'w') as f: f.write('[' + ',\n '.join(map(json.dumps, listed)) + ']\n')


def unpack(folder, row, work):
    exe = f"{work}/{os.path.basename(row['file'])[:-3]}"
    if not os.path.exists(exe):
        with gzip.open(f"{folder}/{row['file']}") as z, open(exe, 'wb') as f: shutil.copyfileobj(z, f)
        os.chmod(exe, 0o755)
    return exe


def refusal(exe):
    """Why this machine cannot run it; None where it can."""
    said = subprocess.run([exe, 'train', '--data', '/nonexistent'], capture_output=True, text=True).stderr.split('\n')
    return next((line.split('for ', 1)[1] for line in said if line.startswith('error[R0109]')), None)


def runs_here(folder, rows, work):
    """The richest target of the pack that this machine runs; prints why it cannot run richer ones."""
    for target in TARGETS:
        row = next((r for r in rows if r['target'] == target), None)
        if not row: continue
        why = refusal(unpack(folder, row, work))
        if not why: return target
        print(f'not used: {why}', flush=True)
    sys.exit('nothing in this pack runs on this processor')


def pick(folder, rows, name, target, threads, work):
    """The executable of that name with the fewest workers that are enough."""
    found = sorted((r for r in rows if r['name'] == name and r['target'] == target and r['workers'] >= threads),
                   key=lambda r: r['workers'])
    if not found:
        sys.exit(f'this pack has no {name} of {target} for {threads} workers: bench/cpu --pack with '
                 f'--workers {threads}')
    return unpack(folder, found[0], work)
