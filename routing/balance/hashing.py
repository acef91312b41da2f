"""Hashes that are the same in every process."""

from __future__ import annotations

from hashlib import blake2b

MASK = (1 << 64) - 1


def hash_of(text: bytes) -> int:
    """64 bits."""
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


def chain_of(text: bytes, block: int = 512, most: int = 64) -> tuple[int, ...]:
    """A hash for each whole block of so many bytes, over all up to its end; of at most
    ``most`` blocks. The rest that fills no block would differ as soon as more comes."""
    running = blake2b(digest_size=8)
    chain = []
    for end in range(block, min(len(text), block * most) + 1, block):
        running.update(text[end - block : end])
        chain.append(int.from_bytes(running.copy().digest(), "big"))
    return tuple(chain)


def mixed(value: int) -> int:
    """The finalizer of splitmix64 (Steele, Lea and Flood 2014): of two values that
    differ in a bit, the results differ in about half of theirs."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)
