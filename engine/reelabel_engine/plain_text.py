"""Encodes the special tokens that a user's text spells as ordinary text, and finds them in what servers are sent."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from reelabel_engine.errors import SpecialTokensError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

# Shapes and names of special tokens in published models. None of them occurs in prose or in code that compares.
_SPECIAL = re.compile(
    r"<[|\uff5c][\w\u2581\"][\w\u2581.:/\"-]*[|\uff5c]?>"  # <|im_end|>, <|turn>, DeepSeek's with a full-width bar
    r"|<[\w\u2581]+[|\uff5c]>"  # <turn|>
    r"|</?(?:s|bos|eos|pad|unk|mask|cls|sep|sop|eop|eod|image|img|video|audio|vision|think|box|ref|quad|point"
    r"|(?:start|end)_of_[a-z]+|(?:fim|image|video|audio|img|vid|vision|im|tool|boi|eoi|bov|eov)_[a-z_]+"
    r"|IMG_[A-Z]+|(?:unused|extra_id_|reserved_|special_)\d+)>"
    r"|<</?SYS>>"
    r"|\[/?(?:INST|IMG|SYSTEM_PROMPT|TOOL_CALLS|TOOL_RESULTS|AVAILABLE_TOOLS|IMG_BREAK|IMG_END|gMASK|THINK)\]"
)
_SHOWN_CHARACTERS = 60
# What stands for a character without a token, or for one of its bytes: any text may contain it.
_CHARACTER = re.compile(r"<0x[0-9A-F]{2}>|[<\[]\|?unk(?:nown)?\|?[>\]]", re.IGNORECASE)
_BRACKETS = ("<", "[", "{")
_BARRED = re.compile(r"<[|\uff5c].*[|\uff5c]>")


def find_special_token(text: str) -> str | None:
    """Return the first part of a text that looks like a special token of some model; None without one."""
    found = _SPECIAL.search(text)
    return found[0] if found else None


def special_tokens(added: Mapping[int, Any], *, template: str = "") -> dict[str, int]:
    """Select the tokens that mean something other than their text.

    Args:
        added: The tokenizer's added tokens by id, of `tokenizers.AddedToken`. Some are ordinary text, such as words,
            spaces and HTML tags.
        template: The model's chat template; a token in brackets that it spells structures a prompt, however the
            tokenizer lists it.

    Returns:
        Ids by text.
    """
    return {token.content: number for number, token in added.items() if _is_special(token, template)}


def _is_special(token: Any, template: str) -> bool:  # noqa: ANN401 - tokenizers' AddedToken
    text = token.content
    is_marked = token.special or _BARRED.fullmatch(text) or (text.startswith(_BRACKETS) and text in template)
    return bool(is_marked and text.strip()) and not _CHARACTER.fullmatch(text)


class TextTokenizer:
    """A tokenizer that encodes the special tokens in a text as ordinary characters."""

    def __init__(self, encode: Callable[[str], list[int]], special: Mapping[str, int]) -> None:
        """Wrap a tokenizer that adds no special tokens, but encodes those that a text spells."""
        self.encode = encode
        self._ids = frozenset(special.values())
        longest_first = sorted(special, key=len, reverse=True)
        # Some tokenizers ignore case; a cut too many changes nothing but the tokens of this text.
        self._spelled = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)", re.IGNORECASE)

    def __call__(self, text: str) -> list[int]:
        """Encode a text; raises as `split`."""
        return [number for piece in self.split(text) for number in self.encode(piece)]

    def split(self, text: str) -> list[str]:
        """Cut a text within each special token that it spells, so that the pieces can be encoded one by one.

        Raises:
            SpecialTokensError: The tokenizer finds a special token in a piece, such as one written in other characters.
        """
        if not self._ids & set(self.encode(text)):
            return [text]
        pieces = list(self._cut(text))
        for piece in pieces:
            if self._ids & set(self.encode(piece)):
                raise SpecialTokensError(
                    f"The tokenizer finds a special token in {piece[:_SHOWN_CHARACTERS]!r}, and cannot encode it as "
                    "text; reword it."
                )
        return pieces

    def count(self, ids: Iterable[int]) -> Counter[int]:
        return Counter(filter(self._ids.__contains__, ids))

    def find(self, text: str) -> str | None:
        """Return the first special token that a text spells; None without one."""
        found = self._spelled.search(text)
        return found[0] if found else None

    def _cut(self, text: str) -> Iterator[str]:
        start = 0
        while found := self._spelled.search(text, start):
            yield text[start : found.start() + 1]
            start = found.start() + 1
        yield text[start:]


def text_tokenizer(tokenizer: Any) -> TextTokenizer:  # noqa: ANN401 - transformers' tokenizer
    template = tokenizer.chat_template
    return TextTokenizer(
        partial(tokenizer.encode, add_special_tokens=False),
        special_tokens(tokenizer.added_tokens_decoder, template=template if isinstance(template, str) else ""),
    )
