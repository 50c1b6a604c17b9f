"""What comes from outside ends in a diagnostic, and gets nowhere unescaped: names of models and files in generated C,
paths that never end, targets that are none, sizes and programs without end.   hostile.py SHARDC ROOT

Each case runs the compiler in an empty folder, under a limit of processor time and memory.
"""
import os, re, resource, shutil, subprocess, sys, tempfile

SHARDC, ROOT = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
SANITIZED = b'__asan_init' in open(SHARDC, 'rb').read()
SECONDS, BYTES, STATEMENTS = 60, 4 << 30, 3000
wrong = []


def limits():
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    if not SANITIZED: resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))


def run(*args, text=None, program=SHARDC):
    return subprocess.run([program, *args], input=text, capture_output=True, text=True, errors='replace',
                          preexec_fn=limits, timeout=1200)


def write(name, text):
    with open(name, 'w') as f: f.write(text)
    return name


def must(good, what, r=None):
    if not good: wrong.append(f'{what}: {r.returncode} {r.stderr[-600:]}{r.stdout[-200:]}' if r else what)


def refuses(code, *args, text=None, at=None):
    r = run(*args, text=text)
    must(0 < r.returncode < 70 and f'[{code}]' in r.stderr and (not at or f':{at}\n' in r.stderr),
         f'{args}: {code} {at or ""} wanted', r)
    return r


# a program of one kernel, as IR
DUMP = '''shardc-ir 1
model %s
after memory
source f1 %s "text"
dim A = 64
target x86_64_v3 {..}
set train.data = %s
param @w : f32[A:64] at(0)
output @loss : f32[A:64] at(0)
kernel @k(%%0 : f32[A:64]) {family = "elem", variant = "vector", tile = [4096], chunks = [1]} {
  %%1 = exp %%0 : f32[A:64] loc(f1:1:1+1)
  return %%1
} 
entry @step {frame = 0, live = 0} {
  %%0 = load @w : f32[A:64] {0: at(global @w + 0)}
  %%1 = kernel @k, %%0 : f32[A:64] {0: at(global @loss + 0)} loc(f1:1:1+1)
  store @loss, %%1
}
'''
CODE = '__attribute__((constructor)) static void p(void){extern int puts(const char*);puts(\\"PWNED\\");}'
MODEL = '''use "std"
dims { Batch; In = %s; Hidden = %s; Classes = 3; Layers = %s }
layer Block(x: [Batch, Hidden]) -> [Batch, Hidden] {
  param w [Hidden] = 1
  return x * w
}
model Mlp {
  input x [Batch, In]
  input y [Batch] of Classes
  sub up = Linear[In -> Hidden]
  sub down = Linear[Hidden -> Classes]
  stack h [Layers] of Block
  loss cross_entropy[Classes](down(h(up(x))), y)
}
train t for Mlp {
  batch %s
  steps 3
  data columns(x = "x.npy", y = "y.npy")
  optim sgd lr = 0.1
}
'''


def model(inputs=4, hidden=8, layers=2, batch=2): return MODEL % (inputs, hidden, layers, batch)


def names_in_c():
    for payload in (f'Mlp*/\\n{CODE}\\n/*', f'M\\\\\\n*/ {CODE} /*', f'x\\"}};\\n{CODE}\\n', f'a??/\\n\\"; {CODE} //',
                    f'/*/ {CODE} /*/', 'a\\xff\\x01'):
        r = run('compile', write('m.ir', DUMP % (f'"{payload}"', f'"{payload}.shard"', f'"{payload}"')), '-o', 'model',
                '-q')
        must(r.returncode == 0, f'model {payload}', r)
        if r.returncode: continue
        r = run('info', program='./model')
        must(not r.stdout.startswith('PWNED') and '\nPWNED' not in r.stdout and r.returncode == 0,
             f'constructor in {payload}', r)
    for name in ('a"b.shard', 'a*b.shard', 'a\nb".shard', 'a\\.shard', "a'b$(id).shard"):
        r = run('compile', write(name, model()), '--emit=c', '-o', 'host.c')
        c = subprocess.run(['cc', '-std=gnu17', '-fsyntax-only', '-I', f'{os.path.dirname(SHARDC)}/lib/shardc',
                            'host.c'], capture_output=True, text=True)
        must(r.returncode == 0 and c.returncode == 0, f'file {name!r}: {c.stderr[:400]}', r)


