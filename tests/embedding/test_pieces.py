"""A long video is decoded in pieces of whole chunks, which bounds memory."""

import pytest

from reelabel.segment import WHOLE, Segment
from tasks.domain import EmbeddingSpec, ModelIdentity
from tasks.embedding.pieces import PIECE_BYTES, cut_pieces, first_chunk, most_chunks

SPEC = EmbeddingSpec(model=ModelIdentity(name="m"), seconds_per_chunk=10, frames_per_chunk=256)  # two chunks a piece
SMALL_PX = 100


@pytest.mark.parametrize(
    ("segment", "length_s", "pieces"),
    [
        pytest.param(WHOLE, 4, [(None, None, 1)], id="shorter than a chunk"),
        pytest.param(WHOLE, 20, [(None, None, 2)], id="one piece of whole chunks"),
        pytest.param(WHOLE, 20.0005, [(None, None, 2)], id="whole but for rounding"),
        pytest.param(WHOLE, 25, [(None, 19.999, 2), (20, None, 1)], id="a short last chunk by itself"),
        pytest.param(WHOLE, 30, [(None, 19.999, 2), (20, None, 1)], id="an odd number of chunks"),
        pytest.param(WHOLE, 45, [(None, 19.999, 2), (20, 39.999, 2), (40, None, 1)], id="three"),
        pytest.param(Segment(5, 30), 25, [(5, 24.999, 2), (25, 30, 1)], id="of a segment"),
    ],
)
def test_pieces_are_of_whole_chunks_and_cover_the_video(segment, length_s, pieces):
    found = [*cut_pieces(segment, length_s, SPEC, frame_pixels=SMALL_PX)]

    assert [(each.start_s, each.end_s and pytest.approx(each.end_s), count) for each, count in found] == pieces


def test_pieces_after_the_first_chunk_begin_with_the_next_one():
    found = [*cut_pieces(WHOLE, 35, SPEC, frame_pixels=SMALL_PX, first=1)]

    assert [(each.start_s, each.end_s and round(each.end_s, 3), count) for each, count in found] == [
        (10, 29.999, 2),
        (30, None, 1),
    ]
    assert [*cut_pieces(WHOLE, 10, SPEC, frame_pixels=SMALL_PX, first=1)] == []


@pytest.mark.parametrize(
    ("segment", "expected"),
    [
        (WHOLE, (None, 9.999)),
        (Segment(5, None), (5, 14.999)),
        (Segment(5, 8), (5, 8)),
        (Segment(5, 60), (5, 14.999)),
    ],
)
def test_the_first_chunk_of_a_video_of_unknown_length_ends_within_its_segment(segment, expected):
    piece, chunks = first_chunk(segment, SPEC)

    assert (piece.start_s, pytest.approx(piece.end_s), chunks) == (*expected, 1)


@pytest.mark.parametrize(
    ("frames", "pixels", "chunks"),
    [
        pytest.param(16, SMALL_PX, 32, id="as many frames as one sampling takes"),
        pytest.param(512, SMALL_PX, 1, id="at most that"),
        pytest.param(4, PIECE_BYTES // 3 // 10, 2, id="as many as fit into memory"),
        pytest.param(16, PIECE_BYTES, 1, id="a chunk at least"),
    ],
)
def test_a_piece_has_as_many_chunks_as_memory_and_sampling_allow(frames, pixels, chunks):
    spec = SPEC.model_copy(update={"frames_per_chunk": frames})

    assert most_chunks(spec, frame_pixels=pixels) == chunks
