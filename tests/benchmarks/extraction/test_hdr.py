from benchmarks.extraction.hdr import measure_hdr


def test_tone_mapping_is_timed_for_both_transfer_functions(tmp_path):
    rows = list(measure_hdr(tmp_path, rounds=1, size=(224, 112)))

    assert [row.transfer for row in rows] == ["HLG", "PQ"]
    assert all(row.tone_mapped_ms > 0 and row.as_decoded_ms > 0 for row in rows)
