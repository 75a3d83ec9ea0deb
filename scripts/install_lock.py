"""Install requirements.lock and this project into the environment of this interpreter.

`uv` does it in a twentieth of pip's processor time: it unpacks several packages at once and leaves
compiling to the first import. pip installs uv itself, from the lock. Both demand the lock's hashes,
so wherever a file comes from, its content is the same. uv does not read pip's settings (an index of
one's own, a proxy, a folder of wheels), so it is told them; pip does the work where a setting has
no equivalent, or where uv cannot be had or fails.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
HASHED = ("install", "--require-hashes", "-r")
ITSELF = ("install", "--no-deps", "--no-build-isolation", "-e", str(ROOT))
# What each setting of pip, with underscores, is for uv, and what separates several values there.
SETTINGS: dict[str, tuple[tuple[str, ...], str]] = {
    "index_url": (("UV_DEFAULT_INDEX",), " "),
    "extra_index_url": (("UV_INDEX",), " "),
    "find_links": (("UV_FIND_LINKS",), ","),
    "no_index": (("UV_NO_INDEX",), " "),
    "trusted_host": (("UV_INSECURE_HOST",), " "),
    "cert": (("SSL_CERT_FILE",), " "),
    "client_cert": (("SSL_CLIENT_CERT",), " "),
    "proxy": (("HTTP_PROXY", "HTTPS_PROXY"), " "),
    "default_timeout": (("UV_HTTP_TIMEOUT",), " "),
    "timeout": (("UV_HTTP_TIMEOUT",), " "),
    "no_cache_dir": (("UV_NO_CACHE",), " "),
}
# These change neither what is installed nor where it comes from.
IGNORED = {
    *("cache_dir", "disable_pip_version_check", "no_color", "no_input", "progress_bar", "quiet"),
    *("break_system_packages", "config_file", "require_virtualenv", "retries", "verbose"),
    *("no_warn_script_location", "no_python_version_warning", "root_user_action"),
}
_SECTIONS = ("global", "install", ":env:")  # a later one overrides an earlier one


def settings_of_pip(listed: str) -> dict[str, str]:
    """What `pip config list` says that concerns `pip install`."""
    found: dict[str, dict[str, str]] = {section: {} for section in _SECTIONS}
    for line in listed.splitlines():
        name, _, value = line.partition("=")
        section, _, key = name.rpartition(".")
        if section in found:
            found[section][key.replace("-", "_")] = str(ast.literal_eval(value))
    return {key: value for each in found.values() for key, value in each.items()}


def told_to_uv(settings: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The variables that tell uv the same, and the settings that it cannot be told."""
    # Every file must have a hash of the lock, so any index may hold it, as with pip.
    variables, unknown = {"UV_INDEX_STRATEGY": "unsafe-best-match"}, []
    for key, value in settings.items():
        if key in IGNORED:
            continue
        if key not in SETTINGS:
            unknown.append(key)
            continue
        names, separator = SETTINGS[key]
        variables |= dict.fromkeys(names, separator.join(value.split()))
    return variables, unknown


def lines_of(name: str, lock: str) -> str:
    """A package's requirement in a lock, with its hashes; empty if it is not there."""
    found = re.search(rf"^{re.escape(name)}==.*\n(?:[ \t]+.*\n)*", lock, re.MULTILINE)
    return found[0] if found else ""


def by_uv(lock: Path) -> str | None:
    """Install with uv; returns why it did not, or None."""
    listed = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=True)
    variables, unknown = told_to_uv(settings_of_pip(listed.stdout))
    if unknown:
        names = ", ".join(unknown).replace("_", "-")
        return f"pip is set to {names}, which uv cannot be told"
    with tempfile.TemporaryDirectory() as folder:
        only_uv = Path(folder) / "uv.lock"
        only_uv.write_text(lines_of("uv", lock.read_text()))
        if subprocess.run([*PIP, "--quiet", *HASHED, str(only_uv)], check=False).returncode:
            return "uv cannot be had"
    uv = [str(Path(sys.executable).with_name("uv")), "pip", "--quiet", "--no-progress"]
    environment = {**variables, **os.environ}  # who has told uv something has the last word
    where = ("--python", sys.executable)
    for words in ((*HASHED, str(lock)), ITSELF):
        if subprocess.run([*uv, *words, *where], env=environment, check=False).returncode:
            return "uv has failed"
    return None


def main() -> int:
    """Run the program; exit code 0 if everything is installed."""
    reason = by_uv(LOCK)
    if reason is None:
        return 0
    print(f"{reason}; pip installs instead, which takes some minutes ...", flush=True)
    for words in ((*HASHED, str(LOCK)), ITSELF):
        if code := subprocess.run([*PIP, "--quiet", *words], check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
