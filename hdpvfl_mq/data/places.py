"""Where data are stored: a file, a folder of files, or an address such as s3://bucket/folder.

It owns the list of files behind one name, in a fixed order, and their suffixes; it reads no format.
Folders named key=value add a column, as in Hive and Spark.
"""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import _fs as local  # pyarrow.fs loads the clients of S3, GCS and Azure: 8 MB

from hdpvfl_mq.data import hadoop
from hdpvfl_mq.engine.port import UnseenError
from hdpvfl_mq.errors import DataError, NetworkError, OperatorError, SettingsError

FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
}
PACKED = {".gz": "gzip", ".zst": "zstd"}
MAX_FILES = 100_000
# How long a store that does not answer is tried; Google's client would try for 15 minutes.
_RETRY = "retry_limit_seconds=30"
_LIMITS = {"gs": _RETRY, "gcs": _RETRY, "hdfs": hadoop.ONE_TRY}
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://")
_SECRET = re.compile(r"://[^/?]*@|[?&](secret_key|access_key|session_token)=", re.IGNORECASE)
_AWS_KIND = re.compile(r"AWS Error ([A-Z_]+)")


@dataclass(frozen=True)
class DataFile:
    """One file of a source."""

    filesystem: Any
    path: str
    format: str
    compression: str | None = None
    partition: tuple[tuple[str, str | None], ...] = ()

    @property
    def name(self) -> str:
        """The last part of its path, for errors."""
        return PurePosixPath(self.path).name

    def stream(self) -> IO[bytes]:
        """The bytes of the file from the beginning, decompressed."""
        opened: IO[bytes] = self.filesystem.open_input_stream(
            self.path, compression=self.compression
        )
        return opened

    @property
    def is_plain(self) -> bool:
        """Whether the file is uncompressed and in a folder of this host."""
        return self.compression is None and self.filesystem.type_name == "local"

    @property
    def is_for_workers(self) -> bool:
        """Whether an engine's workers may read it too: each would start a Java machine for hdfs."""
        return bool(self.filesystem.type_name != "hdfs")

    def version(self) -> tuple[int, int | None]:
        """Its size and time of change: a process that sees others sees another file."""
        info = self.filesystem.get_file_info(self.path)
        return info.size or 0, info.mtime_ns

    def random_access(self) -> Any:
        """Its bytes with random access."""
        return self.filesystem.open_input_file(self.path)

    def seen(self, version: tuple[int, int | None]) -> Any:
        """Open the file in a worker.

        UnseenError if its size or time of change differ, or if the worker may not read it.
        """
        try:
            if self.version() == version:
                return self.random_access()
        except PermissionError:
            pass
        raise UnseenError


def files_at(place: str) -> tuple[DataFile, ...]:
    """The file of this name, or all data files of a folder in the order of their paths."""
    filesystem, path = _filesystem(place)
    try:
        info = filesystem.get_file_info(path)
        if info.type == local.FileType.NotFound:
            raise SettingsError(f"there is no file {place}")
        if info.type == local.FileType.File:
            return (_data_file(filesystem, path),)
        inside = filesystem.get_file_info(local.FileSelector(path, recursive=True))
    except OSError as error:
        raise unreachable(place, error) from None
    found = [
        _data_file(filesystem, each.path, folder=path)
        for each in sorted(inside, key=lambda each: each.path)
        if each.type == local.FileType.File and not _is_hidden(each.path, path)
    ]
    if not found:
        raise DataError(f"the folder {place} has no data file")
    if len(found) > MAX_FILES:
        raise DataError(f"the folder {place} has more than {MAX_FILES} files")
    if len({each.format for each in found}) > 1:
        raise DataError(f"the folder {place} mixes formats; keep one")
    return tuple(found)


def unreachable(place: str, error: OSError) -> OperatorError:
    """Why a place cannot be read, without library messages that may quote contents."""
    if hadoop.is_not_loaded(error):
        return hadoop.lacking(place)
    kind = _AWS_KIND.search(str(error))
    reason = kind[1] if kind else error.strerror or type(error).__name__
    if _ADDRESS.match(place):
        also = ", the jars in CLASSPATH" if hadoop.is_hadoop(place) else ""
        remedy = f"check the address, the network{also} and the credentials in the environment"
        return NetworkError(f"{place} cannot be reached: {reason}; {remedy}")
    return DataError(f"{place} cannot be read: {reason}")


def _filesystem(place: str) -> tuple[Any, str]:
    if not _ADDRESS.match(place):
        return local.LocalFileSystem(), str(Path(place).absolute())
    if _SECRET.search(place):
        raise SettingsError("data.file: no password in an address; give it in the environment")
    if hadoop.is_hadoop(place):
        hadoop.set_up_java(place)
    from pyarrow import fs  # noqa: PLC0415 - large, and only addresses need it

    try:
        filesystem, path = fs.FileSystem.from_uri(_with_limit(place))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise SettingsError(
            f"data.file: {place.split('://', maxsplit=1)[0]}:// is not known; use s3://, hdfs:// or gs://"
        ) from None
    except OSError as error:
        raise unreachable(place, error) from None
    if hadoop.is_hadoop(place) and not hadoop.answers(filesystem):
        raise unreachable(place, OSError(errno.ETIMEDOUT, "the name node does not answer"))
    return filesystem, path


def _with_limit(place: str) -> str:
    """The address with a limit on how long a store that does not answer is tried."""
    limit = _LIMITS.get(place.split("://", maxsplit=1)[0])
    if limit is None or limit.split("=")[0] in place:
        return place
    return f"{place}{'&' if '?' in place else '?'}{limit}"


def _data_file(filesystem: Any, path: str, folder: str | None = None) -> DataFile:
    name = PurePosixPath(path).name.lower()
    packed = next((suffix for suffix in PACKED if name.endswith(suffix)), "")
    suffix = PurePosixPath(name.removesuffix(packed)).suffix
    format_ = FORMATS.get(suffix)
    if format_ is None or (packed and format_ != "csv"):
        known = ", ".join([*FORMATS, *(f".csv{suffix}" for suffix in PACKED)])
        numpy = suffix in (".npy", ".npz")
        remedy = "; hand numpy arrays over in Python, or write Parquet" if numpy else ""
        raise SettingsError(
            f"{PurePosixPath(path).name}: the suffix gives the format; use one of {known}{remedy}"
        )
    return DataFile(filesystem, path, format_, PACKED.get(packed), _partition(path, folder))


def _partition(path: str, folder: str | None) -> tuple[tuple[str, str | None], ...]:
    if folder is None:
        return ()
    parts = PurePosixPath(path).relative_to(folder).parts[:-1]
    pairs = [part.split("=", 1) for part in parts if "=" in part]
    return tuple((key, None if value == _NO_VALUE else unquote(value)) for key, value in pairs)


def _is_hidden(path: str, folder: str) -> bool:
    """Whether a file is a writer's marker, such as _SUCCESS, or a hidden file."""
    return any(part[0] in "._" for part in PurePosixPath(path).relative_to(folder).parts)
