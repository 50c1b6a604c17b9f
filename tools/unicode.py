"""Writes runtime/text/unicode.def: what tokenizers know of characters.   unicode.py [> runtime/text/unicode.def]

The tables must equal those that vocabularies were made with, so they are read out of the reference package itself
(`tokenizers` of PyPI), character by character. It knows several Unicode versions: its regular expressions 16.0
(letters, numbers, spaces), its BERT normalizer 8.0 (punctuation, marks, controls) and 12.1 (decompositions), its lower
case 17.0. Run this again when a new version of the package differs; tests/runtime/text has vectors that would show it.
Must not: be needed by the build.
"""
import sys, unicodedata
import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xd800 <= c <= 0xdfff]


def matched(pattern):
    split = pre_tokenizers.Split(Regex(pattern), 'removed')
    return {c for c in ALL if not split.pre_tokenize_str(chr(c))}


def bert(**on):
    n = normalizers.BertNormalizer(**{**dict(clean_text=False, handle_chinese_chars=False, strip_accents=False,
                                             lowercase=False), **on})
    return {c: n.normalize_str(chr(c)) for c in ALL}


def classes():
    words = pre_tokenizers.BertPreTokenizer()
    clean, cjk, strip = bert(clean_text=True), bert(handle_chinese_chars=True), bert(strip_accents=True)
    sets = dict(LETTER=matched(r'\p{L}'), NUMBER=matched(r'\p{N}'), SPACE=matched(r'\s'),
                PUNCT={c for c in ALL if len(words.pre_tokenize_str('a' + chr(c))) == 2},
                CONTROL={c for c in ALL if clean[c] == ''}, MARK={c for c in ALL if strip[c] == ''},
                CJK={c for c in ALL if cjk[c] != chr(c)}, UPPER=matched(r'[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]'),
                LOWER=matched(r'[\p{Ll}\p{Lm}\p{Lo}\p{M}]'))
    if sets['SPACE'] != {c for c in ALL if not words.pre_tokenize_str(chr(c))}: sys.exit('two kinds of space')
    if any(c not in sets['SPACE'] and clean[c] not in ('', chr(c)) for c in ALL):
        sys.exit('cleaning changes more than spaces')
    return sets


def class_rows(sets):
    at = {}
    for i, name in enumerate(sets):
        for c in sets[name]: at[c] = at.get(c, 0) | 1 << i
    start = None
    for c in range(0x110001):
        here = at.get(c, 0)
        if start is not None and here != at[start]:
            yield f'C({start:#x},{c - start},{at[start]})'
            start = None
        if start is None and here: start = c


def lower_rows():
    """Runs of the same distance; step 2: every second character (capital, small, capital, ..)."""
    low = {c: s for c, s in bert(lowercase=True).items() if s != chr(c)}
    for c in sorted(low):
        if len(low[c]) > 1: yield f'LL({c:#x},{",".join(hex(ord(x)) for x in low.pop(c))})'
    while low:
        first = min(low)
        by = {step: first for step in (1, 2)}
        move = ord(low[first]) - first
        for step in by:
            while (n := by[step] + step) in low and ord(low[n]) - n == move: by[step] = n
        step = 2 if by[2] - first >= 2 * (by[1] - first) and by[2] > first else 1
        for c in range(first, by[step] + 1, step): del low[c]
        yield f'L({first:#x},{by[step]:#x},{step},{move})'


def decomposition_rows():
    nfd = normalizers.NFD()
    for c in ALL:
        s = nfd.normalize_str(chr(c))
        if s == chr(c) or 0xac00 <= c <= 0xd7a3: continue  # Hangul syllables follow from arithmetic
        yield f'D({c:#x},{",".join(hex(ord(x)) if ord(x) else "0" for x in s.ljust(4, chr(0)))})'


def order_rows():
    """Combining classes, of those characters that the reference does move."""
    nfd, low, high = normalizers.NFD(), chr(0x334), chr(0x345)
    order = {}
    for c in ALL:
        k = unicodedata.combining(chr(c))
        probe = chr(c) + low if k > 1 else high + chr(c)
        if k and len(nfd.normalize_str(chr(c))) == 1 and nfd.normalize_str(probe) != probe: order[c] = k
    while order:
        first = end = min(order)
        while order.get(end + 1) == order[first]: end += 1
        yield f'O({first:#x},{end - first + 1},{order[first]})'
        for c in range(first, end + 1): del order[c]


ROWS = 'C L LL D O'.split()


def put(title, rows):
    print(f'/* {title} */')
    line = ''
    for r in rows:
        if len(line) + len(r) > 120: print(line.rstrip()); line = ''
        line += r + ' '
    print(line.rstrip())


print(f'''/* Made by tools/unicode.py from tokenizers {tokenizers.__version__}; not to be changed by hand.
   C(first, count, bits of an enum in unicode.h)   L(first, last, step, distance to the small letter)
   LL(character, what it becomes..)
   D(character, its canonical decomposition in full, filled up with 0)   O(first, count, combining class)
   Unicode 16.0 (letter, number, space), 8.0 (punctuation, mark, control), 12.1 (decomposition, order),
   17.0 (lower case).
   Who includes it defines the rows that are wanted; the others vanish. */''')
for row in ROWS: print(f'#ifndef {row}\n#define {row}(...)\n#endif')
sets = classes()
put('classes', class_rows(sets))
put('lower case', lower_rows())
put('canonical decompositions, in full', decomposition_rows())
put('order of combining characters', order_rows())
for row in ROWS: print(f'#undef {row}')
