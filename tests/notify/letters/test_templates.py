from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from stream.errors import ConfigurationError, LetterRefused
from stream.notify.letters.page_rules import page_faults
from stream.notify.letters.template_rules import MANDATORY_BLOCKS, NOT_FOR_APPLICANTS
from stream.notify.letters.template_trial import check_by_trial, full_view
from stream.notify.letters.templates import Templates, read_templates, shipped_folder
from stream.notify.letters.view import FIELDS, VARIABLES, view_of
from stream.notify.notices.notice import KIND
from tests.notify.answers import IMMUTABLE, LABELS, NOW_MS, recommendations, step_labels
from tests.notify.letter_builder import CREDITOR, PAT, letter_of


def loaded(folder: Path | str) -> Templates:
    templates = read_templates(str(folder), "en")
    check_by_trial(templates)
    return templates


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A copy of the shipped templates to change."""
    folder = tmp_path / "templates"
    shutil.copytree(shipped_folder(), folder)
    return folder


def change(folder: Path, part: str, before: str, after: str) -> Path:
    path = folder / "en" / f"{KIND}.{part}"
    text = path.read_text("utf-8")
    assert before in text
    path.write_text(text.replace(before, after), "utf-8")
    return path


def line_of(path: Path, text: str) -> int:
    return path.read_text("utf-8").split(text)[0].count("\n") + 1


def test_the_shipped_templates_pass() -> None:
    """Given the shipped templates, when judged and tried, then nothing is wrong with them."""
    assert loaded("").locales == ["en"]


@pytest.mark.parametrize("part", ["txt", "html"])
@pytest.mark.parametrize("block", MANDATORY_BLOCKS)
def test_a_template_without_a_mandatory_block_is_refused(own: Path, part: str, block: str) -> None:
    """Given a template that lacks a mandatory block, when loaded, then the error names file, line and block."""
    path = change(own, part, f"{{% block {block} %}}", f"{{% block other_{block} %}}")
    with pytest.raises(ConfigurationError, match=rf"{re.escape(str(path))}:1: block {block} is missing"):
        loaded(own)


@pytest.mark.parametrize("part", ["txt", "html"])
@pytest.mark.parametrize("block", MANDATORY_BLOCKS)
@pytest.mark.parametrize("how", ["emptied", "never shown"])
def test_a_mandatory_block_that_says_nothing_is_refused(own: Path, part: str, block: str, how: str) -> None:
    """Given a mandatory block that is empty, or stands where it is never shown, when tried, then the error names file and block."""
    path = own / "en" / f"{KIND}.{part}"
    text = path.read_text("utf-8")
    found = re.search(rf"{{% block {block} %}}(.*?){{% endblock %}}", text, re.DOTALL)
    assert found is not None
    whole = found.group(0)
    empty = f"{{% block {block} %}}{{% endblock %}}"
    hidden = f"{{% if not reasons %}}{whole}{{% endif %}}"
    path.write_text(text.replace(whole, empty if how == "emptied" else hidden), "utf-8")
    with pytest.raises(ConfigurationError, match=rf"{re.escape(str(path))}(:\d+)?: block {block} ") as raised:
        loaded(own)
    assert "is empty" in str(raised.value) or "is inside if" in str(raised.value)


def test_a_mandatory_block_within_a_condition_is_refused(own: Path) -> None:
    """Given a mandatory block that stands in a condition or a loop, though it shows in each made-up letter, when loaded, then it is refused."""
    path = own / "en" / f"{KIND}.txt"
    text = path.read_text("utf-8")
    for before, after in (
        ("{% if reasons %}", "{% endif %}"),
        ("{% for reason in reasons[:0] or [1] %}", "{% endfor %}"),
    ):
        block = re.sub(r"({% block no_offer %}.*?{% endblock %})", rf"{before}\1{after}", text, flags=re.DOTALL)
        path.write_text(block, "utf-8")
        with pytest.raises(ConfigurationError, match=r"block no_offer is inside (if|for)"):
            loaded(own)


@pytest.mark.parametrize(
    ("part", "more"),
    [
        ("txt", "{{ " + "(" * 400 + "1" + ")" * 400 + " }}"),
        ("txt", "{% if options %}" * 3_000 + "{% endif %}" * 3_000),
        ("html", "{% for reason in reasons %}" * 30 + "{% endfor %}" * 30),
    ],
)
def test_what_is_nested_too_deeply_is_told_with_its_file(own: Path, part: str, more: str) -> None:
    """Given a template that is nested deeper than Python goes, when loaded, then the error names the file."""
    path = change(own, part, "Yours sincerely", more + "Yours sincerely")
    with pytest.raises(ConfigurationError, match=rf"{re.escape(str(path))}: is nested too deeply"):
        loaded(own)


def test_words_hold_plain_fields_only(own: Path) -> None:
    """Given a words.toml that is nested deeply, or whose date has a format or an attribute, when loaded, then it is refused with its file."""
    path = own / "en" / "words.toml"
    text = path.read_text("utf-8")
    wrong = [text.replace("{day}", "{day}" + more) for more in ("{day:>200000000}", "{day.__class__}", "{{", "{0}")]
    for words in (*wrong, "x = " + "[" * 100_000):
        path.write_text(words, "utf-8")
        with pytest.raises(ConfigurationError, match=rf"{re.escape(str(path))}: (date must hold|is nested too deeply)"):
            loaded(own)


@pytest.mark.parametrize(
    ("trick", "message"),
    [
        ('<svg><image href="https://t.example/{{ reference }}"/></svg>', "<svg> is not allowed"),
        ('<svg><use xlink:href="https://t.example/p.svg#a"/></svg>', "xlink:href is not allowed"),
        ("<p style=\"background:image-set('https://t.example/x.png' 1x)\">x</p>", "style would fetch"),
        ('<p style="background:u\\72l(https://t.example/x)">x</p>', "style would fetch"),
        ('<style>@\\69mport "https://t.example/x.css";</style>', "style would fetch"),
        ("<style>p{background:#fff}", "never ends|does not appear"),
        ("<!--[if mso]><img src='https://t.example/x'><![endif]-->", "a comment of HTML"),
        ("<![if mso]><p>x</p><![endif]>", "declaration|comment"),
        ('<a href="https://x.example" ping="https://t.example">x</a>', "ping is not allowed"),
        ('<a href="javascript:alert(1)">x</a>', "must begin with one of"),
        ('<a href="https://x.example/{{ reference }}">x</a>', "must stand in the file as it is"),
        ("<a href=https://x.example/{% if options %}1{% endif %}>x</a>", "must stand in the file as it is"),
        ('<button formaction="https://x">x</button>', "<button> is not allowed"),
        ('<img src="data:image/svg+xml,<svg/>">', "would fetch something"),
    ],
)
def test_a_page_that_could_fetch_or_run_is_refused(own: Path, trick: str, message: str) -> None:
    """Given HTML that is on no list of what is allowed, when loaded, then it is refused."""
    change(own, "html", "</body>", trick + "</body>")
    with pytest.raises(ConfigurationError, match=message):
        loaded(own)


@pytest.mark.parametrize("field", sorted(NOT_FOR_APPLICANTS))
@pytest.mark.parametrize("form", ["{{ %s }}", "{{ lender.%s }}", "{{ options[0].%s }}"])
def test_a_field_not_meant_for_applicants_is_refused(own: Path, field: str, form: str) -> None:
    """Given a template that uses a field not meant for applicants, when loaded, then the error names file, line, block and field."""
    path = change(own, "txt", "{% block reasons %}", "{% block reasons %}" + form % field)
    line = line_of(path, form % field)
    message = rf"{re.escape(str(path))}:{line}: block reasons uses {field}, which is not meant for applicants"
    with pytest.raises(ConfigurationError, match=message):
        loaded(own)


@pytest.mark.parametrize(
    ("trick", "message"),
    [
        ("{{ lender['margin'] }}", "in brackets"),
        ("{{ lender['mar' ~ 'gin'] }}", "in brackets"),
        ("{{ lender.__class__ }}", "__class__"),
        ("{{ lender | attr('margin') }}", "attr"),
        ("{{ options | map(attribute='margin') | join }}", "map"),
        ("{{ lender | string | safe }}", "safe|string"),
        ("{{ self.reasons() }}", "call is not allowed|uses self"),
        ("{{ range(9) | join }}", "range|call"),
        ("{% macro m() %}{% endmacro %}", "macro is not allowed"),
        ("{% import 'words.toml' as w %}", "import is not allowed"),
        ("{% extends 'other.txt' %}", "extends|None of the templates"),
        ("{% include lender.name %}", "named by a plain text"),
        ("{% include '../../secret.txt' %}", "a file of the same folder"),
        ("{% include 'adverse_action.html' %}", "must end in .txt"),
        ("{% autoescape false %}{% endautoescape %}", "unknown tag|not allowed"),
        ("{% set reasons = [] %}", "take another name"),
        ("{% if %}", "Expected an expression"),
        ("{{ 'x' * 999999999 }}", "mul is not allowed"),
    ],
)
def test_a_trick_is_refused(own: Path, trick: str, message: str) -> None:
    """Given a template that reaches around the view, or past its own file, when loaded, then it is refused with file and line."""
    path = change(own, "txt", "{% block reasons %}", "{% block reasons %}" + trick)
    with pytest.raises(ConfigurationError, match=message) as raised:
        loaded(own)
    assert f"{path}:{line_of(path, trick)}: " in str(raised.value)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("{{ step.label }}", "", "block changes leaves out label-1-1"),
        ("{{ step.before }}", "", "block changes leaves out before-1-1"),
        ("{{ step.after }}", "", "block changes leaves out after-1-1"),
        ("<li>{{ reason }}</li>", "{% if loop.first %}<li>{{ reason }}</li>{% endif %}", "leaves out reason-2"),
        ("{{ lender.contact }}", "", "block contest leaves out lender-contact"),
        ("{{ disclosure.text }}", "", "block disclosures leaves out disclosure-text"),
        ('<p class="small">{{ lender.notice }}</p>', "", "block disclosures leaves out lender-notice"),
        ("<b>{{ expires_on }}</b>", "", "block expiry leaves out expires-on"),
        ("{{ date }}", "", "date does not appear"),
        ("{{ reason }}", "<!-- {{ reason }} -->", "a comment of HTML is not allowed"),
        ("{{ recipient.name or", "{{ recipient.name.name or", "UndefinedError"),
        ("<h2>The main", "<script>1</script><h2>The main", "<script> is not allowed"),
        ("<h2>The main", '<img src="https://lender.example/seen.gif"><h2>The main', "would fetch something"),
        ("<h2>The main", '<p style="background: url(//x)"></p><h2>The main', "would fetch something"),
        ("@page {", "@import 'x'; @page {", "style would fetch"),
        ("<ol>", '<ol onclick="x()">', "onclick is not allowed"),
    ],
)
def test_a_letter_that_leaves_out_or_fetches_something_is_refused(
    own: Path, before: str, after: str, message: str
) -> None:
    """Given an HTML template that leaves out or fetches something, when tried, then the error names file and block."""
    change(own, "html", before, after)
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        loaded(own)


@pytest.mark.parametrize(
    "own_style", ["color: #eee", "display: none", "position: absolute; left: -99px", "opacity: .5"]
)
def test_how_a_letter_looks_is_the_lenders_own(own: Path, own_style: str) -> None:
    """Given a template with a lender's own style, when loaded and tried, then it passes, whatever the style is."""
    change(own, "html", "<ol>", f'<ol style="{own_style}">')
    assert loaded(own).locales == ["en"]


