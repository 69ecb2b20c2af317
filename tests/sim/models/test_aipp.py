"""AIPP: sets of parameters, the checks of each parameter and of the whole set, and the results of models.

The rules, the order of fields and the sizes are those of GE's code.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.calls import api, out
from support.models import Call, SimModel
from support.rules import code_of

from acl.tools.onnx_writer import Builder

P, NO_MODEL, NO_AIPP, TOO_SHORT, FAILURE = 100000, 145003, 145015, 145012, 500001
NONE_ATTACHED = 0xFFFFFFFF
YUV420SP, XRGB8888, RGB888, YUV400, YUYV, RAW24 = 1, 2, 3, 4, 8, 14
HEAD, IMAGE = 64, 96

pytestmark = pytest.mark.usefixtures("device")


def parameters_model() -> bytes:
    """Return a model with two inputs, an image and its parameters; the parameters are also an output, unchanged."""
    made = Builder()
    made.input("image", "float32", [2])
    made.input("ascend_dynamic_aipp_data", "uint8", [HEAD + 2 * IMAGE])
    made.output(made.add("Identity", "image"), "float32", [2])
    made.output(made.add("Identity", "ascend_dynamic_aipp_data"), "uint8", [HEAD + 2 * IMAGE])
    return made.to_bytes()


class Scene:
    """The objects that the rows' arguments name."""

    def __init__(self) -> None:
        self.set = api.aclmdlCreateAIPP(2)
        self.dead = api.aclmdlCreateAIPP(1)
        assert api.aclmdlDestroyAIPP(self.dead) == 0
        self.buffer = (ctypes.c_ubyte * 400000)()
        self.out = ctypes.addressof(self.buffer)
        self.with_data = SimModel(parameters_model())
        self.model = self.with_data.id
        self.call = Call([np.zeros(2, np.float32), np.zeros(HEAD + 2 * IMAGE, np.uint8)], 2)
        self.dataset = self.call.input
        self.empty = api.aclmdlCreateDataset()

    def close(self) -> None:
        assert api.aclmdlDestroyDataset(self.empty) == 0
        self.call.close()
        self.with_data.__exit__()
        assert api.aclmdlDestroyAIPP(self.set) == 0


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


