from __future__ import annotations

from pathlib import Path

import pytest

from stream.notify.notices.notice import notice_id
from stream.notify.transports.webhook import signature
from tests.notify.answers import contacts_csv, different, recommendations, replaced
from tests.notify.notifier_room import notifier_room
from tests.notify.transports.http_server import http_server
from tests.notify.transports.smtp_server import SmtpServer
from tests.service.stack import Stack

pytestmark = [pytest.mark.service, pytest.mark.timeout(120)]


def test_each_applicant_gets_one_letter_by_the_way_that_is_theirs(stack: Stack, tmp_path: Path) -> None:
    """Given recommendations with equal duplicates, a different answer, a replay, a decline by policy and a poison record, when the notifier ran, then each applicant has one letter by the way of their contact, all of it is on `notices`, and the rest is counted, reported or a dead letter."""
    answers = recommendations(12)
    contacts = tmp_path / "contacts.csv"
    people = [f"s-{n}" for n in range(12) if n != 5]  # nobody knows s-5
    contacts.write_text(
        contacts_csv(
            people, no_consent=["s-1"], bounced=["s-2"], refused=["s-3"], files=["s-4"], print=["s-6"], webhook=["s-8"]
        )
    )
    with (
        SmtpServer(tmp_path / "post") as post,
        http_server() as server,
        notifier_room(
            stack,
            tmp_path,
            post.environment(),
            contacts=str(contacts),
            address_key="k",
            webhook_url=server.hook,
            webhook_secret="k",  # noqa: S106 - made up
        ) as here,
    ):
        stranger = replaced(answers[7], subject_ref=None)
        by_policy = replaced(
            answers[8], decision_id="d-policy", status="not_model_decline", tiers=[], reasons=[], proven=None
        )
        replay = replaced(answers[9], decision_id="d-replay", replay=True, run_id="r-1")
        broken = replaced(answers[10], decision_id="d-broken", reasons=[])
        here.send([*answers[:7], stranger, *answers[8:], by_policy, replay, broken, b"no record at all"])
        here.send([answers[0], answers[1], different(answers[2]), different(answers[2])])
        notifier = here.notifier(COACH_NOTIFY_LENDER_NOTICE="", COACH_LOG_TOTALS_EVERY_S="1")
        here.until_done()
        assert notifier.stop() == 0
        done = {one["decision_id"]: one for one in here.notices("sent", "printed")}
        assert set(done) == {f"d-{n}" for n in range(12)}
        ways = {name: (one["channel"], one["channel_why"]) for name, one in done.items()}
        assert ways == {
            **dict.fromkeys((f"d-{n}" for n in (0, 9, 10, 11)), ("email", "as_asked")),
            "d-8": ("webhook", "as_asked"),
            "d-1": ("print", "no_consent"),
            "d-2": ("print", "bounced"),
            "d-3": ("print", "bounced"),
            "d-4": ("files", "as_asked"),
            "d-5": ("print", "unknown_subject"),
            "d-6": ("print", "as_asked"),
            "d-7": ("print", "no_subject_ref"),
        }
        assert sorted(one["to"] for one in post.taken()) == sorted([f"s-{n}@people.example"] for n in (0, 9, 10, 11))
        [posted] = server.asked
        assert posted.headers["Idempotency-Key"] == done["d-8"]["notice_id"]
        assert posted.headers["Coach-Signature"] == signature("k", posted.headers["Coach-Timestamp"], posted.body)
        without_address = {path.name[:3] for path in (here.outbox / "by-hand").glob("*.html")}
        assert without_address == {"d-5", "d-7"}
        assert {path.name[:3] for path in here.outbox.glob("*.html")} == {"d-1", "d-2", "d-3", "d-6"}
        [withheld] = here.notices("withheld_different_answer")
        assert withheld["decision_id"] == "d-2"
        assert withheld["notice_id"] != done["d-2"]["notice_id"] == notice_id("d-2", "adverse_action")
        dead = {one["error"]: one for one in here.room.dead_letters()}
        assert set(dead) == {"RecommendationRefused", "MalformedRecord"}
        assert dead["RecommendationRefused"]["stage"] == "notify"
        assert dead["RecommendationRefused"]["topic"] == here.room.settings.topic_recommendations
        assert [one["decision_id"] for one in here.notices("failed")] == ["d-broken"]
        assert [one["setting"] for one in notifier.events("notify.setting_missing")] == ["COACH_NOTIFY_LENDER_NOTICE"]
        assert notifier.events("notify.by_hand")[-1]["count"] == 2
        [stopped] = notifier.events("notify.stopped")
        assert stopped["notices_by_hand"] == 2
        skipped = {name: stopped[f"notify_skipped:{name}"] for name in ("replay", "not_model_decline", "duplicate")}
        assert skipped == {"replay": 1, "not_model_decline": 1, "duplicate": 2}
        assert stopped["notices_withheld"] == 1
        assert stopped["notify_skipped:different_answer_again"] == 1
