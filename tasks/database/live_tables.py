"""The tables of live sessions."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Double, ForeignKey, Index, Integer, SmallInteger, Table, Text, Uuid, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from tasks.database.columns import METADATA, TIME, checks, nullable, required, times

LIVE_SESSION = Table(
    "live_session",
    METADATA,
    Column("session_id", Uuid, primary_key=True),
    *(*required(Text, "model"), *required(JSONB, "config")),
    *(*times("started_at", "seen_at"), *nullable(TIME, "ended_at"), *nullable(Text, "reason")),
    *(*nullable(BigInteger, "frames_received", "frames_similar"), *required(BigInteger, "frames_kept", default="0")),
    *(*nullable(BigInteger, "frames_evicted"), *required(BigInteger, "frames_lost", default="0")),
    *required(Double, "audio_s", default="0"),
    *(*required(JSONB, "versions"), *required(Text, "host")),
    *checks(*(f"frames_{name} >= 0" for name in ("received", "similar", "kept", "evicted", "lost"))),
    *checks("audio_s >= 0", "(ended_at IS NULL) = (reason IS NULL)"),
    Index("live_session_by_start", text("started_at DESC")),
    comment="Live sessions, one row each. seen_at is the heartbeat of the server: without it, a session whose server "
    "was killed would stay open. A session that has ended has a reason. config is what the client asked for.",
)


def _session() -> Column[Any]:
    of_session = ForeignKey("reelabel.live_session.session_id", ondelete="CASCADE")
    return Column("session_id", Uuid, of_session, primary_key=True)


LIVE_FRAMES = Table(
    "live_frames",
    METADATA,
    _session(),
    Column("part", Integer, primary_key=True),
    *required(Text, "key"),
    *(*required(BigInteger, "first_frame"), *required(Integer, "frames")),
    *required(Double, "first_s", "last_s"),
    *required(BigInteger, "bytes"),
    *checks("part >= 0", "first_frame >= 0", "frames > 0"),
    comment="The frame files of a session's kept frames, in order. Times are those of the frames, in seconds; key is "
    "below the store's root.",
)

LIVE_QUERY = Table(
    "live_query",
    METADATA,
    _session(),
    Column("query", Integer, primary_key=True),
    *(*required(Text, "question"), *nullable(ARRAY(Text), "choices"), *nullable(Text, "answer")),
    *(*nullable(SmallInteger, "choice_index"), *nullable(ARRAY(Double), "probabilities"), *nullable(Double, "margin")),
    *nullable(Text, "code", "message"),
    *(*required(Double, "asked_s"), *required(ARRAY(Integer), "frames")),
    *(*nullable(Double, "last_frame_s"), *required(Double, "audio_s", default="0")),
    *required(Integer, "prompt_tokens", "cached_tokens", "output_tokens"),
    *(*nullable(Double, "first_token_ms"), *required(Double, "total_ms")),
    *(*required(Text, "model"), *times("created_at")),
    *checks("query >= 0", "array_length(choices, 1) >= 2", "choice_index >= 0", "margin BETWEEN 0 AND 1"),
    *checks(*(f"{each} >= 0" for each in ("audio_s", "prompt_tokens", "cached_tokens", "output_tokens", "total_ms"))),
    *checks("(answer IS NULL) <> (code IS NULL)", "choices IS NULL OR answer IS NULL OR choice_index IS NOT NULL"),
    comment="The queries of a session, each written before its answer is acknowledged. frames are the numbers of the "
    "kept frames that a query saw, in order; one is listed twice where the model was shown it twice, as its successor "
    "had another size. asked_s and last_frame_s are on the session's clock; first_token_ms and total_ms are from the "
    "query's arrival. A query without an answer has a code.",
)
