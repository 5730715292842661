"""The same object under a new signature is the same object."""

import boto3
import pytest
from botocore.config import Config

from reelabel.frames.cache_key import FrameIdentity
from reelabel.sampling.options import Sampling
from reelabel.sources.object_info import index_key, unsigned_uri

AT = "https://host.example/a%20clip.mp4"
CHOSEN = "versionId=7&partNumber=2&response-content-type=video%2Fmp4"
SIGNED = {
    "s3 v4": "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=k%2F1%2Fs3&X-Amz-Date={0}&X-Amz-Expires=60"
    "&X-Amz-SignedHeaders=host&X-Amz-Security-Token={0}&X-Amz-Signature={0}&x-id=GetObject",
    "s3 v2": "AWSAccessKeyId=k&Expires={0}&Signature={0}&x-amz-security-token={0}",
    "cloudfront canned": "Expires={0}&Signature={0}&Key-Pair-Id=k",
    "cloudfront custom": "Policy={0}&Signature={0}&Key-Pair-Id=k",
    "google v4": "X-Goog-Algorithm=GOOG4-RSA-SHA256&X-Goog-Credential=k&X-Goog-Date={0}&X-Goog-Expires=60"
    "&X-Goog-SignedHeaders=host&X-Goog-Signature={0}",
    "google v2": "GoogleAccessId=k&Expires={0}&Signature={0}",
    "azure": "sp=r&st={0}&se={0}&spr=https&sv=2024-11-04&sr=b&skoid=k&sktid=k&skt={0}&ske={0}&sks=b&skv=1&sig={0}",
}


@pytest.mark.parametrize("query", SIGNED.values(), ids=SIGNED.keys())
def test_a_signature_is_left_out_and_what_selects_content_stays(query):
    assert unsigned_uri(f"{AT}?{query.format(1)}") == AT
    assert unsigned_uri(f"{AT}?{CHOSEN}&{query.format(1)}") == f"{AT}?{CHOSEN}"
    assert unsigned_uri(f"{AT}?{query.format(1)}&{CHOSEN}#t=3") == f"{AT}?{CHOSEN}#t=3"
    assert unsigned_uri(f"https://h/a.tar?{query.format(1)}#b.mp4") == "https://h/a.tar#b.mp4"


@pytest.mark.parametrize(
    "uri",
    [
        f"{AT}?Expires=5",
        f"{AT}?id=5&Signature=abc",
        f"{AT}?sv=2&se=3",
        f"{AT}?generation=5",
        f"{AT}?X-Amz-Date=5",
        f"{AT}?",
        "s3://bucket/a?Signature=1&Key-Pair-Id=2&Expires=3",
        "/videos/a?sig=1&sv=2.mp4",
        "data:video/mp4;base64,AA?sig=1&sv=2",
    ],
)
def test_what_is_not_signed_stays_as_it_is(uri):
    assert unsigned_uri(uri) == uri


@pytest.mark.parametrize("version", ["s3v4", "s3"])
def test_urls_that_boto3_signs_name_one_object(version):
    def sign(key_id, **more):
        keys = {"aws_access_key_id": key_id, "aws_secret_access_key": "secret", "aws_session_token": f"token {key_id}"}
        client = boto3.client("s3", region_name="us-east-1", config=Config(signature_version=version), **keys)
        return client.generate_presigned_url("get_object", Params={"Bucket": "b", "Key": "a.mp4", **more})

    first, again, other = sign("one"), sign("two"), sign("one", VersionId="old")

    assert first != again
    assert unsigned_uri(first) == unsigned_uri(again) == first.partition("?")[0]
    assert unsigned_uri(other) == f"{first.partition('?')[0]}?versionId=old"


def test_a_new_signature_changes_no_key_of_the_cache_and_a_new_version_does():
    first, again = (f"{AT}?{SIGNED['s3 v4'].format(number)}" for number in (1, 2))

    def keys(uri, fingerprint):
        frames = FrameIdentity(source_uri=uri, fingerprint=fingerprint, sampling=Sampling()).key
        archive = index_key(source_uri=uri, fingerprint=fingerprint, part="")
        return frames, index_key(source_uri=uri, fingerprint=fingerprint), archive

    assert keys(first, 'http:5:"a"') == keys(again, 'http:5:"a"')
    assert not set(keys(first, 'http:5:"a"')) & set(keys(again, 'http:5:"b"'))
    assert not set(keys(first, 'http:5:"a"')) & set(keys(f"{again}&versionId=1", 'http:5:"a"'))
