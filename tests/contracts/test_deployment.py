"""Units, image and compose file: what can be checked of them without a host to install on."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hdpvfl_mq.app import cli
from hdpvfl_mq.runtime.process import EXIT_STOPPED

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "operations"
UNITS = ("hdpvfl-broker@.service", "hdpvfl-party@.service")
EXPOSURE_MAX = 20  # tenths; systemd calls below 5.0 OK


def settings(unit: str) -> dict[str, str]:
    lines = (FOLDER / unit).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if re.match(r"^[A-Z][A-Za-z]+=", line))


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_runs_a_command_that_exists(unit):
    found = settings(unit)
    word = found["ExecStart"].split()[1]
    with pytest.raises(SystemExit) as ended:
        cli.main([word, "--help"])
    assert ended.value.code == 0
    assert found["Type"] == "notify"
    assert found["SuccessExitStatus"] == str(EXIT_STOPPED)
    assert found["User"] != "root"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
@pytest.mark.parametrize("unit", UNITS)
def test_systemd_has_nothing_to_say_against_a_unit(unit, tmp_path):
    text = (FOLDER / unit).read_text()
    program = Path(sys.executable).with_name("hdpvfl")
    (tmp_path / unit).write_text(text.replace("/opt/hdpvfl/bin/hdpvfl", str(program)))
    done = run("systemd-analyze", "verify", str(tmp_path / unit))
    assert (done.returncode, done.stderr) == (0, "")
    done = run(
        *("systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE_MAX}"),
        *("--no-pager", str(tmp_path / unit)),
    )
    assert done.returncode == 0, done.stdout


def run(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_the_image_runs_as_nobody_in_particular():
    lines = (FOLDER / "Dockerfile").read_text().splitlines()
    last = max(n for n, line in enumerate(lines) if line.startswith("FROM"))
    assert [line for line in lines[last:] if line.startswith("USER")] == ["USER 10001"]
    assert 'ENTRYPOINT ["hdpvfl"]' in lines
    for line in lines[:last]:
        if line.startswith("COPY"):
            for name in line.split()[1:-1]:
                assert (ROOT / name).exists(), name


def test_the_compose_file_has_one_service_a_host():
    found = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]
    assert set(found) == {"broker", "party"}
    for name, service in found.items():
        assert service["profiles"] == [name]
        assert service["command"] == [name]
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        volumes = [each.split(":")[1] for each in service["volumes"]]
        assert f"VOLUME {volumes[0]}" in (FOLDER / "Dockerfile").read_text()
    assert "ports" not in found["party"]
    json.dumps(found)
