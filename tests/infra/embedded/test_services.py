import fcntl
import os
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psycopg
import pytest

from infra.embedded import ServiceName, in_use, running, start, status, stop
from infra.embedded.home import Home
from infra.settings import Settings
from reelabel.errors import ConfigurationError
from reelabel.sources.object_store import ObjectStore
from tests.other_user import STRANGER
from tests.supervisor import content, processes_of, supervisor_pid
from tests.wait import until

WRITERS = "postgres-reelabel_writer"
POSTGRES = frozenset({ServiceName.POSTGRES})
BOTH = frozenset({ServiceName.POSTGRES, ServiceName.S3})

# A command that says when it has its services, works until its input ends, and leaves.
COMMAND = """
import signal
import sys
from pathlib import Path
from infra import signals
from infra.embedded import ServiceName, running
from infra.settings import Settings

# Where the tests themselves run in the background, a shell has them ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
signals.install("Stopped at once.")
wanted = frozenset(map(ServiceName, sys.argv[2].split(",")))
print("begins", flush=True)
with running(Settings(home=Path(sys.argv[1])), wanted=wanted):
    print("has its services", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path):
    yield tmp_path / "home"
    stop(tmp_path / "home")


@pytest.fixture(scope="module")
def _initialized(tmp_path_factory):
    """A home folder whose services were started once and stopped."""
    home = tmp_path_factory.mktemp("initialized") / "home"
    start(Settings(home=home), wanted=BOTH)
    stop(home)
    return home


@pytest.fixture
def _initialized_home(home, _initialized):
    """Begin with a copy of that folder, as most of the time of a first start goes to initdb."""
    subprocess.run(["cp", "--archive", _initialized, home], check=True)


after_a_first_start = pytest.mark.usefixtures("_initialized_home")


@pytest.fixture
def settings(home):
    return Settings(home=home)


def _command(home, wanted):
    arguments = [sys.executable, "-c", COMMAND, str(home), ",".join(wanted)]
    return subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _addresses(home):
    return [service.address for service in status(home)]


def _running_pids(home):
    return {service.name: service.pid for service in status(home) if service.is_running}


def _all_end(home):
    """Wait until the supervisor has noticed that its last user is gone, and all services have ended."""
    until(lambda: processes_of(home) == [], details=lambda: processes_of(home))


def _query(settings, statement):
    with psycopg.connect(settings.database.owner_url.get_secret_value()) as connection:
        return connection.execute(statement).fetchone()


def test_services_run_for_as_long_as_a_command(settings, home):
    with running(settings, wanted=BOTH) as started:
        assert _query(started, "SELECT current_database()") == ("reelabel",)
        assert ObjectStore(started.store).write_new(f"{started.store.uri}/a", b"frames")
        assert set(_running_pids(home)) == BOTH

    assert processes_of(home) == []


@pytest.mark.system
def test_stored_data_survives_a_restart(settings):
    with running(settings, wanted=BOTH) as started:
        with psycopg.connect(started.database.owner_url.get_secret_value()) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
        ObjectStore(started.store).replace(f"{started.store.uri}/kept", b"frames")

    with running(settings, wanted=BOTH) as again:
        assert _query(again, "SELECT answer FROM kept") == (42,)
        assert ObjectStore(again.store).read(f"{again.store.uri}/kept") == b"frames"


@after_a_first_start
@pytest.mark.parametrize("state", ["Z", "S"], ids=["that nobody reaps", "whose id another program has"])
def test_the_pid_file_of_a_killed_server_is_no_obstacle(settings, home, state):
    owner = {"user": "nobody"} if os.geteuid() == 0 else {}  # Postgres minds only processes of its own user
    with subprocess.Popen(["true"] if state == "Z" else ["sleep", "600"], **owner) as process:
        until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == state)
        (home / "postgres" / "data" / "postmaster.pid").write_text(f"{process.pid}\n")

        try:
            start(settings, wanted=POSTGRES)
        finally:
            process.kill()

    assert ServiceName.POSTGRES in _running_pids(home)


@after_a_first_start
def test_a_killed_service_comes_back_even_if_the_supervisor_cannot_write_its_log(settings, home):
    log = home / "logs" / "supervisor.log"
    log.unlink()
    os.mkfifo(log)
    with os.fdopen(os.open(log, os.O_RDONLY | os.O_NONBLOCK)):
        start(settings, wanted=POSTGRES)
    before = _running_pids(home)  # from here on, nobody reads, and a write fails
    os.kill(before[ServiceName.POSTGRES], signal.SIGKILL)

    until(lambda: _running_pids(home).keys() == POSTGRES and _running_pids(home) != before)


@after_a_first_start
def test_a_killed_service_is_restarted_with_its_data(settings, home):
    first = start(settings, wanted=BOTH)
    with psycopg.connect(first.database.owner_url.get_secret_value()) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 42 AS answer")
    ObjectStore(first.store).replace(f"{first.store.uri}/kept", b"frames")
    pids = _running_pids(home)
    for pid in pids.values():
        os.kill(pid, signal.SIGKILL)

    again = start(settings, wanted=BOTH)

    assert _query(again, "SELECT answer FROM kept") == (42,)
    assert ObjectStore(again.store).read(f"{again.store.uri}/kept") == b"frames"
    assert not set(pids.values()) & set(_running_pids(home).values())


@after_a_first_start
def test_a_service_that_is_killed_while_in_use_comes_back_and_the_next_command_works(home):
    command = _command(home, BOTH)
    assert [command.stdout.readline() for _ in range(2)] == ["begins\n", "has its services\n"]
    before, addresses = _running_pids(home), _addresses(home)
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)

    until(lambda: set(_running_pids(home)) == BOTH and not {*before.values()} & {*_running_pids(home).values()})
    with running(Settings(home=home), wanted=BOTH) as settings:
        assert _query(settings, "SELECT 1") == (1,)
        assert ObjectStore(settings.store).write_new(f"{settings.store.uri}/a", b"frames")
        assert _addresses(home) == addresses

    command.communicate(timeout=120)
    assert processes_of(home) == []


@after_a_first_start
def test_a_service_that_dies_again_and_again_is_not_started_forever(settings, home):
    log = home / "logs" / "supervisor.log"
    for restarts in range(4):
        assert content(log).count(b"it is started again") == restarts
        start(settings, wanted=POSTGRES)  # returns once it is ready
        os.kill(_running_pids(home)[ServiceName.POSTGRES], signal.SIGKILL)
        until(lambda restarts=restarts: content(log).count(b" ended ") == restarts + 1, details=lambda: content(log))

    assert b"it is not started again until it is requested" in content(log)
    assert _running_pids(home) == {}
    assert _query(start(settings, wanted=POSTGRES), "SELECT 1") == (1,)


@after_a_first_start
def test_services_end_with_a_supervisor_that_is_killed_and_the_next_command_starts_them_again(settings, home):
    start(settings, wanted=BOTH)
    os.kill(supervisor_pid(home), signal.SIGKILL)
    _all_end(home)
    assert _running_pids(home) == {}

    assert _query(start(settings, wanted=BOTH), "SELECT 1") == (1,)


def test_a_home_folder_may_have_a_long_path(tmp_path):
    home = tmp_path / ("long" * 30) / ("path" * 30)
    with running(Settings(home=home), wanted=POSTGRES) as started:
        assert _query(started, "SELECT 1") == (1,)
    assert processes_of(home) == []


@after_a_first_start
def test_a_forked_process_does_not_keep_the_services_of_a_command(settings, home):
    with running(settings, wanted=POSTGRES):
        forked = os.fork()
        if not forked:
            signal.pause()
            os._exit(0)
    assert processes_of(home) == []
    os.kill(forked, signal.SIGKILL)
    os.waitpid(forked, 0)


@after_a_first_start
@pytest.mark.parametrize("sent", [b"nonsense", b"7", b"[" * 5_000_000], ids=["no JSON", "no request", "too long"])
def test_a_client_that_breaks_off_in_any_way_is_no_user_any_more(settings, home, sent):
    with running(settings, wanted=POSTGRES):
        client = Home(home).connect()
        with suppress(ConnectionError):  # closed before it has read all
            client.sendall(b'{"start": []}\n' + sent + b"\n")
            until(lambda: not client.recv(1 << 16))

    until(lambda: not processes_of(home))
    client.close()


@after_a_first_start
def test_commands_share_services_and_the_last_one_stops_them(home):
    first, second = (_command(home, POSTGRES) for _ in range(2))
    for command in (first, second):
        assert command.stdout.readline() == "begins\n"
        assert command.stdout.readline() == "has its services\n"
    pids = _running_pids(home)

    first.communicate(timeout=120)
    assert _running_pids(home) == pids
    assert in_use(home)

    second.communicate(timeout=120)
    assert not in_use(home)
    assert processes_of(home) == []


@pytest.mark.system
def test_kept_services_stay_until_they_are_stopped(settings, home):
    with running(settings, wanted=POSTGRES, keep=True):
        pids = _running_pids(home)
    with running(settings, wanted=POSTGRES):
        pass
    assert _running_pids(home) == pids

    stop(home)

    assert processes_of(home) == []
    with running(settings, wanted=POSTGRES):
        pass
    assert processes_of(home) == []


@pytest.mark.system
@pytest.mark.parametrize(
    ("number", "after_s"),
    [
        pytest.param(signal.SIGINT, 0.05, id="Ctrl-C at once"),
        pytest.param(signal.SIGTERM, 0.5, id="SIGTERM while services are created"),
        pytest.param(signal.SIGINT, 1.5, id="Ctrl-C while services start"),
        pytest.param(signal.SIGTERM, None, id="SIGTERM at work"),
        pytest.param(signal.SIGINT, None, id="Ctrl-C at work"),
    ],
)
def test_an_interrupted_command_leaves_no_process(home, number, after_s):
    command = _command(home, BOTH if after_s is None else [*BOTH, ServiceName.PREFECT])
    command.stdout.readline()
    if after_s is None:
        command.stdout.readline()
    else:
        time.sleep(after_s)

    began_s = time.monotonic()
    command.send_signal(number)
    command.send_signal(number)
    command.communicate(timeout=120)

    assert command.returncode not in {0, None}
    assert number == signal.SIGTERM or time.monotonic() - began_s < 10
    _all_end(home)


@after_a_first_start
def test_services_of_a_killed_command_end(home):
    command = _command(home, POSTGRES)
    command.stdout.readline()
    command.stdout.readline()
    assert set(_running_pids(home)) == POSTGRES
    command.kill()
    command.communicate()

    _all_end(home)


def test_services_that_the_user_provides_are_not_started(home, tmp_path):
    own = Settings(
        home=home,
        database={"url": "postgresql://me@host/db"},
        store={"uri": tmp_path.as_uri()},
        prefect={"api_url": "http://host/api"},
    )
    with running(own, wanted=frozenset(ServiceName)) as started:
        assert (started.database, started.store, started.prefect) == (own.database, own.store, own.prefect)
        assert _running_pids(home) == {}


def test_folder_and_passwords_are_private_and_no_password_is_logged(settings, home):
    with running(settings, wanted=BOTH) as started:
        secrets = {path.stem: path.read_text() for path in home.glob("*.secret")}
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(started.database.url.get_secret_value().replace(secrets[WRITERS], "wrong"))
        command_lines = b"".join(processes_of(home)).decode()

    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.glob("*.secret")} == {0o600}
    logs = "".join(path.read_text() for path in (home / "logs").iterdir())
    assert {
        "postgres",
        "postgres-reelabel_owner",
        WRITERS,
        "postgres-reelabel_reader",
        "s3-key",
        "s3-secret",
        "mac-key",
    } <= secrets.keys()
    assert all(secret not in command_lines + logs for secret in secrets.values())


@after_a_first_start
def test_a_lost_password_is_explained(settings, home):
    Home(home).secret_path("postgres").unlink()

    with pytest.raises(ConfigurationError, match=r"rejects the password in .*postgres\.secret"):
        start(settings, wanted=POSTGRES)

    assert processes_of(home) == []


@after_a_first_start
def test_a_service_that_cannot_start_is_explained_with_its_log(settings, home):
    (home / "postgres" / "data" / "postgresql.conf").write_text("nonsense = 1\n")

    with pytest.raises(ConfigurationError, match=r"postgres ended during startup: .*nonsense.*postgres\.log"):
        start(settings, wanted=BOTH)

    assert processes_of(home) == []


def test_a_supervisor_that_ends_whenever_it_is_started_is_given_up(settings, home):
    (home / "logs" / "supervisor.log").mkdir(parents=True)

    with pytest.raises(ConfigurationError, match=r"supervisor of the services of .* ended; see its log"):
        start(settings, wanted=POSTGRES)


@after_a_first_start
def test_a_copy_of_the_folder_has_no_services(settings, home, tmp_path):
    start(settings, wanted=POSTGRES)
    copy = tmp_path / "copy"
    subprocess.run(["cp", "--archive", home, copy], check=True)

    assert _running_pids(copy) == {}
    with pytest.raises(ConfigurationError, match="another postmaster"):
        start(Settings(home=copy), wanted=POSTGRES)
    stop(copy)


@after_a_first_start
def test_services_of_a_moved_folder_are_started_again_where_it_is_now(settings, home, tmp_path):
    start(settings, wanted=POSTGRES)
    pids = _running_pids(home)
    moved = home.rename(tmp_path / "moved")
    assert _running_pids(moved) == pids

    started = start(Settings(home=moved), wanted=POSTGRES)

    assert _query(started, "SELECT 1") == (1,)
    assert not {*pids.values()} & {*_running_pids(moved).values()}
    stop(moved)
    assert processes_of(home) == []


@after_a_first_start
def test_services_that_run_where_nobody_sees_them_are_not_started_again(settings, home):
    lock = Home(home).open_lock()
    fcntl.flock(lock, fcntl.LOCK_EX)  # as the supervisor on another machine does, whose socket leads nowhere here

    with pytest.raises(ConfigurationError, match=r"services of .* are already running in another container"):
        start(settings, wanted=POSTGRES)

    os.close(lock)
    assert _query(start(settings, wanted=POSTGRES), "SELECT 1") == (1,)


@pytest.mark.system
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may have a network of its own")
def test_services_of_another_container_are_not_used(settings, home):
    start(settings, wanted=POSTGRES)
    command = ["unshare", "--net", sys.executable, "-c", COMMAND, str(home), "postgres"]

    stderr = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stderr

    assert "already running in another container or on another machine" in stderr


@pytest.mark.system
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_user_without_a_name_is_told_that_postgres_needs_one(tmp_path):
    os.chown(tmp_path, STRANGER, STRANGER)
    reads_all = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]  # Python may be in another's folder
    stranger = ["setpriv", f"--reuid={STRANGER}", "--clear-groups", *reads_all]
    command = [*stranger, sys.executable, "-c", COMMAND, str(tmp_path / "home"), "postgres"]

    stderr = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False).stderr

    assert f"cannot run as the user id {STRANGER}, which has no name on this machine; run this command as" in stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder to another user")
def test_a_database_of_another_user_is_left_to_them(settings, home):
    data = home / "postgres" / "data"
    data.mkdir(parents=True)
    os.chown(data, 12345, 12345)

    with pytest.raises(ConfigurationError, match=r"belongs to the user with the id 12345, .* as that user"):
        start(settings, wanted=BOTH)

    assert not (home / "s3").exists()


def test_an_existing_folder_keeps_its_permissions(home):
    home.mkdir(mode=0o755)

    Home(home)

    assert stat.S_IMODE(home.stat().st_mode) == 0o755


def test_a_folder_that_cannot_be_created_is_a_configuration_error(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(ConfigurationError, match="set REELABEL_HOME"):
        start(Settings(home=tmp_path / "file" / "home"), wanted=POSTGRES)
