import socket
import ssl
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from infra.settings import StoreSettings, WebSettings
from reelabel.errors import ObjectMissingError, StoreUnavailableError, VideoRefusedError
from reelabel.sources import connections
from reelabel.sources.connections import is_public
from reelabel.sources.object_store import ObjectStore
from tests.reelabel.sources.web_server import serving


@pytest.fixture(scope="module")
def server():
    with serving() as server:
        yield server


def store_with(**changed):
    return ObjectStore(StoreSettings(), WebSettings(**{"timeout_s": 3, "max_attempts": 1} | changed))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "192.0.0.8",
        "192.0.0.192",
        "0.0.0.0",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1%lo",
        "fc00::1",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:192.0.0.192",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    ],
)
def test_non_public_addresses_are_recognised(address):
    assert not is_public(address)


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:220:1::1", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses_are_recognised(address):
    assert is_public(address)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "LOCALHOST.", "2130706433", "0177.0.0.1", "0x7f.1", "127.1", "0", "0.0.0.0"]
)
def test_every_spelling_of_this_machine_is_refused_before_a_request(server, host):
    server.add("/clip", body=b"secret")

    with pytest.raises(VideoRefusedError, match=r"not on the public internet; add its network"):
        store_with().read(f"http://{host}:{server.port}/clip")
    assert server.requests("/clip") == []


@pytest.mark.parametrize("host", ["[::1]", "[::ffff:127.0.0.1]", "[::]"])
def test_every_ipv6_spelling_of_this_machine_is_refused(host):
    with pytest.raises(VideoRefusedError, match="not on the public internet"):
        store_with().read(f"http://{host}/clip")


def test_private_addresses_can_be_allowed(server):
    server.add("/clip", body=b"clip")

    assert store_with(allow_private=True).read(f"http://localhost:{server.port}/clip") == b"clip"


def test_absolute_and_relative_redirects_are_followed(server):
    server.add("/clip", body=b"clip")
    uri = server.add("/moved", statuses=(302,) * 9, headers={"Location": "clip"})

    assert store_with(allow_private=True).read(uri) == b"clip"


@pytest.mark.parametrize(("redirects", "is_followed"), [(5, True), (6, False)])
def test_five_redirects_are_followed(server, redirects, is_followed):
    server.add("/hop-0", body=b"clip")
    for number in range(1, redirects + 1):
        uri = server.add(f"/hop-{number}", statuses=(302,), headers={"Location": f"/hop-{number - 1}"})

    if is_followed:
        assert store_with(allow_private=True).read(uri) == b"clip"
    else:
        with pytest.raises(VideoRefusedError, match="redirects more than 5 times"):
            store_with(allow_private=True).read(uri)


@pytest.mark.parametrize(
    "body",
    [{"sized": False}, {"chunked": True, "body": b"moved"}, {"claimed_bytes": 5}, {"claimed_bytes": 1 << 40}],
    ids=["without a length", "chunked", "longer than it states", "states a length"],
)
def test_the_body_of_a_redirect_is_not_read_however_long_it_is(server, body):
    server.add("/clip", body=b"clip")
    uri = server.add("/moved", status=302, ranges=False, endless=True, headers={"Location": "clip"}, **body)

    assert store_with(allow_private=True).read(uri) == b"clip"


@pytest.mark.parametrize(
    ("location", "message"),
    [
        pytest.param("http://169.254.169.254/latest/meta-data", r"169\.254\.169\.254 is not in", id="metadata"),
        pytest.param("http://127.0.0.2/", r"127\.0\.0\.2 is not in", id="loopback"),
        pytest.param("file:///etc/passwd", "only http:// and https:// are followed", id="file"),
        pytest.param("data:,secret", "only http:// and https:// are followed", id="data"),
        pytest.param("http://host:port/", "is not a valid web address", id="not an address"),
        pytest.param("/loop", "redirects more than 5 times", id="loop"),
    ],
)
def test_a_redirect_may_lead_only_where_a_first_request_may(server, location, message):
    uri = server.add("/loop", statuses=(302,) * 9, headers={"Location": location})
    store = store_with(allow_private=True, allow_hosts=("127.0.0.1",))

    with pytest.raises(VideoRefusedError, match=message):
        store.stat(uri)


@pytest.mark.parametrize("address", ["169.254.169.254", "127.0.0.2", "10.0.0.1", "[::1]"])
def test_a_redirect_to_a_private_address_is_refused(server, address):
    uri = server.add("/inward", statuses=(302,) * 9, headers={"Location": f"http://{address}:{server.port}/"})

    with pytest.raises(VideoRefusedError, match=f"{address.strip('[]')}, not on the public internet"):
        store_with(allow_networks=["127.0.0.1/32"]).stat(uri)


@pytest.fixture
def network_calls():
    """What this process asks of the network while the test runs, as Python's audit events tell."""
    calls = []
    recording = [True]

    def record(event, arguments):
        if recording and event == "socket.getaddrinfo":
            calls.append(("resolve", arguments[0]))
        elif recording and event == "socket.connect":
            calls.append(("connect", arguments[1][0]))

    sys.addaudithook(record)  # it stays, but silent
    yield calls
    recording.clear()


def test_a_name_is_resolved_once_and_that_address_is_used(server, network_calls):
    server.add("/clip", body=b"clip")

    # Settings of its own, so that no connection stands open.
    assert store_with(allow_private=True, timeout_s=2.5).read(f"http://localhost:{server.port}/clip") == b"clip"

    assert [what for what in network_calls if not is_address(what[1])] == [("resolve", "localhost")]
    assert ("connect", "127.0.0.1") in network_calls


