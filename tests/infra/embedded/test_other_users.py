"""Embedded services refuse other users of the machine on every port, socket and file."""

import json
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
from pathlib import Path

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from sqlalchemy.engine import make_url
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from infra.embedded import ServiceName, in_use, running, s3_program, start, status, stop, with_running_services
from infra.embedded.home import Home
from infra.embedded.s3_server import S3Server
from infra.settings import Settings
from reelabel.errors import ConfigurationError, ObjectMissingError
from reelabel.sources.object_store import ObjectStore
from tests.command_line import reelabel
from tests.other_user import LOOPBACK, NOBODY, STRANGER, as_user, listening_ports, unix_sockets
from tests.wait import until

PATHS = (
    "/",
    "/metrics",
    "/status",
    "/healthz",
    "/health",
    "/debug/pprof/",
    "/debug/vars",
    "/ui/index.html",
    "/cluster/status",
    "/cluster/healthz",
    "/dir/status",
    "/dir/assign",
    "/vol/status",
    "/stats/counter",
    "/buckets/?pretty=y",
    "/buckets/frames/",
    "/?Action=ListUsers",
    "/frames?list-type=2",
)
HEALTH = (b"/status", b"/healthz")  # the S3 port answers them with nothing
CHANGES = (
    "DELETE /frames/planted",
    "PUT /frames/planted",
    "PUT /frames/intruder",
    "DELETE /buckets/frames/planted",
    "PUT /buckets/frames/intruder",
    "POST /submit",
    "POST /?Action=CreateAccessKey&UserName=intruder",
    "POST /?Action=AssumeRoleWithWebIdentity&RoleArn=a&RoleSessionName=b&WebIdentityToken=c",
)
# What a gRPC server answers with its settings.
GRPC = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
REQUESTS = tuple(
    f"{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode()
    for line in (*(f"GET {path}" for path in PATHS), *CHANGES)
)


@pytest.fixture(params=[ServiceName.POSTGRES, ServiceName.S3, ServiceName.PREFECT, ServiceName.WORKER])
def service(request):
    """A running service."""
    started = request.getfixturevalue("services" if request.param in {"postgres", "s3"} else "prefect_services")
    return next(each for each in status(started.home) if each.name == request.param)


def _answer(port, request, tls):
    """What a port answers; nothing if it closes the connection."""
    answer = b""
    try:
        connection = socket.create_connection(("127.0.0.1", port), 5)
        with tls.wrap_socket(connection) if tls else connection as connection:
            connection.sendall(request)
            while len(answer) < 4096 and (part := connection.recv(4096)):
                answer += part
                if request == GRPC:
                    break
    except OSError:  # includes the alerts of TLS
        pass
    return answer


def _is_harmless(request, answer, pages):
    """Return whether an answer refuses, or says nothing: what would change anything has to be refused."""
    if not answer or re.match(rb"HTTP/1\.[01] [45]\d\d ", answer):
        return True
    body = answer.partition(b"\r\n\r\n")[2]
    is_empty = body in {b"", b"0\r\n\r\n"} and request.split()[1] in HEALTH
    return request.startswith(b"GET ") and (is_empty or body[:50] in pages)


def _encrypted(*protocols):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(protocols)
    return context


def test_every_port_refuses_another_user(service, services):
    objects = ObjectStore(services.store)
    objects.replace("s3://frames/planted", b"frames")
    ports = listening_ports(service.pid)
    numbers = [port for port, _ in ports]
    web, grpc = _encrypted("http/1.1"), _encrypted("h2")
    attempts = [(request, tls) for request in REQUESTS for tls in (None, web)] + [(GRPC, None), (GRPC, grpc)]

    answers = as_user(
        NOBODY, lambda: [(port, request, _answer(port, request, tls)) for port in numbers for request, tls in attempts]
    )

    assert {address for _, address in ports} <= {LOOPBACK}
    # The worker listens once for each flow run, of which other tests may have any number.
    assert len(numbers) == {"postgres": 1, "s3": 10, "prefect": 1}.get(service.name, len(numbers))
    # Prefect's, one of which answers whatever it does not know and asks for a login.
    pages = {path.read_bytes()[:50] for path in services.home.glob("prefect/ui/**/index.html")}
    assert [each for each in answers if not _is_harmless(*each[1:], pages)] == []
    assert objects.read("s3://frames/planted") == b"frames"
    with pytest.raises(ObjectMissingError):
        objects.read("s3://frames/intruder")


def test_every_socket_is_accessible_to_its_owner_only(service):
    paths = unix_sockets(service.pid)

    assert [path for path in paths if path.startswith("@")] == []
    assert (service.name == "s3") == bool(paths)
    folder = Path(f"/proc/{service.pid}/cwd")
    assert {stat.S_IMODE((folder / path).stat().st_mode) & 0o077 for path in paths} <= {0}


def test_no_socket_in_tmp_has_a_name_that_another_user_can_take_beforehand(tmp_path):
    server = S3Server(Home(tmp_path / "home"))
    first, second = ({*server.launch(port=12_345).cleanup_paths} for _ in range(2))

    assert first
    assert first.isdisjoint(second)


