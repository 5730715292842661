import pytest

from infra.database.connect import connected
from infra.settings import DatabaseSettings


@pytest.fixture
def engine(database_url):
    with connected(DatabaseSettings(url=database_url)) as engine:
        yield engine
