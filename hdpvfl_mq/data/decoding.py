"""Who decodes the chunks of a source: the workers of an engine, or this process, row after row.

It owns the order of attempts. Workers explain nothing: from the first fault on, chunks are read
here in order, so an error has the same text whatever the engine.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from typing import Any

from hdpvfl_mq.data.parsed import Faults, Parsed, Reading, Source
from hdpvfl_mq.data.tables import NotPlainError, Piece
from hdpvfl_mq.engine.port import LOCAL, Engine, Unseen, UnseenError
from hdpvfl_mq.errors import DataError
from schemas.data import DataSettings


def parsed_chunks(how: Reading, source: Source, engine: Engine = LOCAL) -> Iterator[Parsed]:
    """Read the source's rows; one DataError at the end names the faults of all columns."""
    rows = 0
    for found in _decoded(how, source, engine):
        if found is None:
            break
        yield found
        rows += found.rows
    else:
        if rows:
            return
    faults = Faults()
    for chunk in source.chunks(how.wanted, numeric=how.as_numbers, after=rows):
        parsed = how.parsed(chunk, faults)
        if not faults:
            yield parsed
    if faults:
        raise DataError(faults.text())


def _decoded(how: Reading, source: Source, engine: Engine) -> Iterator[Parsed | None]:
    """Chunks that the engine decodes; None where it cannot, nothing if there is nothing to do."""
    is_begun = False
    with closing(_placed(how, source, engine)) as placed:  # an engine does one thing at a time
        for found in placed:
            if found is None and not is_begun:
                break
            is_begun = True
            yield found
    if not is_begun:
        pieces = source.pieces(how.wanted, numeric=how.as_numbers)
        asked = ((how, piece, *texts) for piece, texts in pieces)
        yield from _chunks(engine.each(prepared, asked))


def _placed(how: Reading, source: Source, engine: Engine) -> Generator[Parsed | None]:
    """Chunks that workers read themselves; ids are read here if workers may not see them."""
    theirs = how if engine.sees_ids else replace(how, id_columns=())
    places = source.places(theirs.wanted, numeric=theirs.as_numbers)
    found = _chunks(engine.read(prepared, ((theirs, piece) for piece in places)))
    yield from found if engine.sees_ids else map(_with_ids, found, _ids_alone(how, source))


def _ids_alone(how: Reading, source: Source) -> Iterator[Parsed | None]:
    settings = DataSettings(id_columns=how.id_columns, empty_ids=how.settings.empty_ids)
    try:
        yield from parsed_chunks(Reading(settings, (), how.id_columns), source)
    except DataError:
        yield None


def _with_ids(found: Parsed | None, ids: Parsed | None) -> Parsed | None:
    return None if found is None or ids is None else replace(found, ids=ids.ids)


def prepared(how: Reading, piece: Piece | None, *texts: Any) -> list[Parsed] | Unseen | None:
    """Decode and check the chunks of one piece; None if one has a fault."""
    faults = Faults()
    try:
        tables = () if piece is None else piece.tables(texts)
        found = [how.parsed(table, faults) for table in tables]
    except NotPlainError:
        return None
    except UnseenError:
        return Unseen()
    return None if faults else found or None


def _chunks(pieces: Iterator[list[Parsed] | Unseen | None]) -> Iterator[Parsed | None]:
    """The chunks of all pieces; None for a piece that is to be read here."""
    found: Iterator[Sequence[Parsed | None]]
    found = (piece if isinstance(piece, list) else (None,) for piece in pieces)
    return chain.from_iterable(found)
