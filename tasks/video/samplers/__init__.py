"""Dense samplers: from stream properties to frame indices, without decoding."""

from tasks.video.samplers.facts import VideoProperties
from tasks.video.samplers.registry import SAMPLERS, choose_indices
from tasks.video.samplers.timeline import deviations_s

__all__ = ["SAMPLERS", "VideoProperties", "choose_indices", "deviations_s"]
