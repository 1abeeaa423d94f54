"""What a participation costs when another model stands on the clock."""

from __future__ import annotations

from vnetsim.learner_facts import Cost, Exchange, ModelCost


def test_each_copy_and_each_pass_are_the_other_models_and_keys_stay() -> None:
    """By hand: 10 B and 100 FLOP become 1000 B and 50 FLOP; two copies down with 7 B of keys, one up with 3 B."""
    cost = Cost(
        download_bytes=27,
        upload_bytes=13,
        work_flop=600.0,
        exchange=Exchange(before_training=True, mutual=False, send_bytes=10, work_flop=300.0, return_bytes=20),
        steps=4,
        model=ModelCost(bytes=10, image_flop=100.0, other_download_bytes=7, other_upload_bytes=3),
    )
    assert cost.of(1000, 50.0) == Cost(
        download_bytes=2007,
        upload_bytes=1003,
        work_flop=300.0,
        exchange=Exchange(before_training=True, mutual=False, send_bytes=1000, work_flop=150.0, return_bytes=2000),
        steps=4,
        model=ModelCost(bytes=1000, image_flop=50.0, other_download_bytes=7, other_upload_bytes=3),
    )
