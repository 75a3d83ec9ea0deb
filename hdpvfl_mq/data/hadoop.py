"""What hdfs:// needs: Hadoop's client in a Java machine inside this process.

It owns how that machine is started, what it lacks, and whether a name node answers; it lists and
reads no file. Arrow loads Java and libhdfs, which take their settings from the environment alone.
"""

from __future__ import annotations

import os
import re
from typing import Any

from pyarrow import _fs as local

from hdpvfl_mq.errors import SettingsError

ADDRESSES = ("hdfs://", "viewfs://")
# Without the first, Java takes Ctrl-C and the request to end away from this process. Without the
# second, a crash writes parts of the stack to a file; this process leaves no core dump either.
_JAVA_OPTIONS = ("-Xrs", "-XX:ErrorFile=/dev/null")
# Hadoop tries 46 times, 20 seconds each, to connect to a name node that does not answer.
ONE_TRY = "ipc.client.connect.max.retries.on.timeouts=0"
_NOT_LOADED = re.compile(r"Unable to load lib(jvm|hdfs)")
_REMEDY = (
    "Java and Hadoop's client: set JAVA_HOME, ARROW_LIBHDFS_DIR to the folder of libhdfs.so and "
    "CLASSPATH to what 'hadoop classpath --glob' prints"
)


def is_hadoop(place: str) -> bool:
    """Whether Hadoop's client reads this address."""
    return place.startswith(ADDRESSES)


def set_up_java(place: str) -> None:
    """Tell the Java machine, which starts with the first address, to leave signals alone."""
    if not os.environ.get("CLASSPATH"):
        raise lacking(place)
    given = os.environ.get("LIBHDFS_OPTS", "").split()
    missing = [option for option in _JAVA_OPTIONS if option not in given]
    os.environ["LIBHDFS_OPTS"] = " ".join([*given, *missing])


def is_not_loaded(error: OSError) -> bool:
    """Whether Java or libhdfs was not found."""
    return _NOT_LOADED.search(str(error)) is not None


def lacking(place: str) -> SettingsError:
    """What is to be installed and set."""
    return SettingsError(f"data.file: {place} needs {_REMEDY}")


def answers(filesystem: Any) -> bool:
    """Whether the name node answers: Arrow says of any path there that it does not exist if not."""
    return bool(filesystem.get_file_info("/").type != local.FileType.NotFound)
