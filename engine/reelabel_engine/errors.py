"""The errors of questions and models, which the engine's process and the application share.

ReelabelError
├── JobError                        one question cannot be answered
│   ├── PromptError
│   │   ├── PromptTooLongError          prompt_too_long
│   │   ├── SpecialTokensError          special_tokens
│   │   └── ChoicesAmbiguousError       choices_ambiguous
│   └── InferenceError                  inference_failed
└── ModelError                      the model cannot be loaded: the run cannot continue
"""

from __future__ import annotations

from reelabel.errors import JobError, ReelabelError


class PromptError(JobError):
    """The job's text is at fault."""

    code = "prompt_error"
    stage = "prompt"


class PromptTooLongError(PromptError):
    """The rendered prompt has more tokens, or spans more positions, than the model takes."""

    code = "prompt_too_long"


class SpecialTokensError(PromptError):
    """The text spells special tokens of the model, and would be obeyed."""

    code = "special_tokens"


class ChoicesAmbiguousError(PromptError):
    """The tokenizer does not distinguish the choices by a single token."""

    code = "choices_ambiguous"


class InferenceError(JobError):
    """The engine rejects the question, crashes on it, or returns no usable answer."""

    code = "inference_failed"
    stage = "inference"


class ModelError(ReelabelError):
    """The model cannot be loaded."""

    code = "model_invalid"