ON9 = [1] + [0] * 9 + [0] * 6
ROWS: list[tuple[str, list[Any], int]] = [
    ("aclmdlDestroyAIPP", [None], P),
    ("aclmdlDestroyAIPP", ["dead"], P),
    ("aclmdlDestroyAIPP", ["out"], P),
    ("aclmdlGetAippDataSize", [0, "out"], P),
    ("aclmdlGetAippDataSize", [1, None], P),
    ("aclmdlGetAippDataSize", [1 << 60, "out"], P),
    ("aclmdlGetAippDataSize", [1, "out"], 0),
    ("aclmdlSetAIPPInputFormat", [None, RGB888], P),
    ("aclmdlSetAIPPInputFormat", ["dead", RGB888], P),
    ("aclmdlSetAIPPInputFormat", ["set", 0], P),
    ("aclmdlSetAIPPInputFormat", ["set", RAW24 + 1], P),
    ("aclmdlSetAIPPInputFormat", ["set", 0xFFFF], P),
    ("aclmdlSetAIPPInputFormat", ["set", -1], P),
    ("aclmdlSetAIPPInputFormat", ["set", RAW24], 0),
    ("aclmdlSetAIPPCscParams", [None, *ON9], P),
    ("aclmdlSetAIPPCscParams", ["set", 2, *ON9[1:]], P),
    ("aclmdlSetAIPPCscParams", ["set", -1, *ON9[1:]], P),
    ("aclmdlSetAIPPCscParams", ["set", 1, -32678, *ON9[2:]], P),
    ("aclmdlSetAIPPCscParams", ["set", 1, -32677, *ON9[2:]], 0),
    ("aclmdlSetAIPPCscParams", ["set", 1, *[0] * 8, 32677, *[0] * 6], P),
    ("aclmdlSetAIPPCscParams", ["set", 0, *[0] * 8, 32677, *[0] * 6], 0),
    ("aclmdlSetAIPPRbuvSwapSwitch", [None, 1], P),
    ("aclmdlSetAIPPRbuvSwapSwitch", ["set", 2], P),
    ("aclmdlSetAIPPRbuvSwapSwitch", ["set", 1], 0),
    ("aclmdlSetAIPPAxSwapSwitch", [None, 1], P),
    ("aclmdlSetAIPPAxSwapSwitch", ["set", -1], P),
    ("aclmdlSetAIPPAxSwapSwitch", ["set", 0], 0),
    ("aclmdlSetAIPPSrcImageSize", [None, 2, 2], P),
    ("aclmdlSetAIPPSrcImageSize", ["set", 1, 2], P),
    ("aclmdlSetAIPPSrcImageSize", ["set", 2, 0], P),
    ("aclmdlSetAIPPSrcImageSize", ["set", 4097, 2], P),
    ("aclmdlSetAIPPSrcImageSize", ["set", 2, 4097], P),
    ("aclmdlSetAIPPSrcImageSize", ["set", 2, 1], 0),
    ("aclmdlSetAIPPSrcImageSize", ["set", 4096, 4096], 0),
    ("aclmdlSetAIPPScfParams", [None, 1, 16, 16, 16, 16, 0], P),
    ("aclmdlSetAIPPScfParams", ["set", 1, 16, 16, 16, 16, 2], P),
    ("aclmdlSetAIPPScfParams", ["set", 2, 16, 16, 16, 16, 0], P),
    ("aclmdlSetAIPPScfParams", ["set", 1, 15, 16, 16, 16, 0], P),
    ("aclmdlSetAIPPScfParams", ["set", 1, 16, 4097, 16, 16, 0], P),
    ("aclmdlSetAIPPScfParams", ["set", 1, 16, 16, 1921, 16, 0], P),
    ("aclmdlSetAIPPScfParams", ["set", 1, 16, 16, 16, 15, 0], P),
    ("aclmdlSetAIPPScfParams", ["set", 1, 4096, 16, 1920, 4096, 1], 0),
    ("aclmdlSetAIPPScfParams", ["set", 0, 0, 0, 0, 0, 1], 0),
    ("aclmdlSetAIPPCropParams", [None, 1, 0, 0, 1, 1, 0], P),
    ("aclmdlSetAIPPCropParams", ["set", 1, 0, 0, 1, 1, 2], P),
    ("aclmdlSetAIPPCropParams", ["set", 1, -1, 0, 1, 1, 0], P),
    ("aclmdlSetAIPPCropParams", ["set", 1, 0, 4096, 1, 1, 0], P),
    ("aclmdlSetAIPPCropParams", ["set", 1, 0, 0, 0, 1, 0], P),
    ("aclmdlSetAIPPCropParams", ["set", 1, 0, 0, 1, 4097, 0], P),
    ("aclmdlSetAIPPCropParams", ["set", 1, 4095, 4095, 4096, 4096, 1], 0),
    ("aclmdlSetAIPPCropParams", ["set", 0, -1, -1, -1, -1, 1], 0),
    ("aclmdlSetAIPPPaddingParams", [None, 1, 0, 0, 0, 0, 0], P),
    ("aclmdlSetAIPPPaddingParams", ["set", 1, 33, 0, 0, 0, 0], P),
    ("aclmdlSetAIPPPaddingParams", ["set", 1, 0, -1, 0, 0, 0], P),
    ("aclmdlSetAIPPPaddingParams", ["set", 1, 0, 0, 0, 33, 0], P),
    ("aclmdlSetAIPPPaddingParams", ["set", 1, 0, 0, 0, 0, 2], P),
    ("aclmdlSetAIPPPaddingParams", ["set", 1, 32, 32, 32, 32, 1], 0),
    ("aclmdlSetAIPPPaddingParams", ["set", 0, 99, 0, 0, 0, 1], 0),
    ("aclmdlSetAIPPDtcPixelMean", [None, 0, 0, 0, 0, 0], P),
    ("aclmdlSetAIPPDtcPixelMean", ["set", -1, 0, 0, 0, 0], P),
    ("aclmdlSetAIPPDtcPixelMean", ["set", 0, 0, 0, 256, 0], P),
    ("aclmdlSetAIPPDtcPixelMean", ["set", 0, 0, 0, 0, 2], P),
    ("aclmdlSetAIPPDtcPixelMean", ["set", 255, 255, 255, 255, 1], 0),
    ("aclmdlSetAIPPDtcPixelMin", [None, 0.0, 0.0, 0.0, 0.0, 0], P),
    ("aclmdlSetAIPPDtcPixelMin", ["set", -0.5, 0.0, 0.0, 0.0, 0], P),
    ("aclmdlSetAIPPDtcPixelMin", ["set", 0.0, 255.5, 0.0, 0.0, 0], P),
    ("aclmdlSetAIPPDtcPixelMin", ["set", float("nan"), 0.0, 0.0, 0.0, 0], P),
    ("aclmdlSetAIPPDtcPixelMin", ["set", 0.0, 0.0, 0.0, 255.0, 2], P),
    ("aclmdlSetAIPPDtcPixelMin", ["set", 0.0, 0.0, 0.0, 255.0, 1], 0),
    ("aclmdlSetAIPPPixelVarReci", [None, 1.0, 1.0, 1.0, 1.0, 0], P),
    ("aclmdlSetAIPPPixelVarReci", ["set", 65505.0, 1.0, 1.0, 1.0, 0], P),
    ("aclmdlSetAIPPPixelVarReci", ["set", 1.0, 1.0, 1.0, -65505.0, 0], P),
    ("aclmdlSetAIPPPixelVarReci", ["set", 1.0, 1.0, 1.0, 1.0, 2], P),
    ("aclmdlSetAIPPPixelVarReci", ["set", 65504.0, -65504.0, 0.0, 1.0, 1], 0),
    ("aclmdlGetAippType", ["model", 0, None, "out"], P),
    ("aclmdlGetAippType", ["model", 0, "out", None], P),
    ("aclmdlGetAippType", ["model", 2, "out", "out"], P),
    ("aclmdlGetAippType", [99999, 0, "out", "out"], NO_MODEL),
    ("aclmdlGetAippType", ["model", 1, "out", "out+8"], 0),
    ("aclmdlGetFirstAippInfo", ["model", 0, None], P),
    ("aclmdlGetFirstAippInfo", ["model", 2, "out"], P),
    ("aclmdlGetFirstAippInfo", [99999, 0, "out"], NO_MODEL),
    ("aclmdlGetFirstAippInfo", ["model", 0, "out"], NO_AIPP),
    ("aclmdlSetInputAIPP", ["model", None, 1, "set"], P),
    ("aclmdlSetInputAIPP", ["model", "dataset", 1, None], P),
    ("aclmdlSetInputAIPP", ["model", "dataset", 1, "dead"], P),
    ("aclmdlSetInputAIPP", ["model", "dataset", 0, "set"], P),
    ("aclmdlSetInputAIPP", ["model", "dataset", 2, "set"], P),
    ("aclmdlSetInputAIPP", ["model", "dataset", 1, "set"], P),
    ("aclmdlSetInputAIPP", [99999, "dataset", 1, "set"], NO_MODEL),
    ("aclmdlSetAIPPByInputIndex", ["model", None, 0, "set"], P),
    ("aclmdlSetAIPPByInputIndex", ["model", "dataset", 0, None], P),
    ("aclmdlSetAIPPByInputIndex", ["model", "dataset", 2, "set"], P),
    ("aclmdlSetAIPPByInputIndex", ["model", "empty", 0, "set"], P),
    ("aclmdlSetAIPPByInputIndex", [99999, "dataset", 0, "set"], NO_MODEL),
    ("aclmdlSetAIPPByInputIndex", ["model", "dataset", 0, "set"], FAILURE),
]


