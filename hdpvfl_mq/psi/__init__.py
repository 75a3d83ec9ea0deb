"""Entity resolution without showing ids (docs/entity-resolution.md).

It owns normal forms of ids, oblivious functions, sessions and their messages. It knows no envelope,
journal or file. This module lists the names that the roles use.
"""

from hdpvfl_mq.psi.blocks import Outgoing
from hdpvfl_mq.psi.collect import IdCollector, NormalisedIds, normalise
from hdpvfl_mq.psi.exchange import Block
from hdpvfl_mq.psi.ids import rules_digest
from hdpvfl_mq.psi.methods import choose_method, possible_methods
from hdpvfl_mq.psi.open import open_session
from hdpvfl_mq.psi.order import order_digest, row_order
from hdpvfl_mq.psi.packed import PackedIds
from hdpvfl_mq.psi.passes import KeyedWorkspace, Passes, open_passes
from hdpvfl_mq.psi.session import Session
from hdpvfl_mq.psi.terms import Terms
from hdpvfl_mq.psi.toss import commit, is_marked, marked_nonce, nonce_of
from hdpvfl_mq.psi.workspace import Workspace

__all__ = [
    "Block",
    "IdCollector",
    "KeyedWorkspace",
    "NormalisedIds",
    "Outgoing",
    "PackedIds",
    "Passes",
    "Session",
    "Terms",
    "Workspace",
    "choose_method",
    "commit",
    "is_marked",
    "marked_nonce",
    "nonce_of",
    "normalise",
    "open_passes",
    "open_session",
    "order_digest",
    "possible_methods",
    "row_order",
    "rules_digest",
]
