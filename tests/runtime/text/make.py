"""Makes the tokenizers and vectors of tests/runtime/test_text.c with the reference, the package `tokenizers` of PyPI:
make.py

Small vocabularies with the exact settings of GPT-2, Llama 3 and BERT. vectors.txt has, per tokenizer, the ids of some
strings, and sums of the ids of a megabyte of mixed script and of every single character, alone and between letters.
Must not: be needed by the suite.
"""
import json, os, sys
import tokenizers
from tokenizers import Tokenizer, models, decoders, normalizers, pre_tokenizers as P, trainers, Regex

os.chdir(os.path.dirname(os.path.abspath(__file__)))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# test_text.c has the same two tables.
RANGES = [(0x20, 0x7e), (0x61, 0x7a), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x52f), (0x590, 0x5ff),
          (0x600, 0x6ff),
          (0x900, 0x97f), (0xe00, 0xe7f), (0x1e00, 0x1fff), (0x2000, 0x206f), (0x2460, 0x27bf), (0x3000, 0x30ff),
          (0x4e00, 0x5fff),
          (0xac00, 0xd7a3), (0xf900, 0xfaff), (0xff00, 0xffef), (0x1d100, 0x1d7ff), (0x1f300, 0x1f6ff),
          (0x10400, 0x1044f), (0, 0xd7ff)]
WORDS = [' the', 'The', ' of', 'and ', 'ing', "'s ", "'LL ", "'\u017f", 'n\'t', '. ', '...\n', '\r\n', '\n\n  ', '   ',
         '\t', ' 1234567 ',
         '\u0664\u0665', 'Stra\u00dfe', '\u0130stanbul', 'e\u0301\u0327', '<|endoftext|>', '[SEP]', '##', '\u3000',
         '\ud55c\uad6d', '']
STRINGS = ['', 'Hello, world!', ' Hello  world', "It's what they'll do: DON'T.", 'a  b   c', '  \n\n  x', 'x \r\n',
           'trailing   ', '\u00e9e\u0301',
           'na\u00efve caf\u00e9 \u00c5ngstr\u00f6m', '1234567890', '\u0661\u0662\u0663\u0664',
           '\u65e5\u672c\u8a9e text', '\U0001f600\U0001f468\u200d\U0001f469',
           '<|endoftext|>', '[CLS] a [SEP]', 'un\x00quoted\x07', '\u1f39\u0345', 'word ' * 30, 'a' * 200,
           '\ufeff\u00a0x', "'S'T'\u017f", '\u0958\ufb1d', '\u037e\u212a']

CASED = ['HelloWorld FOOBar fooBAR', "a\u0301B iPhone's ABC'LL x/y//\n", '\u65e5\u672cABC \u01c5abc',
         ' \u2581 a  b', '\u2581']


def mixed(size):
    x, out, n = 1, [], 0

    def draw(k):
        nonlocal x
        x = (x * 6364136223846793005 + 1442695040888963407) % 2**64
        return (x >> 33) % k
    while n < size:
        low, high = RANGES[draw(len(RANGES))]
        w = ''.join(chr(low + draw(high - low + 1)) for _ in range(1 + draw(8))) + WORDS[draw(len(WORDS))]
        out.append(w)
        n += len(w.encode())
    return ''.join(out)


def summed(h, ids):
    for i in ids: h = ((h ^ (i + 1)) * 0x100000001b3) % 2**64
    return h


def corpus():
    lines = []
    for name in '../../../docs/language.md', '../../../docs/ir.md', '../../../README.md':
        lines += open(name).read().splitlines(True)
    return lines + mixed(100000).splitlines(True) + [w for w in WORDS for _ in range(20)]


def save(t, name):
    t.save(name)
    d = json.load(open(name))
    open(name, 'w').write(json.dumps(d, ensure_ascii=False, separators=(',', ':')).replace('},{"id"', '},\n{"id"')
                          + '\n')


