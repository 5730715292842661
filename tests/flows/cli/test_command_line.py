"""Errors are one sentence with the right exit code, and never a traceback."""

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path

import polars as pl
import pytest
import typer
from click.testing import CliRunner
from prefect.client.orchestration import get_client
from sqlalchemy import select
from typer.main import get_command

from flows.cli.command_group import ReelabelGroup
from flows.cli.main import COMMANDS, app
from infra.database.connect import connected
from infra.embedded import export
from infra.processes import free_port
from infra.settings import Settings
from infra.settings.types import fields_of
from reelabel.sampling.registry import samplers
from tasks.database.tables import RUN
from tests.command_line import reelabel, reelabel_process
from tests.wait import until

CLOSED = f"127.0.0.1:{free_port()}"


SETTINGS = {"COLUMNS": "80"}


@pytest.fixture(scope="module")
def environment(own_environment, services):
    return own_environment | {"REELABEL_HOME": str(services.home)} | SETTINGS


@pytest.fixture(scope="module")
def by_server(served):
    return served | SETTINGS


@pytest.fixture
def manifest(tmp_path):
    path = tmp_path / "m.parquet"
    rows = {"job_id": ["x[/b]"], "video_uri": ["/no/[/red]/clip.mp4"], "prompt": ["?"], "choices": [["yes", "no"]]}
    pl.DataFrame(rows).write_parquet(path)
    return str(path)


