"""The docs site: `make docs` builds build/site from README.md, docs/ and the pages that they link to.

The navigation is docs/README.md. Three things fail the build: a page that it does not list, a link that leads nowhere,
and a file that a browser would load from another host. llms.txt lists all pages for programs, each as Markdown.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

TOP = Path(__file__).parent.parent
DOCS = TOP / "docs"
PAGES, SITE, CONFIG = (TOP / "build" / name for name in ("pages", "site", "mkdocs.yml"))
_LINK = re.compile(r"(\]\()([^)#\s]+)?(#[^)\s]*)?(\))")
_FENCED = re.compile(r"^(```.*?^```$)", re.DOTALL | re.MULTILINE)
_LISTED = re.compile(r"\[([^\]]+)\]\(([^)#\s]+)\)")
_LOADED = re.compile(r"""<(?:script|img|iframe|source)\b[^>]*\ssrc=["']?(?:https?:)?//|"""
                     r"""<link\b[^>]*\bhref=["']?(?:https?:)?//|url\(["']?(?:https?:)?//|@import""")  # fmt: skip
_CSS = """\
.md-grid { max-width: 70rem; }
.md-typeset table:not([class]) { font-size: .7rem; }
.md-typeset code { word-break: normal; }
.md-typeset p a:not(.headerlink), .md-typeset li a, .md-typeset td a { text-decoration: underline; }
.md-tabs__link { opacity: 1; }
[data-md-color-scheme="default"] {
  --md-code-hl-comment-color: #57606a; --md-code-hl-variable-color: #36464e; --md-code-hl-number-color: #a8201a;
  --md-code-hl-string-color: #17603a; --md-code-hl-keyword-color: #2f4ba0; --md-code-hl-special-color: #9c1f57;
  --md-code-hl-constant-color: #5a34b0; --md-code-hl-function-color: #7a2f9c; --md-code-hl-name-color: #36464e;
  --md-code-hl-operator-color: #47525a; --md-code-hl-punctuation-color: #47525a; --md-code-hl-generic-color: #47525a;
}
[data-md-color-scheme="slate"][data-md-color-primary="indigo"] {
  --md-code-hl-comment-color: #aab2c0; --md-code-hl-variable-color: #d5d8e2; --md-code-hl-number-color: #ff9a94;
  --md-code-hl-string-color: #8fd6a5; --md-code-hl-keyword-color: #a5baff; --md-code-hl-special-color: #ff9ec4;
  --md-code-hl-constant-color: #c6b0ff; --md-code-hl-function-color: #dca8f2; --md-code-hl-name-color: #d5d8e2;
  --md-code-hl-operator-color: #b8bfcc; --md-code-hl-punctuation-color: #b8bfcc; --md-code-hl-generic-color: #b8bfcc;
  --md-typeset-a-color: #a5baff;
}
"""
_JS = """\
// Names and keyboard focus that the theme leaves out.
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
const scrolled = "pre > code, .md-typeset__scrollwrap";
const focusable = (each) => {
  if (each.matches(scrolled) && !each.hasAttribute("tabindex")) each.setAttribute("tabindex", "0");
};
const all = () => document.querySelectorAll(scrolled).forEach(focusable);
all();
addEventListener("load", all);
new MutationObserver((changes) => changes.forEach((change) => focusable(change.target)))
  .observe(document.body, { subtree: true, attributeFilter: ["tabindex"] });
"""


class Section(NamedTuple):
    """A part of the navigation: its title, and its pages as files of this tree, or parts within it."""

    title: str
    entries: list[Any]


def sections() -> list[Section]:
    """The navigation, as docs/README.md lists it: a part for each heading, and one within it for each named bullet."""
    found = []
    for part in (DOCS / "README.md").read_text(encoding="utf-8").split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        entries: list[Any] = []
        for block in re.split(r"\n(?=- )|\n\n", body):
            named = re.match(r"- ([^:\[]+): ", block)
            files = [file for _, link in _LISTED.findall(block) for file in _files(DOCS / link)]
            entries += [Section(named[1], files)] if named else files
        found.append(Section(title, entries))
    return found


def _files(link: Path) -> list[Path]:
    path = Path(os.path.normpath(link))
    return sorted(path.glob("*.md")) if path.is_dir() else [path]


def listed(entries: list[Any]) -> Iterator[Path]:
    """All files of a part of the navigation."""
    for entry in entries:
        yield from listed(entry.entries) if isinstance(entry, Section) else (entry,)


