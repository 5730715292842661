import pytest

from tests.live.record.recorded import start


@pytest.fixture
def recorder(db, objects, store_settings):
    """A recorder whose thread writes nothing by itself."""
    recorder = start(db, objects, store_settings.uri)
    yield recorder
    recorder.close()
