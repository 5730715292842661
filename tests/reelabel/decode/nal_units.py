"""Clips of H.264 and HEVC, changed NAL unit by NAL unit."""

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
