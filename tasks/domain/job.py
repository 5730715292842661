"""Jobs, the views that they share, and shards of them."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from reelabel.digest import json_digest
from reelabel.sampling.registry import find_sampler
from reelabel.segment import WHOLE, Segment
from reelabel.sources.object_info import unsigned_uri
from tasks.domain.passes import choose_pass

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reelabel.sampling.options import Sampling
    from tasks.domain.passes import FramePass

MediumKind = Literal["video", "image"]
# Maximum videos and images of a job, which are all in memory at once, and in one prompt.
MAX_MEDIA = 16
# Maximum jobs of a shard.
MAX_JOBS = 200
_URLS = {"url", "video", "video_url", "image", "image_url"}  # in the parts of messages


class Medium(NamedTuple):
    kind: MediumKind
    uri: str


class MediaCounts(NamedTuple):
    """Numbers of videos and of images that a question shows, at most."""

    videos: int = 1
    images: int = 0

    @classmethod
    def of(cls, media: Iterable[Medium]) -> MediaCounts:
        counts = Counter(medium.kind for medium in media)
        return cls(counts["video"], counts["image"])

    def larger(self, other: MediaCounts) -> MediaCounts:
        return MediaCounts(max(self.videos, other.videos), max(self.images, other.images))

    @property
    def are_several(self) -> bool:
        """Whether a question may show more than one video."""
        return self != ONE_VIDEO

    def __str__(self) -> str:
        """Return a phrase such as `2 videos and 1 image`."""
        named = ((self.videos, "video"), (self.images, "image"))
        return " and ".join(f"{count} {name}{'' if count == 1 else 's'}" for count, name in named if count)


ONE_VIDEO = MediaCounts()


@dataclass(frozen=True, kw_only=True)
class Job:
    """One question about a video, or about several videos and images.

    Attributes:
        job_id: The user's identifier, unique within a dataset.
        video_uri: `s3://`, `file://`, `https://`, `http://`, `data:` or a path; of several videos, the first.
        prompt: The question, without its choices.
        choices: At least two different answers, in the order shown to the model; empty for an answer in words.
        start_s: Start of the segment in seconds; None is the video's start.
        end_s: End of the segment in seconds; None is the video's end.
        messages: OpenAI chat messages as JSON text, if the manifest has them instead of `video_uri` and `prompt`.
        system_prompt: Replaces the spec's system prompt.
        template: Replaces the spec's prompt template.
        examples: Replaces the spec's solved examples.
        answer: The known answer, one of `choices`; never shown to the model.
        task: The user's grouping for evaluation.
        subtask: A finer grouping.
        schema: JSON schema, as text, of an answer in words; None leaves its words free.
        media: The videos and images in the order shown, if there is more than one video; None for one video.
        chunk_s: Seconds of a chunk, if the plan cuts the job into chunks; see `tasks.domain.chunks`.
        asks_again: Whether chunks that already have an answer are answered again.
        group: Jobs of a group ask the same question about near-duplicate videos: the first one is answered, and the
            others get its answer. None if it is in no group.
        fingerprint: Version of its video when the groups were made.
    """

    job_id: str
    video_uri: str
    prompt: str
    choices: tuple[str, ...]
    start_s: float | None = None
    end_s: float | None = None
    messages: str | None = None
    system_prompt: str | None = None
    template: str | None = None
    examples: str | None = None
    answer: str | None = None
    task: str | None = None
    subtask: str | None = None
    schema: str | None = None
    media: tuple[Medium, ...] | None = None
    chunk_s: float | None = None
    asks_again: bool = False
    group: str | None = None
    fingerprint: str | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """What frames are compared with to find relevant ones: each choice followed by the question, or the question.

        The choice comes first, as models cut long texts at their end.
        """
        return tuple(f"{choice} {self.prompt}" for choice in self.choices) or (self.prompt,)

    @cached_property
    def digest(self) -> str:
        """Hash of everything in the job that can change its answer, which the signature of a URL cannot.

        Fields that were added later are omitted if empty, so that existing labels stay valid.
        """
        added_later = {
            "template": self.template,
            "examples": self.examples,
            "schema": self.schema,
            "media": self.media and [(kind, unsigned_uri(uri)) for kind, uri in self.media],
        }
        return json_digest(
            {
                "video_uri": unsigned_uri(self.video_uri),
                "prompt": self.prompt,
                "choices": list(self.choices),
                "start_s": self.start_s,
                "end_s": self.end_s,
                "messages": self.messages and json.loads(self.messages, object_hook=_without_signatures),
                "system_prompt": self.system_prompt,
                **{name: value for name, value in added_later.items() if value is not None},
            },
        )

    @property
    def shown(self) -> tuple[Medium, ...]:
        """All videos and images, in the order shown."""
        return self.media or (Medium("video", self.video_uri),)


@dataclass(frozen=True, kw_only=True)
class Shard:
    """Jobs that are extracted, answered and retried together.

    Attributes:
        index: Position in the plan, from 0.
        jobs: At most MAX_JOBS; jobs on one video are adjacent.
    """

    index: int
    jobs: tuple[Job, ...] = field(repr=False)

    @property
    def video_uris(self) -> tuple[str, ...]:
        """URIs of the videos and images, each once, in order of first appearance."""
        return tuple(dict.fromkeys(medium.uri for job in self.jobs for medium in job.shown))


def _without_signatures(part: dict[str, Any]) -> dict[str, Any]:
    return {
        name: unsigned_uri(value) if name in _URLS and isinstance(value, str) else value for name, value in part.items()
    }


class View(NamedTuple):
    """The frames of one video, or the image, that some jobs share: extracted once, into one frame file.

    Attributes:
        shown: The pass that selects the frames.
        texts: `Job.texts`, if the sampler selects frames by them; empty otherwise.
    """

    video_uri: str
    shown: FramePass = "first"
    segment: Segment = WHOLE
    texts: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Unique name, which is the video id of a batch's questions."""
        segment = "" if self.segment.is_whole else str(self.segment)
        shown = "" if self.shown == "first" else self.shown
        texts = json_digest(list(self.texts)) if self.texts else ""
        return "\0".join(filter(None, (self.video_uri, segment, shown, texts)))  # a sign that no URI may contain


