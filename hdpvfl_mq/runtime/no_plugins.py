"""Import it before pydantic, in a program of this project: pydantic then looks for no plugin.

It owns nothing else. A plugin of any installed package is shown every value that is parsed, keys
and rows among them; the search reads the metadata of all packages, 26 ms in every process. A
program that only uses this project as a library keeps its plugins.
"""

from __future__ import annotations

import os

os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
