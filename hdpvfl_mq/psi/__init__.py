"""Entity resolution without showing ids: the names the roles use. See docs/entity-resolution.md."""

from hdpvfl_mq.psi.blocks import Outgoing
from hdpvfl_mq.psi.collect import IdCollector, NormalisedIds, normalise
from hdpvfl_mq.psi.exchange import Block
from hdpvfl_mq.psi.ids import IdProfile
from hdpvfl_mq.psi.methods import choose_method
from hdpvfl_mq.psi.open import open_session
from hdpvfl_mq.psi.order import order_digest, row_order
from hdpvfl_mq.psi.packed import PackedIds
from hdpvfl_mq.psi.session import Session
from hdpvfl_mq.psi.terms import Terms
from hdpvfl_mq.psi.toss import commit, nonce_of
from hdpvfl_mq.psi.workspace import Workspace

__all__ = [
    "Block",
    "IdCollector",
    "IdProfile",
    "NormalisedIds",
    "Outgoing",
    "PackedIds",
    "Session",
    "Terms",
    "Workspace",
    "choose_method",
    "commit",
    "nonce_of",
    "normalise",
    "open_session",
    "order_digest",
    "row_order",
]
