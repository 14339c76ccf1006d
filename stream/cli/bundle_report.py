"""The report of `coach bundle`: lines for people, one JSON object for machines."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any, Final, Literal

from stream.bundle.advice.claims import ClaimReport
from stream.bundle.advice.pool_rank import PoolRank
from stream.bundle.advice.undeclared import Undeclared
from stream.bundle.advice.untrue_ratios import UntrueRatio
from stream.bundle.build import BuiltBundle
from stream.bundle.gate.probe import ProbeReport
from stream.bundle.gate.probe_rows import ProbeKind
from stream.bundle.manifest import Manifest
from stream.forest.trees import TreesUsed

MEGABYTE: Final = 1e6
PROBABILITY_LINKS: Final = frozenset({"logistic", "hinge"})  # all others predict something else
PROBE_WORDS: Final[dict[ProbeKind, str]] = {
    "pool": "of the pool",
    "threshold": "around thresholds",
    "category": "on categories",
    "tripping": "missing, zero and the like",
    "combination": "combinations",
    "node": "at splits",
}


def built_for_machines(built: BuiltBundle) -> dict[str, Any]:
    """The JSON object of a finished build."""
    report, advice = built.probe, built.advice
    compared = {one.name: getattr(report, one.name) for one in fields(report) if one.name not in ("counts", "kept")}
    rank = None if advice.rank is None else asdict(advice.rank)
    return {
        "bundle": str(built.folder),
        "bundle_sha256": built.bundle_sha256,
        "manifest": built.manifest,
        "ignored_columns": list(advice.ignored_columns),
        "unlabelled": list(advice.unlabelled),
        "unproven_words": list(advice.unproven_words),
        "probe": {"rows": report.rows, **{f"{kind}_rows": count for kind, count in report.counts.items()}, **compared},
        "claims": None if advice.claims is None else asdict(advice.claims),
        "trees_by_claims": advice.trees_by_claims,
        "unsaid": asdict(advice.undeclared),
        "untrue_ratios": [asdict(one) for one in advice.untrue_ratios],
        "pool_rank": rank and {name: rank[name] for name in ("column", "auc", "why_not")},
    }


def built_for_people(built: BuiltBundle) -> list[str]:
    """The lines of a finished build."""
    report, advice = built.probe, built.advice
    compared = ", ".join(f"{count:,} {PROBE_WORDS[kind]}" for kind, count in report.counts.items() if count)
    others = {"in words": report.word_rows, "in integers": report.integer_rows, "at leaves": report.leaf_rows}
    compared += "".join(f", {rows:,} {what}" for what, rows in others.items() if rows)
    lines = [
        f"built {built.folder}",
        *facts(built.manifest, built.bundle_sha256),
        _fact("compared", f"{report.rows:,} rows with {report.library} {report.library_version}, every bit equal:"),
        _fact("", compared),
        *_not_compared(report),
    ]
    if advice.claims is not None:
        lines += _claims(advice.claims, built.manifest["trees"] if advice.trees_by_claims else None)
    lines += _undeclared(advice.undeclared, built.manifest["pool"]["rows"])
    lines += [line for one in advice.untrue_ratios for line in _untrue_ratio(one)]
    if advice.rank is not None:
        lines += _rank(advice.rank)
    if advice.ignored_columns:
        lines.append(_fact("not used", f"the pool's columns {', '.join(advice.ignored_columns)}"))
    if advice.unproven_words:
        text = "taken from features.toml, not in the model file; --claim-column proves their order"
        lines.append(_fact("words", f"of {', '.join(advice.unproven_words)}: {text}"))
    if advice.unlabelled:
        lines.append(_fact("no label", f"{', '.join(advice.unlabelled)}: letters will call them so; give each a label"))
    return lines


def _not_compared(report: ProbeReport) -> list[str]:
    """What the gate's bounds left out, and what no row reaches."""
    text = {
        "splits beyond the gate's bound": report.splits_left_out,
        "codes at splits beyond the gate's bound": report.codes_left_out,
        "leaves beyond the gate's bound": report.leaves_left_out,
        "splits that no row comes to": report.splits_unreachable,
        "leaves that no row comes to": report.leaves_unreachable,
    }
    listed = ", ".join(f"{count:,} {what}" for what, count in text.items() if count)
    return [_fact("not compared", listed)] if listed else []


def _claims(claims: ClaimReport, trees: TreesUsed | None) -> list[str]:
    text = f"{claims.rows:,} of column {claims.column} ({claims.scale}), every bit equal"
    lines = [_fact("claims", text)]
    if trees is not None:
        lines.append(_fact("", f"they tell which trees are meant: --trees {trees}"))
    return lines


