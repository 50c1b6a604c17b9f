"""Which words no random program has: words.py ROOT

Every row of the tables of words (keywords.def, operators.def, functions.def, settings.def) should occur in the text of
one of the first programs with their plans, or in MISSING with the reason; a word that programs contain must not be in
MISSING.
"""
import re, sys
import trial

ROOT, PROGRAMS = sys.argv[1], 500
WORKERS = 'of 1-bit Adam; against the algorithm in tests/run/onebit.py'
UNBUILT, TOKENS = 'not built yet: E0901 at the word', 'says what is made of tokens; these programs read columns'
OTHERS, FILES = 'kernels of other processors do not run here', 'names in files of weights'
MUON = 'tests/reference/gpt2_muon.shard; ranks.muon and random plans of tests/ranks'
FACTORS = 'gradients over their own size turn as rounding does: tests/run/optimizers.py, also exactly under plans'
LION = 'signs turn where rounding does: tests/run/optimizers.py, also exactly under plans'
TIME = 'read by the bound of time of `plan` alone'
MISSING = {
    'op table': UNBUILT,
    'word variant': 'the same model with other sizes, of which dims have enough',
    'word weights as': FILES, 'word grad': 'checked, and not used yet: N0901', 'word extern': UNBUILT,
    'WEIGHTS prefix ignore config': FILES,
    'TRAIN data.eot data.mask_id data.pack data.pad_id data.special data.task data.tokenizer': TOKENS,
    'TRAIN data.format=bytes data.format=llmc data.format=u16 data.format=u32 data.format=megatron': TOKENS,
    'TRAIN data.format=idx data.format=f32': 'the files are NumPy arrays; the runtime has tests of each format',
    'TRAIN optim.onebit_adam.betas optim.onebit_adam.weight_decay': WORKERS,
    'TRAIN optim.onebit_adam.ratio optim.onebit_adam.window': WORKERS,
    'TRAIN optim=muon optim.muon.lr optim.muon.momentum optim.muon.nesterov optim.muon.weight_decay': MUON,
    'TRAIN optim.muon.scale optim.muon.scale=fan optim.muon.scale=adamw': MUON,
    'TRAIN optim.muon.states optim.muon.states=f32 optim.muon.states=bf16': MUON,
    'TRAIN optim=lion optim.lion.lr optim.lion.betas optim.lion.weight_decay': LION,
    'TRAIN optim.lion.states optim.lion.states=f32 optim.lion.states=bf16': LION,
    'TRAIN optim=adafactor optim.adafactor.lr optim.adafactor.weight_decay': FACTORS,
    'TRAIN ema': 'a state of each parameter: tests/run/optimizers.py, also exactly under plans',
    'TRAIN lora lora.alpha lora.dropout lora.of': 'adapters change the model: tests/run/lora.py',
    'TRAIN save.time': 'a clock decides: tests/run/keeping.py',
    'TRAIN optim.of': 'tests/reference/bert_groups.shard; random plans of tests/ranks',
    'PLAN mesh=auto': 'the search chooses for a machine with GPUs: tests/run/search.py',
    'PLAN offload=auto': 'judged by a machine with GPUs: auto.py, tests/run/offload_auto.py',
    'MACHINE host host.memory host.cores': 'the host of GPUs: tests/gpu/offload.py',
    'MACHINE host.arch=native host.arch=x86_64_v3 host.arch=x86_64_v4 host.arch=x86_64_v4_bf16': OTHERS,
    'MACHINE host.arch host.arch=x86_64_v4_fp16 host.arch=x86_64_v4_amx': OTHERS,
    'MACHINE link.latency': 'the clock of `plan`, and the bucket that is not written: tests/run/buckets.py',
    'MACHINE host.pcie host.latency host.dram': TIME,
    'MACHINE node.arch=x86_64_v4 node.arch=x86_64_v4_bf16 node.arch=x86_64_v4_fp16 node.arch=x86_64_v4_amx': OTHERS,
    'MACHINE node.gpus node.arch=sm_80 node.arch=sm_86 node.arch=sm_89 node.arch=sm_90 node.arch=sm_90a': OTHERS,
    'MACHINE node.arch=sm_100a node.arch=sm_103a node.arch=sm_120a': OTHERS,
    'MACHINE node.arch=sm_70': 'no target: tests/run/machines.py, tests/run/papers.py',
    'MACHINE node.cores': 'times alone: tests/run/forecast.py', 'MACHINE node.disk': TIME,
    'MACHINE node.tf32 node.bf16 node.f16 node.hbm link.per_core link.cpus': TIME,
    'MACHINE reached reached.products reached.attention reached.memory reached.launch reached.intra': TIME,
    'MACHINE reached.inter reached.pcie reached.dram reached.joined reached.balance': TIME,
}


