"""The question that every family is asked."""

from reelabel_engine.protocol import Question

NUM_FRAMES = 6
CHOICES = ("red", "green", "blue", "yellow")
TEXT = "Which colour is the shape?\nA. red\nB. green\nC. blue\nD. yellow\nAnswer with one letter."
QUESTION = Question(video_id="v", text=TEXT, system_prompt="Be brief.", choices=CHOICES, scoring="letter")
