"""Every error we raise on purpose.

ReelabelError
├── JobError                        one job cannot succeed: recorded on its row, asked again on demand
│   ├── VideoError
│   │   ├── VideoMissingError           video_missing
│   │   ├── VideoRefusedError           video_refused
│   │   ├── VideoUnavailableError       video_unavailable
│   │   ├── VideoEmptyError             video_empty
│   │   ├── VideoUnreadableError        video_unreadable
│   │   ├── NoVideoStreamError          no_video_stream
│   │   ├── NoFramesError               no_frames
│   │   ├── SamplingRefusedError        sampling_refused
│   │   ├── VideoTooLargeError          video_too_large
│   │   ├── VideoChangedError           video_changed
│   │   ├── DecoderCrashedError         decoder_crashed
│   │   └── DecoderTimeoutError         decoder_timeout
│   ├── FrameFileError                  frame_file_damaged
│   ├── PromptError
│   │   ├── PromptTooLongError          prompt_too_long
│   │   └── ChoicesAmbiguousError       choices_ambiguous
│   └── InferenceError                  inference_failed
├── ObjectError                     one object of the store (callers turn it into the job's own error)
│   ├── ObjectMissingError              object_missing
│   ├── ObjectChangedError              object_changed
│   ├── ObjectTooLargeError             object_too_large
│   └── RangesIgnoredError              ranges_ignored
├── TransientError                  the same call may work later: Prefect retries the task
│   ├── StoreUnavailableError           store_unavailable
│   ├── DatabaseUnavailableError        database_unavailable
│   ├── EngineLostError                 engine_lost
│   ├── ServerUnavailableError          server_unavailable
│   ├── DecodersLostError               decoders_lost
│   └── DiskUnavailableError            disk_unavailable
├── LeaseLostError                  another worker has taken up the shard: nothing was written
├── PlanLostError                   a run's plan is gone from the store: it must be planned anew
├── NotReconciledError              the run ended, but its audit did not come out even
├── ManifestError                   the run cannot start: nothing has been written
│   └── ManifestMissingError            manifest_missing
├── ModelError                      the model cannot be loaded: the run cannot go on
└── ConfigurationError              a setting, a service or a password is wrong
    └── ObjectRefusedError              one object is refused, though the login is known

Each carries one message, so that it pickles, and a `code` that never changes once released.
"""

from __future__ import annotations

from typing import ClassVar


class ReelabelError(Exception):
    """Anything that Reelabel explains to its user.

    Attributes:
        code: Stable identifier, stored on failure rows and printed by the command line.
    """

    code: ClassVar[str] = "reelabel_error"

    def __init__(self, message: str) -> None:
        """Keep one sentence that says what is wrong, where, and what to do."""
        super().__init__(message)
        self.message = message


class JobError(ReelabelError):
    """One job cannot succeed: it is recorded on its row, and asked again only on demand.

    Attributes:
        stage: Where in the pipeline: fetch, decode, cache, prompt or inference.
    """

    code = "job_error"
    stage: ClassVar[str] = "decode"


class VideoError(JobError):
    """The fault lies in the job's video.

    Attributes:
        fingerprint: Which version of the video; None where it could not be looked at.
    """

    code = "video_error"
    fingerprint: str | None = None


class VideoMissingError(VideoError):
    """No object or file stands at the job's URI."""

    code = "video_missing"
    stage = "fetch"


class VideoRefusedError(VideoError):
    """The source may not be read, or its URI cannot be a source."""

    code = "video_refused"
    stage = "fetch"


class VideoUnavailableError(VideoError):
    """A web server did not give the video, after every attempt; the next run asks again."""

    code = "video_unavailable"
    stage = "fetch"


class VideoEmptyError(VideoError):
    """The object or file has no bytes."""

    code = "video_empty"
    stage = "fetch"


class VideoUnreadableError(VideoError):
    """FFmpeg cannot open the bytes as any container."""

    code = "video_unreadable"


class NoVideoStreamError(VideoError):
    """The container opens but holds no video stream."""

    code = "no_video_stream"


