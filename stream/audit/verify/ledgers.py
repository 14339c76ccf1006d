"""Re-adds the ledgers of an audit body: rows, trees and decisive splits must say the same, and add up with `==`.

Part of `audit.py`, and like it written apart from what writes records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import pairwise

from stream.audit.verify.splits import (
    Json,
    MalformedBody,
    SplitTable,
    WrittenSplit,
    are_categories,
    count_at,
    integer,
    integer_at,
    is_cell,
    number_at,
    rounded,
)

REASONS_MAX = 4
UNIT_LOG2_MIN, UNIT_LOG2_MAX = -1074, 1023  # the exponents of a double's bits


class Sums:
    """The arithmetic of one body, in units of 2^unit_log2."""

    def __init__(self, body: Json) -> None:
        self.body = body
        exponent = count_at(body, "unit_log2", UNIT_LOG2_MIN)
        if exponent > UNIT_LOG2_MAX:
            message = f"unit_log2 is above {UNIT_LOG2_MAX}"
            raise MalformedBody(message)
        self.unit = Fraction(2) ** exponent
        self.trees_used = count_at(body, "trees_used")
        self.sign = 1 if body["approve"] == "above" else -1
        self.exact = integer_at(body, "margin_exact")
        self.decided: Json = body["decision"]["features"]
        self.leaves: list[int] | None = body["query_leaves"]
        self.splits = SplitTable(body)
        self.split_of: dict[tuple[int, int], int] = {}  # (tree, node) -> its split, in whatever ledger it stands
        self.parted_at: dict[tuple[int, int], tuple[int, int]] = {}  # (tree, other leaf) -> decisive node, contribution

    def accepts(self, margin: float) -> bool:
        """Whether a margin is at the cutoff or past it."""
        return self.sign * margin >= self.sign * number_at(self.body, "cutoff_margin")

    def query(self) -> Iterator[str]:
        """Check the query's own margin and leaves, and that detail by tree is there throughout or not at all."""
        body = self.body
        if Fraction(number_at(body, "margin")) != (self.exact + integer_at(body, "margin_rounding")) * self.unit:
            yield "margin is not its exact sum plus the published rounding"
        for claim in ("margin", "probability"):
            claimed = body["decision"][claim]
            if claimed is not None and rounded(claimed, body["library"]) != number_at(body, claim):
                yield f"the decision's claimed {claim} is not the published one"
        if self.leaves is not None:
            _whole_numbers(self.leaves, "query_leaves")
        if self.leaves is not None and len(self.leaves) != self.trees_used:
            yield "query_leaves does not hold one leaf per tree"
        ledgers = [ledger for tier in body["tiers"] for ledger in tier["ledgers"].values()]
        ledgers += [] if body["reasons_ledger"] is None else [body["reasons_ledger"]]
        detailed = self.leaves is not None
        if any((ledger["trees"] is not None) != detailed for ledger in ledgers):
            yield "the detail by tree is in one part of the record and not in another"
        if (body["splits"] is not None) != (detailed and bool(ledgers)):
            yield "the detail by tree is there and its splits are not in the record, or the other way round"
        yield from self.splits.faults()

    def reasons(self) -> Iterator[str]:
        """Check the reasons ledger, and that the principal reasons are its largest shortfalls."""
        ledger, where = self.body["reasons_ledger"], "reasons ledger"
        count_at(ledger, "divisor", 1)
        features, trees = ledger["features"], ledger["trees"]
        yield from self._sum(ledger, where)
        if trees is not None:
            yield from self._tree_order(trees, where, once=False)
            nodes = list(zip(trees["tree"], trees["node"], strict=True))
            if len(set(nodes)) != len(nodes):
                yield f"{where}: a node stands twice"
            if self.splits.given:
                yield from self._splits_of(trees, features, where)
        by_code: Counter[str] = Counter()
        leading: dict[str, Json] = {}
        for feature in features:
            code, amount = feature["code"], self.sign * integer_at(feature, "contribution")
            by_code[code] += amount
            if code not in leading or amount > self.sign * integer_at(leading[code], "contribution"):
                leading[code] = feature
        ranked = sorted((-amount, code) for code, amount in by_code.items() if amount > 0)[:REASONS_MAX]
        published = [(-self.sign * integer_at(r, "contribution"), r["code"]) for r in self.body["reasons"]]
        if published != ranked:
            yield "the principal reasons are not the largest shortfalls of the reasons ledger"
        elif any(r["feature"] != leading[r["code"]]["feature"] for r in self.body["reasons"]):
            yield "a principal reason names another feature than the one of its code with the largest shortfall"

    def tier(self, tier: Json) -> Iterator[str]:
        """Check one tier: both ledgers, the margin that its actions reach, and that these are actions."""
        name = tier["tier"]
        count_at(tier, "rank")
        if type(tier["from_tercile"]) is not bool:
            yield f"{name}: from_tercile is neither true nor false"
        if set(tier["ledgers"]) != {"comparator", "target"}:
            yield f"{name}: a ledger is missing"
        for kind, ledger in tier["ledgers"].items():
            yield from self._ledger(ledger, f"{name} {kind} ledger")
        target = tier["ledgers"]["target"]
        reached = self.exact + integer_at(target, "margin_gap") + integer_at(tier, "margin_rounding")
        if Fraction(number_at(tier, "margin")) != reached * self.unit:
            yield f"{name}: margin after the actions is not the query's exact sum plus the target ledger's gap"
        if not self.accepts(number_at(tier, "margin")):
            yield f"{name}: the target does not reach the cutoff"
        yield from self._actions(tier)

    def _actions(self, tier: Json) -> Iterator[str]:
        name, target = tier["tier"], tier["ledgers"]["target"]
        for feature, value in tier["target"].items():
            if feature not in self.decided or value is None or value == self.decided[feature]:
                yield f"{name}: an action on {feature} changes nothing, or nothing that was decided on"
        moved = {f["feature"] for f in target["features"]}
        if not moved <= set(tier["target"]):
            yield f"{name}: the target ledger names features that no action moves"
        for feature in target["features"]:
            if feature["other"]["value"] != tier["target"].get(feature["feature"]):
                yield f"{name}: the target ledger's value of {feature['feature']} is not the action's"
        if any(f["other"]["value"] is not None for f in tier["ledgers"]["comparator"]["features"]):
            yield f"{name}: the comparator ledger tells a value of the comparator, who is a person"

    def _ledger(self, ledger: Json, where: str) -> Iterator[str]:
        features, trees = ledger["features"], ledger["trees"]
        yield from self._sum(ledger, where)
        for row in features:
            integer_at(row, "solo_shift")
            if row["feasible"] is not (row["why_not"] is None):
                yield f"{where}: {row['feature']} is feasible and not feasible at once"
            if _kinds(row["other"]) != 1:
                yield f"{where}: the other side of {row['feature']} is not said in one way"
            elif not _holds_something(row["other"]):
                yield f"{where}: the cell of {row['feature']} holds nothing, or is no cell"
        if trees is None:
            return
        yield from self._tree_order(trees, where, once=True)
        if any(a == b for a, b in zip(trees["query_leaf"], trees["other_leaf"], strict=True)):
            yield f"{where}: holds a tree whose leaves are the same"
        yield from self._leaves_of(trees, where)
        if self.splits.given:  # else that is named already
            yield from self._splits_of(trees, features, where)
            yield from self._parting(trees, features, where)

    def _sum(self, ledger: Json, where: str) -> Iterator[str]:
        gap = integer_at(ledger, "margin_gap")
        if ledger["trees"] is not None:
            for column in ledger["trees"].keys() - {"contribution"}:
                _whole_numbers(ledger["trees"][column], f"{where}: trees.{column}")
        if sum(integer_at(f, "contribution") for f in ledger["features"]) != gap:
            yield f"{where}: feature rows do not sum to the gap"
        if (
            ledger["trees"] is not None
            and sum(integer(text, "a contribution of a tree") for text in ledger["trees"]["contribution"]) != gap
        ):
            yield f"{where}: tree rows do not sum to the gap"
        names = [row["feature"] for row in ledger["features"]]
        if len(set(names)) != len(names) or not set(names) <= set(self.decided):
            yield f"{where}: a feature stands twice, or is not of the decision"
        for row in ledger["features"]:
            if row["query_value"] != self.decided.get(row["feature"]):
                yield f"{where}: the query value of {row['feature']} is not the decision's"

    def _tree_order(self, trees: Json, where: str, *, once: bool) -> Iterator[str]:
        ids = trees["tree"]
        out_of_order = any(b < a or (once and b == a) for a, b in pairwise(ids))
        if out_of_order or not all(0 <= t < self.trees_used for t in ids):
            yield f"{where}: trees are not listed once each, in order"
        elif self.leaves is not None and [self.leaves[t] for t in ids] != trees["query_leaf"]:
            yield f"{where}: a query leaf is not the one of query_leaves"

    def _splits_of(self, trees: Json, features: list[Json], where: str) -> Iterator[str]:
        """Check each feature row against its decisive splits: contribution, trees, and what binds."""
        found: dict[str, list[tuple[int, int, WrittenSplit]]] = {}
        for tree, node, split, text in zip(
            trees["tree"], trees["node"], trees["split"], trees["contribution"], strict=True
        ):
            if self.split_of.setdefault((tree, node), split) != split:
                yield f"{where}: a node of tree {int(tree)} has another split than elsewhere in the record"
            parted = self.splits.row(split)
            found.setdefault(parted.feature, []).append((int(text), tree, parted))
        summed = {name: (sum(n for n, _, _ in rows), len({t for _, t, _ in rows})) for name, rows in found.items()}
        if {f["feature"]: (integer_at(f, "contribution"), count_at(f, "trees")) for f in features} != summed:
            yield f"{where}: a feature row is not the sum of its decisive splits"
            return
        for row in features:
            toward = 1 if integer_at(row, "contribution") >= 0 else -1
            most = max(toward * amount for amount, _, _ in found[row["feature"]])
            binding = [split.binding for amount, _, split in found[row["feature"]] if toward * amount == most]
            if (row["binding_threshold"], row.get("binding_categories")) not in binding:
                yield f"{where}: the binding threshold of {row['feature']} is not that of the split that adds most"

    def _leaves_of(self, trees: Json, where: str) -> Iterator[str]:
        """Check that one leaf of a tree is worth the same, and parts from the query at one node, in every ledger."""
        for tree, leaf, node, text in zip(
            trees["tree"], trees["other_leaf"], trees["node"], trees["contribution"], strict=True
        ):
            if self.parted_at.setdefault((tree, leaf), (node, int(text))) != (node, int(text)):
                yield f"{where}: a leaf of tree {int(tree)} has another value or decisive node than elsewhere"

    def _parting(self, trees: Json, features: list[Json], where: str) -> Iterator[str]:
        """Check that query and other side really go to different sides at each decisive split."""
        rows = {row["feature"]: row for row in features}
        together = set()
        for split in set(trees["split"]):
            feature = self.splits.row(split).feature
            if feature in rows:
                one = self.splits.sides_of_value(split, rows[feature]["query_value"])
                two = self.splits.sides_of(split, rows[feature]["other"])
                if one & two:
                    together.add(feature)
        for feature in sorted(together):
            yield f"{where}: a decisive split on {feature} does not part the two sides"


def _kinds(other: Json) -> int:
    if type(other["missing"]) is not bool:
        return 0
    return sum(other[key] is not None for key in ("cell", "categories", "value")) + other["missing"]


def _holds_something(other: Json) -> bool:
    """Whether the cell of the other side, where one is said, is an interval with values in it or a list of categories."""
    if other["cell"] is not None:
        return is_cell(other["cell"])
    return other["categories"] is None or are_categories(other["categories"])


def _whole_numbers(values: Sequence[object], what: str) -> None:
    """Refuse a list of anything but numbers from 0 on: True and 1.0 would index as 1 does. Raises: MalformedBody."""
    if not all(type(value) is int and value >= 0 for value in values):
        message = f"{what} does not hold whole numbers from 0 on"
        raise MalformedBody(message)
