import os

import pytest

from reelabel.cores import usable_cores


@pytest.fixture(autouse=True)
def _node_with_64_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))


@pytest.fixture
def system(tmp_path):
    """Write the files of the kernel's view of a container, by path; return their root."""

    def write(files):
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text + "\n")
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "400000 100000"}, 4),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "150000 100000"}, 2),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "10000 100000"}, 1),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "max 100000"}, 64),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "12800000 100000"}, 64),
        ({"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": "nonsense"}, 64),
        ({"proc/self/cgroup": "0::/"}, 64),
        ({}, 64),
    ],
)
def test_the_quota_of_a_cgroups_2_container_holds(system, files, cores):
    assert usable_cores(system(files)) == cores


def test_the_smallest_quota_of_the_parent_groups_holds(system):
    root = system(
        {
            "proc/self/cgroup": "0::/pods.slice/one/main",
            "sys/fs/cgroup/pods.slice/one/main/cpu.max": "max 100000",
            "sys/fs/cgroup/pods.slice/one/cpu.max": "300000 100000",
            "sys/fs/cgroup/pods.slice/cpu.max": "3200000 100000",
            "sys/fs/cgroup/cgroup.controllers": "cpu memory",
        }
    )

    assert usable_cores(root) == 3


@pytest.mark.parametrize("path", ["/", "/kubepods/pod1/unseen", "/../../outside"])
@pytest.mark.parametrize(("quota", "cores"), [("250000", 3), ("-1", 64)])
def test_the_quota_of_a_cgroups_1_container_holds(system, path, quota, cores):
    root = system(
        {
            "proc/self/cgroup": f"3:memory:/pod\n2:cpu,cpuacct:{path}\n0::/",
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": quota,
            "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000",
        }
    )

    assert usable_cores(root) == cores
