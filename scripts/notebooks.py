"""Run the notebooks of docs/notebooks while the site is built, and show them with their output.

It is a hook of mkdocs (mkdocs.yml). It owns the execution of a notebook in an empty folder and its
conversion to a page. Notebooks are kept without output; a cell that fails, or writes to its error
output, ends the build. NOTEBOOKS=0 shows the cells without running them.
"""

from __future__ import annotations

import base64
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from nbclient import NotebookClient

FOLDER = "notebooks"
CELL_S = 120
AT_ONCE = 2
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_STYLE = re.compile(r"<style.*?</style>\s*", flags=re.S)
_FENCES = {"text/html": "{}", "text/plain": "```text\n{}\n```"}


class CellError(PluginError):
    """A notebook that cannot be shown as it is."""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page, and its pictures, for every notebook."""
    paths = sorted((Path(config.docs_dir) / FOLDER).glob("*.ipynb"))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        run = read if os.environ.get("NOTEBOOKS") == "0" else executed
        for path, notebook in zip(paths, pool.map(run, paths), strict=True):
            for name, content in page_files(path.stem, notebook):
                files.append(File.generated(config, f"{FOLDER}/{name}", content=content))
    return files


def read(path: Path) -> Any:
    """A notebook as it is kept."""
    return nbformat.read(path, as_version=4)


def executed(path: Path) -> Any:
    """A notebook with the output of all its cells, run in an empty folder."""
    notebook = read(path)
    binaries = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as sockets:
        client = NotebookClient(
            notebook,
            timeout=CELL_S,
            resources={"metadata": {"path": folder}},
            kernel_name="python3",
        )
        client.km = client.create_kernel_manager()
        # Sockets in a folder: over TCP others on this machine could listen, as the kernel warns.
        client.km.transport, client.km.ip = "ipc", f"{sockets}/kernel"
        client.execute(env=environment)
        for output in outputs(notebook):
            _without_folder(output, folder)
            if output.get("name") == "stderr":
                raise CellError(f"{path.name}: a cell complains: {output['text']}")
    return notebook


def outputs(notebook: Any) -> Iterator[Any]:
    """Every output of every cell."""
    for cell in notebook.cells:
        yield from cell.get("outputs", ())


def _without_folder(output: Any, folder: str) -> None:
    """Shorten paths to what a reader would see in the folder of the notebook."""
    for holder in (output, output.get("data", {})):
        for key, value in holder.items():
            if isinstance(value, str):
                holder[key] = value.replace(f"{folder}/", "").replace(folder, ".")


def page_files(name: str, notebook: Any) -> Iterator[tuple[str, str | bytes]]:
    """The page of an executed notebook as Markdown, and its pictures."""
    parts, pictures = [], 0
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in _joined(cell.outputs):
            if (drawn := output.get("data", {}).get("image/png")) is not None:
                pictures += 1
                yield f"{name}-{pictures}.png", base64.b64decode(drawn)
                parts.append(f"![output of the cell above]({name}-{pictures}.png)")
            else:
                parts.append(_shown(output))
    parts.append(f"[This page as a notebook]({name}.ipynb)")
    yield f"{name}.md", "\n\n".join(part for part in parts if part) + "\n"


def _shown(output: Any) -> str:
    found = {"text/plain": output["text"]} if "text" in output else output.get("data", {})
    for kind, form in _FENCES.items():
        if kind in found:
            return form.format(_STYLE.sub("", _ANSI.sub("", found[kind])).rstrip())
    return ""


def _joined(found: list[Any]) -> list[Any]:
    """The outputs of a cell; what a cell prints arrives in pieces and becomes one."""
    joined: list[Any] = []
    for output in found:
        if joined and "text" in output and "text" in joined[-1]:
            joined[-1]["text"] += output["text"]
        else:
            joined.append(output)
    return joined
