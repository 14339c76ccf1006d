"""What a notifier counts and measures."""

from __future__ import annotations

from typing import Final

from stream.errors import poison_kinds
from stream.runtime.counters import DURATIONS_S, counter, gauge, histogram
from stream.runtime.kafka.lag import GROUP_METERS

SKIPPED: Final = ("replay", "not_model_decline", "duplicate", "different_answer_again")
METERS: Final = (
    counter("notify_read_total", "Recommendations read, those read again included."),
    counter(
        "notices_total",
        "Letters handed over, by channel and why that channel.",
        "channel",
        "why",
        known=[("email", "as_asked"), ("print", "no_consent"), ("print", "bounced")],
    ),
    counter(
        "notify_skipped_total",
        "Recommendations that get no letter: replays, declines that the model did not make, and those answered already.",
        "why",
        known=[(why,) for why in SKIPPED],
    ),
    counter("notices_withheld_total", "Later, different answers that were reported and not sent: somebody must look."),
    counter(
        "notices_dead_total",
        "Dead letters written, by reason.",
        "reason",
        known=[(one.__name__,) for one in poison_kinds()],
    ),
    counter("notices_duplicate_possible_total", "Letters sent after a try whose outcome nobody knows."),
    counter("notices_late_total", "Letters handed over after notice_due_at."),
    counter("notices_by_hand_total", "Letters printed to by-hand/ without an address: somebody must find it."),
    counter(
        "notices_locale_fallback_total",
        "Letters in the default locale because the applicant's language has no templates, by the locale wanted.",
        "wanted",
    ),
    counter("notify_retries_total", "Tries that were refused for the time being, by channel.", "channel"),
    counter("notify_outage_pauses_total", "Pauses while Kafka, the mail server or another receiver was away."),
    *GROUP_METERS,
    gauge("notices_waiting", "Letters that wait for their next try."),
    gauge("notices_urgent", "Those among them that are due soon (COACH_NOTIFY_URGENT_S)."),
    gauge("notices_overdue", "Those among them whose notice_due_at has passed."),
    gauge("notices_known", "Notices in the local index."),
    histogram(
        "notice_duration_seconds", "From the first look at a recommendation to its recorded letter.", DURATIONS_S
    ),
)