def train():
    for name, pre, model in (('gpt2', P.ByteLevel(add_prefix_space=False), models.BPE()), ('llama3', P.Sequence(
            [P.Split(Regex(LLAMA3), 'isolated'),
             P.ByteLevel(add_prefix_space=False, use_regex=False)]), models.BPE(ignore_merges=True))):
        t = Tokenizer(model)
        t.pre_tokenizer, t.decoder = pre, decoders.ByteLevel()
        end = '<|endoftext|>' if name == 'gpt2' else '<|end_of_text|>'
        t.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=700, special_tokens=[end], show_progress=False,
                                                            initial_alphabet=P.ByteLevel.alphabet()))
        save(t, name + '.json')
        if name == 'gpt2': t.model.save('.', 'gpt2')
    t = Tokenizer(models.WordPiece(unk_token='[UNK]'))
    t.normalizer, t.pre_tokenizer, t.decoder = normalizers.BertNormalizer(), P.BertPreTokenizer(), decoders.WordPiece()
    t.train_from_iterator(corpus(), trainers.WordPieceTrainer(vocab_size=1500, show_progress=False, limit_alphabet=500,
                                                              special_tokens=['[PAD]', '[UNK]', '[CLS]', '[SEP]',
                                                                              '[MASK]']))
    save(t, 'bert.json')
    t.model.save('.', 'bert')


def every(t):
    h = 0xcbf29ce484222325
    for before, behind in ('', ''), ('a', 'b'):
        all_of = [before + chr(c) + behind for c in range(0x110000) if not 0xd800 <= c <= 0xdfff]
        for i in range(0, len(all_of), 50000):
            for e in t.encode_batch(all_of[i:i + 50000], add_special_tokens=False): h = summed(h, [*e.ids, -2])
    return h


O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def train_marked():
    """o200k; BPE of characters and Unigram, both with Metaspace."""
    lines = corpus()
    short = [x for x in lines[:1200] if x.isascii()]
    lines = lines[:1500] + mixed(8000).splitlines(True) + [w for w in WORDS for _ in range(5)]
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = P.Sequence([P.Split(Regex(O200K), 'isolated'),
                                  P.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=700, special_tokens=['<|endoftext|>'],
                                                     show_progress=False, initial_alphabet=P.ByteLevel.alphabet()))
    save(t, 'o200k.json')
    t = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token='<unk>'))
    t.pre_tokenizer = P.Metaspace(prepend_scheme='first', split=False)
    t.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=800, special_tokens=['<unk>', '<s>', *(f'<0x{b:02X}>' for b in range(256))], show_progress=False,
        limit_alphabet=200))
    save(t, 'marked.json')
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = P.Metaspace(prepend_scheme='always')
    t.train_from_iterator(short, trainers.UnigramTrainer(vocab_size=700, special_tokens=['<unk>', '<s>'],
                                                         unk_token='<unk>', show_progress=False))
    save(t, 'unigram.json')


train(), train_marked()
with open('vectors.txt', 'w') as f:
    print(f'# made by make.py with tokenizers {tokenizers.__version__}: NAME special TEXT-IN-HEX: IDS; NAME special mixed|every: SUM', file=f)
    for name in 'gpt2', 'llama3', 'bert':
        t = Tokenizer.from_file(name + '.json')
        for special in 0, 1:
            t.encode_special_tokens = not special
            for s in STRINGS:
                print(name, special, (s.encode().hex() or '-') + ':', *t.encode(s, add_special_tokens=False).ids,
                      file=f)
            print(f'{name} {special} mixed: {summed(0xcbf29ce484222325, t.encode(mixed(1100000), add_special_tokens=False).ids):016x}', file=f)
        t.encode_special_tokens = True
        print(f'{name} 0 every: {every(t):016x}', file=f)
    for name in 'o200k', 'marked', 'unigram':
        t = Tokenizer.from_file(name + '.json')
        t.encode_special_tokens = True
        for s in STRINGS + CASED:
            print(name, 0, (s.encode().hex() or '-') + ':', *t.encode(s, add_special_tokens=False).ids, file=f)
        ids = t.encode(mixed(1100000), add_special_tokens=False).ids
        print(f'{name} 0 mixed: {summed(0xcbf29ce484222325, ids):016x}', file=f)
