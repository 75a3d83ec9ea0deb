"""The notebooks of the site: kept without output, with names and commands that exist; they run."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from pathlib import Path

import pytest

from hdpvfl_mq.app import cli

pytestmark = pytest.mark.seconds
FOLDER = Path(__file__).parents[3] / "docs" / "notebooks"
PATHS = sorted(FOLDER.glob("*.ipynb"))
each_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


@pytest.fixture(scope="module")
def notebooks():
    """Imported late: a library behind it compiles grammars for a second, in every worker."""
    return importlib.import_module("scripts.notebooks")


def test_there_are_four():
    names = {"quickstart", "three-companies", "ledger-audit-report", "choosing-epsilon"}
    assert {path.stem for path in PATHS} == names


@each_notebook
def test_it_is_kept_without_output(notebooks, path):
    notebook = notebooks.read(path)
    notebooks.nbformat.validate(notebook)
    assert list(notebooks.outputs(notebook)) == []
    assert {cell.get("execution_count") for cell in notebook.cells} == {None}
    assert not re.search(r"/(home|root|work|tmp)/", path.read_text())


@each_notebook
def test_what_it_imports_and_types_exists(notebooks, path):
    cells = notebooks.read(path).cells
    for source in (cell.source for cell in cells if cell.cell_type == "code"):
        python = "\n".join(line for line in source.splitlines() if not line.startswith("!"))
        for node in ast.walk(ast.parse(python)):
            if isinstance(node, ast.ImportFrom):
                module = importlib.import_module(node.module or "")
                assert all(hasattr(module, name.name) for name in node.names), ast.unparse(node)
        for line in source.splitlines():
            if line.startswith("!hdpvfl "):
                words = shlex.split(re.split(r"[|>;]", line[len("!hdpvfl ") :])[0])
                assert cli._parser().parse_args(words), line


def test_a_page_joins_what_a_cell_prints_and_keeps_its_pictures_apart(notebooks):
    nbformat = notebooks.nbformat
    notebook = nbformat.v4.new_notebook()
    printed = [nbformat.v4.new_output("stream", text=text) for text in ("one\n", "two\n")]
    drawn = nbformat.v4.new_output("display_data", data={"image/png": "AAAA"})
    cell = nbformat.v4.new_code_cell("print()", outputs=[*printed, drawn])
    notebook.cells = [nbformat.v4.new_markdown_cell("# Title"), cell]
    made = dict(notebooks.page_files("name", notebook))
    assert made["name-1.png"] == bytes(3)
    page = made["name.md"]
    assert page.startswith("# Title\n\n```python\nprint()\n```\n\n```text\none\ntwo\n```\n")
    assert "(name-1.png)" in page
    assert "(name.ipynb)" in page


def test_a_cell_that_complains_ends_the_build(notebooks, tmp_path):
    nbformat = notebooks.nbformat
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell("import sys; print('no', file=sys.stderr)")]
    nbformat.write(notebook, tmp_path / "bad.ipynb")
    with pytest.raises(notebooks.CellError, match="complains: no"):
        notebooks.executed(tmp_path / "bad.ipynb")


@pytest.mark.slow
@each_notebook
def test_it_runs(notebooks, path):
    made = dict(notebooks.page_files(path.stem, notebooks.executed(path)))
    assert "```text" in made[f"{path.stem}.md"] or "<table" in made[f"{path.stem}.md"]