@pytest.mark.parametrize(("function", "arguments", "code"), ROWS)
def test_aipp_call_with_wrong_arguments_returns_the_documented_code(
    scene: Scene, function: str, arguments: list[Any], code: int
) -> None:
    assert code_of(scene, function, arguments) == code


def test_aipp_parameter_set_for_no_image_is_refused() -> None:
    assert api.aclmdlCreateAIPP(0) is None
    assert api.aclmdlCreateAIPP(1 << 62) is None


def test_aipp_parameter_size_is_a_header_and_a_part_for_each_image() -> None:
    size = out(ctypes.c_size_t)
    for images in (1, 2, 127):
        assert api.aclmdlGetAippDataSize(images, ctypes.byref(size)) == 0
        assert size.value == HEAD + images * IMAGE


def test_an_onnx_models_inputs_have_no_preprocessing(scene: Scene) -> None:
    kind, attached = out(ctypes.c_int), out(ctypes.c_size_t)
    kind.value = 7
    assert api.aclmdlGetAippType(scene.model, 0, ctypes.byref(kind), ctypes.byref(attached)) == 0
    assert (kind.value, attached.value) == (0, NONE_ATTACHED)


def good(images: int) -> int:
    """Return a set of parameters that a model accepts."""
    made: int = api.aclmdlCreateAIPP(images)
    assert api.aclmdlSetAIPPInputFormat(made, RGB888) == 0
    assert api.aclmdlSetAIPPSrcImageSize(made, 64, 32) == 0
    return made


