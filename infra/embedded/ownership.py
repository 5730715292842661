"""The home folder is used only if it belongs, with all that is in it, to the user that uses it.

What is in it decides which servers commands trust and what these run, so that whoever could have put it there could act
as that user, even as root.
"""

from __future__ import annotations

import os
import pwd
import stat
from contextlib import suppress
from typing import TYPE_CHECKING

from reelabel.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

_UNPRIVILEGED_USER = "nobody"
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ENTERED_BY_OTHERS = stat.S_IXGRP | stat.S_IXOTH


def require_own(home: Path, *, postgres: Path) -> None:
    """Check that a home folder, all in it, and what links in it lead to are this user's, and only theirs to write.

    Args:
        home: The folder.
        postgres: The folder of Postgres, which may also belong to the user as whom Postgres runs.

    Raises:
        ConfigurationError: Something belongs to another user, or others can write to it.
    """
    data = postgres / "data"
    pending = [(home, {os.geteuid()}, True)]
    while pending:
        path, owners, is_exposed = pending.pop()
        if path == postgres and os.geteuid() == 0:
            owners = {*owners, unprivileged_user().pw_uid}
        with suppress(FileNotFoundError):  # removed meanwhile, or a link to nothing
            status = path.lstat()
            _require_owner(path, status, owners)
            if stat.S_ISLNK(status.st_mode):
                status, is_exposed = path.stat(), True
                _require_owner(path, status, owners)
            elif stat.S_ISDIR(status.st_mode) and path != data:  # which Postgres itself checks
                is_entered = is_exposed and bool(status.st_mode & _ENTERED_BY_OTHERS)
                pending += [(inner, owners, is_entered) for inner in path.iterdir()]
            if is_exposed and status.st_mode & _WRITABLE_BY_OTHERS:
                raise ConfigurationError(
                    f"Other users can write to {path}, which this command would trust; run chmod go-w {path}, or set "
                    "REELABEL_HOME to a folder of yours."
                )


def unprivileged_user() -> pwd.struct_passwd:
    """Return the user as whom Postgres runs if this one is root."""
    return pwd.getpwnam(_UNPRIVILEGED_USER)


def _require_owner(path: Path, status: os.stat_result, owners: set[int]) -> None:
    if status.st_uid not in owners:
        raise ConfigurationError(
            f"{path} belongs to {_name_of(status.st_uid)}, not to {_name_of(os.geteuid())}; run this command as that "
            "user, or set REELABEL_HOME to a folder of yours."
        )


def _name_of(user_id: int) -> str:
    try:
        return f"the user {pwd.getpwuid(user_id).pw_name}"
    except KeyError:
        return f"the user with the id {user_id}"
