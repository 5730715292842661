"""A hook of MkDocs that adds the files at the root of the repository to the site, with adjusted links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File  # type: ignore[import-not-found]  # in .venv-docs alone

_ROOT = Path(__file__).resolve().parents[1]
_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "LICENSE": "license.md",
}


def on_files(files: Any, config: Any) -> Any:  # noqa: ANN401 - MkDocs' own types
    for source, page in _PAGES.items():
        text = (_ROOT / source).read_text(encoding="utf-8")
        text = f"# Licence\n\n```text\n{text}```\n" if source == "LICENSE" else re.sub(r"\]\(([^)]+)\)", _mended, text)
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:  # noqa: ANN401 - MkDocs' own types
    """Remove the backslashes before bars in the code of tables, which GitHub needs and MkDocs shows."""
    lines = (
        re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), line) if line.startswith("|") else line
        for line in markdown.splitlines()
    )
    return "\n".join(lines)


def _mended(link: re.Match[str]) -> str:
    path, hash_, anchor = link[1].partition("#")
    return f"]({_PAGES.get(path, path.removeprefix('docs/'))}{hash_}{anchor})"
