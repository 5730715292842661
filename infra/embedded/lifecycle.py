"""Starting and stopping a service."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from infra.embedded.full_disk import met_full_disk
from infra.embedded.home import Record
from infra.embedded.processes import end, end_marked, free_port, spawn
from infra.json_logs import message_of
from infra.program import APPLICATION
from reelabel.disk import full_disk_met, temporary_root
from reelabel.errors import ConfigurationError
from reelabel.optional import install_command

if TYPE_CHECKING:
    import signal
    import threading

    from infra.embedded.home import Home, ServiceName
    from infra.embedded.service import Service

_START_TIMEOUT_S = 180.0  # on a busy machine; usually seconds
_STOP_GRACE_S = 10.0
# Rarer with time: to ask costs processor time that what starts needs itself.
_POLL_S, _LONGEST_POLL_S, _POLL_GROWTH = 0.05, 0.25, 1.3
_ATTEMPTS = 2
_EXCERPT_CHARACTERS = 600


class StartCancelledError(Exception):
    """The command ended before the service was ready."""


def ensure_started(service: Service, home: Home, cancelled: threading.Event, *, as_json: bool = False) -> int:
    """Start a service unless it is running, and wait until it is ready, or until `cancelled` is set.

    With `as_json`, its log is written as lines of JSON. Return its port; 0 if it does not listen.

    Raises:
        ConfigurationError: It does not start; the message quotes the end of its log.
        DiskFullError: It does not start, for want of space.
        StartCancelledError: `cancelled` was set while waiting.
    """
    record = home.record(service.name)
    # If it is killed at this moment, it dies while we wait, and is started again.
    is_usable = record is not None and _is_usable(record, service, home)
    if record and is_usable and _wait_until_ready(service, home, record, cancelled, is_new=False):
        return record.port
    end_service(service.name, home, service.stop_signal)
    for attempt in range(1, _ATTEMPTS + 1):
        # A second attempt uses another port: another process may have taken the first one, or the remains of
        # a killed server may only have gone just now.
        preferred_port = record.port if record and attempt == 1 else 0
        started = _start(service, home, preferred_port=preferred_port, as_json=as_json)
        if _wait_until_ready(service, home, started, cancelled, may_die=attempt < _ATTEMPTS):
            break
    return started.port


def _is_usable(record: Record, service: Service, home: Home) -> bool:
    """Return whether a service runs as it would be started now: of a moved folder, S3 would not find its files."""
    is_moved = record.path not in {"", str(home.path)}
    return record.process.is_alive() and record.label == service.label() and not is_moved


def end_service(name: ServiceName, home: Home, stop_signal: signal.Signals) -> None:
    """Stop a service, if it is running, and all processes that it has started."""
    record = home.record(name)
    if record:
        end(record.process, stop_signal=stop_signal, grace_s=_STOP_GRACE_S)
    end_marked(_marker(name, home))
    for path in record.leaves_behind if record else ():
        with suppress(PermissionError):  # of another user, who took its name in /tmp
            Path(path).unlink(missing_ok=True)


def _start(service: Service, home: Home, *, preferred_port: int, as_json: bool) -> Record:
    with home.holding(service.name) as lock:
        port = free_port(preferred_port)
        launch = service.launch(port)
        try:
            process = spawn(
                launch.command,
                environment=launch.environment,
                log=home.log(service.name),
                marker=_marker(service.name, home),
                lock=lock,
                as_json=service.name if as_json else None,
            )
        except OSError as error:
            raise ConfigurationError(
                f"Cannot run the embedded {service.name} ({error.strerror}: {launch.command[0]}); "
                f"run `{install_command('embedded', of=APPLICATION, again=True)}`."
            ) from error
    record = Record(process=process, port=port, label=service.label(), leaves_behind=launch.leaves_behind)
    home.write_record(service.name, record)
    return record


def _wait_until_ready(
    service: Service,
    home: Home,
    record: Record,
    cancelled: threading.Event,
    *,
    is_new: bool = True,
    may_die: bool = False,
) -> bool:
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    poll_s = _POLL_S
    while True:
        # Prefect reports a killed worker as ready for a while.
        if service.is_ready(record.port) and not record.process.is_ending():
            return True
        if cancelled.is_set():
            raise StartCancelledError
        if is_new and met_full_disk(home.log(service.name)):
            raise full_disk_met([home.path, temporary_root()])
        is_alive = record.process.is_alive()
        if not is_alive and (may_die or not is_new):
            return False
        if not is_alive or time.monotonic() > deadline_s:
            late = (
                f"was not ready within {_START_TIMEOUT_S:.0f} s, which may pass if other work keeps this machine busy"
            )
            fate = late if is_alive else "ended during startup"
            raise ConfigurationError(f"The embedded {service.name} {fate}: {_log_excerpt(service.name, home)}")
        time.sleep(poll_s)
        poll_s = min(poll_s * _POLL_GROWTH, _LONGEST_POLL_S)


def _log_excerpt(name: ServiceName, home: Home) -> str:
    log = home.log(name)
    text = log.read_text(errors="replace") if log.exists() else ""
    lines = [message_of(line.strip()) for line in text.splitlines() if line.strip()]
    excerpt = " | ".join(lines[-3:])[-_EXCERPT_CHARACTERS:] or "no output"
    return f"{excerpt} (full log: {log})"


def _marker(name: ServiceName, home: Home) -> str:
    return f"{name}:{home.path}"
