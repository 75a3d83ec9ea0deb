"""The entry point of entity resolution: it owns the creation of sessions."""

from __future__ import annotations

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.psi.active import ActiveSession
from hdpvfl_mq.psi.passive import PassiveSession
from hdpvfl_mq.psi.session import Session, own_hello
from hdpvfl_mq.psi.terms import Terms
from hdpvfl_mq.psi.workspace import Workspace


def open_session(terms: Terms, me: str, work: Workspace) -> Session:
    """This party's session before any message."""
    if me not in terms.parties:
        raise SettingsError(f"{me} is not a party of this entity resolution")
    if len(work.secret) != 32 or len(terms.session_id) != 32:
        raise SettingsError("the secret and the session id must have 32 bytes each")
    role = ActiveSession if me == terms.active else PassiveSession
    return role(terms=terms, me=me, **own_hello(work, me))
