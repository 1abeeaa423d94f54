"""The record of a learner's model, and the files of the RSUs' own."""

import numpy as np

from vnetsim.learning import Description
from vnetsim.learning.model_record import model_files, model_record


def test_files_have_the_names_of_the_rsus_and_numbers_where_a_disk_would_take_two_for_one():
    assert model_files(["A", "b/c"]) == {"A": "models/A.safetensors", "b/c": "models/b-c.safetensors"}
    assert model_files(["A", "a"]) == {"A": "models/0-A.safetensors", "a": "models/1-a.safetensors"}


def test_of_weights_alone_images_are_taken_as_they_are():
    described = Description(
        encoder="net", parameters=7, image_shape=(1, 32, 24), class_names=(), silo_label_counts=np.ones((1, 1), int)
    )
    record = model_record(described, 5)
    assert (record.mean, record.std, record.round, record.image_shape) == ((0.0,), (1.0,), 5, (1, 32, 24))
