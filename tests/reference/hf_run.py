"""Weights files of transformers (made by hf_make.py) are read, used for computation, and written back.

    python3 hf_run.py SHARDC WORK

The logits equal those of transformers within 1e-4; export gives every tensor under the same name, in the same shape,
bitwise; the test covers shards with an index, bf16 and f16 files, and missing, unknown and misshapen tensors. Standard
library only.
"""
import array, json, os, shutil, struct, subprocess, sys

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = 'gpt2', 'llama', 'bert'
PROMPT = '0A1B2:3;4<5=6>7?'          # bytes below 67, one window


def call(*command, expect=0, says=''):
    p = subprocess.run(command, capture_output=True, text=True, errors='replace', cwd=HERE,
                       env=dict(os.environ, SHARDC_PATH=f'{HERE}/../../examples', NO_COLOR='1'))
    if p.returncode != expect or says not in p.stdout + p.stderr:
        sys.exit(f'{" ".join(command)}\n  exit {p.returncode}, expected {expect} and `{says}`\n{p.stdout}{p.stderr}')
    return p.stderr


def read(path):
    data = open(path, 'rb').read()
    n, = struct.unpack('<Q', data[:8])
    head = json.loads(data[8:8 + n])
    meta = head.pop('__metadata__', {})
    return meta, {k: (t['dtype'], t['shape'], data[8 + n + t['data_offsets'][0]:8 + n + t['data_offsets'][1]])
                  for k, t in head.items()}


def write(path, tensors):
    head, at = {'__metadata__': {'format': 'pt'}}, 0
    for k, (dtype, shape, data) in tensors.items():
        head[k] = dict(dtype=dtype, shape=shape, data_offsets=[at, at + len(data)])
        at += len(data)
    text = json.dumps(head).encode()
    open(path, 'wb').write(struct.pack('<Q', len(text)) + text + b''.join(t[2] for t in tensors.values()))


def floats(data):
    a = array.array('f')
    a.frombytes(data)
    return a.tolist()


def export(shardc, name, work, train=False):
    """Compiles, takes the weights of transformers (or trains from them), exports: executable, directory, run."""
    shutil.rmtree(f'{work}/{name}', ignore_errors=True)
    os.makedirs(f'{work}/{name}')
    exe, out, run = f'{work}/{name}/exe', f'{work}/{name}/hf', f'{work}/{name}/run'
    call(shardc, 'compile', f'{HERE}/hf_{name}.shard', '-o', exe, '-q', '--quick')
    init = f'{HERE}/hf_{name}.safetensors'
    if train: call(exe, 'train', '--init', init, '--out', run, '--quiet')
    call(exe, 'export', '--out', out, *(['--resume', run] if train else ['--init', init]))
    return exe, out, run


def logits_of_ours(exe, dump, *source):
    call(exe, 'sample', *source, '--prompt', PROMPT, '--tokens', '1', '--temperature', '0', '--dump', dump)
    return floats(read(dump)[1]['out.logits'][2])


def check(ok, what):
    if not ok: sys.exit('failed: ' + what)


def close(a, b, tolerance): return len(a) == len(b) and all(abs(x - y) <= tolerance for x, y in zip(a, b))


def check_same(name, out):
    meta, ours = read(f'{out}/model.safetensors')
    theirs = read(f'{HERE}/hf_{name}.safetensors')[1]
    check(meta == {'format': 'pt', 'made_by': 'shardc export'}, 'metadata')
    check(sorted(ours) == sorted(theirs), f'names: {sorted(set(ours) ^ set(theirs))}')
    for k in theirs: check(ours[k] == theirs[k], f'{k} written as read')


def narrow(data, kind):
    if kind == 'F16': return b''.join(struct.pack('<e', x) for x in floats(data))
    return b''.join(data[i + 2:i + 4] for i in range(0, len(data), 4))


def case_types(name, exe, work, want):
    tensors = read(f'{HERE}/hf_{name}.safetensors')[1]
    for kind, tolerance in ('F16', 0.02), ('BF16', 0.3):
        path = f'{work}/{name}/{kind}.safetensors'
        write(path, {k: (kind, s, narrow(d, kind)) for k, (_, s, d) in tensors.items()})
        check(close(logits_of_ours(exe, f'{work}/dump', '--init', path), want, tolerance), f'{kind} file')


