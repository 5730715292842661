"""Frame files that are whole and say something else."""

import json

import pyarrow as pa

from reelabel.frames.frame_file import BLANK_CHECKSUM, CHECKSUM_KEY, embed_checksum


def rewrite(data, *, without="", **facts):
    """Change metadata of a frame file, or leave one out, and seal it again."""
    table = pa.ipc.open_file(data).read_all()
    metadata = json.loads(table.schema.metadata[b"reelabel"]) | facts
    metadata.pop(without, None)
    schema = table.schema.with_metadata({b"reelabel": json.dumps(metadata).encode(), CHECKSUM_KEY: BLANK_CHECKSUM})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table.cast(schema))
    return embed_checksum(sink.getvalue().to_pybytes())
