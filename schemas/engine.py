"""Which engine computes a party's products, and where its workers are.

It owns the fields and their limits. Whatever the engine, the bits are the same, so the choice is
the party's own: no other party sees it, and it may change while a run is open.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from schemas.base import Strict

_Path = Annotated[str, Field(min_length=1, max_length=4096)]
# Compiled here, as the endpoints of config.py.
_ADDRESS = re.compile(r"^(tcp|tls)://(\[[0-9a-fA-F:]+\]|[^\s/:\[\]]{1,253}):[0-9]{1,5}\Z")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class EngineSettings(Strict):
    """The engine of one party.

    `local` computes in the party's process, `processes` on all cores of its host, `dask` on an
    existing cluster of the party's own. A cluster's workers see rows in the clear, so a connection
    beyond this host needs TLS with certificates on both sides.
    """

    kind: Literal["local", "processes", "dask"] = "local"
    workers: Annotated[int, Field(ge=1, le=1024)] | None = None
    address: Annotated[str, Field(pattern=_ADDRESS, max_length=300)] | None = None
    ca: _Path | None = None
    certificate: _Path | None = None
    key: _Path | None = None
    folder: _Path | None = None

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.workers is not None and self.kind != "processes":
            raise ValueError('workers: belongs to kind = "processes"; a cluster has its own')
        cluster = (self.address, self.ca, self.certificate, self.key, self.folder)
        if self.kind != "dask":
            if any(field is not None for field in cluster):
                raise ValueError('address, ca, certificate, key, folder: need kind = "dask"')
            return self
        if self.address is None:
            raise ValueError(
                "address: name the scheduler, for instance tls://dask.example.org:8786"
            )
        is_tls, files = self.address.startswith("tls://"), (self.ca, self.certificate, self.key)
        if is_tls and None in files:
            raise ValueError("ca, certificate, key: a tls:// address needs all three files")
        if not is_tls and any(file is not None for file in files):
            raise ValueError("address: certificates need a tls:// address")
        if not is_tls and self.address[6:].rpartition(":")[0] not in _LOOPBACK:
            raise ValueError(
                "address: rows would cross the network in the clear; use tls:// with ca, "
                "certificate and key"
            )
        return self
