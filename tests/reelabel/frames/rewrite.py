"""Frame files that are intact but say something else."""

import json

import pyarrow as pa

from reelabel.seal import BLANK, METADATA_KEY, embed_checksum, embed_seal


def rewrite(data, *, without="", columns=None, seal=None, name="", **facts):
    """Change metadata of a frame file, or leave one out, and replace columns; with a seal, seal it under a name."""
    table = pa.ipc.open_file(data).read_all()
    metadata = json.loads(table.schema.metadata[b"reelabel"]) | facts
    metadata.pop(without, None)
    for column, values in (columns or {}).items():
        table = table.set_column(table.schema.names.index(column), column, pa.array(values))
    schema = table.schema.with_metadata({b"reelabel": json.dumps(metadata).encode(), METADATA_KEY: BLANK})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_table(table.cast(schema))
    rewritten = embed_checksum(sink.getvalue().to_pybytes())
    return embed_seal(rewritten, seal, name) if seal else rewritten
