"""A service without engines, as a process: its only route works as long as it is asked to.

Arguments: settings of the section `serve`, as JSON.
"""

import sys
import time

from fastapi import APIRouter, Request
from pydantic import BaseModel

from flows.serve.app import make_app
from flows.serve.requests.handle import handle, open_service
from flows.serve.server import reserve, serve, url_of
from infra.settings import ServeSettings, Settings
from infra.telemetry import start_telemetry
from reelabel.waiting import raise_if_abandoned


class SleepRequest(BaseModel):
    seconds: float = 0


class Slept(BaseModel):
    size_bytes: int


router = APIRouter()


@router.post("/sleep")
async def sleep(request: Request) -> Slept:
    return await handle(request, "sleep", SleepRequest, work)


def work(request, upload):
    until_s = time.monotonic() + request.seconds
    while time.monotonic() < until_s:
        time.sleep(0.02)
        raise_if_abandoned()
    return Slept(size_bytes=0 if upload is None else len(open(upload, "rb").read()))  # noqa: PTH123


def main():
    settings = Settings(serve=ServeSettings.model_validate_json(sys.argv[1]))
    start_telemetry(settings.metrics, page=True)
    with reserve(settings.serve) as opened, open_service(settings) as service:
        sys.stdout.write(f"{service.uploads.folder} at {url_of(opened)};\n")
        sys.stdout.flush()
        serve(make_app(service, [router]), opened, settings.serve, ready=lambda: None)
    sys.stdout.write("Stopped.\n")


if __name__ == "__main__":
    main()