def typed_paths():
    write('m.shard', 'use "more"\n' + model().replace('use "std"', '') )
    write('more.shard', 'use "std"\n')
    os.makedirs('sub', exist_ok=True)
    texts = set()
    for path in ('m.shard', './m.shard', 'sub/../m.shard', os.path.abspath('m.shard')):
        texts.add(run('compile', path, '--emit=c').stdout)
    must(len(texts) == 1 and len(texts.pop()) > 1000, 'the path as typed gets into the program')
    r = run('check', write('sub/bad.shard', 'dims { A = B }\n'))
    must('sub/bad.shard:1:' in r.stderr, 'messages name the path as typed', r)


def odd_files():
    refuses('E0001', 'check', '/dev/zero')
    refuses('E0001', 'compile', '/dev/zero', '--emit=ir')
    os.mkfifo('pipe')
    refuses('E0001', 'check', 'pipe')
    refuses('E0001', 'check', '.')
    r = run('check', '-', text=model())
    must(r.returncode == 0 and r.stdout.startswith('Mlp: '), 'check - reads a model', r)
    r = run('check', '-', text='# IR\n' + DUMP % ('M', '"f"', '"x"'))
    must(r.returncode == 0, 'check - reads IR', r)
    r = run('compile', '-', '--emit=c', text=model())
    must(r.returncode == 0 and 'RT_PROGRAM' in r.stdout, 'compile - reads a model', r)
    r = subprocess.run(['bash', '-c', f'"{SHARDC}" check <(cat more.shard)'], capture_output=True, text=True)
    must(r.returncode == 0, 'a model from a pipe', r)


def targets():
    dump = DUMP % ('M', '"f"', '"x"')
    refuses('E1103', 'compile', write('t.ir', dump.replace('x86_64_v3', 'zz')), '-o', 'x')
    for fact in ('vector_bytes = 1', 'vector_bytes = 64', 'device = gpu', 'rounds = true', 'shared = 1024',
                 'chunk = 0'):
        refuses('E1103', 'compile', write('t.ir', dump.replace('{..}', '{%s, ..}' % fact)), '-o', 'x')
    refuses('E1103', 'compile', write('t.ir', dump.replace('{..}', '{device = cpu}')), '-o', 'x')    # the rest is owed
    refuses('E1110', 'compile', write('t.ir', dump.replace('chunks = [1]', 'chunks = [2147483648]')), '-o', 'x')
    cut = ' {family = "elem", variant = "vector", tile = [4096], chunks = [1]}'
    refuses('E1110', 'compile', write('t.ir', dump.replace(cut, '')), '-o', 'x')


LOSS = """use "std"
dims { Batch; F = 4; Classes = 3 }
%s
model M {
  input x [Batch, F]
  input y [Batch] of Classes
  sub up = Linear[F -> Classes]
  %s
}
train t for M {
  batch 2
  steps 3
  data columns(x = "x.npy", y = "y.npy")
  optim sgd lr = 0.1
}
"""
ENTROPY = 'loss cross_entropy[Classes](%s, y)'


def sizes():
    for kinds in (dict(hidden=4294967296), dict(hidden=3037000500), dict(hidden=1099511627776), dict(layers=4294967296),
                  dict(batch=1099511627776),
                  dict(inputs=9007199254740992)):
        refuses('E0305', 'compile', write('s.shard', model(**kinds)), '--emit=ir', '-o', 's.ir')
        refuses('E0305', 'check', 's.shard')
    refuses('E0313', 'check', write('s.shard', model(inputs=2147483647, hidden=2147483647)))
    refuses('E0305', 'compile', '-D', 'Hidden=4294967296', write('s.shard', model()), '--emit=ir', '-o', 's.ir')
    signs = model().replace('optim sgd', 'optim onebit_adam workers = 2 freeze = 1 #')
    refuses('E0703', 'compile', '-D', 'Batch=7', write('s.shard', signs), '--emit=ir', '-o', 's.ir',
            at=f'{signs[:signs.index("2 freeze")].count(chr(10)) + 1}:31')