class NoFramesError(VideoError):
    """The video stream yields no frame."""

    code = "no_frames"


class SamplingRefusedError(VideoError):
    """The sampler cannot choose frames of such a video."""

    code = "sampling_refused"


class VideoTooLargeError(VideoError):
    """The source, or one frame of it, exceeds the configured limits."""

    code = "video_too_large"


class VideoChangedError(VideoError):
    """The source was replaced while it was being read."""

    code = "video_changed"
    stage = "fetch"


class DecoderCrashedError(VideoError):
    """The decoding process died on this video."""

    code = "decoder_crashed"


class DecoderTimeoutError(VideoError):
    """The decoding process passed its time limit on this video."""

    code = "decoder_timeout"


class FrameFileError(JobError):
    """A cached frame file is damaged and could not be made again."""

    code = "frame_file_damaged"
    stage = "cache"


class PromptError(JobError):
    """The fault lies in the job's text."""

    code = "prompt_error"
    stage = "prompt"


class PromptTooLongError(PromptError):
    """The rendered prompt has more tokens than the model takes."""

    code = "prompt_too_long"


class ChoicesAmbiguousError(PromptError):
    """The tokenizer cannot tell the choices apart by one token."""

    code = "choices_ambiguous"


class InferenceError(JobError):
    """The engine refuses the question, dies on it, or gives no usable answer."""

    code = "inference_failed"
    stage = "inference"


class ObjectError(ReelabelError):
    """The fault lies in one object or file of a store."""

    code = "object_error"


class ObjectMissingError(ObjectError):
    """Nothing stands at the URI."""

    code = "object_missing"


class ObjectChangedError(ObjectError):
    """The object is no longer the one that was looked at."""

    code = "object_changed"


class ObjectTooLargeError(ObjectError):
    """The object has more bytes than may be read."""

    code = "object_too_large"


class RangesIgnoredError(ObjectError):
    """The server gives whole objects only."""

    code = "ranges_ignored"


class TransientError(ReelabelError):
    """The same call may work later.

    Attributes:
        was_waited_for: It has failed for so long that it is not worth another try.
    """

    code = "transient"
    was_waited_for = False


class StoreUnavailableError(TransientError):
    """The object store did not answer, or answered with a server error."""

    code = "store_unavailable"


class DatabaseUnavailableError(TransientError):
    """Postgres did not answer."""

    code = "database_unavailable"


class DiskUnavailableError(TransientError):
    """A disk of this machine takes no file, as where it is full."""

    code = "disk_unavailable"


class EngineLostError(TransientError):
    """The engine's process died or hangs."""

    code = "engine_lost"


class EngineClosedError(ReelabelError):
    """The engine was closed while it was asked: the run is ending."""

    code = "engine_closed"


class ServerUnavailableError(TransientError):
    """The server that answers questions did not, or answered with a server error."""

    code = "server_unavailable"


class DecodersLostError(TransientError):
    """Decoding processes are killed faster than they can be started."""

    code = "decoders_lost"


class LeaseLostError(ReelabelError):
    """Another worker has taken up the shard, or its plan was closed; nothing was written."""

    code = "lease_lost"


class PlanLostError(ReelabelError):
    """The files of a plan, or what stands beside them, are gone from the store."""

    code = "plan_lost"


class NotReconciledError(ReelabelError):
    """A run ended, yet some jobs have no row, or more than one."""

    code = "not_reconciled"


class RunFailedError(ReelabelError):
    """A run that a worker did has failed."""

    code = "run_failed"


class ManifestError(ReelabelError):
    """The manifest cannot be used; nothing has been written."""

    code = "manifest_invalid"


class ManifestMissingError(ManifestError):
    """No manifest stands where one is looked for."""

    code = "manifest_missing"


class ModelError(ReelabelError):
    """The model cannot be loaded."""

    code = "model_invalid"


class ConfigurationError(ReelabelError):
    """A setting, a service or a password is wrong."""

    code = "configuration"


class ObjectRefusedError(ConfigurationError):
    """The store knows who asks, and refuses this object; perhaps it alone."""
