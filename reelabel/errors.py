"""Every error that the library raises on purpose."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from reelabel.text import escape_controls

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class ReelabelError(Exception):
    """Base class of all errors that Reelabel explains to its user.

    Attributes:
        code: Stable identifier, stored in failure rows and printed on the command line.
        message: What is wrong, where, and what to do about it: one line, safe to print, whatever it quotes.
    """

    code: ClassVar[str] = "reelabel_error"

    def __init__(self, message: str) -> None:
        self.message = escape_controls(message)
        super().__init__(self.message)


class JobError(ReelabelError):
    """One job cannot succeed; the error is recorded on its row, and the job is retried only on request.

    Attributes:
        stage: Stage of the pipeline: fetch, decode, cache, prompt or inference.
        fingerprint: Version of the job's video; None if it is not known.
    """

    code = "job_error"
    stage: str = "decode"
    fingerprint: str | None = None


class VideoError(JobError):
    """The job's video is at fault."""

    code = "video_error"


class VideoMissingError(VideoError):
    """There is no object or file at the job's URI."""

    code = "video_missing"
    stage = "fetch"


class VideoRefusedError(VideoError):
    """Access to the source is denied, or its URI is not usable."""

    code = "video_refused"
    stage = "fetch"


class ArchiveUnreadableError(VideoError):
    """The archive is damaged, or holds the video in a form that cannot be read."""

    code = "archive_unreadable"
    stage = "fetch"


class VideoUnavailableError(VideoError):
    """A web server did not deliver the video in any attempt; the next run tries again."""

    code = "video_unavailable"
    stage = "fetch"


class VideoEmptyError(VideoError):
    """The object or file has no bytes."""

    code = "video_empty"
    stage = "fetch"


class VideoUnreadableError(VideoError):
    """FFmpeg recognises no container format."""

    code = "video_unreadable"


class NoVideoStreamError(VideoError):
    """The container has no video stream."""

    code = "no_video_stream"


class NoFramesError(VideoError):
    """The video stream contains no decodable frame."""

    code = "no_frames"


class SamplingRefusedError(VideoError):
    """The sampler does not support this video."""

    code = "sampling_refused"


class VideoTooLargeError(VideoError):
    """The source, one of its frames, or the time that they span exceeds the configured limits."""

    code = "video_too_large"


class VideoChangedError(VideoError):
    """The source was replaced while it was being read."""

    code = "video_changed"
    stage = "fetch"


class DecoderCrashedError(VideoError):
    """The decoding process died on this video."""

    code = "decoder_crashed"


class DecoderTimeoutError(VideoError):
    """Decoding this video exceeded the time limit."""

    code = "decoder_timeout"


class FrameFileError(JobError):
    """A cached frame file is damaged, altered or not the one asked for, and could not be written again."""

    code = "frame_file_damaged"
    stage = "cache"


class InternalError(JobError):
    """Reelabel itself failed on the job, unexpectedly; the log has the place."""

    code = "internal"


class NoSuchFrameError(ReelabelError, IndexError):
    """The video has no frame at the position or time that was asked for."""

    code = "no_such_frame"


class NoIndexError(ReelabelError):
    """The video does not list its frames; only decoding can find them."""

    code = "no_index"


class SealError(ReelabelError):
    """A file of the store was altered or damaged, or belongs elsewhere; callers convert it to an error of the job."""

    code = "seal_broken"


class ForeignSealError(SealError):
    """The file was signed with another key, or without one."""

    code = "seal_foreign"


class ObjectError(ReelabelError):
    """One object or file of a store is at fault."""

    code = "object_error"


class ObjectMissingError(ObjectError):
    """There is nothing at the URI."""

    code = "object_missing"


class MemberMissingError(ObjectMissingError):
    """The archive exists, but has no such member."""


class ObjectChangedError(ObjectError):
    """The object was replaced after it was first looked at."""

    code = "object_changed"


class ObjectTooLargeError(ObjectError):
    """The object exceeds the size limit."""

    code = "object_too_large"


class RangesIgnoredError(ObjectError):
    """The server does not support range requests."""

    code = "ranges_ignored"