def programs():
    for i in range(2000): write(f'c{i}.shard', f'use "c{i + 1}"\n' if i < 1999 else 'dims { A = 3 }\n')
    refuses('E0202', 'check', 'c0.shard')
    twice = 'fn f0(x) = x + 1\n' + ''.join(f'fn f{i + 1}(x) = f{i}(x) + f{i}(x)\n' for i in range(40))
    refuses('E0202', 'check', write('d.shard', LOSS % (twice, ENTROPY % 'f40(up(x))')))
    lines = '\n'.join(f'  a{i + 1} = a{i} + {i}.5' for i in range(STATEMENTS))
    r = run('compile', write('l.shard', LOSS % ('', 'a0 = up(x)\n' + lines + '\n  ' + ENTROPY % f'a{STATEMENTS}')),
            '--emit=ir', '-o', 'l.ir')
    must(r.returncode == 0, 'many statements', r)


def mistakes():
    for words in ('sum[F, F](x)', 'max[F, F](x)', 'mean[F, F](x)', 'sum[*](dot[F, F](x, x))',
                  'sum[*](softmax[F, F](x))'):
        refuses('E0203', 'check', write('m.shard', LOSS % ('', f'loss {words}')))
    refuses('E0204', 'check', write('m.shard', LOSS % ('', 'param w [Batch, F] = 1\n  ' + ENTROPY % 'up(x * w)')))
    refuses('E0204', 'check', write('m.shard', LOSS % ('', 'sub n = LayerNorm[Batch]\n  ' + ENTROPY % 'up(n(x))')))
    code = 'extern foo[D](x: [*, D]) -> [*, D] {\n  cpu "e.c" entry = foo\n}'
    write('e.c', '')
    r = run('compile', write('m.shard', LOSS % (code, ENTROPY % 'up(foo[F](x))')), '--emit=ir', '-o', 'm.ir')
    must(0 < r.returncode < 70 and '[E0901]' in r.stderr, 'extern', r)


def reports():
    os.makedirs('r', exist_ok=True)
    for loss in ('5777777777777771', '1e308', '9007199254740993'):
        write('r/metrics.jsonl', f'{{"schema":1,"step":0,"loss":{loss}}}\n')
        r = run('report', 'r', '-o', 'r.html')
        must(r.returncode >= 0, f'report of a loss of {loss}', r)


def assembly():
    """The kernels of a program for a GPU as one file; many of them contain the tables of rotary embeddings."""
    r = run('compile', os.path.join(ROOT, 'examples', 'tiny_llama.shard'), '--emit=ptx', '--target', 'sm_80', '-o',
            'm.ptx')
    text = open('m.ptx').read() if r.returncode == 0 else ''
    must(text.startswith('//') and text.count('.version') == 1 and text.count('.entry') > 1, 'assembly for a GPU', r)
    tables = re.findall(r'^\.global .*? (\w+)\[', text, re.M)
    must(len(tables) > 1 and len(set(tables)) == len(tables), f'one table of each name: {tables}')
    ptxas = shutil.which('ptxas') or '/usr/local/cuda/bin/ptxas'
    if os.access(ptxas, os.X_OK):
        r = subprocess.run([ptxas, '-arch=sm_80', 'm.ptx', '-o', 'm.cubin'], capture_output=True, text=True)
        must(r.returncode == 0, 'assembly for a GPU assembles', r)
    small = [run('compile', write('m.shard', model()), f'--emit={kind}', '--target', 'sm_90').stdout
             for kind in ('asm', 'ptx')]
    must(small[0] == small[1] and '.target sm_90' in small[0], 'asm for a GPU is ptx')
    for args, says in ((('--target', 'native'), '--target sm_80'), (('--target', 'sm_80,sm_90'), '`--keep DIR` keeps'),
                       (('--target', 'sm_80', '--keep', 'k'), '`--emit=ptx` makes no executable')):
        r = run('compile', 'm.shard', '--emit=ptx', *args)
        must(r.returncode == 2 and says in r.stderr and not os.path.exists('k'), f'ptx {args}: {says}', r)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    os.environ['SHARDC_CACHE_DIR'] = f'{folder}/cache'
    for case in (names_in_c, typed_paths, odd_files, targets, sizes, programs, mistakes, reports, assembly): case()
print('\n'.join(wrong) or 'fine')
sys.exit(bool(wrong))