@pytest.fixture
def endless(manifest):
    """A manifest whose video comes from a server that never answers, so that a run does not end by itself."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(300)
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}/clip.mp4"
        pl.read_parquet(manifest).with_columns(video_uri=pl.lit(uri)).write_parquet(manifest)
        yield manifest, silent


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"REELABEL_PREFECT_API_URL": f"http://{CLOSED}/api"}, "does not answer"),
        ({"REELABEL_PREFECT_API_URL": f"http://me:hunter2@{CLOSED}/api"}, f"http://{CLOSED}/api does not answer"),
        ({"REELABEL_PREFECT_API_URL": "garbage"}, "expected: The address of Prefect's API, http://host:port/api"),
        ({"REELABEL_PREFECT_AUTH_STRING": "me:hunter2"}, "refuses the login (HTTP 401)"),
        ({"REELABEL_DATABASE_URL": f"postgresql://me:hunter2@{CLOSED}/db"}, "Postgres failed"),
        ({"REELABEL_STORE_ENDPOINT_URL": f"http://{CLOSED}"}, "cannot be used"),
        ({"REELABEL_STORE_URI": "file:///proc/nope"}, "store.uri file:///proc/nope cannot be used"),
        ({"REELABEL_STORE_URI": "s3://no-such-bucket/x"}, "no-such-bucket"),
        ({"REELABEL_STORE_SECRET_ACCESS_KEY": "wrong"}, "configuration"),
        ({"REELABEL_MODEL_TEMPLATE": "Say yes."}, "model.template"),
        ({"REELABEL_MODEL_TEMPLATE": "{prompt:d} {choices}"}, "placeholders cannot have ! or :"),
        ({"REELABEL_DATABSE_URL": "x"}, "did you mean REELABEL_DATABASE_URL?"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_service_or_setting_is_explained(environment, manifest, changed, message):
    completed = reelabel(environment | {"REELABEL_STORE_MAX_ATTEMPTS": "1"} | changed, "classify", manifest)

    assert completed.returncode == 2
    assert message in completed.stderr
    assert completed.stdout == ""
    assert "hunter2" not in completed.stdout + completed.stderr


def test_a_wrong_password_is_explained(environment, manifest):
    user, _, host = environment["REELABEL_DATABASE_URL"].rpartition("@")
    wrong = f"{user.rpartition(':')[0]}:hunter2@{host}"

    completed = reelabel(environment | {"REELABEL_DATABASE_URL": wrong}, "classify", manifest)

    assert completed.returncode == 2
    assert "password" in completed.stderr
    assert "hunter2" not in completed.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["classify", ""], 2, "No manifest given"),
        (["backfill", "--ids-file", "/no/ids.txt"], 2, "Cannot read /no/ids.txt: No such file or directory."),
        (["demo", "--clips", "5"], 2, "Invalid value for '--clips': 5 must be at least 24."),
        (["demo", "--clips", "many"], 2, "Invalid value for '--clips': many must be a whole number."),
        (["classify", "/no/[/red]m.parquet"], 2, "/no/[/red]m.parquet"),
        (["classify", __file__], 2, "manifest_invalid"),
        (["manifest", "check", __file__], 2, "manifest_invalid"),
        (["frames", "/no/[/red]x.mp4"], 1, "video_missing: There is no video at /no/[/red]x.mp4"),
        (["frames", __file__], 1, "video_unreadable"),
        (["frames", "s3:/bucket/x.mp4"], 1, "no video at s3:/bucket/x.mp4; check the path or URI."),
        (["frames", "htps://host/x.mp4"], 1, "video_refused: htps://host/x.mp4 has an unknown scheme; use s3://"),
        (["manifest", "check", __file__, __file__], 2, "'jobs/*.parquet'."),
        (["manifest", "check", "s3:/b/x.parquet"], 2, "no manifest file at s3:/b/x.parquet; to use all"),
        (["frames", "/usr/bin/"], 1, "video_missing: /usr/bin/ is a folder, not a video; name a file in it."),
        (["frames", __file__, "--npz", "/no/folder/x.npz"], 2, "folder /no/folder does not exist"),
        (["frames", __file__, "--sheet", "x.foo"], 2, "is not an image file"),
        (["frames", __file__, "--sampler", "unifrom"], 2, "Unknown sampler unifrom; did you mean uniform?"),
        (["frames", __file__, "--all", "--sampler", "uniform"], 2, "--all takes every keyframe and cannot be combined"),
        (["frames", __file__, "--fps", "2"], 2, "the sampler keyframes takes no fps; leave it out, or choose"),
        (["frames", __file__, "--start-s", "inf"], 2, "--start-s and --end-s must be finite; leave out --end-s"),
        (["frames", __file__, "--end-s", "inf"], 2, "--start-s and --end-s must be finite; leave out --end-s"),
        (["classify", "{manifest}", "--fps", "2"], 2, "the sampler keyframes takes no fps"),
        (["backfill", "--failed", "--drop-similar", "2"], 2, "--drop-similar 2.0: must be less than 1"),
        (["classify", "{manifest}", "--template", "Say yes."], 2, "--template Say yes.: it must contain"),
        (["manifest", "import", __file__, "/no/folder/x.parquet"], 2, "folder /no/folder does not exist"),
        (["classify", __file__, "--dataset", "d" * 201], 2, ": must have at most 200 characters"),
        (["classify", "{manifest}", "--model", "no/such-model"], 2, "Cannot reach or find model no/such-model"),
        (["calibrate", "{manifest}"], 2, "m.parquet has been started; start one with `reelabel classify`"),
        (["results", "--format", "xml"], 2, "use table, json, csv or parquet"),
        (["backfill"], 2, "No jobs selected"),
        (["catch-up", "--since", "0001-01-01"], 2, "--since 0001-01-01 is not a date since 1970; write it as"),
        (["catch-up", "--since", "2026-11-01", "--until", "tomorrow"], 2, "--until tomorrow is not a date since 1970"),
        (["catch-up", "--since", "2026-11-02", "--until", "2026-11-01"], 2, "2026-11-01 is before --since 2026-11-02;"),
        (["cache", "gc"], 2, "No limit given"),
        (["cache", "gc", "--older-than", ""], 2, "is not an age; use m, h, d or w"),
        (["cache", "gc", "--older-than", "9999999d"], 2, "--older-than 9999999d is before the year 1"),
        (["cache", "gc", "--older-than", f"{'9' * 5000}d"], 2, "9d is before the year 1; use a shorter age."),
        *(
            (["cache", "gc", "--max-bytes", size], 2, f"{size} is not a size")
            for size in ("1,000,000,000", "5G-oops", "8bit")
        ),
        (["down"], 2, "Another command is using the services"),
        (["nothing"], 2, "No such command"),
        (["clasify"], 2, "No such command 'clasify'. Did you mean 'classify'?"),
    ],
    ids=lambda value: "-".join(value[:2]).replace("/", ".") if isinstance(value, list) else "",
)
def test_a_wrong_argument_is_a_usage_error(environment, manifest, arguments, code, message):
    completed = reelabel(environment, *[argument.format(manifest=manifest) for argument in arguments])

    assert completed.returncode == code, completed.stderr
    assert message in completed.stderr
    assert completed.stdout == ""


@pytest.mark.system
@pytest.mark.parametrize(
    ("changed", "arguments", "code", "message"),
    [
        ({"REELABEL_PREFECT_API_URL": f"http://me:hunter2@{CLOSED}/api"}, ["classify", "{manifest}"], 2, "not answer"),
        (
            {"PREFECT_API_REQUEST_TIMEOUT": "soon"},
            ["classify", "{manifest}"],
            2,
            "TIMEOUT: 'soon' must be a number; corr",
        ),
        ({"ALL_PROXY": "socks5://x:1"}, ["frames", "x.mp4"], 1, "ALL_PROXY: SOCKS proxies are not used without the "),
        ({}, ["frames", "/no/[/red]x.mp4"], 1, "video_missing: There is no video at /no/[/red]x.mp4"),
        ({}, ["nothing"], 2, "No such command"),
    ],
    ids=["a service", "Prefect's settings", "a SOCKS proxy", "a job's error", "a command"],
)
def test_a_real_process_prints_the_same(environment, manifest, changed, arguments, code, message):
    completed = reelabel_process(environment | changed, *[argument.format(manifest=manifest) for argument in arguments])

    assert completed.returncode == code
    assert message in completed.stderr
    assert completed.stdout == ""
    assert "hunter2" not in completed.stderr


def test_text_in_brackets_is_printed_unchanged(by_server, manifest):
    completed = reelabel(by_server, "classify", manifest, "--dataset", "brackets")
    shown = reelabel(by_server, "results", "last")

    assert completed.returncode == 1
    assert "Reconciled: 1 job = 0 labels + 1 failure." in completed.stdout
    assert "x[/b]" in completed.stdout
    assert "There is no video at /no/[/red]/clip.mp4" in shown.stdout


def test_indistinguishable_choices_are_counted_before_anything_is_asked(by_server, tmp_path):
    rows = {"job_id": ["a", "b"], "video_uri": ["/no/clip.mp4"] * 2, "prompt": ["?"] * 2}
    choices = [["yes", "no"], ["yes", "yes, always"]]
    pl.DataFrame(rows | {"choices": choices}).write_parquet(tmp_path / "twins.parquet")

    completed = reelabel(by_server, "classify", str(tmp_path / "twins.parquet"), "--choice-scoring", "text")

    message = (
        "1 of 2 jobs has choices that a single token cannot tell apart (for example b): Choices 'yes' and 'yes, always'"
    )
    assert completed.stdout.startswith(message)
    assert "Reconciled: 2 jobs = 0 labels + 2 failures." in completed.stdout


def runs_of(settings, dataset):
    """Ids of a dataset's runs: others may start runs of their own in the same database."""
    with connected(settings.database) as db, db.connect() as connection:
        return {*connection.execute(select(RUN.c.run_id).where(RUN.c.dataset == dataset)).scalars()}


