"""The HTML that a letter may hold: nothing that runs a script or fetches anything when the letter is opened.

Elements and attributes are allow-lists. The rules check the template files, where faults have lines, and the letters of the
trial, which show what expressions add up to.
"""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Final

ELEMENTS: Final = frozenset(
    {
        "a", "abbr", "address", "article", "aside", "b", "bdi", "blockquote", "body", "br", "caption", "center", "cite",
        "code", "col", "colgroup", "dd", "div", "dl", "dt", "em", "figcaption", "figure", "footer", "h1", "h2", "h3", "h4",
        "h5", "h6", "head", "header", "hr", "html", "i", "img", "li", "main", "mark", "meta", "ol", "p", "pre", "q",
        "section", "small", "span", "strong", "style", "sub", "sup", "table", "tbody", "td", "tfoot", "th", "thead", "time",
        "title", "tr", "u", "ul", "wbr",
    }
)  # fmt: skip
ATTRIBUTES: Final = frozenset(
    {
        "align", "alt", "bgcolor", "border", "cellpadding", "cellspacing", "charset", "class", "colspan", "content",
        "datetime", "dir", "headers", "height", "href", "id", "lang", "name", "reversed", "role", "rowspan", "scope",
        "span", "src", "start", "style", "title", "type", "valign", "value", "width", "xmlns",
    }
)  # fmt: skip
METAS: Final = ("viewport", "author", "description")
FETCHING: Final = frozenset({"src", "srcset", "background", "poster", "data"})
STYLE_FETCHES: Final = re.compile(
    r"@import|url\(\s*['\"]?(?!data:)|image-set|\\", re.IGNORECASE
)  # a backslash can spell any of them
LITERAL: Final = frozenset({"href", "src", "style", "bgcolor"})
EXPRESSION: Final = "\ue000"  # stands for a Jinja expression while a template file is checked
STYLE_FETCHES_FAULT: Final = "its style would fetch something when the letter is opened"
LITERAL_FAULT: Final = "must stand in the file as it is, without {{ }} or {% %} in it"
PICTURE: Final = re.compile(r"data:image/(png|jpeg|gif|webp);base64,", re.IGNORECASE)
LINKS: Final = ("https:", "mailto:", "tel:", "#")
UNSEEN: Final = frozenset({"head", "style", "title"})
JINJA: Final = re.compile(r"\{%.*?%\}|\{\{.*?\}\}|\{#.*?#\}", re.DOTALL)


class _Page(HTMLParser):
    """Collects a page's faults as (line, fault), and its visible words."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, str]] = []
        self.words: list[str] = []
        self._unseen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        line = self.getpos()[0]
        if tag not in ELEMENTS:
            self.found.append((line, f"the element <{tag}> is not allowed in a letter"))
        if tag in UNSEEN:
            self._unseen.append(tag)
        for name, value in attrs:
            fault = _attribute(tag, name, (value or "").strip())
            if fault:
                self.found.append((line, fault))
            if name == "style" and STYLE_FETCHES.search(value or ""):
                self.found.append((line, STYLE_FETCHES_FAULT))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Read `<p/>` as `<p>`, as browsers do."""
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag in self._unseen:
            while self._unseen.pop() != tag:
                pass

    def handle_comment(self, data: str) -> None:  # noqa: ARG002 - the base class's
        """Refuse it: some mail programs interpret comments, and programs differ in where one ends."""
        self._refuse("a comment of HTML is not allowed in a letter; write {# ... #}")

    def handle_decl(self, decl: str) -> None:
        """Accept the doctype only."""
        if " ".join(decl.lower().split()) != "doctype html":
            self.unknown_decl(decl)

    def unknown_decl(self, data: str) -> None:  # noqa: ARG002 - the base class's
        """Refuse it, such as `<![if mso]>`."""
        self._refuse("no declaration but <!doctype html> is allowed in a letter")

    handle_pi = unknown_decl  # such as `<?xml`

    def _refuse(self, fault: str) -> None:
        self.found.append((self.getpos()[0], fault))

    def handle_data(self, data: str) -> None:
        if self._unseen[-1:] == ["style"]:
            if STYLE_FETCHES.search(data):
                self._refuse(STYLE_FETCHES_FAULT)
        elif not self._unseen:
            self.words.append(data)


def _attribute(tag: str, name: str, value: str) -> str:
    where = f"<{tag} {name}>"
    if name in LITERAL and EXPRESSION in value:
        return f"{where} {LITERAL_FAULT}"
    if name in FETCHING and value and not (name == "src" and tag == "img" and PICTURE.match(value)):
        return f"{where} would fetch something when the letter is opened"
    if name not in ATTRIBUTES:
        return f"the attribute {name} is not allowed in a letter"
    if name == "name" and tag == "meta" and value.lower() not in METAS:
        return f"{where} is {value}; there are {', '.join(METAS)}"
    if name == "href" and value and (tag != "a" or not value.lower().startswith(LINKS)):
        return f"{where} must begin with one of {' '.join(LINKS)}"
    return ""


def page_faults(page: str) -> list[tuple[int, str]]:
    """The faults of a letter's HTML, as (line, fault)."""
    return sorted(dict.fromkeys(_read(page).found))


def file_faults(text: str) -> list[tuple[int, str]]:
    """The faults of a template file, with its Jinja tags blanked."""
    marked = JINJA.sub(lambda found: EXPRESSION + "\n" * found.group().count("\n"), text)
    blanked = JINJA.sub(lambda found: "\n" * found.group().count("\n") or " ", text)
    in_literals = [(line, fault) for line, fault in _read(marked).found if fault.endswith(LITERAL_FAULT)]
    return sorted(dict.fromkeys([*page_faults(blanked), *in_literals]))


def visible(page: str) -> str:
    """The visible words of a page without faults."""
    return " ".join(_read(page).words)


def _read(page: str) -> _Page:
    read = _Page()
    read.feed(page)
    if "<" in read.rawdata:  # browsers show nothing of it
        read.found.append((read.getpos()[0], "a tag, an attribute or a comment begins here and never ends"))
    else:
        read.close()
    return read
