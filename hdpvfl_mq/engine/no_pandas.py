"""An import finder that hides pandas, which pyarrow would otherwise import with its first value.

It owns nothing else. The import takes half a second and 50 MB in every process; that of dateutil,
which pyarrow tries next, 20 ms.
"""

from __future__ import annotations

from types import ModuleType

HIDDEN = ("pandas", "dateutil")


class NoPandas:
    """Put it first in sys.meta_path."""

    def find_spec(self, name: str, path: object, target: ModuleType | None = None) -> None:
        """Find nothing; say so for pandas and dateutil."""
        if name in HIDDEN:
            raise ModuleNotFoundError(name=name)