def rows(path, kind):
    for row in re.findall(rf'^{kind}\((.*?)\)$', open(f'{ROOT}/{path}').read(), re.M | re.S):
        yield [f.strip().strip('"') for f in re.findall(r'"[^"]*"|[^,]+', row)]


def listed():
    """The words of the tables."""
    words = {f'op {r[0]}' for r in rows('ir/functions.def', 'FUNCTION')}
    words |= {f'op {r[1]}' for r in rows('frontend/syntax/operators.def', 'OPERATOR')}
    words |= {f'word {r[1]}' for r in rows('frontend/syntax/keywords.def', 'KEYWORD')}
    words |= {f'{r[0]} {r[1]}' for r in rows('frontend/settings/settings.def', 'LINE')}
    words |= {f'{r[0]} {r[1]}.{r[2]}' for r in rows('frontend/settings/settings.def', 'OPTION')}
    return words | {f'{r[0]} {r[1]}={r[2]}' for r in rows('frontend/settings/settings.def', 'CHOICE')}


def of_line(block, line):
    """The content of a line of a settings block: its word, choices and options, including the options of a choice."""
    path = line.split()[0]
    choices = re.findall(r'[\w]+', line)[1:4]
    keys = re.findall(r'(\w+) = ([\w.]+)?', line) + [(w, '') for w in ('over', 'of') if f' {w} ' in line]
    yield f'{block} {path}'
    for c in choices: yield f'{block} {path}={c}'
    for key, value in keys:
        yield f'{block} {path}.{key}'
        yield f'{block} {path}.{key}={value}'
        for c in choices: yield from (f'{block} {path}.{c}.{key}', f'{block} {path}.{c}.{key}={value}')


def said(text):
    """The words of a program. A block of settings begins with a line of its own, or is one line."""
    words = {f'op {w}' for w in re.findall(r'\b(\w+)[\[(]', text)} | {f'op {w}' for w in re.findall(r'\|> (\w+)', text)}
    block = None
    for line in text.splitlines():
        if not block: words |= {f'word {w}' for w in re.findall(r'\b[a-z]+\b', line)}
        head = re.match(r'(train|plan|machine)\b[^{]*\{ ?(.*?)( \}|\{.*)?$', line)
        if head:
            words |= {w for part in head.group(2).split(';') if part.strip() for w in of_line(head.group(1).upper(),
                    part)}
        if head and not line.endswith('}'): block = head.group(1).upper()
        elif line.startswith('}'): block = None
        elif block and line.strip(): words |= set(of_line(block, line))
    return words


def main():
    tables, found = listed(), set()
    missing = {f'{names.split()[0]} {w}' for names in MISSING for w in names.split()[1:]}
    for n in range(PROGRAMS): found |= said(trial.text_of(n))
    wrong = [f'no random program has `{w}`: let generate.py or plans.py make it, or say in MISSING why not'
             for w in sorted(tables - found - missing)]
    wrong += [f'`{w}` is in MISSING, and random programs have it' for w in sorted(missing & found)]
    wrong += [f'`{w}` is in MISSING and in no table' for w in sorted(missing - tables)]
    print('\n'.join(wrong + [f'{len(tables)} words, {len(tables & found)} in random programs, {len(wrong)} wrong']))
    sys.exit(bool(wrong))


main()