@pytest.mark.parametrize("after", ["<h2 title='", "<!-- <h2>"])
def test_what_never_ends_is_refused(own: Path, after: str) -> None:
    """Given a template that opens what never ends, so that a browser shows nothing of it, when tried, then it is refused."""
    change(own, "html", "<h2>The main reasons</h2>", after)
    with pytest.raises(ConfigurationError, match=r"adverse_action\.html:"):
        loaded(own)


def test_a_subject_line_gives_no_reason(own: Path) -> None:
    """Given a subject that tells a reason, which others see on a screen, when tried, then it is refused."""
    change(own, "subject", "Our decision", "{{ reasons[0] }}: our decision")
    with pytest.raises(ConfigurationError, match="must give no reason"):
        loaded(own)


@pytest.mark.parametrize("name", [f"{KIND}.subject", f"{KIND}.txt", f"{KIND}.html", "words.toml"])
def test_a_missing_file_is_named(own: Path, name: str) -> None:
    """Given a locale without one of its files, when loaded, then the error names it."""
    (own / "en" / name).unlink()
    with pytest.raises(ConfigurationError, match=rf"{re.escape(name)}: cannot be read"):
        loaded(own)


def test_a_locale_is_a_folder(own: Path) -> None:
    """Given a second folder, when a locale is asked for, then its own, its language's or the default one's serve."""
    shutil.copytree(own / "en", own / "de")
    change(own, "txt", "OUR DECISION", "ENGLISH")
    templates = loaded(own)
    assert templates.locales == ["de", "en"]
    asked = {"de": "de", "de-AT": "de", "DE_at": "de", "en-US": "en", "fr": "en", "": "en"}
    assert {name: templates.find(name).locale for name in asked} == asked
    assert templates.find("de").version != templates.find("en").version


