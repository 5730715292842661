"""`reelabel classify`, of a manifest or of videos that are all asked one question."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flows.cli.console import print_line
from flows.cli.context import ready_to_run, running_services
from flows.cli.runs.run import run_flow_locally
from flows.cli.runs.summary import print_summary
from flows.run.request import ClassifyRequest
from flows.run.spec import require_model
from infra.embedded import ServiceName
from infra.program import command
from infra.settings import load_settings
from reelabel.sources.object_info import absolute_uri
from reelabel.sources.object_store import ObjectStore
from reelabel.text import pluralize
from tasks.frame_cache.pool import video_store

if TYPE_CHECKING:
    from pydantic import BaseModel

    from infra.settings import Settings
    from tasks.manifest.one_question import QuestionOnVideos, VideoJobs


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassifyOptions:
    """Options of `reelabel classify`; `given` has the fields of the request but the manifest."""

    source: str
    question: QuestionOnVideos | None
    given: BaseModel
    id_file: str | None = None

    def find_videos(self) -> VideoJobs | None:
        """List the videos of the question, and say what is left out; return None for a manifest."""
        if self.question is None:
            return None
        with running_services(*([ServiceName.S3] if self.source.startswith("s3://") else [])) as settings:
            found = self.question.find_videos(video_store(settings))
        for note in found.notes:
            print_line(note)
        return found

    def manifest_uri(self, videos: VideoJobs | None, settings: Settings) -> str:
        """Return the URI of the manifest; that of videos is written to the store."""
        if videos is None:
            return absolute_uri(self.source)
        assert settings.store.uri is not None
        uri = videos.write(ObjectStore(settings.store, settings.web), settings.store.uri)
        print_line(f"The manifest of {pluralize(len(videos.jobs), 'video')}: {uri}")
        return uri

    def request(self, manifest: str) -> ClassifyRequest:
        """Return what the flow is asked for."""
        return ClassifyRequest.of(manifest=manifest, **dict(self.given))

    @property
    def command(self) -> str:
        """The command line with these options."""
        asked = {"prompt": self.question.prompt} if self.question else {}
        asked |= {"choices": _listed(self.question.choices)} if self.question and self.question.choices else {}
        return command("classify", self.source, **asked, given=self.given)


def _listed(choices: tuple[str, ...]) -> str:
    return json.dumps(choices, ensure_ascii=False) if any("|" in each for each in choices) else "|".join(choices)


def run_classify(options: ClassifyOptions) -> int:
    """Answer a manifest in this process and print the summary; return the exit code.

    It is also 1 if the names of videos cannot be used.
    """
    videos = options.find_videos()
    # Without waiting for services.
    require_model("classify", options.request(absolute_uri(options.source)).parameters, load_settings())
    with ready_to_run() as settings:
        request = options.request(options.manifest_uri(videos, settings))
        run_id = run_flow_locally(request, settings, id_file=options.id_file)
        code = print_summary(settings, run_id)
    return 1 if videos and videos.left_out else code