@pytest.mark.system
@pytest.mark.xdist_group("prefect")
@pytest.mark.usefixtures("prefect_api")
@pytest.mark.parametrize(
    ("arguments", "dataset"),
    [
        pytest.param(["classify", "{manifest}", "--dataset", "stopped", "--force"], "stopped", id="in this process"),
        pytest.param(["describe", "{manifest}", "--dataset", "undescribed"], "undescribed", id="that describes"),
        pytest.param(
            ["backfill", "--missing", "--manifest", "{manifest}", "--dataset", "unanswered"],
            "unanswered",
            id="of a backfill",
        ),
        pytest.param(["demo", "--clips", "24"], "demo", id="by a worker that continues"),
    ],
)
def test_ctrl_c_cancels_the_run_and_says_so(prefect_services, endless, tmp_path, arguments, dataset):
    manifest, silent = endless
    environment = os.environ | export(prefect_services) | SETTINGS | {"REELABEL_WEB_ALLOW_NETWORKS": '["127.0.0.1/32"]'}
    earlier = runs_of(prefect_services, dataset)
    process = start(environment | {"TMPDIR": str(tmp_path)}, *(each.format(manifest=manifest) for each in arguments))
    [run_id] = until(lambda: runs_of(prefect_services, dataset) - earlier, 120)
    with silent.accept()[0] if "{manifest}" in arguments else nullcontext():  # a thread waits for the video
        os.killpg(process.pid, signal.SIGINT)
        _, stderr = process.communicate(timeout=300)

    assert process.returncode == 130, stderr
    assert re.fullmatch(
        r"Stopped( with 0 of [\d,]+ jobs? done; r|\. R)un the same command again to continue\.", stderr.strip()
    )
    with get_client(sync_client=True) as client:  # a process that is ended by force leaves it running
        assert client.read_flow_run(run_id).state.is_cancelled()
    assert "This run is cancelled: Stopped by the user." in reelabel(environment, "results", str(run_id)).stdout
    assert list(tmp_path.glob("reelabel-*")) == []


