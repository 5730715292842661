"""The frames that every family is asked about: those that a run would extract."""

from flows.run.request import QuestionOptions
from flows.run.spec import make_spec
from infra.settings import Settings
from reelabel.extract import extract_local
from reelabel.options import Limits
from tasks.model.identity import read_model_info
from tests.frame_files import frame_file_of


def frame_file(model, clip, *, num_frames):
    overrides = QuestionOptions(sampling={"num_frames": num_frames})
    sampling = make_spec(read_model_info(str(model)), Settings(), overrides).sampling
    keyframes = extract_local(clip, sampling=sampling, limits=Limits())
    return frame_file_of(keyframes, source_uri="v", fingerprint="e", sampling=sampling)
