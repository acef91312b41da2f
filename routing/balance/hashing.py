"""Hashes that are the same in every process."""

from __future__ import annotations

from hashlib import blake2b

MASK = (1 << 64) - 1


def hash_of(text: bytes) -> int:
    """64 bits; never 0, which stands for no hash."""
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big") or 1


def mixed(value: int) -> int:
    """The finalizer of splitmix64 (Steele, Lea and Flood 2014): of two values that
    differ in a bit, the results differ in about half of theirs."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & MASK
    return value ^ (value >> 31)
