import pytest

from infra.database.connect import connect
from infra.settings import DatabaseSettings


@pytest.fixture
def engine(database_url):
    engine = connect(DatabaseSettings(url=database_url))
    yield engine
    engine.dispose()