def case_shards(name, exe, work, want):
    folder = f'{work}/{name}/shards'
    os.makedirs(folder)
    tensors = read(f'{HERE}/hf_{name}.safetensors')[1]
    bare = {k.removeprefix('transformer.'): v for k, v in tensors.items()}          # also without the prefix
    keys, where = sorted(bare), {}
    for i in range(2):
        part = f'model-0000{i + 1}-of-00002.safetensors'
        write(f'{folder}/{part}', {k: bare[k] for k in keys[i::2]})
        where.update({k: part for k in keys[i::2]})
    json.dump(dict(metadata=dict(total_size=1), weight_map=where), open(f'{folder}/model.safetensors.index.json', 'w'))
    for path in folder, f'{folder}/model.safetensors.index.json':
        check(logits_of_ours(exe, f'{work}/dump', '--init', path) == want, 'shards')
    os.remove(f'{folder}/model-00002-of-00002.safetensors')
    call(exe, 'sample', '--init', folder, expect=4, says='R0301')
    os.remove(f'{folder}/model.safetensors.index.json')
    call(exe, 'sample', '--init', folder, expect=4, says='holds no tensor')


def case_wrong(name, exe, work):
    tensors, path = read(f'{HERE}/hf_{name}.safetensors')[1], f'{work}/{name}/wrong.safetensors'
    some = [k for k in tensors if ('mlp' in k or 'intermediate' in k) and k.endswith('.weight')][0]
    dtype, shape, data = tensors[some]

    def refused(changed, says):
        write(path, changed)
        call(exe, 'sample', '--init', path, expect=4, says=says)
    refused({k: v for k, v in tensors.items() if k != some}, 'R0303')
    refused({**tensors, 'h.0.strange': (dtype, shape, data)}, 'h.0.strange is in the file')
    refused({**tensors, some: (dtype, shape[::-1], data)}, f'{some} is [{shape[1]}, {shape[0]}] in the file; the model')
    refused({**tensors, some: ('I8', [len(data)], data)}, 'of a type')
    if name == 'gpt2':                                                               # passed over
        write(path, {**tensors, 'h.0.attn.bias': ('U8', [4], b'1234'), 'lm_head.weight': ('F32', [1], b'1234')})
        call(exe, 'sample', '--init', path, '--tokens', '1')


def case_config(exe, work, out):
    """--init DIR: a config.json that says another model than the program is refused, entry by entry."""
    folder = f'{work}/llama/config'
    shutil.copytree(out, folder)
    said = json.load(open(f'{folder}/config.json'))
    says = lambda config: json.dump(config, open(f'{folder}/config.json', 'w'))
    scaling = dict(rope_type='llama3', factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)
    without = lambda *keys: {k: v for k, v in said.items() if k not in keys}
    same = [said, {**said, 'rope_scaling': None, 'attention_dropout': 0.1, 'use_cache': True, 'bos_token_id': 1},
            {**without('rope_theta'), 'rope_parameters': dict(rope_theta=500000.0, rope_type='default')},
            {**said, 'rms_norm_eps': 0.00001, 'sliding_window': 4096}, without('hidden_act', 'architectures')]
    other = [({**said, 'rope_theta': 10000.0}, 'rope_theta is 10000.0, 500000 in the model'),
             ({**said, 'rms_norm_eps': 1e-6}, 'rms_norm_eps is 1e-06, 1e-05 in the model'),
             ({**said, 'rope_scaling': scaling}, 'rope_scaling.factor is 8.0, not said in the model'),
             ({**without('rope_theta'), 'rope_parameters': dict(scaling, rope_theta=500000.0)}, 'rope_scaling.factor'),
             ({**without('rope_theta'), 'rope_parameters': dict(rope_theta=1e6)}, 'rope_theta is 1000000.0'),
             (without('rope_theta'), 'rope_theta is 10000, 500000 in the model'),
             ({**said, 'tie_word_embeddings': True}, 'tie_word_embeddings is true'),
             ({**said, 'num_key_value_heads': 4}, 'num_key_value_heads is 4'),
             ({**said, 'hidden_act': 'gelu'}, 'hidden_act is "gelu"'),
             ({**said, 'sliding_window': 8}, 'sliding_window is 8'),
             ({**said, 'partial_rotary_factor': 0.5}, 'partial_rotary_factor is 0.5')]
    for config in same:
        says(config)
        call(exe, 'sample', '--init', folder, '--tokens', '1')
    for config, words in other:
        says(config)
        call(exe, 'sample', '--init', folder, '--tokens', '1', expect=4, says=words)
    call(exe, 'sample', '--init', f'{folder}/model.safetensors', '--tokens', '1')     # insists
    open(f'{folder}/config.json', 'w').write('{"rope_theta": ')
    call(exe, 'sample', '--init', folder, '--tokens', '1', expect=4, says='damaged config.json')


