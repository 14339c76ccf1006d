"""What a letter's template may let depend on data, so that a trial with made-up letters tells of all letters.

A condition may ask whether something is there, how many there are, and which way or round it is. It never looks into a text:
a template that could would know a made-up letter from a real one. Mandatory blocks stand under no condition at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from jinja2 import nodes

LISTS: Final = frozenset({"reasons", "options", "disclosures", "steps", "address"})
COUNTS: Final = frozenset({"length", "count"})
COMPARED: Final = frozenset({"number", "tier"})  # fields of a way that say which one it is
MAY_ASK: Final = (
    "a condition may ask whether something is there, compare the length of a list, a way's number or tier, or the loop's "
    "own names with a constant, and join such questions by and, or, not"
)


def condition_faults(tree: nodes.Template, mandatory: tuple[str, ...]) -> Iterator[tuple[int, str, str]]:
    """List what depends on data and must not, as (line, block or nothing, fault)."""
    yield from _placed(tree, mandatory)
    texts = {
        name.name
        for assign in tree.find_all(nodes.Assign)
        if not _is_question(assign.node, frozenset())
        for name in assign.find_all(nodes.Name)
        if name.ctx == "store"
    }
    for item in tree.find_all(nodes.Getitem):
        if isinstance(_key(item), int) and not _is_list(item.node):
            yield item.lineno, "", "only a list of the letter may have a number in brackets"
    for node in tree.find_all(
        (nodes.If, nodes.CondExpr, nodes.For, nodes.Compare, nodes.Test, nodes.And, nodes.Or, nodes.Not)
    ):
        if not _is_allowed(node, frozenset(texts)):
            yield (
                node.lineno,
                "",
                MAY_ASK if not isinstance(node, nodes.For) else "a loop goes over a list of the letter",
            )


def _placed(node: nodes.Node, mandatory: tuple[str, ...]) -> Iterator[tuple[int, str, str]]:
    """Find mandatory blocks within anything but other blocks."""
    for child in node.iter_child_nodes():
        if isinstance(child, nodes.Block):
            yield from _placed(child, mandatory)
            continue
        for block in child.find_all(nodes.Block):
            if block.name in mandatory:
                fault = (
                    f"stands within {type(child).__name__.lower()}; it must stand in each letter, under no condition"
                )
                yield block.lineno, block.name, fault


def _is_allowed(node: nodes.Node, texts: frozenset[str]) -> bool:
    if isinstance(node, nodes.For):
        return _is_list(node.iter) and (node.test is None or _is_question(node.test, texts))
    if isinstance(node, nodes.If | nodes.CondExpr):
        return _is_question(node.test, texts)
    if isinstance(node, nodes.And | nodes.Or):
        return _is_question(node.left, texts)  # the right side may be what is written then
    return _is_question(node, texts)


def _is_question(node: nodes.Node, texts: frozenset[str]) -> bool:
    if isinstance(node, nodes.Not):
        return _is_question(node.node, texts)
    if isinstance(node, nodes.And | nodes.Or):
        return _is_question(node.left, texts) and _is_question(node.right, texts)
    if isinstance(node, nodes.Compare):
        sides = [node.expr, *(one.expr for one in node.ops)]
        return all(isinstance(one, nodes.Const) or _is_comparable(one) for one in sides)
    if isinstance(node, nodes.Test):
        return _is_comparable(node.node) or (node.name == "defined" and _is_there(node.node, texts))
    return isinstance(node, nodes.Const) or _is_comparable(node) or _is_there(node, texts)


def _is_comparable(node: nodes.Node) -> bool:
    """A count, a way's number or tier, or where the loop is."""
    if isinstance(node, nodes.Filter):
        return node.name in COUNTS and node.node is not None and _is_list(node.node)
    if not isinstance(node, nodes.Getattr):
        return False
    return (isinstance(node.node, nodes.Name) and node.node.name == "loop") or node.attr in COMPARED


def _is_there(node: nodes.Node, texts: frozenset[str]) -> bool:
    """A name or a field of it: whether there is anything in it is all that can be asked."""
    if isinstance(node, nodes.Name):
        return node.name not in texts
    if isinstance(node, nodes.Getattr):
        return _is_there(node.node, texts)
    if isinstance(node, nodes.Getitem):
        return _is_list(node.node) or (_is_there(node.node, texts) and isinstance(_key(node), str))
    return False


def _is_list(node: nodes.Node) -> bool:
    name = node.name if isinstance(node, nodes.Name) else node.attr if isinstance(node, nodes.Getattr) else _key(node)
    return name in LISTS


def _key(node: nodes.Node) -> object:
    return node.arg.value if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Const) else None
