"""URLs without their signatures, which differ each time that a URL is handed out, though the object is the same."""

from __future__ import annotations

import re
from urllib.parse import unquote

from reelabel.sources.object_info import WEB_SCHEMES, scheme_of

# By the parameters that show that a URL is signed in this way: those that the signature consists of. What selects or
# changes the content stays, such as `versionId`, `generation`, `snapshot` and `response-content-type`.
_SCHEMES = {
    frozenset(marks.split()): re.compile(parts)
    for marks, parts in (
        ("x-amz-signature x-amz-credential", "x-amz-.*|x-id"),  # S3, version 4
        ("signature awsaccesskeyid", "signature|awsaccesskeyid|expires|x-amz-security-token"),  # S3, version 2
        ("signature key-pair-id", "signature|key-pair-id|expires|policy|hash-algorithm"),  # CloudFront
        ("x-goog-signature x-goog-credential", "x-goog-.*"),  # Google, version 4
        ("signature googleaccessid", "signature|googleaccessid|expires"),  # Google, version 2
        (
            "sig sv",  # Azure SAS
            "sig|sv|ss|srt|sp|s[et]|spr|sip|sr|si|sdd|ses|skoid|sktid|sk[tesv]|skdutid|saoid|suoid|sduoid|scid",
        ),
    )
}


def unsigned_uri(uri: str) -> str:
    """Return a URI without the parameters of its signature; one that is not signed unchanged.

    Two signed URLs that are equal without them name the same object. Whether it is the same version, its fingerprint
    tells.
    """
    if "?" not in uri or (scheme_of(uri) or "").lower() not in WEB_SCHEMES:
        return uri
    address, _, rest = uri.partition("?")
    query, mark, fragment = rest.partition("#")
    parameters = [(unquote(each.partition("=")[0]).lower(), each) for each in query.split("&")]
    names = {name for name, _ in parameters}
    for marks, parts in _SCHEMES.items():
        if marks <= names:
            kept = "&".join(each for name, each in parameters if not parts.fullmatch(name))
            return f"{address}{'?' if kept else ''}{kept}{mark}{fragment}"
    return uri