def staged(file: Path) -> Path:
    """The place of a file of this tree on the site: the top of docs/ is the site's, and README.md its first page."""
    within = file.relative_to(TOP)
    if within == Path("README.md"):
        return Path("index.md")
    if within == Path("docs/README.md"):
        return Path("all-pages.md")
    if within.parts[0] == "docs":
        return within.relative_to("docs")
    return Path(within.name.lower()) if len(within.parts) == 1 else within


def page(file: Path, others: set[Path]) -> str:
    """A page's text with its links as they are on the site; files that it links to and that are no page join others."""

    def moved(link: re.Match[str]) -> str:
        begin, target, anchor, end = link.groups()
        if not target or "://" in target or target.startswith("mailto:"):
            return link[0]
        there = Path(os.path.normpath(file.parent / target))
        if there.is_dir():  # a folder of pages: the first of them
            there = min(there.glob("*.md"), default=there / "README.md")
        others.add(there)
        where = os.path.relpath(staged(there), staged(file).parent)
        return f"{begin}{where}{anchor or ''}{end}"

    parts = _FENCED.split(file.read_text(encoding="utf-8"))
    return "".join(part if number % 2 else _LINK.sub(moved, part) for number, part in enumerate(parts))


def stage(folder: Path) -> list[Section]:
    """Write all pages into ``folder``, with llms.txt; returns the navigation."""
    nav = [Section("", [TOP / "README.md"]), *sections(), Section("All pages", [DOCS / "README.md"])]
    pages, others = [*listed([*nav])], set[Path]()
    shutil.rmtree(folder, ignore_errors=True)
    for file in pages:
        there = folder / staged(file)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.write_text(page(file, others), encoding="utf-8")
    for file in others - {*pages}:
        there = folder / staged(file)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, there)
    missing = {*DOCS.rglob("*.md")} - {*pages}
    if missing:
        raise SystemExit(f"docs/README.md does not list {', '.join(str(each.relative_to(TOP)) for each in missing)}")
    (folder / "site.css").write_text(_CSS)
    (folder / "site.js").write_text(_JS)
    (folder / "llms.txt").write_text("\n".join(_for_programs(nav)) + "\n", encoding="utf-8")
    return nav


def _for_programs(nav: list[Section]) -> Iterator[str]:
    """llms.txt: a heading, what this is, then each page with its first sentence."""
    first = (TOP / "README.md").read_text(encoding="utf-8").split("\n\n")[1]
    yield "# evalq\n\n> " + first.replace("\n", "\n> ")
    for part in nav[1:]:
        yield f"\n## {part.title}\n"
        for file in listed(part.entries):
            title, _, body = file.read_text(encoding="utf-8").partition("\n")
            yield f"- [{title.removeprefix('# ')}]({staged(file)}): {first_sentence(body)}"


def first_sentence(body: str) -> str:
    """The first sentence of a page's text, without links, code and tables."""
    for block in _FENCED.sub("", body).split("\n\n"):
        text = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(block.split()))
        if text and not text.startswith(("Page ", "#", "|", "- ", "[")):
            return re.split(r"(?<=[.:?]) ", text)[0]
    return ""


def _nav(entries: list[Any]) -> list[Any]:
    return [
        {entry.title: _nav(entry.entries)} if isinstance(entry, Section) else str(staged(entry)) for entry in entries
    ]


def loaded_elsewhere(site: Path) -> Iterator[str]:
    """The pages and style sheets of a built site that load something from another host."""
    for file in sorted([*site.rglob("*.html"), *site.rglob("*.css")]):
        if found := _LOADED.search(file.read_text(encoding="utf-8")):
            yield f"{file.relative_to(site)}: {found[0]}"


def main() -> int:
    """Build the site; returns an exit code."""
    nav = stage(PAGES)
    tree = [*_nav(nav[0].entries), *_nav(nav[1:])]
    own = {"INHERIT": str(DOCS / "mkdocs.yml"), "docs_dir": str(PAGES), "site_dir": str(SITE), "nav": tree}
    CONFIG.write_text(yaml.safe_dump(own, allow_unicode=True), encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--config-file", str(CONFIG)]
    if code := subprocess.run(command, check=False).returncode:  # noqa: S603 - the environment's own mkdocs
        return code
    for file in PAGES.rglob("*.md"):  # llms.txt leads to these
        shutil.copyfile(file, SITE / file.relative_to(PAGES))
    for fault in (faults := [*loaded_elsewhere(SITE)]):
        sys.stdout.write(f"{fault}: a page must load nothing from another host\n")
    sys.stdout.write(f"{len([*PAGES.rglob('*.md')])} pages: {SITE.relative_to(TOP)}/index.html\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
