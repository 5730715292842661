"""A message about a missing package says how to install it, and never names a package of ours on an index."""

import importlib.metadata
import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from infra.program import APPLICATION
from reelabel.optional import install_command

ROOT = Path(__file__).parents[2]
PIP = [sys.executable, "-m", "pip", "install"]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Install what looks like our distributions, with what pip records of where they are from."""

    def install(**origins):
        for name, origin in origins.items():
            info = tmp_path / f"{name}-0.1.0.dist-info"
            info.mkdir()
            packages = (
                "Requires-Dist: ray>=2\nRequires-Dist: av<19,>=18; extra == 'ray'\nRequires-Dist: x; extra == 'xray'\n"
            )
            (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 0.1.0\n{packages}")
            if origin:
                (info / "direct_url.json").write_text(json.dumps(origin))
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        importlib.metadata.MetadataPathFinder().invalidate_caches()

    return install


def folder(path, **info):
    return {"url": f"file://{path}", "dir_info": info}


def test_an_extra_of_a_checkout_is_installed_from_its_folders(installed):
    installed(reelabel=folder("/my%20code/reelabel"), reelabel_app=folder("/my%20code", editable=True))

    assert shlex.split(install_command("ray")) == [*PIP, "/my code/reelabel[ray]"]
    words = ["/my code/reelabel", "--editable", "/my code[ray]"]
    assert shlex.split(install_command("ray", of=APPLICATION)) == [*PIP, *words]


@pytest.mark.parametrize("origin", [None, {"url": "file:///reelabel-0.1.0-py3-none-any.whl", "archive_info": {}}])
def test_an_extra_of_a_wheel_is_installed_by_the_names_of_its_packages(installed, origin):
    installed(reelabel=origin, reelabel_app=origin)

    assert shlex.split(install_command("ray", of=APPLICATION)) == [*PIP, "av<19,>=18"]
    assert shlex.split(install_command("ray", of=APPLICATION, again=True)) == [*PIP, "--force-reinstall", "av<19,>=18"]


def test_no_message_names_a_package_of_ours_to_pip():
    files = [
        path for folder in ("reelabel", "engine", "flows", "tasks", "infra") for path in (ROOT / folder).rglob("*.py")
    ]
    named = re.compile(r"install[^\n]*reelabel(-app|-engine)?[\['`]")

    assert len(files) > 300
    assert [path for path in files if named.search(path.read_text())] == []
