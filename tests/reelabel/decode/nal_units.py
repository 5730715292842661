"""Clips of H.264 and HEVC, changed NAL unit by NAL unit."""

import re

import av


def units_of(data):
    """Return the NAL units of a packet with lengths of four bytes."""
    units, start = [], 0
    while start < len(data):
        end = start + 4 + int.from_bytes(data[start : start + 4])
        units.append(data[start + 4 : end])
        start = end
    return units


def rewrite(path, target, change, **options):
    """Copy a clip with the NAL units of each packet changed; with options of the muxer."""
    with av.open(str(path)) as source, av.open(str(target), "w", options=options) as copy:
        stream = copy.add_stream_from_template(source.streams.video[0])
        for number, packet in enumerate(each for each in source.demux(video=0) if each.size):
            units = change(number, units_of(bytes(packet)))
            changed = av.Packet(b"".join(len(unit).to_bytes(4) + unit for unit in units))
            changed.pts, changed.dts, changed.duration = packet.pts, packet.dts, packet.duration
            changed.time_base, changed.is_keyframe, changed.stream = packet.time_base, packet.is_keyframe, stream
            copy.mux(changed)
    return target


def with_reorder_depth(path, target, depth):
    """Copy a clip of x264 to Matroska, stating that so many pictures are reordered; packets stay as they are."""
    with av.open(str(path)) as source, av.open(str(target), "w") as copy:
        original = source.streams.video[0]
        stream = copy.add_stream_from_template(original)
        avcc = original.codec_context.extradata
        end = 8 + int.from_bytes(avcc[6:8])
        sps = _with_last_numbers(avcc[8:end], (original.codec_context.reorder_depth, 4), (depth, 16))
        stream.codec_context.extradata = avcc[:6] + len(sps).to_bytes(2) + sps + avcc[end:]
        for packet in (each for each in source.demux(original) if each.size):
            packet.stream = stream
            copy.mux(packet)
    return target


def _with_last_numbers(sps, old, new):
    """Change the numbers that end an SPS: `max_num_reorder_frames` and `max_dec_frame_buffering` (H.264, E.1.1)."""
    bits = "".join(f"{byte:08b}" for byte in sps.replace(b"\0\0\3", b"\0\0")).rstrip("0")
    tail = "".join(map(_exp_golomb, old)) + "1"
    assert bits.endswith(tail)
    bits = bits.removesuffix(tail) + "".join(map(_exp_golomb, new)) + "1"
    bits += "0" * (-len(bits) % 8)
    data = int(bits, 2).to_bytes(len(bits) // 8)
    return re.sub(rb"\0\0(?=[\0-\3])", b"\0\0\3", data)


def _exp_golomb(number):
    digits = f"{number + 1:b}"
    return "0" * (len(digits) - 1) + digits
