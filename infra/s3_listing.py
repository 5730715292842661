"""Many objects looked at by few requests: a listing's page tells of up to a thousand."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# Fewer are looked at one by one: a server spends more on a page than on one object.
FEWEST = 8
_LARGEST_PAGE = 1000


def list_near(client: Any, bucket: str, keys: Iterable[str]) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    """Look at objects that stand close to each other, by their names, in the folders of a bucket.

    Args:
        client: boto3's.
        bucket: Where they stand.
        keys: Their names.

    Yields:
        The listing's entries of some of them: not of those that are missing, whose neighbours are others, or
        that may be read and not listed.
    """
    for folder, members in groupby(sorted(set(keys)), key=lambda key: key.rpartition("/")[0]):
        try:
            yield from _list_folder(client, bucket, folder and f"{folder}/", list(members))
        except ClientError:
            return  # whoever looks at one of them hears what is wrong


def _list_folder(client: Any, bucket: str, prefix: str, keys: Sequence[str]) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    left = list(keys)
    while len(left) >= FEWEST:
        page = client.list_objects_v2(
            Bucket=bucket,
            Prefix=prefix,
            Delimiter="/",
            StartAfter=left[0][:-1],  # the longest name that stands before it for certain
            MaxKeys=min(_LARGEST_PAGE, 2 * len(left)),
        )
        entries = page.get("Contents", ())
        wanted = set(left)
        told = [entry for entry in entries if entry["Key"] in wanted]
        yield from told
        if len(told) < FEWEST or not page["IsTruncated"]:
            return
        left = [key for key in left if key > entries[-1]["Key"]]
