"""The methods of entity resolution. Owns the rule for `auto` and the making of functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from hdpvfl_mq.psi.curve import BlockMap
from hdpvfl_mq.psi.dh_oprf import DhAnswerer, DhAsker, DhLengths
from hdpvfl_mq.psi.oprf import Answerer, Asker, Lengths
from hdpvfl_mq.psi.ot_oprf import OtAnswerer, OtAsker, OtLengths

Method = Literal["ecdh", "oprf"]
# Few enough for both sides to work at once and, with oprf, for a processor's cache.
BUCKET_IDS: dict[Method, int] = {"ecdh": 1 << 12, "oprf": 1 << 16}
LENGTHS: dict[Method, Lengths] = {"ecdh": DhLengths(), "oprf": OtLengths()}
LARGE_SET = 2_000  # from here on 480 base transfers cost less than multiplying every point


def choose_method(sizes: Iterable[int]) -> Method:
    """`oprf` for large sets; `ecdh` sends fewer bytes and is quicker for small ones."""
    return "oprf" if max(sizes, default=0) >= LARGE_SET else "ecdh"


@dataclass(frozen=True)
class Function:
    """What one side of a function is made of."""

    method: Method
    active: str
    key: bytes = field(repr=False)
    public_seed: bytes
    mapper: BlockMap

    def asker(self) -> Asker:
        """The active party's side."""
        if self.method == "ecdh":
            return DhAsker(self.key, self.mapper)
        return OtAsker(self.key, self.public_seed, self.mapper)

    def answerer(self, me: str) -> Answerer:
        """A passive party's side."""
        if self.method == "ecdh":
            return DhAnswerer(self.key, self.active, self.mapper)
        return OtAnswerer(self.key, self.public_seed, me, self.active, self.mapper)