def views_of(job: Job, sampling: Sampling, *, dense: bool = False) -> tuple[View, ...]:
    """Return the views of a job's videos and images, in order; `dense` is for its escalation."""
    shown: FramePass = "dense" if dense else choose_pass(sampling, job)
    segment = Segment.of(job.start_s, job.end_s)  # of the only video, if there is one
    texts = job.texts if find_sampler(sampling.sampler).needs_question else ()
    return tuple(
        View(medium.uri, "image") if medium.kind == "image" else View(medium.uri, shown, segment, texts)
        for medium in job.shown
    )


def group_by_views(jobs: Iterable[Job], sampling: Sampling) -> dict[tuple[View, ...], list[Job]]:
    """Group jobs by the views of their first pass, in order of first appearance."""
    groups: dict[tuple[View, ...], list[Job]] = {}
    for job in jobs:
        groups.setdefault(views_of(job, sampling), []).append(job)
    return groups


def cluster_by_videos(jobs: Sequence[Job]) -> list[str]:
    """Return the cluster of each job: jobs that show the same video, or are linked by jobs that do, are in one.

    A cluster is named after one of its videos, whatever the order of jobs. Images do not link jobs: every job may show
    the same reference.
    """
    parents: dict[str, str] = {}

    def find(uri: str) -> str:
        while (parent := parents.setdefault(uri, uri)) != uri:
            parents[uri] = parents[parent]
            uri = parent
        return uri

    for job in jobs:
        roots = {find(medium.uri) for medium in job.shown if medium.kind == "video"}
        parents.update(dict.fromkeys(roots, min(roots)))
    return [find(next(medium.uri for medium in job.shown if medium.kind == "video")) for job in jobs]


def join_fingerprints(fingerprints: Sequence[str | None]) -> str | None:
    """Join the fingerprints of a job's media to that of its row; None if one is unknown."""
    known = [each for each in fingerprints if each is not None]
    if len(known) < len(fingerprints):
        return None
    return known[0] if len(known) == 1 else json.dumps(known)


def split_fingerprint(fingerprint: str | None, count: int) -> list[str | None]:
    """Split what `join_fingerprints` has joined; None for unknown fingerprints."""
    if fingerprint is None or count == 1:
        return [fingerprint] * count
    try:
        found = json.loads(fingerprint)
    except ValueError:
        return [None] * count
    return found if isinstance(found, list) and len(found) == count else [None] * count
