"""Faults that tests are to notice are small, valid, and tried in a copy."""

import ast
from pathlib import Path

import pytest

from tests.wait import until
from tools.mutants import ROOT, Mutant, choose, copy_checkout, find_mutants, find_tests, is_noticed

SOURCE = '''"""Text."""
if TYPE_CHECKING:
    limit = 1


def show(frames: int = 3, *, wanted: bool = True) -> str:
    """Text, and 1 more."""
    assert frames > 0
    _LOG.info("%s", 1)
    for each, _ in zip(range(frames), field(repr=False, init=False), strict=True):
        if each and (wanted
                     or each >= 7):
            continue
        close(each)
    if not wanted:
        raise ValueError(1)
    return f"é{frames}" if is_open(frames) else ""
'''


def test_faults_are_written_where_code_decides_or_does_something():
    changes = [(one.line, one.before, one.after) for one in find_mutants("show.py", SOURCE)]

    assert changes == [
        (6, "3", "(3 + 1)"),
        (6, "True", "False"),
        (10, "False", "True"),
        (11, "and", "or"),
        (12, "or", "and"),
        (12, ">=", ">"),
        (12, "7", "(7 + 1)"),
        (13, "continue", "break"),
        (14, "close(each)", "pass"),
        (15, "not wanted", "(not (not wanted))"),
        (17, 'f"é{frames}" if is_open(frames) else ""', "None"),
        (17, "is_open(frames)", "(not (is_open(frames)))"),
    ]


def test_a_file_with_a_fault_is_still_python():
    for mutant in choose(200, seed=1, rooms=("reelabel/containers", "infra")):
        source = (ROOT / mutant.file).read_bytes()
        changed = mutant.applied(source)
        assert changed != source
        ast.parse(changed)


def test_the_same_seed_chooses_the_same_faults():
    first, again, other = (choose(5, seed=seed, rooms=("infra",)) for seed in (2, 2, 3))

    assert first == again != other


@pytest.mark.parametrize(
    ("file", "first", "folder", "above"),
    [
        ("tasks/search/duplicates.py", "search/test_duplicates.py", "search", None),
        ("engine/reelabel_engine/protocol.py", "engine/test_protocol.py", "engine", None),
        ("tasks/relevance.py", "relevance/test_choice.py", "relevance", None),
        ("flows/run/progress.py", "flows/run/test_progress.py", "flows/run", "flows/test_describe.py"),
        (
            "reelabel/containers/mp4.py",
            "reelabel/containers/test_formats.py",
            "reelabel/containers",
            "reelabel/test_extract.py",
        ),
    ],
)
def test_first_come_tests_that_import_a_file_then_its_room_then_those_above(file, first, folder, above):
    near, room, *others = find_tests(file, ROOT / "tests")

    assert ROOT / "tests" / first in near
    assert room == [ROOT / "tests" / folder]
    assert [above is not None] == [ROOT / "tests" / above in each for each in others] if above else not others


@pytest.mark.system
def test_a_fault_is_noticed_by_the_tests_beside_it_and_a_harmless_one_is_not(tmp_path):
    copy_checkout(tmp_path)
    file = "tasks/search/codes.py"
    source = (ROOT / file).read_bytes()
    first = next(one for one in find_mutants(file, source.decode()) if one.after == "None")
    passing = {}

    assert is_noticed(first, tmp_path, passing)
    assert not is_noticed(Mutant(file, 1, '"""', '"""Text. ', 0), tmp_path, passing)
    assert (tmp_path / file).read_bytes() == source
    assert set(passing.values()) == {True}


@pytest.fixture
def small_copy(tmp_path):
    """Make a checkout of one module, `slow`, and one file of tests."""

    def make(test):
        (tmp_path / ".venv").symlink_to(ROOT / ".venv")
        (tmp_path / "slow.py").write_text("WAIT_S = 0\n")
        (tmp_path / "tests").mkdir()
        (tmp_path / "tests/test_slow.py").write_text(f"import subprocess\nfrom slow import WAIT_S\n\n{test}\n")
        return tmp_path

    return make


@pytest.mark.system
@pytest.mark.parametrize(
    ("after", "is_passing", "noticed"),
    [("= 0", "True", False), ("= 1", "True", True), ("= 1", "False", False), ("= 1 / 0", "True", True)],
)
def test_a_fault_is_noticed_by_tests_that_pass_without_it(small_copy, after, is_passing, noticed):
    copy, passing = small_copy(f"def test_it(): assert WAIT_S == 0 and {is_passing}"), {}

    assert is_noticed(Mutant("slow.py", 1, "= 0", after, 7), copy, passing) == noticed
    assert passing == {("tests/test_slow.py",): is_passing == "True"}


@pytest.mark.system
def test_tests_that_do_not_end_notice_a_fault_and_are_killed_with_what_they_started(small_copy, monkeypatch):
    monkeypatch.setattr("tools.mutants._TIMEOUT_S", 8)
    copy = small_copy("""
def test_it():
    child = subprocess.Popen(["sleep", str(WAIT_S)])
    open("pid", "w").write(str(child.pid))
    child.wait()
""")

    assert is_noticed(Mutant("slow.py", 1, "0", "60", 9), copy, {})
    executable = Path("/proc", (copy / "pid").read_text(), "exe")
    until(lambda: not executable.exists())
