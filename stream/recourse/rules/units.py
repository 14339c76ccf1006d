"""Which features move together: the groups, links and ratios of features.toml, held against each other.

A *unit* is a set of features that move together: a group, or a line of one driver and of those that depend on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from stream.errors import ConfigurationError, shown
from stream.recourse.rules.feature_rule import FeatureRule
from stream.recourse.rules.feature_table import refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Follower:
    """Feature j moves by `factor` times what its driver moves by."""

    j: int
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Feature j is `factor` times its driver over the feature `other`, or `factor` times `other` over its driver."""

    j: int
    factor: float
    other: int  # the part that stays where it is
    driver_above: bool


Dependent: TypeAlias = Follower | Ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """Features that move together, ascending; a group where there is no driver."""

    members: tuple[int, ...]
    driver: int | None = None
    dependents: tuple[Dependent, ...] = ()

    @property
    def stays(self) -> tuple[int, ...]:
        """The features that others are computed with and that move neither with the unit nor alone."""
        return tuple(dict.fromkeys(one.other for one in self.dependents if isinstance(one, Ratio)))


def units_of(rules: Sequence[FeatureRule]) -> tuple[Unit, ...]:
    """Find the units of features.toml, in the order of their first features.

    Raises: ConfigurationError that names the table and the key, where a unit names a feature that cannot be of it.
    """
    return _Finding(rules).units()


class _Finding:
    def __init__(self, rules: Sequence[FeatureRule]) -> None:
        self.rules = rules
        self.index = {rule.name: j for j, rule in enumerate(rules)}

    def units(self) -> tuple[Unit, ...]:
        groups: dict[str, list[int]] = {}
        lines: dict[int, list[Dependent]] = {}
        for j, rule in enumerate(self.rules):
            if rule.group is not None:
                groups.setdefault(rule.group, []).append(j)
            elif rule.follows is not None:
                driver = self._named(rule, "follows", rule.follows)
                lines.setdefault(driver, []).append(Follower(j=j, factor=rule.factor))
            elif rule.ratio_of is not None:
                driver, ratio = self._ratio(j, rule, rule.ratio_of)
                lines.setdefault(driver, []).append(ratio)
        for members in groups.values():
            if len(members) == 1:
                raise refusal(self.rules[members[0]].name, "group", "is of this feature alone; name another's group")
        found = [Unit(members=tuple(members)) for members in groups.values()]
        found += [
            Unit(members=tuple(sorted([driver, *(one.j for one in dependents)])), driver=driver, dependents=tuple(dependents))
            for driver, dependents in lines.items()
        ]  # fmt: skip
        self._refuse_moving_parts(found)
        return tuple(sorted(found, key=lambda unit: unit.members))

    def _ratio(self, j: int, rule: FeatureRule, parts: tuple[str, str]) -> tuple[int, Ratio]:
        above, below = (self._named(rule, "ratio_of", name) for name in parts)
        if above == below:
            raise refusal(rule.name, "ratio_of", "names one feature twice")
        could = [part for part in (above, below) if not self.rules[part].is_immutable]
        if rule.moves is not None:
            driver = self.index[rule.moves]
            if driver not in could:
                raise refusal(rule.name, "moves", f'names "{shown(rule.moves)}", which is immutable')
        elif len(could) > 1:
            raise refusal(rule.name, "moves", f"must say which part of the ratio moves, for both could: {', '.join(map(shown, parts))}")  # fmt: skip
        else:
            driver = could[0] if could else above
        other = below if driver == above else above
        return driver, Ratio(j=j, factor=rule.ratio_factor, other=other, driver_above=driver == above)

    def _named(self, rule: FeatureRule, key: str, name: str) -> int:
        """Find a feature that a rule names as what it depends on."""
        what = f'names "{shown(name)}", which'
        j = self.index.get(name)
        if j is None:
            raise refusal(rule.name, key, f"{what} is no feature of the model")
        named = self.rules[j]
        if named is rule:
            raise refusal(rule.name, key, f"{what} is the feature itself")
        if named.type == "category":
            raise refusal(rule.name, key, f"{what} is a category; only numbers can be computed with")
        if named.follows is not None or named.ratio_of is not None:
            raise refusal(rule.name, key, f"{what} itself depends on another feature; name the one that both move with")
        if named.group is not None:
            raise refusal(rule.name, key, f"{what} is of a group; a feature is of one unit alone")
        return j

    def _refuse_moving_parts(self, units: Sequence[Unit]) -> None:
        drivers = {unit.driver for unit in units}
        for unit in units:
            for one in unit.dependents:
                if isinstance(one, Ratio) and one.other in drivers and not self.rules[one.other].is_immutable:
                    raise self._moves_elsewhere(one)

    def _moves_elsewhere(self, ratio: Ratio) -> ConfigurationError:
        part = shown(self.rules[ratio.other].name)
        what = f'keeps "{part}" where it is, but another feature moves with it; let "{part}" move in both'
        return refusal(self.rules[ratio.j].name, "ratio_of", what)
