"""What a run shows in the Prefect UI."""

from urllib.parse import urlsplit

from prefect import flow
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId
from prefect.runtime import flow_run
from prefect.settings import PREFECT_API_URL, temporary_settings

from flows.run.artifacts import ProgressArtifact
from tests.chaos.gate import Gate
from tests.wait import until


def test_a_run_does_not_wait_for_prefect_to_show_its_progress(client, prefect_api):
    gate = Gate(urlsplit(prefect_api).port)

    def progress():
        mine = ArtifactFilter(flow_run_id=ArtifactFilterFlowRunId(any_=[flow_run.id]))
        return [artifact.data for artifact in client.read_artifacts(artifact_filter=mine)]

    def wait_for(share):
        until(lambda: progress() == [share], said=progress)

    @flow
    def run():
        with ProgressArtifact(total=4) as artifact:
            artifact.update(1)
            wait_for(25.0)
            with gate.shut():
                artifact.update(2)
            wait_for(50.0)  # as soon as Prefect answers again
            artifact.update(4)
        assert progress() == [100.0]

    with temporary_settings({PREFECT_API_URL: f"http://127.0.0.1:{gate.port}/api"}):
        run()
    gate.close()
