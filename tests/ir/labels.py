"""Numbered constraints: python3 labels.py ROOT. Each label in ir/, and in the check of a dump's settings, is in
docs/ir.md and has a test, and the other way round."""
import glob, re, sys

root = sys.argv[1]
DUMPS = 'frontend/settings/settings_dump.c'
label = re.compile(r'\b([a-z]+-c\d+)\b')


def labels(*patterns):
    return {l for p in patterns for f in glob.glob(f'{root}/{p}') for l in label.findall(open(f).read())}


code, docs, tests = labels('ir/*.c', 'ir/*/*.c', DUMPS), labels('docs/ir.md'), labels('tests/ir/test_verify*.c')
wrong = [f'{l}: in ir/, not in docs/ir.md' for l in sorted(code - docs)]
wrong += [f'{l}: in docs/ir.md, not in ir/' for l in sorted(docs - code)]
tests |= labels('tests/frontend/codes/*', 'tests/passes/*/*.ir', 'tests/run/irtools.py') & labels(DUMPS)
wrong += [f'{l}: no test in tests/ir/test_verify*.c' for l in sorted(code - tests)]
wrong += [f'{l}: tested, not in ir/' for l in sorted(tests - code)]
print('\n'.join(wrong) or f'{len(code)} constraints')
sys.exit(bool(wrong))
