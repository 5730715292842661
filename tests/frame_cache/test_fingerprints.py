from tasks.frame_cache.pool import current_fingerprints


def test_many_videos_have_the_fingerprints_that_each_has_alone(objects, store_settings, tmp_path):
    names = [f"{store_settings.uri}/{number:02}.mp4" for number in range(12)]
    for number, name in enumerate(names):
        objects.write_new(name, bytes([number]))
    (tmp_path / "local.mp4").write_bytes(b"x")
    local = str(tmp_path / "local.mp4")
    gone = [f"{store_settings.uri}/00-gone.mp4", "s3://no/such.mp4", str(tmp_path / "gone.mp4"), "ftp://h/v.mp4"]

    found = current_fingerprints(objects, [*names, local, *gone])

    assert found == [objects.stat(uri).fingerprint for uri in (*names, local)] + [None] * 4
