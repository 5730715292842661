"""Faults that tests are to notice are small, valid, and tried in a copy."""

import ast
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.wait import until
from tools.mutants.__main__ import Outcome, as_table, find_tests
from tools.mutants.faults import ROOT, Mutant, choose, find_mutants

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
def test_tests_that_import_a_file_come_first_then_those_of_its_room_then_those_above(file, first, folder, above):
    near, *others = find_tests(file, ROOT)
    found = {*near, *itertools.chain.from_iterable(others)}

    assert f"tests/{first}" in near
    beside = {str(path.relative_to(ROOT)) for path in (ROOT / "tests" / folder).rglob("test_*.py")}
    assert {*near} <= beside <= found
    assert above is None or f"tests/{above}" in found - beside


def test_what_has_the_name_of_a_file_comes_before_what_else_imports_it():
    assert find_tests("tasks/search/duplicates.py", ROOT)[0][0] == "tests/search/test_duplicates.py"


def test_tests_elsewhere_that_use_a_file_by_a_module_of_tests_come_last():
    *_, elsewhere = find_tests("tasks/embedding/video.py", ROOT)

    assert "tests/description/test_describer.py" in elsewhere  # by tests/description/colours.py


def test_a_table_counts_what_was_noticed_in_each_room():
    results = {"infra/logs.py": ["noticed", "out of time"], "reelabel/decode/one.py": ["noticed", "noticed", "MISSED"]}
    tried = [Outcome(Mutant(file, 1, "0", "1", 0), each, None, [], 1) for file in results for each in results[file]]

    assert as_table(tried).splitlines()[2:] == [
        "| infra | 2 | 50% | 0 | 1 |",
        "| reelabel/decode | 3 | 67% | 1 | 0 |",
        "| all | 5 | 60% | 1 | 1 |",
    ]


# Of a checkout with one module and one file of tests. The fault is tried in a fork, as of a process without threads.
_ATTEMPT = """
import sys
from pathlib import Path
from tools.mutants.__main__ import Trials
from tools.mutants.faults import Mutant
from tools.mutants.sessions import Checkout

outcome = Trials(Checkout(Path(sys.argv[1])), 30).attempt(Mutant("slow.py", 1, "0", sys.argv[2], 9))
print(outcome.result, outcome.test, outcome.left_out)
"""
_TEST = "tests/test_slow.py::test_it"


def attempt(folder, after, test):
    checkout = folder / "checkout"
    (checkout / "tests").mkdir(parents=True)
    (checkout / "slow.py").write_text("WAIT_S = 0\n")
    (checkout / "tests/test_slow.py").write_text(f"import subprocess, time\nfrom slow import WAIT_S\n\n{test}\n")
    command = [sys.executable, "-c", _ATTEMPT, folder, after]
    printed = subprocess.check_output(command, cwd=ROOT, text=True)
    assert (checkout / "slow.py").read_text() == "WAIT_S = 0\n"
    return printed.strip()


@pytest.mark.system
@pytest.mark.parametrize(
    ("after", "test", "outcome"),
    [
        pytest.param("0 ", "assert WAIT_S == 0", "MISSED None []", id="passes"),
        pytest.param("1", "assert WAIT_S == 0", f"noticed {_TEST} []", id="fails"),
        pytest.param("1", "assert WAIT_S == 9", f"MISSED None ['{_TEST}']", id="fails also without the fault"),
        pytest.param("1 / 0", "pass", "noticed None []", id="cannot be imported"),
        pytest.param("0 ", "time.sleep(40)", "out of time None []", id="slow also without the fault"),
    ],
)
def test_a_fault_is_noticed_by_a_test_that_passes_without_it(tmp_path, after, test, outcome):
    assert attempt(tmp_path, after, f"def test_it(): {test}") == outcome


@pytest.mark.system
def test_a_test_that_does_not_end_notices_a_fault_and_is_killed_with_what_it_started(tmp_path):
    test = """
def test_it():
    child = subprocess.Popen(["sleep", str(WAIT_S)])
    open("../pids", "a").write(f"{child.pid}\\n")
    child.wait()
"""

    assert attempt(tmp_path, "60", test) == f"noticed {_TEST} []"
    pids = (tmp_path / "pids").read_text().split()
    until(lambda: not any(Path("/proc", pid, "exe").exists() for pid in pids))


@pytest.mark.system
def test_a_series_ends_with_a_table_and_goes_on_from_the_outcomes_it_has_but_what_it_is_to_try_again(tmp_path):
    kept = tmp_path / "outcomes.jsonl"
    command = [sys.executable, "-m", "tools.mutants", "--room", "tasks/search/codes.py", "--processes", "1"]
    command += ["--outcomes", kept]

    first = subprocess.check_output([*command, "--count", "1"], cwd=ROOT, text=True)
    [line] = kept.read_text().splitlines()
    again = subprocess.check_output([*command, "--count", "1"], cwd=ROOT, text=True)

    assert "| tasks/search | 1 | 100% | 0 | 0 |" in first
    assert json.loads(line)["test"].startswith("tests/search/")
    assert first.endswith(again)
    assert kept.read_text() == f"{line}\n"

    kept.write_text(line.replace('"noticed"', '"MISSED"') + "\n")
    retried = subprocess.check_output([*command, "--count", "1", "--again"], cwd=ROOT, text=True)
    assert "| tasks/search | 1 | 100% | 0 | 0 |" in retried
