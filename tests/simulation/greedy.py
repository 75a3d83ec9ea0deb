"""A liar that releases far more values than there are rows."""

from __future__ import annotations

from hdpvfl_mq.machine import Send
from hdpvfl_mq.node.node import Node
from schemas.messages import ScoreShare
from schemas.privacy import Release
from schemas.tensor import Tensor


class Greedy(Node):
    """Its role releases far more values than there are rows."""

    def _perform(self, effect, parent):
        if isinstance(effect, Send) and isinstance(effect.message, ScoreShare):
            long = Tensor(dtype="|i1", shape=(10**5,), data=bytes(10**5))
            release = Release(**{**dict(effect.message.release), "tensor": long})
            effect = Send(effect.to, ScoreShare(**{**dict(effect.message), "release": release}))
        return super()._perform(effect, parent)