class TransientError(ReelabelError):
    """The same call may succeed later.

    Attributes:
        retries_exhausted: Whether retries have already lasted too long to try again.
    """

    code = "transient"
    retries_exhausted = False


class StoreUnavailableError(TransientError):
    """The object store did not respond, or responded with a server error.

    Attributes:
        failed_at: Address of the S3 server that responded with an error; None if none did.
    """

    code = "store_unavailable"
    failed_at: str | None = None


class ReadingEndedError(TransientError):
    """Reads of the store were cancelled, because their caller was stopped."""

    code = "reading_ended"
    retries_exhausted = True


class DecodersClosedError(ReadingEndedError):
    """The pool of decoding processes was closed."""


class DiskUnavailableError(TransientError):
    """A local disk is not writable."""

    code = "disk_unavailable"


class DiskFullError(DiskUnavailableError):
    """A disk is full, here or at a service: nothing is lost, and the same run continues once there is space."""

    code = "disk_full"


class DecodersLostError(TransientError):
    """Decoding processes are killed faster than they can be restarted."""

    code = "decoders_lost"


class ConfigurationError(ReelabelError):
    """A setting, a service or a password is wrong."""

    code = "configuration"


class OptionFault(NamedTuple):
    """A fault of an option: its path, its value, and a clause. Options that contradict each other have no path."""

    where: str
    value: object
    clause: str

    def within(self, name: str) -> OptionFault:
        """Return the fault of an option within another one."""
        return self._replace(where=f"{name}.{self.where}" if self.where else name)


class InvalidOptionError(ConfigurationError, ValueError):
    """Options of the library are invalid; `faults` lists everything that is wrong."""

    faults: tuple[OptionFault, ...] = ()

    @classmethod
    def of(cls, title: str, faults: Sequence[OptionFault]) -> InvalidOptionError:
        """Build the error for the options that `title` names."""
        clauses = "; ".join(f"{fault.where}: {fault.clause}" if fault.where else fault.clause for fault in faults)
        error = cls(f"Invalid {title}: {clauses}{'' if clauses.endswith('?') else '.'}")
        error.faults = tuple(faults)
        return error


class ObjectRefusedError(ConfigurationError):
    """The store accepts the login but denies access to this object."""


class LoginRefusedError(ConfigurationError):
    """The store refuses the credentials for every request, or there are none; they may have expired."""


class SandboxUnavailableError(ConfigurationError):
    """This machine does not offer the protections that decoding processes are required to have."""

    code = "sandbox_unavailable"


class FallbackRequired(Exception):  # noqa: N818 - no error: the next method decodes the video
    """A method cannot prove that it yields the linear decode's frames; use a slower one.

    Attributes:
        index_is_wrong: Whether the video contradicts its index, so that counts and positions in it are not reliable.
        linear_only: Whether no other index would do better, so that the video is decoded from its beginning.
        bytes_fetched: Bytes fetched by the failed attempt.
        frames_decoded: Frames decoded by the failed attempt.
    """

    def __init__(self, reason: str, *, index_is_wrong: bool = False, linear_only: bool = False) -> None:
        super().__init__(reason)
        self.index_is_wrong, self.linear_only = index_is_wrong, linear_only
        self.bytes_fetched = self.frames_decoded = 0


@contextmanager
def as_video_errors() -> Iterator[None]:
    """Convert unexpected exceptions, but neither ReelabelError nor FallbackRequired, into VideoUnreadableError."""
    try:
        yield
    except (ReelabelError, FallbackRequired):
        raise
    except Exception as error:  # noqa: BLE001 - a decoder or scaler may raise anything for bad input
        raise unreadable(error) from None


def unreadable(error: Exception) -> VideoUnreadableError:
    """Return the error for an unexpected exception."""
    return VideoUnreadableError(f"The video cannot be decoded ({type(error).__name__}: {error}).")


class ProcessDiedError(Exception):
    """The process has ended, or closed its end of the socket."""


class InvalidReplyError(Exception):
    """The process sent an invalid message: a video may have compromised it."""


class NotStartedError(Exception):
    """The process was lost before it started on the video, which is not at fault."""
