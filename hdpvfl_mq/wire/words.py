"""Three words that two people can compare by telephone.

It owns the words: four letters each, consonants and vowels alternating, twelve bits, hard to
confuse when spelt. It knows no key.
"""

from __future__ import annotations

import hashlib

_CONSONANTS = "bdfghjklmnprstvz"
_VOWELS = "aiou"
WORD_BITS = 12
WORDS = 3


def words_of(transcript: bytes) -> str:
    """The words of a transcript: 36 bits, enough because a liar has one guess per call."""
    digest = hashlib.blake2b(transcript, person=b"hdpvfl words 1", digest_size=8).digest()
    number = int.from_bytes(digest, "big") >> (64 - WORDS * WORD_BITS)
    parts = [(number >> (WORD_BITS * place)) & (2**WORD_BITS - 1) for place in range(WORDS)]
    return " ".join(_word(part) for part in parts)


def _word(number: int) -> str:
    letters = [
        _CONSONANTS[number >> 8],
        _VOWELS[number >> 6 & 3],
        _CONSONANTS[number >> 2 & 15],
        _VOWELS[number & 3],
    ]
    return "".join(letters)
