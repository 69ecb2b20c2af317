"""Dicts and lists that pyACL accepts and returns for structs: which values are written, read, and refused."""

from typing import Any

import numpy as np
import pytest

import acl

PROP = {"handleType": 0, "allocationType": 0, "memAttr": 4, "location": {"id": 0, "type": 1}, "reserve": 0}


@pytest.fixture(autouse=True)
def device() -> None:
    assert acl.rt.set_device(0) == 0


def test_dict_is_converted_to_a_c_struct_and_back() -> None:
    handle, ret = acl.rt.malloc_physical(2 << 20, PROP, 0)
    assert ret == 0
    assert acl.rt.mem_get_allocation_properties_from_handle(handle) == (PROP, 0)
    assert acl.rt.free_physical(handle) == 0


def test_absent_dict_keys_become_zero_and_unknown_keys_are_ignored() -> None:
    short = {"memAttr": 4, "location": {"type": 1}, "nonsense": 7}
    assert acl.rt.mem_get_allocation_granularity(short, 0) == acl.rt.mem_get_allocation_granularity(PROP, 0)
    handle, ret = acl.rt.malloc_physical(2 << 20, short, 0)
    assert ret == 0
    assert acl.rt.free_physical(handle) == 0


@pytest.mark.parametrize("prop", [None, [], "text", 7, {"location": 3}, {"memAttr": "x"}])
def test_struct_argument_of_a_wrong_form_is_refused(prop: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        acl.rt.malloc_physical(2 << 20, prop, 0)


def test_dims_that_do_not_fit_their_field_are_refused() -> None:
    dataset = acl.mdl.create_dataset()
    with pytest.raises(ValueError, match="dims has more than its 128 elements"):
        acl.mdl.set_input_dynamic_dims(0, dataset, 0, {"dimCount": 129, "dims": list(range(129))})
    with pytest.raises(ValueError, match="name is longer than its field"):
        acl.mdl.set_input_dynamic_dims(0, dataset, 0, {"name": "n" * 128, "dimCount": 1, "dims": [1]})
    assert acl.mdl.set_input_dynamic_dims(0, dataset, 0, {"dimCount": 1, "dims": [1]}) != 0    # no such model
    assert acl.mdl.destroy_dataset(dataset) == 0


def test_stream_attribute_uses_the_union_member_of_its_kind() -> None:
    stream, _ = acl.rt.create_stream()
    assert acl.rt.set_stream_attribute(stream, 3, {"userCustomTag": 77}) == 0
    assert acl.rt.get_stream_attribute(stream, 3) == ({"userCustomTag": 77}, 0)
    assert set(acl.rt.get_stream_attribute(stream, 1)[0]) == {"failureMode"}
    assert acl.rt.get_stream_attribute(stream, 99)[0] == {}
    assert acl.rt.destroy_stream(stream) == 0
    assert acl.rt.get_stream_attribute(stream, 3)[0] == {}


def test_malloc_accepts_a_configuration_dict() -> None:
    config = {"attrs": [{"attr": 1, "value": {"moduleId": 3}}], "numAttrs": 1}
    pointer, ret = acl.rt.malloc_with_cfg(64, 0, config)
    assert ret == 0 and acl.rt.free(pointer) == 0
    pointer, ret = acl.rt.malloc_with_cfg(64, 0, {})
    assert ret == 0 and acl.rt.free(pointer) == 0
    other = {"attrs": [{"attr": 2, "value": {"deviceId": 1}}], "numAttrs": 1}
    assert acl.rt.malloc_with_cfg(64, 0, other)[1] == 107000       # deviceId is not the current device
    with pytest.raises(KeyError, match="numAttrs: expected 1"):
        acl.rt.malloc_with_cfg(64, 0, {**config, "numAttrs": 2})


def test_lists_of_dicts_become_arrays_of_structs() -> None:
    source, target = np.arange(32, dtype=np.uint8), np.zeros(32, dtype=np.uint8)
    on_host = {"dstLoc": {"id": 0, "type": 1}, "srcLoc": {"id": 0, "type": 0}}
    pointer, _ = acl.rt.malloc(64, 0)
    failed, ret = acl.rt.memcpy_batch([pointer], [32], [source.ctypes.data], [32], [on_host], [0])
    assert ret == 0, failed
    assert acl.rt.memcpy(target.ctypes.data, 32, pointer, 32, 2) == 0
    assert (target == source).all()
    with pytest.raises(ValueError, match="lists of one length expected, got 1 and 2 elements"):
        acl.rt.memcpy_batch([pointer], [32, 32], [source.ctypes.data], [32], [on_host], [0])
    with pytest.raises(TypeError, match="argument 5 is not list of dict"):
        acl.rt.memcpy_batch([pointer], [32], [source.ctypes.data], [32], [1], [0])
    assert acl.rt.free(pointer) == 0


def test_tensor_descriptions_take_lists_of_any_length() -> None:
    for dims in ([], [1], [2, -1, 3], list(range(1, 9))):
        desc = acl.create_tensor_desc(0, dims, 2)
        assert acl.get_tensor_desc_num_dims(desc) == len(dims)
        assert [acl.get_tensor_desc_dim_v2(desc, i)[0] for i in range(len(dims))] == dims
        acl.destroy_tensor_desc(desc)


def test_shape_ranges_are_given_as_pairs() -> None:
    desc = acl.create_tensor_desc(0, [2, -1], 2)
    assert acl.set_tensor_shape_range(desc, [[2, 2], [1, 9]]) == 0
    assert acl.get_tensor_desc_dim_range(desc, 1, 2) == ([1, 9], 0)
    assert acl.get_tensor_desc_dim_range(desc, 1, 5000) == (None, 100000)
    assert acl.get_tensor_desc_dim_range(desc, 7, 2)[0] is None
    for wrong in ([[1]], [(1, 2)], [1, 2], [[1, 2, 3]]):
        with pytest.raises(TypeError, match="argument 2 is not list of lists of two ints"):
            acl.set_tensor_shape_range(desc, wrong)
    acl.destroy_tensor_desc(desc)


def test_attributes_from_arrays_warn_and_check_the_type() -> None:
    attr = acl.op.create_attr()
    with pytest.warns(Warning, match="raw data"):
        assert acl.op.set_attr_list_int(attr, "a", np.arange(3, dtype=np.int64)) == 0
    with pytest.warns(Warning, match="raw data"):
        assert acl.op.set_attr_list_float(attr, "b", np.ones(2, dtype=np.float32)) == 0
    with pytest.raises(TypeError, match="argument 3 is not list, or ndarray of"):
        acl.op.set_attr_list_int(attr, "a", np.arange(3, dtype=np.int32))
    with pytest.raises(TypeError, match="argument 3 is not list of str"):
        acl.op.set_attr_list_string(attr, "c", ["a", 1])
    assert acl.op.set_attr_list_list_int(attr, "d", []) in (0, 100000)
    acl.op.destroy_attr(attr)


def test_text_buffers_have_the_length_that_the_caller_gives() -> None:
    assert acl.get_version_str("runtime")[1] == 0
    with pytest.raises(ValueError, match="expected a length from 0 to 1023, got 1024"):
        acl.rt.ipc_mem_get_export_key(64, 64, 1024, 0)
    with pytest.raises(ValueError, match="expected a length from 0 to 1048575, got -1"):
        acl.rt.device_get_pci_bus_id(0, -1)
    assert acl.rt.device_get_pci_bus_id(0, 2000)[1] == 0
    assert acl.rt.device_get_pci_bus_id(0, 1)[1] != 0


def test_number_of_output_elements_has_an_upper_bound() -> None:
    assert acl.mdl.get_input_dynamic_dims(0, 0, 5000) == (None, 100000)
    with pytest.raises(ValueError, match="room for 4294967295 elements is more than"):
        acl.rt.get_mem_uce_info(0, -1)
