"""The engine that a party's settings name.

It owns the engines of this process: runs with the same settings share one, so its workers start
once.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from hdpvfl_mq.arrays.chunked import Allocate
from hdpvfl_mq.engine.disk_space import DiskSpace
from hdpvfl_mq.engine.port import Engine, LocalEngine
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.runtime.process import say
from hdpvfl_mq.runtime.profile import numeric_profile
from schemas.engine import EngineSettings


@lru_cache(maxsize=8)
def space_of(folder: Path) -> DiskSpace:
    """The space on disk that all runs with rows in this folder share."""
    return DiskSpace(folder)


def engine_of(settings: EngineSettings, *, allocate: Allocate, space: DiskSpace | None) -> Engine:
    """An engine for one run; `space` is where rows are kept if they are kept on disk."""
    if settings.kind == "local":
        return LocalEngine(allocate)
    if settings.kind == "processes":
        return _processes(settings.workers, space)
    return _cluster(settings, allocate)


@lru_cache(maxsize=8)
def _processes(workers: int | None, space: DiskSpace | None) -> Engine:
    from hdpvfl_mq.engine.processes import ProcessEngine  # noqa: PLC0415 - large, seldom used

    return ProcessEngine(workers, space)


def _cluster(settings: EngineSettings, allocate: Allocate) -> Engine:
    try:
        from hdpvfl_mq.engine.cluster import ClusterEngine  # noqa: PLC0415 - needs an extra
        from hdpvfl_mq.engine.rows_folder import RowsFolder  # noqa: PLC0415 - used here alone
    except ModuleNotFoundError as missing:
        raise SettingsError(
            f"engine: a Dask cluster needs {missing.name}: pip install 'hdpvfl-mq[cluster]'"
        ) from None
    assert settings.address is not None
    files = (settings.ca, settings.certificate, settings.key)
    for file in files:
        if file is not None and not Path(file).is_file():
            raise SettingsError(f"engine: there is no file {file}; correct ca, certificate or key")
    return ClusterEngine(
        settings.address,
        profile=numeric_profile,
        tls=None if None in files else tuple(str(file) for file in files),  # type: ignore[arg-type]  # three files
        folder=None if settings.folder is None else RowsFolder(Path(settings.folder)),
        allocate=allocate,
        say=say,
    )
