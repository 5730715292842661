"""FLV: keyframes by a walk over the tags (Adobe Flash Video File Format Specification 10.1, annex E)."""

import numpy as np

from reelabel.containers.container_index import ContainerIndex, KeyframeIndex, read_first_packet, read_up_to
from reelabel.containers.demux import read_packets
from reelabel.errors import FallbackRequired

FILE_HEADER_BYTES, TAG_HEADER_BYTES, AVC_HEADER_BYTES, TRAILER_BYTES = 9, 11, 5, 4
VIDEO_TAG, H264, H264_KEYFRAME = 9, 0x07, 0x17
SEQUENCE_HEADER, PICTURE = 0, 1


def probe(file, _size_bytes):
    return file.read(3) == b"FLV"


def read_index(video):
    first = read_first_packet(read_packets(video.container, video.stream))
    pts, pos, size = np.array(list_keyframes(video.file, video.size_bytes), np.int64).T
    if not first.is_keyframe or first.pts != pts[0]:
        raise FallbackRequired("the index does not start at the first packet")
    return KeyframeIndex(
        pts=pts,
        pos=pos,
        size=size,
        read_packet=lambda number: video.read_packet(int(pos[number]), int(size[number]), int(pts[number])),
        first_packet=first,
        first_pts=int(pts[0]),
        is_self_sufficient=True,
    )


def list_keyframes(file, size_bytes):
    """List the PTS in milliseconds, offset and size of each keyframe's packet."""
    keyframes, headers = [], 0
    position = FILE_HEADER_BYTES + TRAILER_BYTES
    while position < size_bytes:
        file.seek(position)
        tag = read_up_to(file, TAG_HEADER_BYTES + AVC_HEADER_BYTES)
        payload_bytes = int.from_bytes(tag[1:4])
        end = position + TAG_HEADER_BYTES + payload_bytes + TRAILER_BYTES
        if end > size_bytes:
            raise FallbackRequired("the file ends within a tag")
        if tag[0] == VIDEO_TAG:
            codec, kind = tag[11], tag[12]
            headers += kind == SEQUENCE_HEADER
            if codec & 0x8F != H264 or headers > 1:
                raise FallbackRequired("the index serves a single H.264 stream only")
            if codec == H264_KEYFRAME and kind == PICTURE:
                dts = int.from_bytes(tag[7:8] + tag[4:7])
                pts = dts + int.from_bytes(tag[13:16], signed=True)
                keyframes.append((pts, position + len(tag), payload_bytes - AVC_HEADER_BYTES))
        position = end
    return keyframes


FLV = ContainerIndex(name="flv", probe=probe, read_index=read_index)
