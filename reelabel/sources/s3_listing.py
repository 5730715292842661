"""Look up many S3 objects with few requests; a listing page describes up to a thousand."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


# Fewer objects are requested one by one: a page costs a server more than an object.
FEWEST = 8
_LARGEST_PAGE = 1000


def list_neighbours(client: Any, bucket: str, keys: Iterable[str]) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    """List objects of a bucket that are close to each other by name, in their folders.

    Yields:
        The listing's entries of some of the objects. Omitted are objects that do not exist, that are far from
        the others, or that may not be listed.
    """
    for folder, members in groupby(sorted(set(keys)), key=lambda key: key.rpartition("/")[0]):
        try:
            yield from _list_folder(client, bucket, folder and f"{folder}/", list(members))
        except ClientError:
            return  # the request for a single object reports the error


def _list_folder(client: Any, bucket: str, prefix: str, keys: Sequence[str]) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    remaining = list(keys)
    while len(remaining) >= FEWEST:
        page = client.list_objects_v2(
            Bucket=bucket,
            Prefix=prefix,
            Delimiter="/",
            StartAfter=remaining[0][:-1],  # the longest prefix that certainly sorts before the key
            MaxKeys=min(_LARGEST_PAGE, 2 * len(remaining)),
        )
        entries = page.get("Contents", ())
        wanted = set(remaining)
        found = [entry for entry in entries if entry["Key"] in wanted]
        yield from found
        if len(found) < FEWEST or not page.get("IsTruncated"):
            return
        remaining = [key for key in remaining if key > entries[-1]["Key"]]
