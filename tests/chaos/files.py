"""Files on the store that someone else alters: of the cache before a run reads them, and of plans during it."""

from contextlib import suppress
from functools import partial

import numpy as np

from reelabel.errors import ReelabelError
from reelabel.frames.cache import decode_index, encode_index
from reelabel.frames.frame_file import read_metadata
from reelabel.seal import NO_KEY, embed_seal
from reelabel.sources.object_info import index_key
from reelabel.sources.object_store import ObjectStore
from tasks.frame_cache.eviction import cached_files, kind_of
from tasks.manifest.plan_file import SHARDS_PER_FILE
from tests.frame_files import reversed_frames
from tests.reelabel.frames.rewrite import rewrite

_FRAME_FILES, _INDEX_FILES = "frame file", "index file"
_MOST = {_FRAME_FILES: 8, _INDEX_FILES: 2}  # there are few index files, and several faults may alter some
_ENDS = np.dtype("<u8")


def copy_cache(settings, source_uri, target_uri):
    """Copy all files of a frame cache into another one; their seals stay valid.

    Returns:
        The key of each frame file's index file, by the frame file's new URI; there need not be such a file.
    """
    objects, index_keys = ObjectStore(settings), {}
    for info in cached_files(objects, source_uri):
        uri, data = info.uri.replace(source_uri, target_uri, 1), objects.read(info.uri)
        objects.replace(uri, data)
        if kind_of(info) == _FRAME_FILES:
            made_of = read_metadata(data)
            index_keys[uri] = index_key(source_uri=made_of["source_uri"], fingerprint=made_of["fingerprint"])
    return index_keys


def _key_of(uri):
    return "/".join(uri.rsplit("/", 3)[1:])


def _forge(data, key, _seal):
    """Reverse the frames, and do everything else right but for the key."""
    return embed_seal(reversed_frames(data), NO_KEY, key)


def _forge_index(data, key, seal):
    """Reverse the bytes of each range; all but the key is right."""
    forged = tuple(each._replace(data=each.data[::-1]) for each in decode_index(seal.unwrap(key, data)))
    return NO_KEY.wrap(key, encode_index(forged))


def _age(data, key, seal):
    """Return the file as another version of FFmpeg's libraries made it."""
    return rewrite(data, seal=seal, name=key, decoder={"av": "1.0"})


def _truncate(data, _key, _seal):
    return data[: len(data) // 2]


def _alter(kind, change, world, _pid, rng):
    """Change some of the trial's files of one kind, each of which its run reads; return whether there were any."""
    settings = world.settings.store
    objects = ObjectStore(settings)
    found = [info.uri for info in cached_files(objects, world.trial_uri) if kind_of(info) == kind]
    found = [uri for uri in found if _is_intact(world, uri)]
    chosen = rng.sample(found, min(_MOST[kind], len(found)))
    for uri, data in change(objects, chosen, settings.seal):
        objects.replace(uri, data)
        world.altered.add(uri)
        if kind == _INDEX_FILES:  # it is read only to make a frame file
            objects.remove(next(each for each, key in world.index_keys.items() if key == _key_of(uri)))
    return bool(chosen)


def _is_intact(world, uri):
    """Return whether no fault has altered a file, or one by which its alteration could be found out first."""
    if uri in world.index_keys:
        return not {uri, f"{world.trial_uri}/{world.index_keys[uri]}"} & world.altered
    return not {uri, *(each for each, key in world.index_keys.items() if key == _key_of(uri))} & world.altered


def _each(alter):
    def change(objects, uris, seal):
        for uri in uris:
            yield uri, alter(objects.read(uri), _key_of(uri), seal)

    return change


def _rotated(objects, uris, _seal):
    """Put each file in the place of the next."""
    data = [objects.read(uri) for uri in uris]
    return zip(uris, data[1:] + data[:1], strict=True) if len(uris) > 1 else ()


swap_frame_files, forge_frame_files, age_frame_files, truncate_frame_files = (
    partial(_alter, _FRAME_FILES, change) for change in (_rotated, _each(_forge), _each(_age), _each(_truncate))
)
swap_index_files, forge_index_files, truncate_index_files = (
    partial(_alter, _INDEX_FILES, change) for change in (_rotated, _each(_forge_index), _each(_truncate))
)


def _alter_plans(alter, world, _pid, rng):
    """Change each plan file; return whether there were any."""
    struck = False
    objects = ObjectStore(world.settings.store)
    with suppress(ReelabelError):  # removed in the meantime, as the run has ended
        for info in objects.list(f"{world.trial_uri}/plans"):
            data = objects.read(info.uri)
            altered = alter(data, rng)
            if altered != data:
                objects.replace(info.uri, altered)
                struck = True
    return struck


def _change_a_byte(data, rng):
    changed = bytearray(data)
    changed[rng.randrange(len(data) // 2)] ^= 1
    return bytes(changed)


def _rotate_shards(data, _rng):
    """Put each shard in the place of the next, all of them with their valid seals."""
    ends_at = len(data) - SHARDS_PER_FILE * _ENDS.itemsize
    if ends_at < 0:  # not a file of shards
        return data
    ends = np.frombuffer(data[ends_at:], _ENDS)
    used = ends[ends > 0].tolist()
    shards = [data[start:end] for start, end in zip([0, *used], used, strict=False)]
    shards = shards[1:] + shards[:1]
    ends = np.zeros_like(ends)
    ends[: len(shards)] = np.cumsum([len(shard) for shard in shards])
    return b"".join((*shards, ends.tobytes()))


forge_plan_files, swap_plan_shards, truncate_plan_files = (
    partial(_alter_plans, alter)
    for alter in (_change_a_byte, _rotate_shards, lambda data, _rng: data[: len(data) // 2])
)
