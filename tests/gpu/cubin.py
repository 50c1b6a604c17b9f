"""Cubins as the tests of kernels make and read them: sections of an ELF file, and where branches jump.

An instruction of sm_80 to sm_90 has 16 bytes. A branch has opcode 0x947 in its low 12 bits, its distance in words of 4
bytes from bit 34 on, or, for sm_90, bits 16 to 23 of it below that.
"""
import struct, subprocess, sys

BRANCH = 0x947


def compiled(command, folder, case=''):
    """Runs shardc compile; ends where ptxas refuses a kernel, keeps registers in memory or serializes its products."""
    r = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if r.returncode or 'W1316' in r.stderr: sys.exit(f'{" ".join(command)} {case}: {r.returncode}\n{r.stderr}')


def sections(b):
    at, = struct.unpack_from('<Q', b, 0x28)
    size, n, names = struct.unpack_from('<HHH', b, 0x3a)
    head = [struct.unpack_from('<IIQQQQIIQQ', b, at + i * size) for i in range(n)]
    for h in head:
        name = head[names][4] + h[0]
        yield b[name:b.index(b'\0', name)].decode(), b[h[4]:h[4] + h[5]]


def jump(i, word, target):
    """The number of the instruction to which instruction i branches; None if it does not branch."""
    low, high = word
    if low & 0xfff != BRANCH: return None
    distance = (high & (1 << 18) - 1) << 30 | low >> 34
    if distance >> 47: distance -= 1 << 48
    if target.startswith('sm_90'): distance = distance << 8 | low >> 16 & 255
    return i + 1 + distance // 4
