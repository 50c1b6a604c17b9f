"""The program of toy.c, run as one rank in a folder of its own, for the tests of this folder."""
import os, subprocess, sys, tempfile

TOY, D = os.path.abspath(sys.argv[1]), tempfile.mkdtemp(prefix='toy run ')


def toy(*args, expect=0, says='', exe=None, env=None, **kw):
    e = dict(os.environ, NO_COLOR='1', **(env or {}))
    p = subprocess.run([exe or TOY, *args], cwd=D, capture_output=True, timeout=1200, env=e, **kw)
    out, err = p.stdout.decode('latin1'), p.stderr.decode('latin1')
    if p.returncode != expect or says not in out + err:
        sys.exit(f'toy {" ".join(args)}\n  exit {p.returncode}, expected {expect} and `{says}`\n{out}\n{err}')
    return out + err


def check(ok, what):
    if not ok: sys.exit('failed: ' + what)


def train(*args, **kw): return toy('train', '--data', 'text.txt', *args, **kw)
def path(*p): return os.path.join(D, *p)
