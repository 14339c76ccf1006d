"""Why the model said no: the exact shortfall against the cutoff band, and the principal reasons from it.

The band is the N pool rows just past the cutoff. Reg B's commentary, 12 CFR 1002 supplement I, 9(b)(2)-5, names the
shortfall against applicants at or slightly above the cutoff as a method; here every number of it is an integer.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stream.events import AuditedReason, ReasonsLedger
from stream.forest.ledger import LeafUnits
from stream.forest.trees import CATEGORY, Forest
from stream.forest.walk import decisive_nodes
from stream.recourse.comparators.leaf_matrix import LeafMatrix
from stream.recourse.explain.attribution import Amounts, FeatureShare, SplitRows, binding_of
from stream.recourse.rules.features import FeatureRules

REASONS_MAX = 4  # Reg B commentary 9(b)(2)-1: more than four are not likely to help


@dataclass(slots=True, kw_only=True, eq=False)
class CutoffBand:
    """The band's leaf histogram. `shortfalls` remembers, per leaf slot of a query, what the band has more there.

    leaves: per tree, the slots that the band reaches, ascending, and how many rows reach each.
    """

    forest: Forest
    units: LeafUnits
    size: int
    leaves: list[tuple[NDArray[np.int32], list[int]]]
    shortfalls: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def shortfall(self, tree: int, slot: int) -> list[tuple[int, int]]:
        """For a query in `slot` of `tree`: (decisive node, sum over the band of value minus the query's value)."""
        known = self.shortfalls.get(slot)
        if known is None:
            known = self.shortfalls[slot] = self._shortfall(tree, slot)
        return known

    def _shortfall(self, tree: int, slot: int) -> list[tuple[int, int]]:
        slots, counts = self.leaves[tree]
        nodes = decisive_nodes(self.forest, np.full(len(slots), slot, np.int32), slots)
        by_node: dict[int, int] = {}
        own = int(self.units.leaf[slot])
        for node, other, count in zip(nodes.tolist(), slots.tolist(), counts, strict=True):
            if other != slot:
                by_node[node] = by_node.get(node, 0) + count * (int(self.units.leaf[other]) - own)
        return sorted(by_node.items())


def cutoff_band(forest: Forest, units: LeafUnits, matrix: LeafMatrix, first: int, size: int) -> CutoffBand:
    """Collect the band: matrix[first : first + size], or fewer where the pool has no more past the cutoff."""
    codes = matrix.codes[first : first + size]
    leaves = []
    for tree in range(forest.trees):
        found, counts = np.unique(codes[:, tree], return_counts=True)
        leaves.append((found.astype(np.int32) + forest.first_leaf[tree], counts.tolist()))
    return CutoffBand(forest=forest, units=units, size=len(codes), leaves=leaves)


def shortfalls(band: CutoffBand, query: NDArray[np.int32]) -> Amounts:
    """Give per decisive node the sum over the band of value minus the query's. Shape: query (trees,) leaf slots."""
    per_tree = [band.shortfall(tree, slot) for tree, slot in enumerate(query.tolist())]
    return Amounts(
        tree=np.repeat(np.arange(len(per_tree)), list(map(len, per_tree))),
        node=np.array([node for found in per_tree for node, _ in found], np.int32),
        amount=[amount for found in per_tree for _, amount in found],
    )


def reasons_ledger(
    band: CutoffBand,
    rules: FeatureRules,
    query: NDArray[np.int32],
    found: Amounts,
    shares: dict[int, FeatureShare],
    row: NDArray[np.float64],
    splits: SplitRows | None,
) -> ReasonsLedger:
    """Write the shortfall as the published ledger; without `splits` the detail by decisive node is left out."""
    forest = band.forest
    return {
        "divisor": band.size,
        "margin_gap": str(sum(found.amount)),
        "features": [
            {
                "feature": forest.features[j],
                "query_value": rules.value_of(j, float(row[j])),
                **binding_of(forest, rules, s.binding_node),
                "trees": s.trees,
                "contribution": str(s.contribution),
                "code": rules.rules[j].reason.code,
            }
            for j, s in shares.items()
        ],
        "trees": None
        if splits is None
        else {
            "tree": found.tree.tolist(),
            "query_leaf": forest.leaf_id[query[found.tree]].tolist(),
            "contribution": list(map(str, found.amount)),
            "node": forest.node_id[found.node].tolist(),
            "split": splits.rows_of(found.node),
        },
    }


def principal_reasons(
    forest: Forest, rules: FeatureRules, shares: dict[int, FeatureShare], row: NDArray[np.float64], sign: int
) -> list[AuditedReason]:
    """Name the largest shortfalls by reason code, at most four, the largest first; immutable features count too.

    Shape: row (features,) as the model takes it. A code's text is that of its feature with the largest shortfall.
    """
    by_code: dict[str, int] = {}
    leading: dict[str, int] = {}
    for j, s in shares.items():
        code, amount = rules.rules[j].reason.code, sign * s.contribution
        by_code[code] = by_code.get(code, 0) + amount
        if code not in leading or amount > sign * shares[leading[code]].contribution:
            leading[code] = j
    short = sorted((-amount, code) for code, amount in by_code.items() if amount > 0)[:REASONS_MAX]
    return [
        {
            "code": code,
            "text": _text(forest, rules, leading[code], shares[leading[code]].binding_node, float(row[leading[code]])),
            "feature": forest.features[leading[code]],
            "contribution": str(sign * -negative),
        }
        for negative, code in short
    ]


def _text(forest: Forest, rules: FeatureRules, j: int, node: int, value: float) -> str:
    rule = rules.rules[j]
    if rule.is_unrecorded(value):
        return rule.reason.missing
    if forest.kind[node] == CATEGORY:
        return rule.reason.too_low  # the rules have one text for both
    x, threshold = forest.dtype.type(value), forest.threshold[node]
    below = x < threshold if forest.operator == "<" else x <= threshold
    return rule.reason.too_low if below else rule.reason.too_high
