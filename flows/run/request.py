"""The parameters of the flows: one model for each, with the descriptions that its form shows."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Self

from pydantic import BeforeValidator, Field, ValidationError

from infra.settings import ChunkOptions, DescribeOptions, MaxTokens, PromptOptions, SamplingOptions, VideoPruningRate
from infra.settings.types import Section, SettingsSection, Timezone, title_of
from infra.validation import describe_fault
from reelabel.errors import ConfigurationError
from tasks.results.selection import Selection

# An emptied field of a form, or an unset shell variable, is an empty string.
Dataset = Annotated[Annotated[str, Field(max_length=200)] | None, BeforeValidator(lambda name: name or None)]
Manifest = Annotated[str, Field(min_length=1)]
_SELECTION = Section("Job selection")


class QuestionOptions(SettingsSection):
    """Changes of a run to its spec; empty fields default to the settings, or to the run that a backfill corrects."""

    model: str | None = Field(None, max_length=1000)
    """Model folder or Hugging Face name; by default model.name, or in a backfill the earlier run's."""
    video_pruning_rate: VideoPruningRate = None
    max_tokens: MaxTokens = None
    sampling: SamplingOptions = SamplingOptions()
    """How frames are chosen."""
    prompts: PromptOptions = PromptOptions()
    """How questions are worded."""
    chunks: ChunkOptions = ChunkOptions()
    """Whether to ask about long videos chunk by chunk."""


NO_OVERRIDES = QuestionOptions()


class FlowRequest(SettingsSection):
    """Parameters of a flow; the text below a field describes it in forms and on the command line."""

    @classmethod
    def of(cls, **values: Any) -> Self:  # noqa: ANN401 - the fields' own
        """Validate what a user has passed.

        Raises:
            ConfigurationError: A value does not fit; the sentence names it as forms do.
        """
        try:
            return cls(**values)
        except ValidationError as fault:
            raise ConfigurationError(_sentence(fault)) from None

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of a flow run, as JSON values, but for those that have their default."""
        return self.model_dump(mode="json", exclude_defaults=True)


class RunRequest(FlowRequest):
    kind: ClassVar[str]

    manifest: Manifest
    """Parquet file of jobs, or a glob: a path, or s3://bucket/jobs/*.parquet."""
    dataset: Dataset = None
    """Name within which job ids are unique; if empty, the earlier run's."""
    force: bool = False
    """Also run jobs that have a valid label or description."""


class ManifestRequest(RunRequest):
    manifest: Manifest
    """Parquet file of jobs, or a glob: a path, or s3://bucket/jobs/*.parquet. Here and in the dataset, {scheduled_date}
    or {scheduled_date:%Y/%m} is replaced by the day for which the run was scheduled."""
    dataset: Dataset = None
    """Name within which job ids are unique; if empty, the manifest's file name, or the name of its folder for
    *.parquet, and with {scheduled_date} in the manifest, one for each date."""
    keep_going: bool = False
    """Run the valid rows of a manifest, and list the others with their reasons, instead of failing."""
    timezone: Timezone = "UTC"
    """Time zone of {scheduled_date} in the manifest and the dataset, such as Europe/Berlin."""
    may_be_empty: bool = False
    """Complete instead of failing if no manifest is found."""


class ClassifyRequest(ManifestRequest):
    kind: ClassVar[str] = "classify"

    once_per_duplicate: float | None = Field(None, ge=0.5, le=1)
    """Label one of several described videos that are at least this similar, such as 0.95 (see `reelabel duplicates`),
    and copy its answers to the others; if empty, label all."""
    overrides: QuestionOptions = NO_OVERRIDES
    """Model, sampling, prompts and chunks of this run; empty fields take the settings."""


class DescribeRequest(ManifestRequest):
    kind: ClassVar[str] = "describe"

    options: DescribeOptions = DescribeOptions()
    """What videos are compared with, and how; empty fields take the settings."""


class BackfillRequest(RunRequest):
    kind: ClassVar[str] = "backfill"

    ids: Annotated[list[str], _SELECTION] = Field([])
    """Ids of jobs to answer."""
    ids_file: Annotated[str | None, _SELECTION] = None
    """Text file with more ids, one per line: a path, or s3://bucket/ids.txt."""
    selection: Annotated[Selection, _SELECTION] = Selection()
    """Jobs to answer, selected by outcome."""
    dry_run: bool = False
    """Say what would be answered, and how long it may take; answer nothing."""
    overrides: QuestionOptions = NO_OVERRIDES
    """Model, sampling, prompts and chunks of this run; empty fields are as in the earlier run."""


class SurveyRequest(FlowRequest):
    manifest: Manifest
    """Parquet file of jobs, or a glob: a path, or s3://bucket/jobs/*.parquet."""
    sample: int | None = Field(None, ge=2)
    """Number of random clips to survey; if empty, all."""
    limit_s: float | None = Field(None, ge=0)
    """Seconds after which no further video is started; if empty, no limit."""
    keep_going: bool = False
    """Leave out invalid rows of the manifest."""
    model: str | None = Field(None, max_length=1000)
    """Model of the run that is estimated, whose sampler is native; by default model.name."""
    sampling: SamplingOptions = SamplingOptions()
    """How the run that is estimated chooses frames; empty fields take the settings."""


class EvaluateRequest(FlowRequest):
    manifest: Manifest
    """Parquet file of jobs with a filled-in column answer, or a glob: a path, or s3://bucket/jobs/*.parquet."""
    samplers: list[str] = Field(["keyframes"], min_length=1, max_length=50)
    """How frames are chosen, each as SAMPLER[:FRAMES][,OPTION=VALUE...], such as keyframes, uniform:32 or
    qwen3_vl,fps=4; native is the sampler that the model was trained with."""
    models: list[str] = Field([], max_length=20)
    """Model folders or hub names, each combined with every sampler; if empty, the setting."""
    prompts: PromptOptions = PromptOptions()
    """How questions are worded."""
    chunks: ChunkOptions = ChunkOptions()
    """Whether to ask about long videos chunk by chunk."""
    max_tokens: MaxTokens = None
    dataset: Dataset = None
    """Name within which job ids are unique; if empty, the manifest's file name."""
    baseline: str | None = Field(None, max_length=200)
    """Sampler to compare with; if empty, native, or without references the first sampler."""
    references: bool = True
    """Also compare the samplers native and uniform:16."""
    live: str | None = Field(None, max_length=1000)
    """Also compare live sessions of the server at this address; if empty, none."""
    mlflow: bool = False
    """Log each candidate to MLflow, at MLFLOW_TRACKING_URI."""


def _sentence(fault: ValidationError) -> str:
    first = fault.errors(include_url=False)[0]
    labels = [title_of(str(name)) for name in first["loc"] if not isinstance(name, int)]
    where = ", ".join([*labels[:1], *(label[:1].lower() + label[1:] for label in labels[1:])])
    return f"{where}: {describe_fault(first).rstrip('.')}."