@pytest.mark.system
@pytest.mark.parametrize(
    ("arguments", "server"),
    [
        pytest.param(["survey", "{manifest}"], {}, id="survey"),
        pytest.param(
            ["import", "s3://bucket/videos", "jobs.parquet", "--layout", "folder", "--prompt", "?", "--choices", "a|b"],
            {"REELABEL_STORE_ENDPOINT_URL": "http://127.0.0.1:{port}"},
            id="import",
        ),
    ],
)
def test_ctrl_c_ends_a_command_that_waits_for_a_server(environment, endless, arguments, server):
    manifest, silent = endless
    variables = {name: value.format(port=silent.getsockname()[1]) for name, value in server.items()}
    variables["REELABEL_WEB_ALLOW_NETWORKS"] = '["127.0.0.1/32"]'
    process = start(environment | variables, "manifest", *(each.format(manifest=manifest) for each in arguments))

    with silent.accept()[0]:
        os.killpg(process.pid, signal.SIGINT)
        stdout, stderr = process.communicate(timeout=300)

    assert process.returncode == 130, stderr
    assert (stdout, stderr.strip()) == ("", "Stopped. Run the same command again to continue.")


def start(environment, *arguments):
    """Start a command in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli.main", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_a_pipe_that_breaks_within_a_command_is_reported():
    app = typer.Typer(cls=ReelabelGroup)

    @app.command()
    def lose():
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    app.command()(print)
    result = CliRunner().invoke(get_command(app), ["lose"])

    assert result.exit_code == 1
    assert result.stderr.startswith("connection_lost: Lost connection to a child process (Broken pipe);")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (MemoryError(), "configuration: Out of memory; raise the limit (`ulimit -v` or"),
        (RuntimeError("can't start new thread"), "configuration: Cannot start a thread or process; raise"),
        (BlockingIOError(errno.EAGAIN, "x"), "configuration: Cannot start a thread or process; raise"),
        (OSError(errno.EMFILE, "x"), "configuration: Too many open files; raise the limit (`ulimit -n`)."),
        (ImportError("libx.so: failed to map segment from shared object"), "configuration: Out of memory"),
        (RuntimeError("a fault of ours"), ""),
        (ValueError("a fault of ours"), ""),
    ],
    ids=repr,
)
def test_a_limit_of_the_operating_system_is_reported(error, message):
    app = typer.Typer(cls=ReelabelGroup)

    @app.command()
    def reach():
        raise error

    app.command()(print)
    result = CliRunner().invoke(get_command(app), ["reach"])

    assert result.stderr.startswith(message)
    assert result.exit_code == 2 if message else result.exception is error


@pytest.mark.system
def test_output_that_nobody_reads_ends_a_command_silently(environment):
    process = start(environment, "config")
    process.stdout.close()

    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 1


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["samplers", "--help"], ["samplers"]])
def test_output_to_a_full_disk_ends_a_command_with_a_sentence(arguments):
    with Path("/dev/full").open("wb") as full:
        completed = subprocess.run(
            [sys.executable, "-m", "flows.cli", *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )

    assert completed.returncode == 1
    assert completed.stderr == "disk_full: The disk of /dev is full; free space, then run the same command again.\n"


def test_characters_that_the_locale_lacks_are_escaped(environment):
    latin = environment | {"PYTHONIOENCODING": "latin-1", "REELABEL_MODEL_NAME": "モデル"}

    completed = reelabel_process(latin, "config")

    assert completed.returncode == 0
    assert r"\u30e2\u30c7\u30eb" in completed.stdout


def test_help_and_version_are_printed(environment):
    assert reelabel(environment).returncode == 0
    assert "Example: reelabel demo" in reelabel(environment, "--help").stdout
    assert re.fullmatch(r"reelabel \S+ \(library \S+, engine \S+\)\n", reelabel(environment, "--version").stdout)


def test_help_shows_no_type_after_a_flag(environment):
    shown = [reelabel(environment, *command, "--help").stdout for command in ([], ["classify"], ["cache", "gc"])]

    assert ["<bool>" in text for text in shown] == [False] * 3
    assert all("--help " in text for text in shown)
    assert "<str>" in shown[1]


def test_the_help_lists_each_command_by_its_first_line():
    context = typer.Context(command := get_command(app))

    assert [*COMMANDS] == command.list_commands(context)
    for name, listed in COMMANDS.items():
        found = command.get_command(context, name)
        assert found.help.partition("\n")[0] == listed.summary
        assert found.name == name


def test_the_help_imports_no_command():
    script = """
