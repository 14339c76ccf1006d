"""An answer as one line of JSON, as `coach recommend` writes it and `coach audit verify` reads it."""

from __future__ import annotations

import orjson

from stream.events import AuditBody, Recommendation


def answer_line(decision_id: str, recommendation: Recommendation, body: AuditBody, body_sha256: str) -> bytes:
    """Write one answer, with the end of its line."""
    audit = {"body": body, "body_sha256": body_sha256}
    return orjson.dumps(
        {"decision_id": decision_id, "recommendation": recommendation, "audit": audit}, option=orjson.OPT_APPEND_NEWLINE
    )