def given(scene: Scene, made: int) -> int:
    """Pass a set to the model and destroy it; return the code of the call."""
    code: int = api.aclmdlSetInputAIPP(scene.model, scene.dataset, 1, made)
    assert api.aclmdlDestroyAIPP(made) == 0
    return code


def test_aipp_parameters_are_written_to_the_input_of_the_model(scene: Scene) -> None:
    made = good(2)
    assert api.aclmdlSetAIPPRbuvSwapSwitch(made, 1) == 0
    assert api.aclmdlSetAIPPCscParams(made, 1, *range(-4, 5), 16, 128, 129, 1, 2, 3) == 0
    assert api.aclmdlSetAIPPCropParams(made, 1, 3, 4, 50, 20, 0) == 0
    assert api.aclmdlSetAIPPPaddingParams(made, 1, 1, 2, 3, 4, 0) == 0
    assert api.aclmdlSetAIPPCropParams(made, 1, 5, 6, 57, 23, 1) == 0
    assert api.aclmdlSetAIPPDtcPixelMean(made, 104, 117, 123, 7, 1) == 0
    assert api.aclmdlSetAIPPDtcPixelMin(made, 0.5, 1.5, 2.5, 255.0, 0) == 0
    assert api.aclmdlSetAIPPPixelVarReci(made, 0.25, -2.0, 65504.0, 0.0, 1) == 0
    assert given(scene, made) == 0
    assert api.aclmdlExecute(scene.model, scene.dataset, scene.call.output) == 0
    data = scene.call.result(1).tobytes()
    assert struct.unpack_from("<BbbbbxxxII", data) == (5, 1, 1, 0, 2, 64, 32)
    assert struct.unpack_from("<9h6x6B", data, 16) == (*range(-4, 5), 16, 128, 129, 1, 2, 3)
    first, second = data[HEAD : HEAD + IMAGE], data[HEAD + IMAGE :]
    assert struct.unpack_from("<4b4x12i4h4e4e", first) == (
        1, 0, 1, 0, 3, 4, 50, 20, 0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0.5, 1.5, 2.5, 255.0, 1, 1, 1, 1)
    assert struct.unpack_from("<4b4x12i4h4e4e", second) == (
        1, 0, 0, 0, 5, 6, 57, 23, *[0] * 8, 104, 117, 123, 7, 0, 0, 0, 0, 0.25, -2.0, 65504.0, 0.0)


def test_aipp_feature_that_is_switched_off_clears_its_other_parameters(scene: Scene) -> None:
    made = good(1)
    assert api.aclmdlSetAIPPCscParams(made, 0, *range(1, 16)) == 0
    assert api.aclmdlSetAIPPCropParams(made, 0, 1, 2, 3, 4, 0) == 0
    assert given(scene, made) == 0
    assert api.aclmdlExecute(scene.model, scene.dataset, scene.call.output) == 0
    data = scene.call.result(1).tobytes()
    assert not any(data[16:HEAD])
    assert not any(data[HEAD : HEAD + 24])


def test_aipp_batch_larger_than_the_input_is_refused(scene: Scene) -> None:
    assert given(scene, good(3)) == TOO_SHORT


