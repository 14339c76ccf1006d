"""Whole answers where features move together: what goes out keeps the rules, and the audit record adds up."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from stream.audit.verify.body import verify
from stream.recourse.answer import Answer, answer
from stream.recourse.rules.features import rules_for
from tests.recourse.lenders import LENDERS, RULES, Approve, Lender, Library, lender
from tests.recourse.unit_people import Person

PAIRS = pytest.mark.parametrize(("library", "approve"), LENDERS)
ROWS = 25
TIED = (
    RULES.replace('group = "card"', "")
    .replace("min = 0\nunit", "min = 0\nstep = 50\nunit")
    .replace("[share]", '[share]\nratio_of = ["balance", "limit"]\nmoves = "balance"')
    .replace("max = 1\n", "")
    .replace("[debts]", '[debts]\nfollows = "income"\nfactor = -0.002')
    .replace("[accounts]", '[accounts]\ngroup = "file"')
    .replace("[region]", '[region]\ngroup = "file"')
)


@cache
def tied(library: Library, approve: Approve) -> Lender:
    """The tests' lender, whose shares are a ratio, whose debts follow incomes, and whose accounts go with regions."""
    shop = lender(library, approve)
    return shop.with_model(rules=rules_for(shop.model.forest, TIED))


def targets(person: Person, answered: Answer) -> list[dict[int, float]]:
    """Where each tier moves each feature, by index."""
    index = person.rules.index
    return [
        {index[name]: float(_code(person, index[name], to)) for name, to in tier["target"].items()}
        for tier in answered.body["tiers"]
    ]


def _code(person: Person, j: int, to: Any) -> float:
    codes = person.rules.codes[j]
    return float(to) if codes is None else codes[to]


@PAIRS
def test_answers_keep_what_moves_together_together(library: Library, approve: Approve) -> None:
    """Given declined people, each tier's actions leave every unit in its own state or in one of its alternatives by formula and pool, and the audit record verifies; some tiers move a unit."""
    shop = tied(library, approve)
    moved = 0
    for row in shop.declined(ROWS):
        person = Person(rules=shop.model.rules, cells=shop.model.cells, pool=shop.pool, row=row)
        answered = answer(shop.decide(row), shop.model)
        assert verify(answered.body, answered.body_sha256, answered.recommendation) == []
        for target in targets(person, answered):
            after = np.array([target.get(j, x) for j, x in enumerate(row.tolist())])
            assert all(person.permits(j, to) for j, to in target.items())
            for unit in person.units:
                if not target.keys() & set(unit.members):
                    continue
                moved += 1
                assert not target.keys() & set(unit.stays)
                if unit.driver is None:
                    assert person.key(unit, after[list(unit.members)]) in person.combinations(unit)
                else:
                    assert all(
                        after[one.j] == person.depends(unit.driver, one, float(after[unit.driver]))
                        for one in unit.dependents
                    )
    assert moved > 0


@PAIRS
def test_an_override_holds_what_moves_with_it(library: Library, approve: Approve) -> None:
    """Given "this applicant cannot change income", no tier asks for other debts either, which follow the income."""
    shop = tied(library, approve)
    for row in shop.declined(ROWS):
        answered = answer(shop.decide(row, policy_overrides={"income": "immutable"}), shop.model)
        assert verify(answered.body, answered.body_sha256, answered.recommendation) == []
        for tier in answered.body["tiers"]:
            assert not {"income", "debts"} & set(tier["target"])
