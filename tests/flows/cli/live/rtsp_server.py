"""A camera that speaks RTSP: H.264 by RTP within the TCP connection (RFC 2326, section 10.12; RFC 6184)."""

import re
import socketserver
import struct
import threading
from contextlib import contextmanager

import av
import numpy as np

FPS = 10
_SDP = (
    "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=camera\r\nt=0 0\r\nm=video 0 RTP/AVP 96\r\nc=IN IP4 0.0.0.0\r\n"
    "a=rtpmap:96 H264/90000\r\na=fmtp:96 packetization-mode=1\r\na=control:track0\r\n"
)


def pictures(count):
    """Return the NAL units of each of some pictures, every one a keyframe with its parameter sets."""
    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.framerate = 128, 96, "yuv420p", FPS
    encoder.options = {"tune": "zerolatency", "g": "1", "x264-params": "repeat-headers=1:sliced-threads=0"}
    units = []
    for number in range(count):
        frame = av.VideoFrame.from_ndarray(np.full((96, 128, 3), number * 12 % 256, np.uint8), format="rgb24")
        packets = encoder.encode(frame)
        units += [[unit for unit in re.split(rb"\x00{2,3}\x01", bytes(packet)) if unit] for packet in packets]
    return units


class _Camera(socketserver.StreamRequestHandler):
    def handle(self):
        while request := self._read():
            method, fields = request
            if method == "DESCRIBE":
                self._answer(fields, {"Content-Type": "application/sdp"}, _SDP)
            elif method == "SETUP":
                self._answer(fields, {"Transport": "RTP/AVP/TCP;unicast;interleaved=0-1", "Session": "1"})
            elif method == "PLAY":
                self._answer(fields, {"Session": "1"})
                self._play()
                return
            else:
                self._answer(fields, {"Public": "OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN"})

    def _read(self):
        lines = []
        while line := self.rfile.readline().decode().strip():
            lines.append(line)
        if not lines:
            return None
        return lines[0].split()[0], dict(line.split(": ", 1) for line in lines[1:])

    def _answer(self, fields, more, body=""):
        head = {"CSeq": fields["CSeq"], "Content-Length": str(len(body))} | more
        header_lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        self.wfile.write(f"RTSP/1.0 200 OK\r\n{header_lines}\r\n{body}".encode())

    def _play(self):
        sequence = 0
        for number, units in enumerate(pictures(self.server.count)):
            for unit in units:
                is_last = unit is units[-1]
                header = struct.pack("!BBHII", 0x80, 96 | (0x80 if is_last else 0), sequence, number * 90_000 // FPS, 1)
                self.wfile.write(b"$\x00" + struct.pack("!H", len(header) + len(unit)) + header + unit)
                sequence += 1
            threading.Event().wait(1 / FPS)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def rtsp_camera(count):
    """Serve a camera that shows some pictures and then ends; yield its address."""
    with _Server(("127.0.0.1", 0), _Camera) as server:
        server.count = count
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"rtsp://127.0.0.1:{server.server_address[1]}/camera"
        server.shutdown()