def test_aipp_set_without_image_size_or_format_is_refused(scene: Scene) -> None:
    made = api.aclmdlCreateAIPP(1)
    assert api.aclmdlSetAIPPSrcImageSize(made, 64, 32) == 0
    assert given(scene, made) == P
    made = api.aclmdlCreateAIPP(1)
    assert api.aclmdlSetAIPPInputFormat(made, RGB888) == 0
    assert given(scene, made) == P


@pytest.mark.parametrize(
    ("image_format", "size", "code"),
    [(XRGB8888, (63, 31), 0), (YUV400, (63, 31), 0), (YUYV, (64, 32), P), (RAW24, (64, 32), P),
     (YUV420SP, (64, 32), 0), (YUV420SP, (63, 32), P), (YUV420SP, (64, 31), P)],
)
def test_aipp_input_accepts_only_supported_formats_and_their_image_sizes(
    scene: Scene, image_format: int, size: tuple[int, int], code: int
) -> None:
    made = good(1)
    assert api.aclmdlSetAIPPInputFormat(made, image_format) == 0
    assert api.aclmdlSetAIPPSrcImageSize(made, *size) == 0
    assert given(scene, made) == code


def test_grey_images_have_no_colours_to_convert(scene: Scene) -> None:
    made = good(1)
    assert api.aclmdlSetAIPPInputFormat(made, YUV400) == 0
    assert api.aclmdlSetAIPPCscParams(made, *ON9) == 0
    assert given(scene, made) == P


@pytest.mark.parametrize(
    ("crop", "code"),
    [((0, 0, 64, 32), 0), ((1, 0, 64, 32), P), ((0, 1, 64, 32), P), ((63, 31, 1, 1), 0), ((1, 1, 8, 8), 0)],
)
def test_a_crop_lies_inside_the_image(scene: Scene, crop: tuple[int, ...], code: int) -> None:
    made = good(1)
    assert api.aclmdlSetAIPPCropParams(made, 1, *crop, 0) == 0
    assert given(scene, made) == code


def test_a_crop_of_yuv_starts_at_a_pair(scene: Scene) -> None:
    for start, code in [((2, 2), 0), ((1, 2), P), ((2, 1), P)]:
        made = good(1)
        assert api.aclmdlSetAIPPInputFormat(made, YUV420SP) == 0
        assert api.aclmdlSetAIPPCropParams(made, 1, *start, 8, 8, 0) == 0
        assert given(scene, made) == code


def test_images_of_a_batch_come_out_alike(scene: Scene) -> None:
    made = good(2)
    assert api.aclmdlSetAIPPCropParams(made, 1, 0, 0, 8, 8, 0) == 0
    assert given(scene, made) == P
    made = good(2)
    for image in (0, 1):
        assert api.aclmdlSetAIPPCropParams(made, 1, 4 * image, 0, 8, 8, image) == 0
    assert given(scene, made) == 0


def test_scaling_is_refused(scene: Scene) -> None:
    made = good(1)
    assert api.aclmdlSetAIPPScfParams(made, 1, 64, 32, 128, 64, 0) == 0
    assert given(scene, made) == P


def test_padded_images_are_1080_wide_at_most(scene: Scene) -> None:
    for width, code in [(1016, 0), (1017, P)]:
        made = good(1)
        assert api.aclmdlSetAIPPSrcImageSize(made, width, 32) == 0
        assert api.aclmdlSetAIPPPaddingParams(made, 1, 0, 0, 32, 32, 0) == 0
        assert given(scene, made) == code


def test_model_without_an_aipp_input_refuses_parameters() -> None:
    plain = Builder()
    plain.input("x", "float32", [2])
    plain.output(plain.add("Identity", "x"), "float32", [2])
    made = good(1)
    with SimModel(plain.to_bytes()) as loaded:
        call = Call([np.zeros(2, np.float32)], 1)
        assert api.aclmdlSetInputAIPP(loaded.id, call.input, 0, made) == P
        message = api.aclGetRecentErrMsg().decode()
        assert "aclmdlSetInputAIPP" in message
        assert "ascend_dynamic_aipp_data" in message
        call.close()
    assert api.aclmdlDestroyAIPP(made) == 0
