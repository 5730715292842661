"""The question that every family is asked, and its frames: those that a run would extract."""

from flows.run.parameters import SpecOverrides
from flows.run.spec import make_spec
from infra.settings import Settings
from reelabel.extract import extract_local
from reelabel.frames.frame_file import encode_frame_file
from reelabel.limits import Limits
from reelabel_engine.protocol import Question
from tasks.model.identity import read_model_card

NUM_FRAMES = 6
CHOICES = ("red", "green", "blue", "yellow")
TEXT = "Which colour is the shape?\nA. red\nB. green\nC. blue\nD. yellow\nAnswer with one letter."
QUESTION = Question(video_id="v", text=TEXT, system_prompt="Be brief.", choices=CHOICES, scoring="letter")


def frame_file(model, clip, *, num_frames):
    overrides = SpecOverrides(sampling={"num_frames": num_frames})
    sampling = make_spec(read_model_card(str(model)), Settings(), overrides).sampling
    keyframes = extract_local(clip, sampling=sampling, limits=Limits())
    return encode_frame_file(keyframes, source_uri="v", fingerprint="e", sampling=sampling).data
