"""Damage to files: bits, pieces and words, drawn from a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

NUMBERS = (
    b"0 1 -1 2 1e308 -1e308 5e-324 1e-300 1e9 1e12 nan inf -inf 9223372036854775808 -9223372036854775809 0x10 1_0 "
    b"1e999 00 .5 5. +3 0.1.2 1,2 true"
).split()
WORDS = (
    b"", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"<", b">", b"&", b"&x;", b'"', b"'", b"=", b"[", b"]]", b"{", b"}",
    b"\n", b"\r\n", b"..", b"../../x", b"/dev/null", b"/dev/zero", b"none", b"null", b"[]", b"{}", b'""', b"\\u0000",
    b"\xf0\x9f\x9a\x97", b"a" * 5000, b"<!DOCTYPE x [<!ENTITY y 'z'>]>", b"encoding='ETF-8'", b"]" * 3000, b"[" * 3000,
)  # fmt: skip
_WORD = re.compile(rb"[A-Za-z_][\w.-]*")
_NUMBER = re.compile(rb"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")

Mutation = Callable[[random.Random, bytes], bytes]


def _place(draw: random.Random, content: bytes) -> tuple[int, int]:
    start = draw.randrange(len(content) + 1)
    return start, min(len(content), start + draw.choice((1, 2, 8, 64, 1000)))


def flip(draw: random.Random, content: bytes) -> bytes:
    """Change a few bits."""
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 8))):
        if changed:
            changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def cut(draw: random.Random, content: bytes) -> bytes:
    """Leave a piece out."""
    start, end = _place(draw, content)
    return content[:start] + content[end:]


def end(draw: random.Random, content: bytes) -> bytes:
    """Leave out the end."""
    return content[: draw.randrange(len(content) + 1)]


def repeat(draw: random.Random, content: bytes) -> bytes:
    """Say a piece twice."""
    start, stop = _place(draw, content)
    return content[:stop] + content[start:stop] + content[stop:]


def insert(draw: random.Random, content: bytes) -> bytes:
    """Put in a word that means something to some reader, or noise."""
    start, stop = _place(draw, content)
    word = draw.choice(WORDS) if draw.random() < 0.8 else draw.randbytes(draw.choice((1, 4, 100)))
    return content[:start] + word + content[draw.choice((start, stop)) :]


def number(draw: random.Random, content: bytes) -> bytes:
    """Put an extreme number in place of a number."""
    return _replaced(draw, content, _NUMBER, NUMBERS)


def word(draw: random.Random, content: bytes) -> bytes:
    """Put another word of the file in place of a word."""
    known = sorted(set(_WORD.findall(content[:20_000])))
    return _replaced(draw, content, _WORD, [*known, *WORDS])


def line(draw: random.Random, content: bytes) -> bytes:
    """Move, double or drop a line."""
    lines = content.splitlines(keepends=True)
    if not lines:
        return content
    taken = lines.pop(draw.randrange(len(lines)))
    for _ in range(draw.randrange(3)):
        lines.insert(draw.randrange(len(lines) + 1), taken)
    return b"".join(lines)


def _replaced(draw: random.Random, content: bytes, pattern: re.Pattern[bytes], choices: Sequence[bytes]) -> bytes:
    found = list(pattern.finditer(content))
    if not found:
        return content
    at = draw.choice(found)
    return content[: at.start()] + draw.choice(choices) + content[at.end() :]


OF_TEXT: tuple[Mutation, ...] = (number, number, word, word, line, insert, cut, flip, end, repeat)
OF_BYTES: tuple[Mutation, ...] = (flip, flip, flip, cut, end, repeat, insert)


def mutated(draw: random.Random, content: bytes) -> bytes:
    """Return the content with one to three kinds of damage."""
    kinds = OF_BYTES if b"\x00" in content else OF_TEXT
    for _ in range(draw.choice((1, 1, 2, 3))):
        content = draw.choice(kinds)(draw, content)
    return content
