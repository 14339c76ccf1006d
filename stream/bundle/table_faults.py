"""Why a table cannot be read, without the content of its cells."""

from __future__ import annotations

import re
from typing import Final

from stream.errors import shown

_CONTENT: Final = re.compile(r"'.*'|(?<=columns, got )[0-9]+: .*", re.DOTALL)  # of cells, in messages of pyarrow
REASON_CHARACTERS_MAX: Final = 300


def without_cells(error: Exception) -> str:
    """The error in one line, with quoted content masked.

    Raise the new error `from None`, because the cause repeats the content.
    """
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    masked = _CONTENT.sub("(content not shown)", str(error))
    return shown(" ".join(masked.split()), REASON_CHARACTERS_MAX)
