"""What a participation costs when another model stands on the clock."""

import pytest

import vnetsim
from vnetsim.errors import InputError
from vnetsim.experiment import CostSettings
from vnetsim.learner_facts import Cost, Exchange, ModelCost


def test_each_copy_and_each_pass_are_the_other_models_and_keys_stay():
    """By hand: 10 B and 100 FLOP become 1000 B and 50 FLOP; two copies down with 7 B of keys, one up with 3 B."""
    cost = Cost(
        download_bytes=27,
        upload_bytes=13,
        work_flop=600.0,
        exchange=Exchange(before_training=True, mutual=False, send_bytes=10, work_flop=300.0, return_bytes=20),
        steps=4,
        model=ModelCost(bytes=10, image_flop=100.0, other_download_bytes=7, other_upload_bytes=3),
    )
    in_its_place = Cost(
        download_bytes=2007,
        upload_bytes=1003,
        work_flop=300.0,
        exchange=Exchange(before_training=True, mutual=False, send_bytes=1000, work_flop=150.0, return_bytes=2000),
        steps=4,
        model=ModelCost(bytes=1000, image_flop=50.0, other_download_bytes=7, other_upload_bytes=3),
    )
    assert cost.of(1000, 50.0) == in_its_place
    assert cost.of(1000, 50.0, 640) == in_its_place, "of a learner that does not say how many images it trains on"


def test_of_more_images_every_pass_is_made_as_often_and_nothing_more_is_sent():
    """By hand: 32 images of 100 FLOP, forward and backward; 160 in their place take five times as long."""
    exchange = Exchange(before_training=True, mutual=False, send_bytes=10, work_flop=3200.0)
    model = ModelCost(bytes=10, image_flop=100.0, images=32)
    cost = Cost(download_bytes=10, upload_bytes=10, work_flop=9600.0, exchange=exchange, steps=4, model=model)
    found = cost.of(20, 200.0, 160)
    assert (found.download_bytes, found.upload_bytes, found.steps) == (20, 20, 4)
    assert found.work_flop == 9600.0 * 2 * 5
    assert found.exchange is not None
    assert (found.exchange.send_bytes, found.exchange.work_flop) == (20, 3200.0 * 2 * 5)


def test_images_of_the_trained_model_are_refused_and_those_of_another_are_taken():
    with pytest.raises(InputError, match=r"cost\.images: means nothing with cost\.model = 'trained'"):
        vnetsim.Experiment("gaussian", cost__model="trained", cost__images=64)
    timed = [CostSettings(images=images).on_the_clock for images in (None, 64)]
    assert [one and one.images for one in timed] == [640, 64]
    assert CostSettings(model="mine", model_bytes=10, image_flop=1.0).on_the_clock == (10, 1.0, None, None)
