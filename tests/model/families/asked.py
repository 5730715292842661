"""The frames that every family is asked about: those that a run would extract."""

from flows.run.request import QuestionOptions
from flows.run.spec import make_spec
from infra.settings import Settings
from reelabel.extract import extract_local
from reelabel.frames.frame_file import encode_frame_file
from reelabel.limits import Limits
from tasks.model.identity import read_model_card


def frame_file(model, clip, *, num_frames):
    overrides = QuestionOptions(sampling={"num_frames": num_frames})
    sampling = make_spec(read_model_card(str(model)), Settings(), overrides).sampling
    keyframes = extract_local(clip, sampling=sampling, limits=Limits())
    return encode_frame_file(keyframes, source_uri="v", fingerprint="e", sampling=sampling).data