def _undeclared(undeclared: Undeclared, rows: int) -> list[str]:
    lines = []
    for one in undeclared.missing:
        looks = (
            f"{one.number:g} looks like a number for missing in the pool's column{'s' if len(one.columns) > 1 else ''}"
        )
        remedy = f"say --missing {one.number:g}, or list it as no_record in features.toml, or prove with --claim-column that it is none"
        text = f"XGBoost's file does not say what the decider passes as missing=: {remedy}"
        lines += [_fact("missing?", f"{looks} {', '.join(one.columns)};"), _fact("", text)]
    if undeclared.in_place_differs:
        differs = f"scores of XGBClassifier (inplace_predict) are rounded otherwise in {undeclared.in_place_differs:,} of {_plural(rows, 'row')}"
        lines.append(_fact("DART", f"{differs}: compare your decider's with --claim-column"))
    return lines


def _untrue_ratio(one: UntrueRatio) -> list[str]:
    share = f"{one.differ:,} of {_plural(one.known, 'row')} ({one.differ / one.known:.1%})"
    remedy = f"leave ratio_of out of features.toml if that is so for applicants, or a tiny move of {one.driver} seems to do a lot"
    return [
        _fact("ratio?", f"{one.feature} is not what its parts give in {share} of the pool that have all three,"),
        _fact("", f"beyond rounding: {remedy}"),
    ]


def _rank(rank: PoolRank) -> list[str]:
    if rank.auc is None or rank.shares is None:
        return [_fact("pool ranked", f"not by {rank.column}: {rank.why_not}")]
    lines = [
        _fact(
            "pool ranked", f"AUC {rank.auc:.3f} for {rank.column}; 0.5 is guessing, 1 (or 0, turned round) is perfect"
        )
    ]
    if rank.is_guessing:
        question = "is this the pool that the model was trained on, and are `categories` in the order of its codes?"
        lines.append(_fact("", question))
    shares = rank.shares
    said = f"{rank.column} is {shares.outcome} for {shares.accepted:.1%} of those that the model accepts"
    return [
        *lines,
        _fact("outcomes", f"{said} and for {shares.declined:.1%} of those that it declines;"),
        _fact("", "if that is the wrong way round, change `approve` in policy.toml"),
    ]


def _scale(manifest: Manifest) -> str:
    """What the threshold is compared with: not everything that a model predicts is a probability."""
    is_probability = manifest["link"] in PROBABILITY_LINKS
    return manifest["threshold_scale"] if is_probability or manifest["threshold_scale"] == "margin" else "prediction"


def facts(manifest: Manifest, digest: str) -> list[str]:
    """What a manifest says, in lines."""
    bytes_in_all = sum(entry["bytes"] for entry in manifest["files"].values())
    pool, missing = manifest["pool"], manifest["missing"]
    side: Literal["at or above", "at or below"] = "at or above" if manifest["approve"] == "above" else "at or below"
    writer = " ".join(word for word in (manifest["library"], manifest["library_version"]) if word)
    detail = "with per-tree detail" if manifest["audit_trees"] else "without per-tree detail, which would not fit"
    return [
        _fact("bundle", digest),
        _fact("model", f"{manifest['model_id']} {manifest['model_version']} revision {manifest['revision']}"),
        _fact("trained by", f"{writer}, {manifest['objective']}, {_plural(manifest['trees_used'], 'tree')}"),
        _fact(
            "accepts", f"{side} {_scale(manifest)} {manifest['threshold']:g} (margin {manifest['cutoff_margin']:.9g})"
        ),
        _fact("features", f"{len(manifest['features'])}"),
        *([] if missing is None else [_fact("missing", f"NaN, and {missing:g} as the decider's XGBoost is told")]),
        _fact("pool", f"{_plural(pool['rows'], 'row')}, {pool['accepted']:,} of them accepted"),
        *_shadows(manifest),
        _fact("audit record", f"at most {manifest['audit_record_bytes_max']:,} bytes, {detail}"),
        _fact("on disk", f"{bytes_in_all / MEGABYTE:.1f} MB in {_plural(len(manifest['files']), 'file')}"),
    ]


def _shadows(manifest: Manifest) -> list[str]:
    """Who judges what a tier will say of itself."""
    entry = manifest["shadows"]
    if entry is None:
        return [_fact("shadows", "none: the robust_share of every tier will be null")]
    made = "trained on bootstraps of the pool" if entry["trained"] else "given"
    return [
        _fact("shadows", f"{entry['searched']} searched and {entry['held_out']} held out for each applicant, {made}"),
        _fact("", "a tier's robust_share is the share of those held out that accept it"),
    ]


def probes_line(manifest: Manifest) -> str:
    """The line of `show` about the probes."""
    probes = manifest["probes"]
    text = f"{_plural(probes['rows'], 'row')} computed here, every bit as {manifest['library']} {probes['library_version']} gave it"
    return _fact("probes", text)


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _fact(name: str, what: str) -> str:
    return f"  {name:13s} {what}"