import sys
from flows.cli.main import app
app(["--help"], standalone_mode=False)
print(sorted(sys.modules))
"""
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout

    assert "'typer'" in shown
    assert not any(f"'{module}'" in shown for module in ("pydantic", "numpy", "infra.settings", "flows.cli.options"))


def test_a_setting_is_changed_for_one_command(environment):
    shown = reelabel(environment, "config", "--set", "sampling.fps=2", "--set", 'serve.host="a"').stdout

    assert "\nfps = 2.0 " in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["config", "--set", "sampling.fpss=3"], "sampling.fpss is not a setting; did you mean sampling.fps?"),
        (["config", "--set", "sampling=3"], "sampling is not a setting"),
        (["config", "--set", "fps"], "--set fps: write SECTION.NAME=VALUE, such as --set sampling.fps=2."),
        (["config", "--set", "sampling.fps=often"], "sampling.fps"),
        (["backfill", "--failed", "--set", "sampling.fps=2"], "A backfill takes sampling.fps from the earlier run;"),
        (["backfill", "--failed", "--set", "model.name=m"], "to change it, use --model."),
    ],
)
def test_a_setting_that_cannot_be_changed_is_refused(environment, arguments, message):
    refused = reelabel(environment, *arguments)

    assert refused.returncode == 2
    assert message in refused.stderr.replace("\n", " ")


def test_samplers_are_listed_with_their_options(environment):
    rows = [json.loads(line) for line in reelabel(environment, "samplers", "--json").stdout.splitlines()]
    shown = reelabel(environment | {"COLUMNS": "400"}, "samplers").stdout

    assert [row["sampler"] for row in rows] == [*samplers()]
    assert all(row["shows"] in shown for row in rows)
    assert "--max-gap-s" in next(line for line in shown.splitlines() if line.startswith("auto"))


def test_config_prints_maps_on_one_line_of_toml(environment):
    arguments = {"enable_thinking": False, "of": {"deep": [1]}}
    shown = reelabel(environment | {"REELABEL_MODEL_CHAT_TEMPLATE_ARGS": json.dumps(arguments)}, "config").stdout

    assert tomllib.loads(shown)["model"]["chat_template_args"] == arguments


def test_config_prints_every_setting(environment):
    shown = re.findall(r"^(?:# )?(\w+) =|^\[(\w+)\]", reelabel(environment, "config").stdout, re.MULTILINE)

    sections = {name: field.annotation for name, field in Settings.model_fields.items() if name != "home"}
    fields = ["home", *(each for section in sections.values() for each in fields_of(section))]
    assert [section for _, section in shown if section] == [*sections]
    assert [name for name, _ in shown if name] == fields


@pytest.mark.parametrize("password", ["hunter2", "hun/ter2", "hun/t@er2", "%2Fhunter2"])
def test_passwords_are_masked(environment, password):
    url = {"REELABEL_STORE_ENDPOINT_URL": f"http://key:{password}@host:1/a"}

    shown = reelabel(environment | url, "config").stdout

    assert "ter2" not in shown
    assert "http://key:***@host:1/a" in shown
    assert environment["REELABEL_STORE_SECRET_ACCESS_KEY"] not in shown
    assert environment["REELABEL_DATABASE_URL"] not in shown