def is_address(host):
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [("localhost", True), ("LOCALHOST", True), ("127.0.0.1", False)],
)
def test_only_allowed_hosts_are_read(server, host, is_allowed):
    server.add("/clip", body=b"clip")
    store = store_with(allow_private=True, allow_hosts=("*.example.com", "localhost"))
    uri = f"http://{host}:{server.port}/clip"

    if is_allowed:
        assert store.read(uri) == b"clip"
    else:
        with pytest.raises(VideoRefusedError, match=r"not in web\.allow_hosts"):
            store.read(uri)


@pytest.mark.parametrize(
    "uri", ["http://", "http://[::1/clip", "https://host:port/clip", f"http://{'a' * 64}.com/clip"]
)
def test_a_malformed_address_is_refused(uri):
    with pytest.raises(VideoRefusedError, match="check"):
        store_with().stat(uri)


def test_a_host_that_does_not_exist_is_missing():
    with pytest.raises(ObjectMissingError, match=r"The host no-such-host\.invalid does not exist"):
        store_with().stat("http://no-such-host.invalid/clip")


@pytest.fixture
def deaf_port():
    """A port of every address of this machine at which nobody takes up a connection."""
    with socket.create_server(("0.0.0.0", 0), backlog=0) as deaf, ExitStack() as waiting:
        for _ in range(2):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(deaf.getsockname())
        yield deaf.getsockname()[1]


def test_a_name_with_many_dead_addresses_fails_at_the_deadline(deaf_port, monkeypatch):
    monkeypatch.setattr(connections, "_resolve", lambda *_: [f"127.0.0.{number}" for number in range(1, 61)])
    started = time.monotonic()

    with pytest.raises(StoreUnavailableError, match=r"web\.total_timeout_s"):
        store_with(allow_private=True, timeout_s=0.2, total_timeout_s=1).stat(f"http://dead.example:{deaf_port}/clip")
    assert time.monotonic() - started < 5


def test_the_next_address_of_a_name_is_tried_if_the_first_one_is_dead(server, monkeypatch):
    server.add("/clip", body=b"clip")
    monkeypatch.setattr(connections, "_resolve", lambda *_: ["127.0.0.9", "127.0.0.1"])

    assert store_with(allow_private=True, timeout_s=2.7).read(f"http://two.example:{server.port}/clip") == b"clip"


@pytest.fixture
def tls_server(tmp_path, monkeypatch):
    """A server whose certificate is for localhost alone, signed by itself and trusted."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    encoded_key = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (tmp_path / "both.pem").write_bytes(encoded_key + pem)
    (tmp_path / "trusted.pem").write_bytes(pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "trusted.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "both.pem")
    with serving(context) as server:
        yield server


def test_tls_verifies_the_name_although_we_connect_to_an_address(tls_server):
    tls_server.add("/clip", body=b"clip")
    store = store_with(allow_private=True, timeout_s=4)

    assert store.read(f"https://localhost:{tls_server.port}/clip") == b"clip"
    with pytest.raises(VideoRefusedError, match=r"certificate of .* is not valid"):
        store.read(f"https://127.0.0.1:{tls_server.port}/clip")


def test_a_deadline_holds_with_tls_too(tls_server):
    tls_server.add("/clip", body=b"clip", header_pause_s=0.05)
    started = time.monotonic()

    with pytest.raises(StoreUnavailableError, match=r"web\.total_timeout_s"):
        store_with(allow_private=True, total_timeout_s=1).read(f"https://localhost:{tls_server.port}/clip")
    assert time.monotonic() - started < 5


@pytest.mark.parametrize(
    "authority",
    [
        pytest.param(r"127.0.0.1:{port}\@elsewhere.example", id="a backslash before another host"),
        pytest.param(r"me:secret\@elsewhere.example@127.0.0.1:{port}", id="a backslash in the login"),
        pytest.param("127.0.0.1:{port}\t.elsewhere.example", id="a tab"),
        pytest.param("127.0.0.%31:{port}", id="a percent-encoded host"),
        pytest.param("loc\u00ada\u200dlhost:{port}", id="invisible characters"),
        pytest.param("ⓛocalhost:{port}", id="a lookalike letter"),
        pytest.param("[::ffff:127.0.0.1%25lo]:{port}", id="a zone id"),
        pytest.param("me:secret@[127.0.0.1:{port}", id="an open bracket"),
    ],
)
def test_a_host_that_parsers_read_differently_is_refused_without_naming_another(server, authority):
    server.add("/clip", body=b"clip")
    uri = f"http://{authority.format(port=server.port)}/clip"

    for url in (uri, server.add("/moved", statuses=(302,), headers={"Location": uri.encode().decode("latin-1")})):
        with pytest.raises(VideoRefusedError) as raised:
            store_with(allow_private=True).read(url)
        assert str(raised.value) == (
            "http://... is not a valid web address; check that its host is a name in ASCII or an IP address."
        )
    assert server.requests("/clip") == []


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("http://me:s@cret@LOCALHOST.:{port}/gone?key=1#part", "http://LOCALHOST.:{port}/gone?..."),
        ("http://127.1:{port}/gone", "http://127.1:{port}/gone"),
        ("http://127.0.0.1:{port}/gone\n2026 INFO", "http://127.0.0.1:{port}/gone2026 INFO"),
    ],
)
def test_a_message_names_the_host_that_was_asked(server, form, shown):
    with pytest.raises(ObjectMissingError) as raised:
        store_with(allow_private=True).read(form.format(port=server.port))

    assert shown.format(port=server.port) in str(raised.value)
