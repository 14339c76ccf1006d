"""Templates of letters: one folder per locale, read and checked when the notifier starts.

`<folder>/<locale>/` holds words.toml and adverse_action.subject, adverse_action.txt and adverse_action.html.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

import jinja2
from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from stream.errors import ConfigurationError, LetterRefused
from stream.notify.letters.number_words import Words, read_words
from stream.notify.letters.page_rules import file_faults
from stream.notify.letters.template_rules import FILTERS, TESTS, faults
from stream.notify.letters.view import View
from stream.notify.notices.notice import KIND, Letter

PARTS: Final = ("subject", "txt", "html")
WORDS: Final = "words.toml"
FILE_BYTES_MAX: Final = 256 * 1024
TOO_DEEP: Final = "is nested too deeply"
SUBJECT_CHARACTERS_MAX: Final = 200
FAULTS_LISTED_MAX: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterTemplates:
    """The templates of one locale. `version`: SHA-256 over all files of the locale's folder."""

    locale: str
    words: Words
    version: str
    parts: Mapping[str, Template]
    paths: Mapping[str, Path]

    def letter(self, view: View) -> Letter:
        """Render a letter. Raises: LetterRefused where a template fails on this view."""
        try:
            subject = " ".join(self.parts["subject"].render(view).split())
            text = self.parts["txt"].render(view).strip() + "\n"
            html = self.parts["html"].render(view).strip() + "\n"
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            message = f"the templates of {KIND} in locale {self.locale} fail on this letter: {type(error).__name__}"
            raise LetterRefused(message) from None  # the error's text may hold a value
        if not subject or len(subject) > SUBJECT_CHARACTERS_MAX or not subject.isprintable():
            message = f"the subject line of {KIND} in locale {self.locale} is empty, too long or not printable"
            raise LetterRefused(message)
        return Letter(subject=subject, text=text, html=html)


@dataclass(frozen=True, slots=True, kw_only=True)
class Templates:
    """All templates, by locale; `default`: the locale where the applicant's has none."""

    of: Mapping[str, LetterTemplates]
    default: str

    def find(self, locale: str) -> LetterTemplates:
        """The templates of the locale, else of its language, else of the default locale."""
        wanted = locale.replace("_", "-")
        for name in (wanted, wanted.partition("-")[0]):
            for one, templates in self.of.items():
                if one.lower() == name.lower():
                    return templates
        return self.of[self.default]

    @property
    def locales(self) -> list[str]:
        """The names of the locales that have templates, sorted."""
        return sorted(self.of)


def shipped_folder() -> Path:
    """The folder of the package's own templates."""
    return Path(str(files("stream.notify.letters") / "templates"))


def read_templates(folder: str, default: str) -> Templates:
    """Read and check all templates of a folder; an empty `folder` stands for the shipped ones.

    Raises: ConfigurationError that names file, line and block of each fault.
    """
    root = Path(folder) if folder else shipped_folder()
    wrong: list[str] = []
    found: dict[str, LetterTemplates] = {}
    for of_locale in sorted(one for one in root.iterdir() if one.is_dir() and not one.name.startswith((".", "_"))):
        try:
            found[of_locale.name] = _of_locale(of_locale)
        except ConfigurationError as error:
            wrong.append(str(error))
    if not wrong and default not in found:
        wrong.append(f"{root} has no folder {default}, which COACH_NOTIFY_LOCALE names as the default")
    if wrong:
        raise ConfigurationError("; ".join(wrong))
    return Templates(of=found, default=default)


def _of_locale(folder: Path) -> LetterTemplates:
    paths = {part: folder / f"{KIND}.{part}" for part in PARTS}
    texts = {path: _text(path) for path in (*paths.values(), folder / WORDS)}
    try:
        words = read_words(texts[folder / WORDS])
    except ValueError as fault:
        message = f"{folder / WORDS}: {fault}"
        raise ConfigurationError(message) from None
    environment = _environment(folder)
    wrong = [
        fault for part, path in paths.items() for fault in _faults(environment, folder, path, blocks=part != "subject")
    ]
    if wrong:
        more = f"; and {len(wrong) - FAULTS_LISTED_MAX} more" if len(wrong) > FAULTS_LISTED_MAX else ""
        raise ConfigurationError("; ".join(wrong[:FAULTS_LISTED_MAX]) + more)
    try:
        parts = {part: _compiled(environment, path) for part, path in paths.items()}
    except TemplateSyntaxError as error:
        message = f"{folder / str(error.name)}:{error.lineno}: {error.message}"
        raise ConfigurationError(message) from None
    return LetterTemplates(locale=folder.name, words=words, version=_version(folder), parts=parts, paths=paths)


def _compiled(environment: jinja2.Environment, path: Path) -> jinja2.Template:
    try:
        return environment.get_template(path.name)
    except (RecursionError, SyntaxError, MemoryError):  # templates compile to Python
        message = f"{path}: {TOO_DEEP}"
        raise ConfigurationError(message) from None


def _environment(folder: Path) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        loader=jinja2.FileSystemLoader(folder),
        undefined=StrictUndefined,
        autoescape=lambda name: str(name).endswith(".html"),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        auto_reload=False,
        optimized=False,  # the optimizer would evaluate expressions before they are checked
    )
    environment.globals.clear()
    environment.filters = {name: environment.filters[name] for name in FILTERS}
    environment.tests = {name: environment.tests[name] for name in TESTS}
    return environment


def _faults(environment: jinja2.Environment, folder: Path, path: Path, *, blocks: bool, depth: int = 0) -> list[str]:
    """The faults of a file and of those that it includes."""
    try:
        tree = environment.parse(_text(path), path.name)
        found = sorted(faults(tree, blocks=blocks), key=lambda one: one[0] or 0)
    except TemplateSyntaxError as error:
        return [f"{path}:{error.lineno}: {error.message}"]
    except RecursionError:
        return [f"{path}: {TOO_DEEP}"]
    listed = [f"{path}:{line}: {f'block {block} ' if block else ''}{fault}" for line, block, fault in found]
    if path.suffix == ".html":
        listed += [f"{path}:{line}: {fault}" for line, fault in file_faults(_text(path))]
    for include in tree.find_all(nodes.Include):
        name = getattr(include.template, "value", None)
        inside = folder / str(name)
        if not isinstance(name, str) or Path(name).name != name or not inside.is_file():
            listed.append(f"{path}:{include.lineno}: what is included must be a file of the same folder")
        elif depth:
            listed.append(f"{path}:{include.lineno}: what is included must not include anything itself")
        elif inside.suffix != path.suffix:
            listed.append(
                f"{path}:{include.lineno}: what is included must end in {path.suffix} too, or it is escaped wrongly"
            )
        else:
            listed += _faults(environment, folder, inside, blocks=False, depth=1)
    return listed


def _version(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(one for one in folder.iterdir() if one.is_file() and not one.name.startswith(".")):
        content = path.read_bytes()
        digest.update(f"{path.name}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()


def _text(path: Path) -> str:
    try:
        content = path.read_bytes()
        if len(content) > FILE_BYTES_MAX:
            message = f"{path}: is larger than {FILE_BYTES_MAX} bytes"
            raise ConfigurationError(message)
        return content.decode()
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror or error}"
        raise ConfigurationError(message) from error
    except UnicodeDecodeError:
        message = f"{path}: is not UTF-8"
        raise ConfigurationError(message) from None