def case_tokenizer(exe, work):
    """The export includes the named tokenizer and the files that other tools read with it."""
    text, out = f'{HERE}/../runtime/text', f'{work}/gpt2/words'
    init = ['--init', f'{HERE}/hf_gpt2.safetensors', '--out', out]
    call(exe, 'export', *init, '--tokenizer', f'{text}/gpt2.json')
    same = lambda a, b: open(a, 'rb').read() == open(b, 'rb').read()
    check(same(f'{out}/tokenizer.json', f'{text}/gpt2.json'), 'tokenizer.json')
    said = {k: json.load(open(f'{out}/{k}.json')) for k in ('config', 'tokenizer_config', 'generation_config')}
    check(said['tokenizer_config'] == dict(tokenizer_class='PreTrainedTokenizerFast', eos_token='<|endoftext|>'),
          'tokenizer_config.json')
    check(said['config']['eos_token_id'] == 0 and said['generation_config'] == dict(eos_token_id=0), 'special ids')
    folder = f'{work}/gpt2/named'
    os.makedirs(folder)
    shutil.copy(f'{text}/gpt2.json', f'{folder}/tokenizer.json')
    for name in 'tokenizer_config', 'special_tokens_map', 'generation_config':
        json.dump(dict(own=name), open(f'{folder}/{name}.json', 'w'))
    shutil.rmtree(out), call(exe, 'export', *init, '--tokenizer', folder)
    for name in 'tokenizer_config', 'special_tokens_map', 'generation_config':
        check(same(f'{out}/{name}.json', f'{folder}/{name}.json'), name)
    shutil.rmtree(out), call(exe, 'export', *init, '--tokenizer', f'{text}/gpt2-vocab.json')
    check(same(f'{out}/merges.txt', f'{text}/gpt2-merges.txt'), 'merges.txt')
    shutil.rmtree(out)
    call(exe, 'export', *init, '--tokenizer', f'{work}/absent.json', expect=4, says='the tokenizer does not exist')


def case_built_in(shardc, work, name):
    """The example without its weights block takes the same lines, with a note."""
    text = open(f'{HERE}/../../examples/{name}.shard').read().split('weights hf')[0].replace('pad 128', '')
    text = text.replace('format = megatron', 'format = u16')
    open(f'{work}/{name}.shard', 'w').write(text)

    def lines(path):
        says = call(shardc, 'dump', path, '-o', f'{work}/{name}.ir')
        return says, [x for x in open(f'{work}/{name}.ir') if x.startswith('set weights.')]
    (said, built_in), (quiet, written) = lines(f'{work}/{name}.shard'), lines(f'{HERE}/hf_{name}.shard')
    check('N0601' in said and 'N0601' not in quiet, 'the note')
    numbers = lambda x: '.config.' in x
    check([x for x in built_in if not numbers(x)] == [x for x in written if not numbers(x)], 'the same map')


def main(shardc, work):
    for name in NAMES:
        exe, out, _ = export(shardc, name, work)
        check_same(name, out)
        want = sum(json.load(open(f'{HERE}/hf_{name}.logits.json'))['logits'], [])
        ours = logits_of_ours(exe, f'{work}/dump', '--init', f'{HERE}/hf_{name}.safetensors')
        worst = max(abs(x - y) for x, y in zip(ours, want))
        print(f'{name}: logits differ from those of transformers by at most {worst:.1e}')
        check(close(ours, want, 1e-4), 'logits')
        check(logits_of_ours(exe, f'{work}/dump', '--init', out) == ours, 'the exported directory')
        if name != 'bert':
            case_built_in(shardc, work, name)                         # hf_bert.shard has no block: it tests that
        if name == 'llama': case_config(exe, work, out)
        if name == 'gpt2': case_tokenizer(exe, work)
        case_types(name, exe, work, ours)
        case_shards(name, exe, work, ours), case_wrong(name, exe, work)


if __name__ == '__main__': main(sys.argv[1], os.path.abspath(sys.argv[2]))
