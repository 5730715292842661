"""Proxies of the environment, which must not be used for servers of this machine."""

from __future__ import annotations

import importlib.util
import os
from urllib.request import getproxies, proxy_bypass

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def bypass_proxies() -> list[str]:
    """Exclude loopback from proxies, and unset SOCKS proxies that httpx could not use; return the variables unset."""
    unset = []
    if importlib.util.find_spec("socksio") is None:
        unset = sorted(name for name, value in os.environ.items() if _is_socks(name, value))
    for name in unset:
        del os.environ[name]
    if getproxies() and not all(proxy_bypass(host) for host in _LOOPBACK):
        around = os.environ.get("no_proxy") or os.environ.get("NO_PROXY")
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(filter(None, (around, *_LOOPBACK)))
    return unset


def _is_socks(name: str, value: str) -> bool:
    return name.lower().endswith("_proxy") and value.lower().startswith("socks")
