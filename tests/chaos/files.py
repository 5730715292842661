"""Files on the store that someone else alters: frame files before a run reads them, and plan files during it."""

from contextlib import suppress

from reelabel.errors import ReelabelError
from reelabel.frames.frame_file import decode_frame_file
from reelabel.seal import NO_KEY, embed_seal
from reelabel.sources.object_store import ObjectStore
from tasks.frame_cache.eviction import cached_files
from tests.reelabel.frames.rewrite import rewrite

_ALTERED = 8


def copy_cache(settings, source_uri, target_uri):
    """Copy all files of a frame cache into another one; their seals stay valid."""
    objects = ObjectStore(settings)
    for info in cached_files(objects, source_uri):
        objects.replace(info.uri.replace(source_uri, target_uri, 1), objects.read(info.uri))


def _key_of(uri):
    return "/".join(uri.rsplit("/", 3)[1:])


def _forge(data, key, _seal):
    """Reverse the frames, and do everything else right but for the key."""
    file = decode_frame_file(data)
    return embed_seal(file.replace_pixels(file.read_pixels()[::-1], encoding=file.encoding), NO_KEY, key)


def _age(data, key, seal):
    """Return the file as another version of FFmpeg's libraries made it."""
    return rewrite(data, seal=seal, name=key, decoder={"av": "1.0"})


def _truncate(data, _key, _seal):
    return data[: len(data) // 2]


def _alter(world, rng, change):
    """Change frame files of the current trial that no other fault has altered; return whether there were any."""
    settings = world.settings.store
    objects = ObjectStore(settings)
    found = [info.uri for info in cached_files(objects, world.trial_uri) if info.uri not in world.altered]
    chosen = rng.sample(found, min(_ALTERED, len(found)))
    for uri, data in change(objects, chosen, settings.seal):
        objects.replace(uri, data)
        world.altered.add(uri)
    return bool(chosen)


def _each(alter):
    def change(objects, uris, seal):
        for uri in uris:
            yield uri, alter(objects.read(uri), _key_of(uri), seal)

    return lambda world, _pid, rng: _alter(world, rng, change)


def _rotated(objects, uris, _seal):
    """Put each file in the place of the next."""
    data = [objects.read(uri) for uri in uris]
    return zip(uris, data[1:] + data[:1], strict=True)


def swap_frame_files(world, _pid, rng):
    """Put frame files in the place of others."""
    return _alter(world, rng, _rotated)


forge_frame_files, age_frame_files, truncate_frame_files = map(_each, (_forge, _age, _truncate))


def forge_plan_files(world, _pid, rng):
    """Change a byte of each plan file."""
    struck = False
    objects = ObjectStore(world.settings.store)
    with suppress(ReelabelError):  # removed in the meantime, as the run has ended
        for info in objects.list(f"{world.trial_uri}/plans"):
            data = bytearray(objects.read(info.uri))
            data[rng.randrange(len(data) // 2)] ^= 1
            objects.replace(info.uri, bytes(data))
            struck = True
    return struck
