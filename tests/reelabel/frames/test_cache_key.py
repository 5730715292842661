"""Files of one video are never taken for those of another version of it, or of another one."""

from itertools import product

from reelabel.sources.object_info import index_key


def test_indexes_of_other_videos_versions_and_parts_have_other_keys():
    videos, versions = ("s3://b/a.mp4", "s3://b/b.mp4"), ("1", "2")
    keys = [index_key(source_uri=video, fingerprint=version) for video, version in product(videos, versions)]
    parts = product(videos, versions, ("", "1"))
    keys += [index_key(source_uri=uri, fingerprint=version, part=part) for uri, version, part in parts]

    assert len(set(keys)) == 4 + 8
    assert keys[0] == index_key(source_uri="s3://b/a.mp4", fingerprint="1")
