"""Plant known faults, one at a time, and see that the tests named for each of them fail.

tests/mutants.toml lists the faults: a file, a text in it, what it becomes, and the few tests that
must notice. Everything runs on a copy of the tree. Exit code 1 if a fault survives, if its text is
not in the file exactly once, or if its tests do not even run. `--draw` takes a twentieth of it,
chosen by the commit (outside git by the version), so that every commit is asked other questions.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "mutants.toml"
TABLE = ROOT / "docs" / "mutants.md"
COPIED = ("schemas", "hdpvfl_mq", "parties", "broker", "scripts", "tests", "docs")
FILES = ("pyproject.toml", "README.md", "Makefile", "CHANGELOG.md")
LIMIT_S = 300.0
Verdict = Literal["killed", "SURVIVED", "DOES NOT RUN"]
_VERDICTS: dict[int, Verdict] = {0: "SURVIVED", 1: "killed"}
# Libraries that every test imports, loaded once; project modules are loaded after the fault.
_PRELOADED = (
    *("numpy", "scipy.stats", "pydantic", "pytest", "gmpy2", "nacl.signing", "hypothesis"),
    *("cryptography.hazmat.primitives.ciphers", "msgpack", "pyarrow.compute", "sqlite3", "zmq"),
    *("cryptography.hazmat.primitives.ciphers.aead", "pandas", "asyncio", "threadpoolctl"),
    *("annotated_types", "pydantic.deprecated.decorator", "tomli_w", "rich.console", "mmap"),
    *("pytest_asyncio.plugin", "_hypothesis_pytestplugin", "pdb", "xml.etree.ElementTree"),
    *("pyarrow.csv", "pyarrow.parquet", "pyarrow.ipc", "_pytest.junitxml"),
)
# Schemas import no other room of the project, so a fault elsewhere does not change them.
_SCHEMAS = ("schemas.config", "schemas.messages", "schemas.records", "schemas.policy")


@dataclass(frozen=True)
class Mutant:
    """One fault: what it breaks, where, and which tests must notice."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def problem(self, root: Path) -> str | None:
        """Why this fault cannot be planted in a tree; None if it can."""
        path = root / self.file
        if not path.is_file():
            return f"{self.name}: {self.file} is gone"
        found = path.read_text().count(self.old)
        return None if found == 1 else f"{self.name}: its text is {found} times in {self.file}"


def mutants(path: Path = LIST) -> tuple[Mutant, ...]:
    """All faults, in the order of the file."""
    listed = tomllib.loads(path.read_text())["mutant"]
    return tuple(Mutant(**{**each, "tests": tuple(each["tests"])}) for each in listed)


def commit() -> str:
    """The seed that chooses a twentieth: the commit, or the version where there is no git."""
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if asked.returncode == 0:
        return asked.stdout.strip()
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return f"version {version}"


