"""The documentation refers only to existing links, anchors, commands, options, benchmarks, paths and settings."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup

import infra.errors
import reelabel.errors
import reelabel_engine.errors
from benchmarks.__main__ import app as benchmarks_app
from flows.cli.main import app
from infra.settings import Settings
from infra.settings.types import fields_of
from reelabel.errors import JobError

# Typer keeps it private.
UsageError = typer.BadParameter.__base__
ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
# Variables of single processes, which are not settings.
OUTSIDE_SETTINGS = {
    "REELABEL_BIND",
    "REELABEL_CONFIG",
    "REELABEL_SECRETS_DIR",
    "REELABEL_LOADER_NETWORKS",
    "REELABEL_LOADER_PROCESSES",
    "REELABEL_LOADER_SANDBOX",
}
QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
# Files that the reader of docs/extending.md is told to write.
EXAMPLES = {"reelabel/sampling/every_nth.py"}
# Options of vLLM, Docker and `make chaos`.
FOREIGN_OPTIONS = {
    "--allowed-media-domains",
    "--api-key",
    "--build-arg",
    "--enable-prompt-tokens-details",
    "--faults",
    "--limit-mm-per-prompt",
    "--media-io-kwargs",
    "--record",
    "--structured-outputs-config",
    "--trust-request-mm-kwargs",
}


def page_id(page):
    return page.relative_to(ROOT).as_posix()


each_page = pytest.mark.parametrize("page", PAGES, ids=page_id)


def code_of(page):
    """Yield the lines of code blocks, with continuations joined, and inline code."""
    text = page.read_text().replace("\\\n", " ")
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    without = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (line for block in blocks for line in block.splitlines())
    yield from (code.replace("\n", " ") for code in re.findall(r"`([^`]+)`", without))


def calls(page, program):
    """Yield the arguments of each call of `program`, up to a comment, a pipe, a redirection, or the end of the code."""
    pattern = rf"(?:^|[|&]\s*)(?:\w+=\S+\s+)*(?:\S*/)?{program}((?: .*)?)$"
    for code in code_of(page):
        found = re.search(pattern, code)
        if found:
            lexer = shlex.shlex(found[1], posix=True, punctuation_chars="|&;>")
            lexer.whitespace_split = True
            words = []
            for word in lexer:
                if set(word) <= set("|&;>"):
                    break
                words.append(word)
            yield words, code


@cache
def command_of(name):
    return typer.main.get_command({"reelabel": app, "benchmarks": benchmarks_app}[name])


def faults_of(words, command):
    """Return why this is not a valid call of the command; None if it is."""
    while isinstance(command, TyperGroup) and words and not words[0].startswith("-"):
        if not (found := command.get_command(typer.Context(command), words[0])):
            return f"no command {words[0]}"
        command, words = found, words[1:]
    if isinstance(command, TyperGroup):
        return (
            None
            if not words or {"--help", "--version"} & {*words}
            else f"an option of {command.name} before its command"
        )
    context = typer.Context(command)
    try:
        _, left, _ = command.make_parser(context).parse_args(list(words))
    except UsageError as error:
        return error.format_message()
    return f"unexpected arguments {' '.join(left)}" if left and "--help" not in words else None


def anchors(page):
    titles = re.findall(r"^#+ (.+)$", page.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_readme_links_every_page():
    text = (ROOT / "README.md").read_text()

    assert [page.name for page in PAGES if page.parent == ROOT / "docs" and f"](docs/{page.name}" not in text] == []


def test_the_site_has_every_page():
    listed = re.findall(r": ([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), flags=re.MULTILINE)

    assert {page.name for page in PAGES if page.parent == ROOT / "docs"} <= {*listed}
    assert len({*listed}) == len(listed)


def test_every_file_that_states_the_version_has_the_same():
    files = [ROOT / "pyproject.toml", *ROOT.glob("*/pyproject.toml"), ROOT / "CITATION.cff", ROOT / "compose.yaml"]
    files += [*ROOT.glob("infra/kubernetes/*.yaml"), ROOT / "docs/deployment.md"]
    stated = r'^version(?: = "|: )([\d.]+)|"reelabel\S*==([\d.]+)|\breelabel-(?:cpu|gpu|ray):([\d.]+)|newTag: ([\d.]+)'
    found = {path: {*re.findall(stated, path.read_text(), flags=re.MULTILINE)} for path in files}
    versions = {"".join(match) for matches in found.values() for match in matches}

    assert len([path for path, matches in found.items() if matches]) == 9
    assert len(versions) == 1, found


def test_the_tree_of_the_architecture_names_every_folder():
    text = (ROOT / "docs/architecture.md").read_text()
    rooms = [folder.parent for root in ("reelabel", "flows", "tasks") for folder in (ROOT / root).glob("*/__init__.py")]

    assert [room.name for room in rooms if not re.search(rf"^ +{room.name}/", text, flags=re.MULTILINE)] == []


def test_every_benchmark_is_described():
    text = "".join(page.read_text() for page in PAGES)

    assert [name for name in command_of("benchmarks").commands if f"python -m benchmarks {name}" not in text] == []


def test_every_code_of_a_failed_job_is_explained():
    kinds = [*vars(reelabel.errors).values(), *vars(reelabel_engine.errors).values(), *vars(infra.errors).values()]
    codes = {kind.code for kind in kinds if isinstance(kind, type) and issubclass(kind, JobError)}
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs/troubleshooting.md").read_text(), flags=re.MULTILINE)

    # Those of base classes are never raised.
    assert codes - {"job_error", "video_error", "prompt_error"} <= set(re.findall(r"`(\w+)`", "".join(rows)))


@each_page
def test_relative_links_resolve(page):
    links = re.findall(r"\]\((?!https?:)([^)\s]*)\)", page.read_text())

    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@each_page
def test_commands_exist_with_their_options(page):
    for words, code in calls(page, "reelabel"):
        assert not faults_of(words, command_of("reelabel")), code


@each_page
def test_benchmarks_exist_with_their_options(page):
    for words, code in calls(page, "python -m benchmarks"):
        if words != ["NAME"]:
            assert not faults_of(words, command_of("benchmarks")), code


@each_page
def test_options_mentioned_without_a_command_exist(page):
    named = {
        option
        for code in code_of(page)
        if code.startswith("--")
        for option in re.findall(r"(?:^|\s)(--[a-z][a-z-]+)", QUOTED.sub("", code))
    }

    assert named <= all_options() | FOREIGN_OPTIONS, page_id(page)


@cache
def all_options():
    def walk(command):
        if isinstance(command, TyperGroup):
            context = typer.Context(command)
            for name in command.list_commands(context):
                yield from walk(command.get_command(context, name))
        yield from (name for option in command.params for name in (*option.opts, *option.secondary_opts))

    return {*walk(command_of("reelabel")), *walk(command_of("benchmarks")), "--help"}


@each_page
def test_paths_of_the_tree_exist(page):
    folders = "reelabel|flows|tasks|infra|sql|benchmarks|tools|tests|requirements"
    named = re.findall(rf"`((?:{folders})/[\w./-]+)`", page.read_text())

    roots = [ROOT, ROOT / "tests"] if page.name == "testing.md" else [ROOT]
    assert [path for path in named if not any((root / path).exists() for root in roots) and path not in EXAMPLES] == []


def test_the_table_of_tests_names_existing_folders():
    text = (ROOT / "docs/testing.md").read_text()
    rows = "".join(re.findall(r"^\| .*\|$", text, flags=re.MULTILINE))
    named = [path for path in re.findall(r"`([\w/]+/)`", rows) if "tests/" not in path]

    assert len(named) > 15
    assert [path for path in named if not (ROOT / "tests" / path).is_dir()] == []


@each_page
def test_imported_modules_exist(page):
    named = re.findall(
        r"^from ((?:reelabel|flows|tasks|infra)(?:\.[\w.]+)?) import", page.read_text(), flags=re.MULTILINE
    )
    named += re.findall(r"python -m (tools[\w.]*)", page.read_text())

    for module in named:
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__init__.py").exists(), module


@each_page
def test_settings_exist(page):
    text = page.read_text()
    sections = Settings.model_fields
    variables = {f"REELABEL_{name}".upper() for name in sections} | OUTSIDE_SETTINGS
    dotted = set()
    for section, field in sections.items():
        for name in fields_of(field.annotation):
            variables.add(f"REELABEL_{section}_{name}".upper())
            dotted.add(f"{section}.{name}")
    named = {name for name in re.findall(r"\bREELABEL_\w+", text) if not name.endswith("_")}
    in_code = re.findall(r"`(\w+\.\w+)(?: = [^`]*)?`", text)

    assert named <= variables
    assert {name for name in in_code if name.split(".")[0] in sections} <= dotted
