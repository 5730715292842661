"""Questions for a server: about two videos, about one of them at another frame rate, and about a shorter one."""

from tasks.model.protocol import Batch
from tests.model.asked import frame_file, question

SHAPES = ("square", "circle", "triangle", "cross")
BATCH = Batch(
    frame_files={
        "v": frame_file(1),
        "w": frame_file(2),
        "slow": frame_file(1, every_s=7.5),
        "short": frame_file(3, every_s=1 / 12, lasts_s=8 / 12),  # eight frames, shown as sixteen
    },
    questions=(
        question(),
        question("What shape is it?", SHAPES, video_id="w", system_prompt="Look closely."),
        question(choices=("red", "green"), scoring="text"),
        question("What shape is it?", SHAPES),
        question(choices=("red", "green"), scoring="text", video_id="slow"),
        question(video_id="short"),
    ),
)
