"""Output shapes are predicted from the shapes of earlier runs."""

from acl.execution._extents import Extents


def taught(inputs, outputs, *runs):
    extents = Extents(inputs, outputs)
    for given, came in runs:
        extents.learn(given, came)
    return extents


def test_nothing_is_predicted_before_the_first_run():
    assert Extents(((-1, 4),), ((-1,),)).predict(((2, 4),)) is None


def test_fixed_outputs_need_no_run():
    assert Extents(((-1, 4),), ((3, 2),)).predict(((2, 4),)) == ((3, 2),)


def test_a_dimension_equal_to_one_of_the_inputs_is_found():
    extents = taught(((-1, -1),), ((-1, 8),), (((2, 5),), ((2, 8),)), (((5, 2),), ((5, 8),)))
    assert extents.predict(((7, 30),)) == ((7, 8),)


def test_while_two_rules_hold_the_larger_one_counts():
    extents = taught(((-1, -1),), ((-1,),), (((4, 4),), ((4,),)))
    assert extents.predict(((3, 9),)) == ((9,),)


def test_a_cache_that_grows_by_the_new_tokens_is_a_sum():
    extents = taught(
        ((-1,), (-1, 8)), ((-1, 8),), (((2,), (5, 8)), ((7, 8),)), (((3,), (11, 8)), ((14, 8),)))
    assert extents.predict(((1,), (20, 8))) == ((21, 8),)


def test_a_flattened_dimension_is_a_product():
    extents = taught(((-1, -1),), ((-1,),), (((2, 5),), ((10,),)), (((3, 7),), ((21,),)))
    assert extents.predict(((4, 6),)) == ((24,),)


def test_a_downsampled_dimension_is_in_proportion_and_never_too_small():
    extents = taught(((-1,),), ((-1,),), (((64,),), ((2,),)), (((96,),), ((3,),)))
    for size in (32, 65, 100, 128):
        assert extents.predict(((size,),))[0][0] >= -(-size // 32)


def test_seen_inputs_are_predicted_exactly():
    extents = taught(((-1,),), ((-1,),), (((64,),), ((2,),)), (((10,),), ((7,),)))
    assert extents.predict(((64,),)) == ((2,),)


def test_outputs_that_depend_on_the_data_get_room_for_the_larger_ones():
    extents = taught(((4,),), ((-1,),), (((4,),), ((3,),)), (((4,),), ((1,),)))
    assert extents.predict(((4,),)) == ((3,),)


def test_an_undeclared_rank_is_learnt():
    extents = taught(((-1, 8),), ((),), (((2, 8),), ((2, 8),)))
    assert extents.predict(((5, 8),)) == ((5, 8),)
    assert Extents(((-1, 8),), ((),)).predict(((2, 8),)) is None


def test_at_most_512_runs_are_remembered():
    extents = Extents(((-1,),), ((-1,),))
    for size in range(1, 2000):
        extents.learn(((size,),), ((size,),))
    assert len(extents.seen) <= 512 and extents.predict(((5000,),)) == ((5000,),)


def test_places_of_a_downsampled_image_are_a_share_of_its_pixels():
    extents = taught(((-1, -1),), ((-1,),), (((16, 32),), ((8,),)), (((64, 32),), ((32,),)))
    assert extents.predict(((48, 80),)) == ((60,),)
