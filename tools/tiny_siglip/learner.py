"""Losses for training the tiny SigLIP."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.nn.functional as nn

from tools.tiny_siglip.architecture import MAX_TOKENS, WIDTH
from tools.tiny_siglip.pictures import ATTRIBUTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from tools.tiny_siglip.pictures import Pictures

_HEAD_WEIGHT = 4.0


@dataclass(frozen=True, kw_only=True)
class Learner:
    """The model, its tokenizer, and an auxiliary head that is not saved.

    Attributes:
        model: transformers' SiglipModel.
        tokenizer: Its tokenizer.
        head: Maps a picture's vector to its colours and shapes; without it, they are learnt late.
    """

    model: Any
    tokenizer: Any
    head: torch.nn.Linear

    @classmethod
    def of(cls, model: Any, tokenizer: Any) -> Learner:  # noqa: ANN401
        return cls(model=model, tokenizer=tokenizer, head=torch.nn.Linear(WIDTH, len(ATTRIBUTES)))

    def embed_pictures(self, images: npt.NDArray[np.uint8]) -> torch.Tensor:
        """Embed pictures (B, S, S, 3); shape (B, D), not normalised."""
        pixels = torch.from_numpy(np.moveaxis(images, -1, 1).copy()).float() / 127.5 - 1
        return self.model.get_image_features(pixel_values=pixels).pooler_output

    def embed_texts(self, texts: Sequence[str]) -> torch.Tensor:
        """Embed texts as they are when served: padded to the full length, without a mask; shape (C, D)."""
        tokens = self.tokenizer(
            list(texts), padding="max_length", max_length=MAX_TOKENS, truncation=True, return_tensors="pt"
        )
        return self.model.get_text_features(input_ids=tokens["input_ids"]).pooler_output

    def loss(self, pictures: Pictures) -> torch.Tensor:
        """Return the sigmoid loss (Zhai et al. 2023) over all pairs, plus that of the head."""
        vectors = self.embed_pictures(pictures.images)
        texts = nn.normalize(self.embed_texts(pictures.captions), dim=-1)
        similarity = nn.normalize(vectors, dim=-1) @ texts.T
        logits = similarity * self.model.logit_scale.exp() + self.model.logit_bias
        pairs = nn.binary_cross_entropy_with_logits(logits, torch.from_numpy(pictures.is_true).float())
        shown = nn.binary_cross_entropy_with_logits(self.head(vectors), torch.from_numpy(pictures.shows).float())
        return pairs * logits.shape[1] / 8 + _HEAD_WEIGHT * shown

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def accuracy(self, pictures: npt.NDArray[np.uint8], truths: Sequence[int], bank: Sequence[str]) -> float:
        """Return the share of pictures whose nearest text of a bank is the true one."""
        texts = nn.normalize(self.embed_texts(bank), dim=-1)
        nearest = (self.embed_pictures(pictures) @ texts.T).argmax(dim=1)
        return float((nearest == torch.tensor(truths)).float().mean())