def _shell(service, commands, uid):
    """Run commands in the server's own shell, as another user, with what every user can see of the server."""
    line = Path(f"/proc/{service.pid}/cmdline").read_text()
    port = {name: re.search(rf"-{name}=(\d+)", line)[1] for name in ("master.port", "filer.port")}
    grpc = {name: re.search(rf"-{name}.grpc=(\d+)", line)[1] for name in port}
    master, filer = (f"127.0.0.1:{port[name]}.{grpc[name]}" for name in port)
    program = os.open(s3_program(), os.O_RDONLY)  # its folder may be private
    shell = subprocess.Popen(
        ["weed", "-logtostderr", "shell", f"-master={master}", f"-filer={filer}"],
        executable=f"/proc/self/fd/{program}",
        pass_fds=[program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={"HOME": "/nonexistent"},
        **({"user": uid, "group": uid, "extra_groups": []} if os.geteuid() == 0 else {}),
    )
    os.close(program)
    try:
        return shell.communicate("\n".join([*commands, "exit"]).encode(), timeout=5)[0].decode()
    except subprocess.TimeoutExpired:  # it asks again and again
        shell.kill()
        return shell.communicate()[0].decode()


def test_the_s3_server_accepts_no_shell_commands(services, store_settings):
    service = next(each for each in status(services.home) if each.name == ServiceName.S3)
    objects, video = ObjectStore(store_settings), f"{store_settings.uri}/video.mp4"
    objects.replace(video, b"frames")
    folder = "/buckets/" + store_settings.uri.removeprefix("s3://")
    intruder = "s3.configure -user=intruder -access_key=intruder -secret_key=intruder -actions=Admin -apply"

    output = _shell(service, [f"fs.ls {folder}", f"fs.rm {folder}/video.mp4", intruder], STRANGER)

    assert "video.mp4" not in output
    assert objects.read(video) == b"frames"
    assert "accessKey" not in output


def test_postgres_requires_a_password(services):
    address = {"host": "127.0.0.1", "port": make_url(services.database.url.get_secret_value()).port}
    logins = [
        {"user": user, "dbname": database, "password": password, "replication": replication}
        for user in ("reelabel", "reelabel_owner", "reelabel_writer", "reelabel_reader", "prefect", "postgres")
        for database in ("reelabel", "postgres", "template1")
        for password, replication in (("", "false"), ("wrong", "false"), ("", "true"))
    ]

    def attempts():
        errors = []
        for login in logins:
            try:
                psycopg.connect(make_conninfo(**address, **login)).close()
                errors.append("came in")
            except psycopg.OperationalError as error:
                errors.append(str(error))
        return errors

    errors = as_user(STRANGER, attempts)

    refusal = re.compile("password authentication failed|no password supplied")
    assert [each for each in errors if not refusal.search(each)] == []


def test_files_are_accessible_to_their_owner_only(services):
    home = services.home
    paths = [home, *(home / each for each in ("logs", "run", *ServiceName))]
    paths += [path for pattern in ("*.secret", "run/*", "logs/*", "s3/*") for path in home.glob(pattern)]

    assert {path for path in paths if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077} == set()


def test_postgres_shares_no_memory_segment_that_others_can_attach(services):
    service = next(each for each in status(services.home) if each.name == ServiceName.POSTGRES)

    assert "/dev/shm/" not in Path(f"/proc/{service.pid}/maps").read_text()


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_home_folder_that_others_can_write_to_is_refused(tmp_path, mode):
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(mode)

    with pytest.raises(ConfigurationError, match=f"chmod go-w {home}"):
        start(Settings(home=home), wanted=frozenset({ServiceName.S3}))

    assert list(home.glob("*.secret")) == []


def test_a_supervisor_in_a_folder_that_others_can_write_to_is_not_believed(services, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    (home / "run").symlink_to(services.home / "run")
    home.chmod(0o777)

    with pytest.raises(ConfigurationError, match="Other users can write"):
        with_running_services(Settings(home=home))


FOLDERS = ("logs", "run", "s3/data", "prefect/ui", "worker", "postgres/data")
FILES = (
    "prefect-login.secret",
    "run/supervisor.lock",
    "run/postgres.port",
    "logs/s3.log",
    "s3/key.pem",
    "prefect/ui/index.html",
)


@pytest.fixture
def own_home(tmp_path):
    """A home folder that services were started in before."""
    home = tmp_path / "home"
    for folder in FOLDERS:
        (home / folder).mkdir(parents=True)
    for file in FILES:
        (home / file).write_text("kept")
    home.chmod(0o700)
    return home


def refused(home, path, message):
    """Expect that nothing starts, and the sentence that says why."""
    with pytest.raises(
        ConfigurationError, match=rf"^{'Other users can write to ' * message.startswith(',')}{path}{message}"
    ):
        start(Settings(home=home), wanted=frozenset({ServiceName.S3}))
    assert not [*home.glob("*.secret.*"), *home.glob("s3/certificate.pem")]


as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to another user")


@as_root
@pytest.mark.parametrize("name", [".", *FOLDERS, *FILES])
def test_nothing_in_a_home_folder_may_belong_to_another_user(own_home, name):
    path = own_home / name
    os.chown(path, STRANGER, STRANGER)

    refused(own_home, path, f" belongs to the user with the id {STRANGER}, not to the user root; run this command as")


@as_root
@pytest.mark.parametrize("is_there", [True, False], ids=["a file", "nothing"])
def test_no_link_in_a_home_folder_may_belong_or_lead_to_another_user(own_home, tmp_path, is_there):
    target, link = tmp_path / "theirs", own_home / "logs" / "postgres.log"
    link.symlink_to(target)
    if is_there:
        target.touch()
        os.chown(target, STRANGER, STRANGER)
    else:
        os.chown(link, STRANGER, STRANGER, follow_symlinks=False)

    refused(own_home, link, " belongs to the user with the id")


@pytest.mark.parametrize("name", ["run", "run/postgres.port", "prefect/ui/index.html"])
def test_other_users_must_not_write_to_what_they_can_reach_in_a_home_folder(own_home, name):
    path = own_home / name
    path.chmod(path.stat().st_mode | stat.S_IWGRP)
    Home(own_home).require_private()  # nobody else can enter the folder

    own_home.chmod(0o755)

    refused(own_home, path, ", which this command would trust; run chmod go-w")


def test_a_link_to_a_folder_of_the_same_user_is_accepted(own_home, tmp_path):
    (own_home / "s3" / "data").rmdir()
    (tmp_path / "large disk").mkdir(mode=0o700)
    (own_home / "s3" / "data").symlink_to(tmp_path / "large disk")

    Home(own_home).require_private()


@as_root
def test_a_lock_that_is_a_link_changes_nothing_elsewhere(own_home, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("kept")
    lock = own_home / "run" / "supervisor.lock"
    lock.unlink()
    lock.symlink_to(victim)

    with pytest.raises(OSError, match="symbolic links"):
        Home(own_home).open_lock()
    os.chown(own_home, STRANGER, STRANGER)
    with pytest.raises(ConfigurationError), running(Settings(home=own_home), wanted=frozenset({ServiceName.S3})):
        pass

    assert victim.read_text() == "kept"


@as_root
def test_the_supervisor_of_another_user_is_not_asked(own_home):
    """It would be sent settings with passwords."""
    received = os.memfd_create("received")
    path = own_home / "run" / "supervisor.sock"
    with Home(own_home).listen() as listening:
        os.chown(path, STRANGER, STRANGER)
        process = os.fork()
        if not process:
            _say_that_there_are_users(listening, received)
    # Until it listens as that user.
    until(lambda: Path(f"/proc/{process}").stat().st_uid == STRANGER)

    assert not in_use(own_home)
    stop(own_home)
    stderr = reelabel({**os.environ, "REELABEL_HOME": str(own_home)}, "down").stderr

    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    assert os.fstat(received).st_size == 0
    assert f"{path} belongs to the user with the id {STRANGER}" in " ".join(stderr.split())


def _say_that_there_are_users(listening, received):
    try:
        os.setgid(STRANGER)
        os.setuid(STRANGER)
        listening.listen()
        while True:
            with listening.accept()[0] as connection:
                connection.sendall(b'{"users": 1}\n')
                os.write(received, connection.recv(100))
    finally:
        os._exit(1)


def test_the_prefect_api_requires_a_login(prefect_services):
    url = prefect_services.prefect.api_url
    routes = httpx.get(f"{url.removesuffix('/api')}/openapi.json", timeout=60).json()["paths"]  # made when asked for
    crafted = ["/health/", "//health", "/x/../health", "/health/../admin/version", "/flows/health", "/ready/ready"]
    endpoints = [(method, path) for path, methods in routes.items() for method in methods]
    with httpx.Client(base_url=url) as client:
        answers = {(method, path): client.request(method, path) for method, path in endpoints}
        odd = [client.get(f"{url}{path}") for path in crafted]

    assert len(endpoints) > 150
    assert {each for each, answer in answers.items() if answer.status_code != 401} == {
        ("get", "/health"),
        ("get", "/ready"),
    }
    assert {answer.text for answer in odd if answer.status_code == 200} <= {"true"}


@pytest.mark.parametrize(
    "path",
    ["events/in", "events/out", "logs/out", "task_runs/subscriptions/scheduled", "work_pools/reelabel/workers/connect"],
)
def test_the_prefect_event_streams_require_a_login(prefect_services, path):
    url = f"{prefect_services.prefect.api_url.replace('http', 'ws', 1)}/{path}"
    with pytest.raises(InvalidStatus, match="403"):
        connect(url)
    for token in (None, "admin:wrong"):
        with connect(url, subprotocols=["prefect"]) as stream:
            stream.send(json.dumps({"type": "auth", "token": token}))
            with pytest.raises(ConnectionClosed) as closed:
                stream.recv(timeout=10)
        assert closed.value.rcvd.code == 1008
