"""The modules that a decoding process must import before it is locked down, to be able to unpickle a request."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reelabel.errors import ConfigurationError
from reelabel.sampling.registry import BUILT_IN, find_sampler

if TYPE_CHECKING:
    from reelabel.pool.messages import Setup
    from reelabel.sampling.options import Sampling

_MAIN = "__main__"


@dataclass(frozen=True, slots=True)
class Modules:
    """Modules by their names, of which one may be the main module."""

    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, sampling: Sampling) -> Modules:
        """Return the modules of the samplers that other packages, or the program itself, have registered."""
        names = {sampling.sampler, sampling.dense_sampler or sampling.sampler} - BUILT_IN.keys()
        specs = [find_sampler(name) for name in names]
        functions = [each for spec in specs for each in (spec.choose, spec.instants_s) if each is not None]
        return cls(frozenset(getattr(each, "__module__", None) or type(each).__module__ for each in functions))

    def added_to(self, setup: Setup) -> dict[str, Any]:
        """Return the fields of a setup that also imports these."""
        names = {*setup.modules, *self.names}
        main = _main_module() if _MAIN in names else {}
        return {"modules": tuple(sorted(names)), "main": main}


def _main_module() -> dict[str, str]:
    """Return how to import the main module in another process, as `multiprocessing` does.

    Raises:
        ConfigurationError: It is an interactive session.
    """
    main = sys.modules[_MAIN]
    if name := getattr(main.__spec__, "name", None):
        return {"init_main_from_name": name}
    if path := getattr(main, "__file__", None):
        return {"init_main_from_path": path}
    raise ConfigurationError(
        "A sampler is defined in an interactive session, where decoding processes cannot import it; "
        "move it to a module."
    )