def drawn(listed: Sequence[Mutant], chosen_by: str) -> tuple[Mutant, ...]:
    """A twentieth of the list, rounded up."""

    def place(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{chosen_by}\n{mutant.name}".encode()).digest()

    return tuple(sorted(listed, key=place)[: -(-len(listed) // 20)])


def copied(to: Path) -> None:
    """A copy of the tree; compiled modules are valid there, since it keeps the times of files."""
    to.mkdir(exist_ok=True)
    unwanted = shutil.ignore_patterns("*.egg-info", ".*")
    for name in COPIED:
        shutil.copytree(ROOT / name, to / name, ignore=unwanted)
    for name in FILES:
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, to / name)


def run_tests(tree: Path, tests: Sequence[str], *, forget: bool = False) -> int:
    """Run these tests of a tree in a new process; returns the exit code of pytest.

    With `forget`, schemas are imported again.
    """
    child = os.fork()
    if child == 0:
        code = 3
        try:
            if forget:
                for name in [n for n in sys.modules if n.partition(".")[0] == "schemas"]:
                    del sys.modules[name]
            code = _pytest(tree, tests)
        finally:
            os._exit(code)
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return -9


def _pytest(tree: Path, tests: Sequence[str]) -> int:
    import pytest  # noqa: PLC0415 - the parent has loaded it

    os.chdir(tree)
    _import_from(tree)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # looking for plugins takes a while
    os.environ["HDPVFL_TEST_TABLES"] = ""  # tests share tables, which a fault may change
    plugins = ("no:cacheprovider", "pytest_asyncio.plugin", "_hypothesis_pytestplugin")
    # Nobody reads why a test failed, and pytest would look up the source among all modules.
    options = ("-q", "-x", "--tb=no", "-m", "", *(w for name in plugins for w in ("-p", name)))
    return int(pytest.main([*options, "--rootdir", str(tree), *tests]))


def _import_from(tree: Path) -> None:
    """Find the project's modules in this tree and nowhere else."""
    others = ("", str(ROOT), str(ROOT / "scripts"), str(tree))
    sys.path[:] = [str(tree), *(p for p in sys.path if p not in others)]


def tried(mutant: Mutant, tree: Path) -> tuple[Verdict, float]:
    """Plant a fault in a tree, run its tests, and remove the fault."""
    path = tree / mutant.file
    whole, begin = path.read_text(), time.monotonic()
    # Python would reuse the compiled file if the source had the same size and second.
    compiled = Path(cache_from_source(str(path)))
    try:
        path.write_text(whole.replace(mutant.old, mutant.new))
        compiled.unlink(missing_ok=True)
        code = run_tests(tree, mutant.tests, forget=mutant.file.startswith("schemas/"))
    finally:
        path.write_text(whole)
        compiled.unlink(missing_ok=True)
    return _VERDICTS.get(code, "DOES NOT RUN"), time.monotonic() - begin


def clean(tree: Path, chosen: Sequence[Mutant]) -> bool:
    """Whether all named tests pass without a fault; otherwise they prove nothing."""
    tests = sorted({test for mutant in chosen for test in mutant.tests})
    return run_tests(tree, tests) == 0


def table(results: Sequence[tuple[Mutant, Verdict, float]]) -> str:
    """The text of docs/mutants.md."""
    killed = sum(verdict == "killed" for _, verdict, _ in results)
    lines = [
        "# Planted faults",
        "",
        "Made by `make mutants` from tests/mutants.toml; do not edit. Each fault is planted in a",
        "copy of the tree, one at a time, and the tests named for it must fail. A twentieth,",
        f"drawn by the commit, is in `make test`. {killed} of {len(results)} killed.",
        "",
        "| fault | file | killed by |",
        "|---|---|---|",
    ]
    for mutant, verdict, _ in results:
        by = ", ".join(_short(test) for test in mutant.tests) if verdict == "killed" else verdict
        lines.append(f"| {mutant.name} | {mutant.file} | {by} |")
    return "\n".join(lines) + "\n"


def _short(test: str) -> str:
    file, _, name = test.partition("::")
    return f"`{Path(file).stem}{'::' + name if name else ''}`"


def main() -> int:
    """Run the program; exit code 0 if every fault was noticed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draw", action="store_true", help="a twentieth, chosen by the commit")
    parser.add_argument("--only", help="those with this word in their name or file")
    parser.add_argument("--jobs", type=int, default=1, help="number of faults to try at a time")
    arguments = parser.parse_args()
    listed = mutants()
    problems = [problem for mutant in listed if (problem := mutant.problem(ROOT))]
    if problems:
        print("\n".join(["tests/mutants.toml no longer fits the code:", *problems]))
        return 1
    chosen = drawn(listed, commit()) if arguments.draw else listed
    if arguments.only:
        chosen = tuple(m for m in listed if arguments.only in m.name or arguments.only in m.file)
    results = _all_tried(chosen, is_checked=not arguments.draw, jobs=arguments.jobs)
    if results and not arguments.draw and not arguments.only:
        TABLE.write_text(table(results))
    killed = sum(verdict == "killed" for _, verdict, _ in results)
    print(f"{killed} of {len(chosen)} killed, {sum(s for *_, s in results):.0f} s")
    return 0 if killed == len(chosen) > 0 else 1


def _all_tried(
    chosen: Sequence[Mutant], *, is_checked: bool, jobs: int = 1
) -> list[tuple[Mutant, Verdict, float]]:
    for name in _PRELOADED:
        __import__(name)
    gc.freeze()  # no child searches the libraries for garbage, or copies their memory for that
    results: list[tuple[Mutant, Verdict, float]] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        if is_checked:
            tree = Path(folder) / "clean"
            copied(tree)
            if not clean(tree, chosen):
                print("the tests fail without any fault: fix that first")
                return results
        # Forked, so that libraries are loaded once; each worker plants its faults in its own tree.
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(jobs, context, _own_tree, (Path(folder),)) as pool:
            for mutant, (verdict, seconds) in zip(chosen, pool.map(_tried, chosen), strict=True):
                results.append((mutant, verdict, seconds))
                print(
                    f"{len(results):3d}/{len(chosen)} {verdict:12s} {seconds:5.1f} s  "
                    f"{mutant.name}",
                    flush=True,
                )
    return results


_TREE: list[Path] = []  # the tree of this worker


def _own_tree(folder: Path) -> None:
    _TREE[:] = [folder / f"tree-{os.getpid()}"]
    copied(_TREE[0])
    _import_from(_TREE[0])
    for name in _SCHEMAS:
        __import__(name)
    gc.freeze()


def _tried(mutant: Mutant) -> tuple[Verdict, float]:
    return tried(mutant, _TREE[0])


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main())