def test_the_default_locale_must_be_there(own: Path) -> None:
    """Given a default locale without a folder, when loaded, then the error says so."""
    with pytest.raises(ConfigurationError, match="has no folder fr"):
        read_templates(str(own), "fr")


def test_a_part_may_stand_in_a_file_of_its_own(own: Path) -> None:
    """Given a letter that includes a file of its folder, when loaded, then it passes, and that file is judged as well."""
    (own / "en" / "greeting.txt").write_text("Dear {{ recipient.name }}", "utf-8")
    change(own, "txt", 'Dear {{ recipient.name or "applicant" }}', "{% include 'greeting.txt' %}")
    loaded(own)
    (own / "en" / "greeting.txt").write_text("Dear {{ subject_ref }}", "utf-8")
    with pytest.raises(ConfigurationError, match=r"greeting\.txt:1: uses subject_ref"):
        loaded(own)


def test_a_letter_tells_all_of_an_answer_and_no_more() -> None:
    """Given answers of the engine, when written, then the letter has each reason, each step of each tier that no other outdoes, and no immutable feature as a step."""
    for one in recommendations(60):
        letter = letter_of(one)
        for reason in one["reasons"]:
            assert reason["text"] in letter.text
        expected = {action["label"] for tier in not_outdone(one["tiers"]) for action in tier["actions"]}
        assert set(step_labels(letter.text)) == expected
        assert not expected & {LABELS[name] for name in IMMUTABLE}
        assert one["recommendation_id"] not in letter.text + letter.html
        for tier in one["tiers"]:
            for number in (tier["margin"], tier["probability"], tier["effort"]):
                assert str(number) not in letter.text + letter.html


