"""The methods of entity resolution: one value each.

It owns the table and the rule for `auto`. A method is a pair of oblivious functions (`oprf.py`),
the lengths of their messages and a bucket size. To add a method, add its name to
`schemas.config.AlignmentMethod`, a module like `dh_oprf.py`, and a line in `METHODS`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from hdpvfl_mq.engine.port import Engine, LocalEngine
from hdpvfl_mq.psi.dh_oprf import DhAnswerer, DhAsker, DhLengths
from hdpvfl_mq.psi.oprf import Answerer, Asker, Lengths
from hdpvfl_mq.psi.ot_oprf import OtAnswerer, OtAsker, OtLengths
from schemas.config import AlignmentMethod

LARGE_SET = 2_000  # from here on 480 base transfers cost less than multiplying every point


@dataclass(frozen=True)
class Function:
    """The inputs to build one side of a function."""

    method: AlignmentMethod
    active: str
    key: bytes = field(repr=False)
    public_seed: bytes
    engine: Engine = field(default_factory=LocalEngine, repr=False)

    def asker(self) -> Asker:
        """The active party's side."""
        return METHODS[self.method].asker(self)

    def answerer(self, me: str) -> Answerer:
        """A passive party's side."""
        return METHODS[self.method].answerer(self, me)


@dataclass(frozen=True)
class PsiMethod:
    """Constructors of both sides of a method, and its public sizes."""

    asker: Callable[[Function], Asker]
    answerer: Callable[[Function, str], Answerer]
    lengths: Lengths
    # Few enough for both sides to work at once and, with oprf, for a processor's cache.
    bucket_ids: int


METHODS: Mapping[AlignmentMethod, PsiMethod] = {
    "ecdh": PsiMethod(
        asker=lambda f: DhAsker(f.key, f.engine),
        answerer=lambda f, me: DhAnswerer(f.key, f.active, f.engine),
        lengths=DhLengths(),
        bucket_ids=1 << 12,
    ),
    "oprf": PsiMethod(
        asker=lambda f: OtAsker(f.key, f.public_seed, f.engine),
        answerer=lambda f, me: OtAnswerer(f.key, f.public_seed, me, f.active, f.engine),
        lengths=OtLengths(),
        bucket_ids=1 << 16,
    ),
}
# Fails on import if a name has no method or a method has no name.
assert set(METHODS) == set(get_args(AlignmentMethod)), "AlignmentMethod and METHODS differ"


def choose_method(sizes: Iterable[int]) -> AlignmentMethod:
    """`oprf` for large sets; `ecdh` sends fewer bytes and is quicker for small ones."""
    return "oprf" if max(sizes, default=0) >= LARGE_SET else "ecdh"


def method_for(asked: Literal["auto", AlignmentMethod], sizes: Iterable[int]) -> AlignmentMethod:
    """The manifest's method; `auto` chooses by the sizes that all parties know."""
    return choose_method(sizes) if asked == "auto" else asked


def possible_methods(asked: Literal["auto", AlignmentMethod]) -> Collection[AlignmentMethod]:
    """The methods that a manifest may select, before the sizes are known."""
    return tuple(METHODS) if asked == "auto" else (asked,)
