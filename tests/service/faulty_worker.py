"""`coach worker` with faults built in, each by a variable of the environment; for tests, run as a program.

COACH_TEST_RAISE_IN_ANSWER and COACH_TEST_RAISE_IN_DECODE name a decision on which answer() or reading it raises.
COACH_TEST_FAIL_DELIVERY: no audit record is ever acknowledged. COACH_TEST_SLOW: each answer takes 50 ms.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Final

from confluent_kafka import KafkaError

from stream.cli.main import main
from stream.recourse import answer as recourse_answer
from stream.runtime.kafka import delivery
from stream.wire import decisions
from stream.worker import answering as outcomes

RAISE_IN_ANSWER: Final = os.environ.get("COACH_TEST_RAISE_IN_ANSWER", "")
RAISE_IN_DECODE: Final = os.environ.get("COACH_TEST_RAISE_IN_DECODE", "")
FAIL_DELIVERY: Final = "COACH_TEST_FAIL_DELIVERY" in os.environ
SLOW: Final = "COACH_TEST_SLOW" in os.environ
SLOW_S: Final = 0.05


def inject() -> None:
    """Put the fault where it belongs."""
    answer, read_decision, expect = recourse_answer.answer, decisions.read_decision, delivery._Reports.expect  # noqa: SLF001 - a fault is put where no interface is

    def faulty_answer(decision: Any, model: Any) -> Any:
        if decision.decision_id == RAISE_IN_ANSWER:
            _ = 1 / 0
        if SLOW:
            time.sleep(SLOW_S)
        return answer(decision, model)

    def faulty_read(value: bytes, **how: Any) -> Any:
        if RAISE_IN_DECODE and f'"{RAISE_IN_DECODE}"'.encode() in value:
            _ = 1 / 0
        return read_decision(value, **how)

    def faulty_expect(reports: Any, output: Any) -> Any:
        report = expect(reports, output)
        if FAIL_DELIVERY and output.topic.endswith("audit"):
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
