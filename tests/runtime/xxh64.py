"""XXH64 with seed 0, as checkpoints carry it (runtime/base/hash.c), written a second time: for tests that make files by
hand."""
import struct


def xxh64(b):
    P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
    M = (1 << 64) - 1
    rot = lambda v, n: (v << n | v >> 64 - n) & M
    mix = lambda a, w: rot((a + w * P2) & M, 31) * P1 & M
    lane, i = [(P1 + P2) & M, P2, 0, -P1 & M], 0
    for i in range(0, len(b) - 31, 32): lane = [mix(a, w) for a, w in zip(lane, struct.unpack_from('<4Q', b, i))]
    n = len(b) // 32 * 32
    h = P5
    if n:
        h = sum(rot(a, r) for a, r in zip(lane, (1, 7, 12, 18))) & M
        for a in lane: h = ((h ^ mix(0, a)) * P1 + P4) & M
    h = (h + len(b)) & M
    while len(b) - n >= 8: h = (rot(h ^ mix(0, struct.unpack_from('<Q', b, n)[0]), 27) * P1 + P4) & M; n += 8
    if len(b) - n >= 4: h = (rot(h ^ struct.unpack_from('<I', b, n)[0] * P1 & M, 23) * P2 + P3) & M; n += 4
    for c in b[n:]: h = rot(h ^ c * P5 & M, 11) * P1 & M
    h = (h ^ h >> 33) * P2 & M
    h = (h ^ h >> 29) * P3 & M
    return '%016x' % (h ^ h >> 32)
