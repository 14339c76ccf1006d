"""Rules for a template's syntax tree: mandatory blocks, and only names meant for applicants."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from jinja2 import nodes

from stream.notify.letters.view import FIELDS, VARIABLES

MANDATORY_BLOCKS: Final = ("decision", "reasons", "changes", "no_offer", "expiry", "contest", "disclosures")
# Other fields of a recommendation that a template writer may try; the error says why they are missing.
NOT_FOR_APPLICANTS: Final = frozenset(
    {
        "binding_threshold", "code", "comparator", "contribution", "effort", "feature", "margin", "model_id",
        "model_version", "probability", "proven", "recommendation_id", "robust_share", "run_id", "subject_ref", "tiers",
        "withheld",
    }
)  # fmt: skip
LOOP: Final = frozenset({"index", "index0", "first", "last", "length", "revindex"})
FILTERS: Final = frozenset(
    {"capitalize", "count", "default", "escape", "first", "join", "last", "length", "lower", "title", "trim",
     "upper", "wordwrap"}
)  # fmt: skip
TESTS: Final = frozenset({"defined", "divisibleby", "eq", "even", "ge", "gt", "le", "lt", "ne", "odd"})
# No macros, imports, inheritance, calls or changes of escaping: a template's text is in its own file, in order.
ALLOWED: Final = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Block, nodes.For, nodes.If, nodes.Assign, nodes.Name,
    nodes.Const, nodes.List, nodes.Tuple, nodes.Getattr, nodes.Getitem, nodes.Filter, nodes.Test, nodes.CondExpr,
    nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Add, nodes.Sub, nodes.Concat, nodes.Include,
    nodes.Neg, nodes.Keyword,
)  # fmt: skip


def faults(tree: nodes.Template, *, blocks: bool) -> Iterator[tuple[int, str, str]]:
    """The faults of a template, as (line, block or "", fault). `blocks`: whether it needs the mandatory blocks."""
    if blocks:
        found = [block.name for block in tree.find_all(nodes.Block)]
        for name in MANDATORY_BLOCKS:
            if name not in found:
                yield 1, name, "is missing; a letter must have " + ", ".join(MANDATORY_BLOCKS)
    local = {name.name for name in tree.find_all(nodes.Name) if name.ctx == "store"}
    yield from _walk(tree, "", local)
    yield from _conditional(tree)


def _conditional(node: nodes.Node) -> Iterator[tuple[int, str, str]]:
    """Find mandatory blocks inside anything but other blocks: every letter must have them."""
    for child in node.iter_child_nodes():
        if isinstance(child, nodes.Block):
            yield from _conditional(child)
            continue
        for block in child.find_all(nodes.Block):
            if block.name in MANDATORY_BLOCKS:
                inside = type(child).__name__.lower()
                yield (block.lineno, block.name, f"is inside {inside}; every letter must have it, under no condition")


def _walk(node: nodes.Node, block: str, local: set[str]) -> Iterator[tuple[int, str, str]]:
    if isinstance(node, nodes.Block):
        block = node.name
    fault = _fault(node, local)
    if fault:
        yield node.lineno, block, fault
    for child in node.iter_child_nodes():
        yield from _walk(child, block, local)


def _fault(node: nodes.Node, local: set[str]) -> str:  # noqa: PLR0911 - one answer a kind of node
    if not isinstance(node, ALLOWED):
        return f"{type(node).__name__.lower()} is not allowed in a letter"
    if isinstance(node, nodes.Name):
        return _name(node, local)
    if isinstance(node, nodes.Getattr):
        return _field(node.attr, of_loop=isinstance(node.node, nodes.Name) and node.node.name == "loop")
    if isinstance(node, nodes.Getitem):
        return _item(node.arg)
    if isinstance(node, nodes.Filter) and node.name not in FILTERS:
        return f"the filter {node.name} is not allowed; there are {', '.join(sorted(FILTERS))}"
    if isinstance(node, nodes.Test) and node.name not in TESTS:
        return f"the test {node.name} is not allowed; there are {', '.join(sorted(TESTS))}"
    if isinstance(node, nodes.Include) and not isinstance(node.template, nodes.Const):
        return "what is included must be named by a plain text"
    return ""


def _name(node: nodes.Name, local: set[str]) -> str:
    if node.ctx == "store":
        return f"{node.name} is the letter's own; take another name" if node.name in VARIABLES else ""
    if node.name in VARIABLES or node.name in local or node.name == "loop":
        return ""
    return _unknown(node.name, sorted(VARIABLES))


def _field(name: str, *, of_loop: bool) -> str:
    if name in (LOOP if of_loop else FIELDS):
        return ""
    return _unknown(name, sorted(LOOP if of_loop else FIELDS))


def _item(key: nodes.Node) -> str:
    if isinstance(key, nodes.Const) and (isinstance(key.value, int) or key.value in FIELDS):
        return ""
    return "only [0], [1], ... and the names of fields may stand in brackets"


def _unknown(name: str, known: list[str]) -> str:
    if name in NOT_FOR_APPLICANTS:
        return f"uses {name}, which is not meant for applicants"
    return f"uses {name}, which there is not; there are {', '.join(known)}"
