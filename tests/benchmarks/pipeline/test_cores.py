import os
import subprocess
import sys
import time

import pytest

from benchmarks.cores import Cores, CpuUtilization, descendants, engine_binding

PARENT = (
    "import subprocess, sys, time\n"
    "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
    "print('ready', flush=True)\n"
    "time.sleep(60)\n"
)


@pytest.fixture
def cores():
    """The two sides, one core of this machine's each; the same one where there is but one."""
    available = sorted(os.sched_getaffinity(0))
    return Cores(engine=frozenset(available[:1]), host=frozenset(available[-1:]))


@pytest.fixture
def parent():
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, start_new_session=True)
    process.stdout.readline()
    yield process
    for pid in descendants(process.pid):
        os.kill(pid, 9)
    process.kill()
    process.wait()
    process.stdout.close()


def test_an_engine_stays_on_its_cores_and_its_children_on_the_hosts(parent, cores):
    with engine_binding(parent.pid, cores):
        [child] = descendants(parent.pid)

        assert os.sched_getaffinity(parent.pid) == cores.engine
        assert os.sched_getaffinity(child) == cores.host


def test_without_cores_nothing_is_pinned(parent):
    before = os.sched_getaffinity(parent.pid)

    with engine_binding(parent.pid, Cores()):
        assert os.sched_getaffinity(parent.pid) == before


def test_busy_shares_cover_the_interval_alone(cores):
    with CpuUtilization(cores) as utilization:
        began_s = time.time()
        time.sleep(1)
        share = utilization.engine(began_s, time.time())

    assert 0 <= share <= 1
    assert utilization.engine(began_s - 10, began_s - 9) is None
