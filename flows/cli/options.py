"""Shared options: a command gets one for each field of a model, and receives the model."""

from __future__ import annotations

import inspect
from functools import partial, wraps
from itertools import chain
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

import typer
from pydantic import BaseModel, ValidationError, create_model

from flows.run.request import (
    BackfillRequest,
    ClassifyRequest,
    DescribeRequest,
    EvaluateRequest,
    QuestionOptions,
    SurveyRequest,
)
from infra.program import split_list
from infra.settings import SamplingOptions
from infra.settings.types import Section, meaning_of
from infra.validation import first_fault
from reelabel.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pydantic.fields import FieldInfo


def example(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """End a command's help with an example."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        function.__doc__ = f"{inspect.getdoc(function)}\n\n[dim]Example:[/dim] {text}"
        return function

    return add


_DATASET = "Name within which job ids are unique. Default: the manifest's file name."
Dataset = Annotated[str | None, typer.Option(help=_DATASET)]
IdFile = Annotated[
    str | None, typer.Option(metavar="FILE", hidden=True, help="Write the run's id to this file before the run starts.")
]
_DRY_RUN = "Estimate coverage and cost from up to 300 clips (30 s), and exit as the run would."
DryRun = Annotated[bool, typer.Option("--dry-run", help=_DRY_RUN)]
LabelledManifest = Annotated[
    str, typer.Argument(help="Parquet file of jobs, or a glob; its column answer must be filled in.")
]
Run = Annotated[str, typer.Argument(help="Run id, a prefix of it, or 'last'.")]
Raw = Annotated[
    bool, typer.Option("--raw", help="Write text to CSV unchanged, even where a spreadsheet would run it as a formula.")
]
Choice = TypeVar("Choice", bound=BaseModel)


def with_option_group(
    command: Callable[..., None],
    group: str,
    model: type[Choice],
    *,
    hints: Mapping[str, str] | None = None,
    shown: frozenset[str] | None = None,
) -> Callable[..., None]:
    """Replace the parameter `group` of a command, in its place, with an option for each field of a model.

    A field that is a model has an option for each of its own fields. The description is the help, unless `hints` has
    another; a `Section` is the panel, also of the fields of a model in it. `--help` shows the fields in `shown`, or
    all; a field with the name of another parameter is no option.
    """
    signature = inspect.signature(command, eval_str=True)
    options = list(_options(model, None, hints or {}, shown, own={*signature.parameters} - {group}))

    @wraps(command)
    def called(**values: Any) -> None:  # noqa: ANN401 - the command's own
        chosen = {option.name: value for option in options if (value := values.pop(option.name)) is not None}
        command(**values, **{group: choose(model, chosen)})

    listed = [options if name == group else [parameter] for name, parameter in signature.parameters.items()]
    called.__signature__ = signature.replace(parameters=[*chain(*listed)])  # type: ignore[attr-defined]
    return called


def with_options(
    group: str, model: type[BaseModel], hints: Mapping[str, str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add an option for each field of a model to a command, which receives them as its parameter `group`."""
    return partial(with_option_group, group=group, model=model, hints=hints)


def choose(model: type[Choice], values: dict[str, Any]) -> Choice:
    """Build a model, including nested ones, from option values by field; an error names its option."""
    fields: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        group = _group_of(field)
        if group:
            fields[name] = choose(group, values)
        elif name in values:
            kinds = (field.annotation, *get_args(field.annotation))
            is_list = any(get_origin(kind) in {list, tuple} for kind in kinds)
            fields[name] = split_list(values[name]) if is_list else values[name]
    try:
        return model(**fields)
    except ValidationError as error:
        where, value, clause = first_fault(error)
        end = "" if clause.endswith("?") else "."
        raise ConfigurationError(f"{_flag(where.split('.')[0])} {value}: {clause}{end}") from None


def _options(
    model: type[BaseModel], panel: str | None, hints: Mapping[str, str], shown: frozenset[str] | None, own: set[str]
) -> Iterator[inspect.Parameter]:
    for name, field in model.model_fields.items():
        group = _group_of(field)
        section = next((each.title for each in field.metadata if isinstance(each, Section)), panel)
        if group:
            yield from _options(group, section, hints, shown, own)
        elif name not in own:
            yield _option(name, field, section, hints.get(name), hidden=shown is not None and name not in shown)


def _group_of(field: FieldInfo) -> type[BaseModel] | None:
    """Return the nested model whose fields are options; None if the field itself is an option."""
    kind = field.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _option(name: str, field: FieldInfo, panel: str | None, hint: str | None, *, hidden: bool) -> inspect.Parameter:
    is_union = get_origin(field.annotation) in {Union, UnionType}
    each_kind = get_args(field.annotation) if is_union else (field.annotation,)
    kinds = [_bare(kind) for kind in each_kind if kind is not type(None)]
    kind: Any = kinds[0] if len(kinds) == 1 else str  # the model parses unions
    text = hint or meaning_of(field)
    can_be_off = kind is bool and field.default is not False
    flag = f"{_flag(name)}/--no-{_flag(name)[2:]}" if can_be_off else _flag(name)
    metavar = "|".join(map(_metavar, kinds)) if len(kinds) > 1 else None
    option = typer.Option(flag, help=text, rich_help_panel=panel, metavar=metavar, hidden=hidden)
    # Literals and times as text: our own message suggests the closest one, or a form.
    kind = kind if kind in {bool, int, float} else str
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _bare(kind: Any) -> Any:  # noqa: ANN401 - any annotation
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _metavar(kind: Any) -> str:  # noqa: ANN401 - any annotation
    return "|".join(map(str, get_args(kind))) or f"<{kind.__name__}>"


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


# The options that most runs need; `--help-all` shows the others.
_SAMPLING_OPTIONS = frozenset({"sampler", "num_frames"})
_RUN_OPTIONS = _SAMPLING_OPTIONS | {"model", "chunk_s", "dataset", "force", "keep_going"}
_BACKFILL_OPTIONS = _RUN_OPTIONS | {"ids", "ids_file", "failed", "code", "missing", "margin_below", "run", "dry_run"}
_EVALUATE_OPTIONS = frozenset({"dataset", "baseline", "references", "live", "mlflow", "chunk_s"})
_SURVEY_OPTIONS = _SAMPLING_OPTIONS | {"sample", "limit_s", "keep_going"}
_RUN_HINTS = {"dataset": _DATASET, "keep_going": "Run the valid rows, list the others in ./rejected.csv, and exit 1."}
_HINTS = {
    "sampler": "Frame sampler; see `reelabel samplers`.",
    "num_frames": "Frames per video; -1 for all.",
    "model": "Model folder or Hugging Face name.",
    "chunk_s": "Ask about each chunk of this many seconds.",
    "motion_tasks": "With the sampler auto: comma-separated tasks that always use the dense sampler.",
    "still_tasks": "With the sampler auto: comma-separated tasks that always use keyframes.",
}
_BACKFILL_HINTS = _HINTS | {
    "ids": "Comma-separated job ids; quote one that has a comma, as in CSV.",
    "ids_file": "File with one job id per line; - is standard input.",
    "dry_run": _DRY_RUN,
}


with_overrides = partial(with_option_group, group="overrides", model=QuestionOptions, hints=_HINTS, shown=_RUN_OPTIONS)
with_sampling = partial(
    with_option_group, group="sampling", model=SamplingOptions, hints=_HINTS, shown=_SAMPLING_OPTIONS
)


def with_request(
    request: type[BaseModel], *others: str, hints: Mapping[str, str], shown: frozenset[str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add an option for each field of a request, except the manifest and `others`; the parameter is `options`."""
    named = {name: about for name, about in request.model_fields.items() if name not in {"manifest", *others}}
    fields: Any = {name: (about.rebuild_annotation(), about) for name, about in named.items()}
    model = create_model(f"{request.__name__}Options", **fields)
    return partial(with_option_group, group="options", model=model, hints=hints, shown=shown)


with_classify = with_request(ClassifyRequest, "may_be_empty", hints=_HINTS | _RUN_HINTS, shown=_RUN_OPTIONS)
with_describe = with_request(DescribeRequest, "may_be_empty", hints=_RUN_HINTS)
with_backfill = with_request(BackfillRequest, hints=_BACKFILL_HINTS, shown=_BACKFILL_OPTIONS)
with_evaluate = with_request(EvaluateRequest, "samplers", "models", hints=_HINTS | _RUN_HINTS, shown=_EVALUATE_OPTIONS)
with_survey = with_request(SurveyRequest, hints=_HINTS, shown=_SURVEY_OPTIONS)
