"""Check a prompt's positions before it reaches an engine, whose process dies of one beyond its rotary table.

In most models, a prompt's last position is its number of tokens. With M-RoPE, a video's tokens have positions of their
own, which in Qwen2.5-VL and its relatives grow with the time between frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.model_executor.model_loader import get_model_cls
from vllm.multimodal.inputs import MultiModalFeatureSpec

from infra.errors import InferenceError, PromptTooLongError

if TYPE_CHECKING:
    from vllm.config import ModelConfig

# vLLM computes its table for four times as many positions as the model has, because of videos' times.
_TABLE_FACTOR = 4
_ENLARGED = {"default", "openpangu"}


class PositionLimit:
    """The positions that a model has; checks each rendered prompt with the model's own code.

    Attributes:
        limit: Number of positions; None if the number of tokens, which vLLM checks, is all there is to check.
    """

    def __init__(self, config: ModelConfig) -> None:
        """Prepare the check; loads no weights."""
        self.limit = table_length(config) if config.uses_mrope else None
        model = get_model_cls(config)
        # Its method needs the configuration alone, so the model is never initialised.
        self._model: Any = model.__new__(model)
        vars(self._model)["config"] = getattr(config.hf_config, "thinker_config", config.hf_config)

    def check(self, rendered: Any) -> None:  # noqa: ANN401 - vLLM's EngineInput
        """Raise if a prompt has a position that the model lacks.

        Raises:
            PromptTooLongError: It has.
            InferenceError: Its positions cannot be computed, in the engine either.
        """
        if self.limit is None:
            return
        try:
            positions, _ = self._model.get_mrope_input_positions(rendered["prompt_token_ids"], _features(rendered))
        except AttributeError:  # of a model that needs more, such as MiniCPM-V 4.7
            return
        except Exception as error:
            raise InferenceError(f"The model cannot number the positions of the prompt: {error}.") from error
        first, last = int(positions.min()), int(positions.max())
        if first < 0 or last >= self.limit:
            raise PromptTooLongError(
                f"The times of the video's frames take the prompt to position {first if first < 0 else last:,}, but "
                f"the model's positions end at {self.limit - 1:,}; ask about a segment of the video (start_s, end_s)."
            )


def _features(rendered: Any) -> list[MultiModalFeatureSpec]:  # noqa: ANN401 - vLLM's EngineInput
    return [
        MultiModalFeatureSpec(data=item, modality=modality, identifier="", mm_position=place)
        for modality, places in rendered["mm_placeholders"].items()
        for item, place in zip(rendered["mm_kwargs"][modality], places, strict=True)
    ]


def table_length(config: ModelConfig) -> int:
    """Return the length of the rotary table, or less; see `get_rope` of vLLM."""
    text = config.hf_text_config
    rope: dict[str, Any] = getattr(text, "rope_parameters", None) or {}
    kind = rope.get("rope_type", "default")
    if kind == "yarn":
        return int(rope["original_max_position_embeddings"] * _TABLE_FACTOR * rope["factor"])
    return int(text.max_position_embeddings) * (_TABLE_FACTOR if kind in _ENLARGED else 1)
