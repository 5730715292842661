import pytest
from pydantic import ValidationError

from infra.settings import (
    ChunkOptions,
    CostSettings,
    DatabaseSettings,
    ResultsSettings,
    SamplingOptions,
    StoreSettings,
    secret_variables,
)
from infra.settings.types import SettingsSection


def test_forms_show_names_as_words_and_units_as_units():
    fields = SamplingOptions.model_json_schema()["properties"]

    titles = [fields[name]["title"] for name in ("max_gap_s", "coverage_radius_s", "drop_similar", "fps", "sampler")]
    assert titles == ["Max gap (seconds)", "Coverage radius (seconds)", "Drop similar", "Fps", "Sampler"]


def test_a_name_that_is_only_a_unit_stays_a_name():
    class Waiting(SettingsSection):
        days: int

    assert Waiting.model_json_schema()["properties"]["days"]["title"] == "Days"


@pytest.mark.parametrize("login", ["url", "reader_url", "owner_url"])
def test_any_login_names_a_database_of_the_users_own(login):
    assert not DatabaseSettings().is_set
    assert DatabaseSettings(**{login: "postgresql://me@db/x"}).is_set


@pytest.mark.parametrize("price", ["per_gpu_hour", "per_cpu_hour"])
def test_one_price_is_enough_to_count_costs(price):
    assert not CostSettings().is_set
    assert CostSettings(**{price: 0.01}).is_set


def test_videos_are_read_with_a_key_of_their_own_if_there_is_one():
    store = StoreSettings(region="eu-west-1", access_key_id="frames", secret_access_key="f")
    both = StoreSettings(
        region="eu-west-1",
        access_key_id="frames",
        secret_access_key="f",
        video_access_key_id="videos",
        video_secret_access_key="v",
    ).for_videos()

    assert store.for_videos() == store
    assert (both.access_key_id.get_secret_value(), both.secret_access_key.get_secret_value()) == ("videos", "v")
    assert both.region == "eu-west-1"


@pytest.mark.parametrize(
    ("form", "lake", "namespace"),
    [("parquet", None, ""), ("delta", "delta", ""), ("iceberg:mine.raw.labels", "iceberg", "mine.raw.labels")],
)
def test_rows_go_to_the_tables_that_their_format_names(form, lake, namespace):
    results = ResultsSettings(export_uri="s3://lake/rows", export_format=form)

    assert (results.lake, results.iceberg_namespace) == (lake, namespace)


def test_a_chunk_has_at_least_a_second_or_there_are_none():
    assert [ChunkOptions(chunk_s=seconds).chunk_s for seconds in (0, 1)] == [0, 1]
    with pytest.raises(ValidationError):
        ChunkOptions(chunk_s=0.99)


def test_variables_that_hold_passwords_and_keys_are_known():
    assert secret_variables() == {
        f"REELABEL_{name}"
        for name in (
            "DATABASE_URL",
            "DATABASE_READER_URL",
            "DATABASE_OWNER_URL",
            "STORE_ACCESS_KEY_ID",
            "STORE_SECRET_ACCESS_KEY",
            "STORE_VIDEO_ACCESS_KEY_ID",
            "STORE_VIDEO_SECRET_ACCESS_KEY",
            "STORE_MAC_KEY",
            "PREFECT_AUTH_STRING",
            "SERVER_API_KEY",
            "SERVE_TOKEN",
            "NOTIFY_WEBHOOK_URL",
        )
    }
