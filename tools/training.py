"""Training of both tiny models: Muon and AdamW, a warm-up, and a cosine decay."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

_WARM_UP_STEPS = 50


class Training:
    """Optimizers of a model and of a head that is dropped afterwards.

    The matrices of the layers are optimized with Muon, which needs fewer steps, and everything else with AdamW.
    """

    def __init__(self, model: torch.nn.Module, head: torch.nn.Module, *, outer: Iterable[str]) -> None:
        """Create the optimizers; `outer` are parts of the names of matrices that are not of the layers."""
        outer = tuple(outer)
        matrices: list[torch.nn.Parameter] = []
        others: list[torch.nn.Parameter] = list(head.parameters())
        for name, parameter in model.named_parameters():
            is_inner = parameter.dim() == 2 and not any(part in name for part in outer)  # noqa: PLR2004
            (matrices if is_inner else others).append(parameter)
        self._parameters = [*model.parameters(), *head.parameters()]
        self._optimizers = [
            torch.optim.Muon(matrices, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"),
            torch.optim.AdamW(others, weight_decay=0.01, betas=(0.9, 0.98)),
        ]

    def begin_step(self, step: int, steps: int, *, peak_rate: float, least: float = 0.0) -> None:
        """Reset gradients and set the rate of a step, from 1; `least` is the share of the peak at the end."""
        decay = 0.5 * (1 + math.cos(math.pi * step / steps)) * (1 - least) + least
        for optimizer in self._optimizers:
            optimizer.zero_grad()
            for group in optimizer.param_groups:
                group["lr"] = peak_rate * min(1, step / _WARM_UP_STEPS) * decay

    def end_step(self, loss: torch.Tensor) -> None:
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
