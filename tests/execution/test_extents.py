"""Output shapes are predicted from the shapes of earlier runs."""

from acl.execution._extents import Extents


def taught(inputs, outputs, *runs):
    extents = Extents(inputs, outputs)
    for given, came in runs:
        extents.learn(given, came)
    return extents


def test_output_shapes_are_not_predicted_before_the_first_run():
    assert Extents(((-1, 4),), ((-1,),)).predict(((2, 4),)) is None


def test_output_shapes_that_are_fixed_need_no_run_to_be_predicted():
    assert Extents(((-1, 4),), ((3, 2),)).predict(((2, 4),)) == ((3, 2),)


def test_output_dimension_equal_to_an_input_dimension_is_predicted():
    extents = taught(((-1, -1),), ((-1, 8),), (((2, 5),), ((2, 8),)), (((5, 2),), ((5, 8),)))
    assert extents.predict(((7, 30),)) == ((7, 8),)


def test_larger_prediction_is_used_while_two_rules_fit_all_runs():
    extents = taught(((-1, -1),), ((-1,),), (((4, 4),), ((4,),)))
    assert extents.predict(((3, 9),)) == ((9,),)


def test_output_dimension_that_is_a_sum_of_input_dimensions_is_predicted():
    extents = taught(
        ((-1,), (-1, 8)), ((-1, 8),), (((2,), (5, 8)), ((7, 8),)), (((3,), (11, 8)), ((14, 8),)))
    assert extents.predict(((1,), (20, 8))) == ((21, 8),)


def test_output_dimension_that_is_a_product_of_input_dimensions_is_predicted():
    extents = taught(((-1, -1),), ((-1,),), (((2, 5),), ((10,),)), (((3, 7),), ((21,),)))
    assert extents.predict(((4, 6),)) == ((24,),)


def test_output_dimension_proportional_to_an_input_is_predicted_and_never_too_small():
    extents = taught(((-1,),), ((-1,),), (((64,),), ((2,),)), (((96,),), ((3,),)))
    for size in (32, 65, 100, 128):
        assert extents.predict(((size,),))[0][0] >= -(-size // 32)


def test_output_shapes_of_inputs_seen_before_are_predicted_exactly():
    extents = taught(((-1,),), ((-1,),), (((64,),), ((2,),)), (((10,),), ((7,),)))
    assert extents.predict(((64,),)) == ((2,),)


def test_outputs_that_depend_on_the_data_are_predicted_by_the_largest_one_seen():
    extents = taught(((4,),), ((-1,),), (((4,),), ((3,),)), (((4,),), ((1,),)))
    assert extents.predict(((4,),)) == ((3,),)


def test_output_rank_that_is_not_declared_is_learnt_from_a_run():
    extents = taught(((-1, 8),), ((),), (((2, 8),), ((2, 8),)))
    assert extents.predict(((5, 8),)) == ((5, 8),)
    assert Extents(((-1, 8),), ((),)).predict(((2, 8),)) is None


def test_at_most_512_runs_are_remembered():
    extents = Extents(((-1,),), ((-1,),))
    for size in range(1, 2000):
        extents.learn(((size,),), ((size,),))
    assert len(extents.seen) <= 512 and extents.predict(((5000,),)) == ((5000,),)


def test_output_dimension_that_is_a_fraction_of_the_pixels_is_predicted():
    extents = taught(((-1, -1),), ((-1,),), (((16, 32),), ((8,),)), (((64, 32),), ((32,),)))
    assert extents.predict(((48, 80),)) == ((60,),)
