"""The errors of questions and models, which the engine's process and the application share.

ReelabelError
├── JobError                        one question cannot be answered
│   ├── PromptError
│   │   ├── PromptTooLongError          prompt_too_long
│   │   ├── SpecialTokensError          special_tokens
│   │   ├── ChoicesAmbiguousError       choices_ambiguous
│   │   └── SchemaRefusedError          schema_refused
│   └── InferenceError                  inference_failed
│       ├── AnswerCutShortError         answer_cut_short
│       └── AnswerNotJsonError          answer_not_json
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


class SchemaRefusedError(PromptError):
    """The grammar compiler of vLLM, or the server, cannot answer by the job's JSON schema."""

    code = "schema_refused"


class InferenceError(JobError):
    """The engine rejects the question, crashes on it, or returns no usable answer."""

    code = "inference_failed"
    stage = "inference"


class AnswerCutShortError(InferenceError):
    """The answer by the job's JSON schema ended at `max_tokens`, or the model's limit, before its JSON was complete."""

    code = "answer_cut_short"


class AnswerNotJsonError(InferenceError):
    """The answer by the job's JSON schema is no JSON, or none that can be stored."""

    code = "answer_not_json"


class ModelError(ReelabelError):
    """The model cannot be loaded."""

    code = "model_invalid"