def not_outdone(tiers: Any) -> list[Any]:
    """The tiers of a lender who approves above that no other tier outdoes: for no more effort, a score at least as far past the line."""
    worth = [(tier["effort"], -tier["margin"]) for tier in tiers]
    return [
        tier
        for tier, (effort, short) in zip(tiers, worth, strict=True)
        if not any(one <= effort and other <= short and (one, other) != (effort, short) for one, other in worth)
    ]


def test_equal_tiers_are_told_once() -> None:
    """Given two tiers of the same steps, when told, then they are one way."""
    one: Any = next(one for one in recommendations(40) if len(one["tiers"]) == 3)
    same: Any = {**one, "tiers": [one["tiers"][0], {**one["tiers"][0], "tier": "mid"}]}
    view = view_of(same, CREDITOR, recipient=PAT, words=loaded("").find("en").words, now_ms=NOW_MS)
    assert [option["number"] for option in view["options"]] == [1]


def test_a_view_has_the_names_that_templates_may_use() -> None:
    """Given views, real and made up for the trial, then their names are those that the rules let through."""
    real = view_of(recommendations(1)[0], CREDITOR, recipient=PAT, words=loaded("").find("en").words, now_ms=NOW_MS)
    for view in (real, full_view()):
        assert set(view) == VARIABLES
        inner = [view["recipient"], view["lender"], *view["options"], *view["disclosures"]]
        inner += [step for option in view["options"] for step in option["steps"]]
        assert set().union(*inner) <= FIELDS
    assert not (VARIABLES | FIELDS) & NOT_FOR_APPLICANTS


def test_what_others_wrote_is_escaped() -> None:
    """Given texts with markup in them, when written as HTML, then they are text."""
    one: Any = {**recommendations(1)[0], "disclosures": {"<b>x": "<script>alert(1)</script>"}}
    one["decision_id"] = "<img src=x>"
    letter = letter_of(one)
    assert "<script>" not in letter.html
    assert "<img" not in letter.html
    assert page_faults(letter.html) == []


def test_a_template_that_fails_on_a_letter_tells_no_value(own: Path) -> None:
    """Given a template that the trial lets through and a letter breaks, when written, then the error has no text of the letter."""
    change(own, "subject", "Our", "{{ 'x' if reasons | length < 5 else lender.name.name }} Our")
    templates = loaded(own).find("en")
    view = full_view()
    view["reasons"] = ["Secret Name"] * 5
    with pytest.raises(LetterRefused) as raised:
        templates.letter(view)
    assert "Secret" not in str(raised.value)
