"""A malicious member process: `python -m scripts.attacks.liar LIE settings.toml`.

It is the production process with the liar's real keys; the lies are in the modules beside it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hdpvfl_mq.machine import Effect, Send
from hdpvfl_mq.node.node import Node
from scripts.attacks import (
    changed_process,
    lies_in_alignment,
    lies_of_coordinators,
    lies_of_members,
    lies_of_the_past,
)
from scripts.attacks.voice import Lie

LIES: dict[str, Lie] = {
    **lies_of_members.LIES,
    **lies_of_coordinators.LIES,
    **lies_of_the_past.LIES,
}
CHANGES = {**changed_process.CHANGES, **lies_in_alignment.CHANGES}


def honest(node: Node, effect: Send) -> tuple[Effect, ...]:
    """Change no message; the process itself is changed."""
    return (effect,)


def _tamper(node: Node, lie: Lie) -> None:
    """Pass the effects of a node's role through a lie."""
    honestly = node.role.step

    def step(state: Any, given: Any) -> Any:
        after, effects = honestly(state, given)
        told: list[Effect] = []
        for effect in effects:
            told += lie(node, effect) if isinstance(effect, Send) else [effect]
        return after, tuple(told)

    setattr(node.role, "step", step)  # noqa: B010 - the honest class has no such attribute


def main(name: str, settings: Path) -> int:
    """Run the production process with one lie in it."""
    if name in CHANGES:
        CHANGES[name]()
    opened = Node.open

    def open_lying(self: Node) -> int:
        steps = opened(self)
        _tamper(self, LIES.get(name, honest))
        return steps

    Node.open = open_lying  # type: ignore[method-assign]  # this process is the liar
    if settings.stem == "coordinator":
        from broker.__main__ import main as broker_main  # noqa: PLC0415 - after the changes above

        return broker_main(settings)
    from parties.__main__ import main as party_main  # noqa: PLC0415 - after the changes above

    return party_main(settings)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
