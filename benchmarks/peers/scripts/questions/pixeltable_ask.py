"""The function of Pixeltable's column, which must be in a module of its own."""

from functools import cache

import openai
import pixeltable as pxt


@cache
def client() -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI()  # of the environment's address


@pxt.udf
async def ask(url: str, text: str, *, model: str, sampling: dict) -> str:
    content = [{"type": "video_url", "video_url": {"url": url}}, {"type": "text", "text": text}]
    messages = [{"role": "user", "content": content}]
    answer = await client().chat.completions.create(messages=messages, model=model, **sampling)
    return answer.choices[0].message.content
