"""features.toml and policy.toml as tables: whatever the text is, it is a table or a ConfigurationError of one line."""

from __future__ import annotations

import tomllib
from typing import Any, Final

from stream.errors import ConfigurationError, shown

REASON_CHARACTERS_MAX: Final = 200


def read_toml(name: str, text: str) -> dict[str, Any]:
    """Read a TOML text; `name` is what messages call it.

    Raises: ConfigurationError for a text that is not TOML, is nested too deeply, or holds a number that is too long.
    """
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = f"{name} is not valid TOML: {shown(str(error), REASON_CHARACTERS_MAX)}"
    except RecursionError:
        message = f"{name} is nested too deeply; it takes plain tables"
    except ValueError:  # not of TOML, but of Python, which bounds the digits that it turns into a number
        message = f"{name} holds a number with too many digits"
    raise ConfigurationError(message)
