from infra.settings import SamplingOptions
from infra.settings.types import SettingsSection


def test_forms_show_names_as_words_and_units_as_units():
    fields = SamplingOptions.model_json_schema()["properties"]

    titles = [fields[name]["title"] for name in ("max_gap_s", "coverage_radius_s", "drop_similar", "fps", "sampler")]
    assert titles == ["Max gap (seconds)", "Coverage radius (seconds)", "Drop similar", "Fps", "Sampler"]


def test_a_name_that_is_only_a_unit_stays_a_name():
    class Waiting(SettingsSection):
        days: int

    assert Waiting.model_json_schema()["properties"]["days"]["title"] == "Days"
