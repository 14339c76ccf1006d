"""`coach worker` with one fault built in, named by COACH_TEST_FAULT; for tests, run as a program.

agent_body: answer() raises on the decision named by COACH_TEST_VICTIM. decode: reading it does. delivery: no audit record is
ever acknowledged. slow: each answer takes 50 ms.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Final

from confluent_kafka import KafkaError

from stream.cli.main import main
from stream.wire import decisions
from stream.worker import delivery, outcomes

FAULT: Final = os.environ.get("COACH_TEST_FAULT", "")
VICTIM: Final = os.environ.get("COACH_TEST_VICTIM", "")
SLOW_S: Final = 0.05


def inject() -> None:
    """Put the fault where it belongs."""
    answer, read_decision, expect = outcomes.answer, decisions.read_decision, delivery._Reports.expect  # noqa: SLF001 - a fault is put where no interface is

    def faulty_answer(decision: Any, model: Any) -> Any:
        if FAULT == "agent_body" and decision.decision_id == VICTIM:
            _ = 1 / 0
        if FAULT == "slow":
            time.sleep(SLOW_S)
        return answer(decision, model)

    def faulty_read(value: bytes) -> Any:
        if FAULT == "decode" and VICTIM.encode() in value:
            _ = 1 / 0
        return read_decision(value)

    def faulty_expect(reports: Any, output: Any) -> Any:
        report = expect(reports, output)
        if FAULT == "delivery" and output.topic.endswith("audit"):
            return lambda _error, message: report(KafkaError(KafkaError._MSG_TIMED_OUT), message)  # noqa: SLF001 - librdkafka's name
        return report

    for place, name, fault in (
        (outcomes, "answer", faulty_answer),
        (outcomes, "read_decision", faulty_read),
        (delivery._Reports, "expect", faulty_expect),  # noqa: SLF001 - as above
    ):
        setattr(place, name, fault)


if __name__ == "__main__":
    inject()
    sys.argv[0] = "coach"
    main()
