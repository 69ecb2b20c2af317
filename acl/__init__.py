"""AscendCL for Python: the names of pyACL with its conventions, and this package's own names.

`import aclpool as acl` imports this module on every machine, also if CANN's own `acl` precedes it in the path.

Begin with `Pool` (device memory), `Stream` (a queue of work) and `Model` (inference).  `memory_ledger` shows
what uses a device's memory, and `acl.serving` runs inference behind a queue.  `acl.rt`, `acl.mdl`, `acl.op`,
`acl.util` and `acl.prof` are pyACL.
`acl.sim` controls the simulator.  `acl.torch`, `acl.mindspore`, `acl.vllm`, `acl.ge` and `acl.ort` let a
framework allocate from a pool, if that framework is installed.
"""

import importlib
import os

try:
    from acl import mdl, op, prof, rt, util
    from acl.pyacl import _vendor
except ImportError:
    # In the root of a clone, Python finds the sources, which are not built, before the installed package.
    if any(name.startswith("rt.") and name.endswith(".so") for name in os.listdir(os.path.dirname(__file__))):
        raise
    raise ImportError(
        f"{os.path.dirname(__file__)} holds the sources of acl, not built: start Python in another folder, or build "
        "them in place with `pip install -e .`"
    ) from None
from acl.bind._error import (
    AclError,
    DeviceLostError,
    InvalidArgumentError,
    NotSupportedError,
    OutOfMemoryError,
    TimeoutError,
)
from acl.bind.generated._libacl import backend, cann_version, include_dir, library
from acl.pool._pool import Pool, use_pool
from acl.pool._registry import Allocator, allocator_of
from acl.pyacl.generated._root import (
    app_log,
    create_data_buffer,
    create_graph_dump_opt,
    create_tensor_desc,
    data_type_size,
    destroy_data_buffer,
    destroy_graph_dump_opt,
    destroy_tensor_desc,
    finalize,
    finalize_callback_register,
    finalize_callback_unregister,
    finalize_reference,
    float16_to_float,
    float_to_float16,
    gen_graph_and_dump_for_op,
    get_cann_attribute,
    get_cann_attribute_list,
    get_cann_version,
    get_compileopt,
    get_compileopt_size,
    get_data_buffer_addr,
    get_data_buffer_size,
    get_data_buffer_size_v2,
    get_device_capability,
    get_recent_err_msg,
    get_soc_name,
    get_tensor_desc_address,
    get_tensor_desc_by_index,
    get_tensor_desc_dim,
    get_tensor_desc_dim_range,
    get_tensor_desc_dim_v2,
    get_tensor_desc_element_count,
    get_tensor_desc_format,
    get_tensor_desc_name,
    get_tensor_desc_num_dims,
    get_tensor_desc_size,
    get_tensor_desc_type,
    get_version,
    get_version_num,
    get_version_str,
    init,
    init_callback_register,
    init_callback_unregister,
    platform_get_device_info,
    platform_get_instruction_info,
    recover_all_hccl_tasks,
    set_compileopt,
    set_tensor_const,
    set_tensor_desc_name,
    set_tensor_dynamic_input,
    set_tensor_format,
    set_tensor_origin_format,
    set_tensor_origin_shape,
    set_tensor_place_ment,
    set_tensor_shape,
    set_tensor_shape_range,
    set_tensor_storage_format,
    set_tensor_storage_shape,
    set_tensor_value_range,
    trans_tensor_desc_format,
    update_data_buffer,
)
from acl.runtime._buffer import Buffer, HostBuffer
from acl.runtime._copy import acopy, copy, copy_2d, copy_async, fill, to_bytes, to_numpy
from acl.runtime._device import Context, Device
from acl.runtime._stream import Event, Stream

# `__getattr__` imports these names at first use; the lines below are for type checkers.  Type checkers know the name
# TYPE_CHECKING, so `typing` is not imported, which would take a tenth of the time of `import acl`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from acl import ge, metrics, ort, samples, serving, sim, vllm
    from acl import mindspore as mindspore
    from acl import torch as torch
    from acl.execution._kernel import Kernel, Module
    from acl.execution._model import Model
    from acl.execution._op import KernelChoice, Op
    from acl.execution._run import Run
    from acl.inside._guard_finding import GuardFinding
    from acl.inside._histograms import Histogram, PoolHistograms, PoolPeak
    from acl.inside._leaks import LeakReport, LiveBlock, Mark
    from acl.inside._ledger import Ledger, LedgerPool, LedgerRow, memory_ledger
    from acl.inside._oom import OomHold, OomProcess, OomReport
    from acl.inside._recorded import RecordedEvent
    from acl.inside._recording import Recording, Tracking
    from acl.inside._snapshot import BlockInfo, BudgetStats, PinnedStats, PoolStats, SleepReport, StreamStats
    from acl.inside._top import TopServer, serve_top
    from acl.pool._capi import pool_capi
    from acl.pool._capture import Capture
    from acl.pool._dlpack import from_dlpack
    from acl.pool._findings import guard_findings
    from acl.pool._nep49 import numpy_pool
    from acl.pool._pinned import PinnedPool, pinned_empty
    from acl.runtime._array import Array
    from acl.runtime._tensor import TensorInfo

__version__ = "0.1.0"

__all__ = [
    "AclError",
    "Allocator",
    "Array",
    "BlockInfo",
    "BudgetStats",
    "Buffer",
    "Capture",
    "Context",
    "Device",
    "DeviceLostError",
    "Event",
    "GuardFinding",
    "Histogram",
    "HostBuffer",
    "InvalidArgumentError",
    "Kernel",
    "KernelChoice",
    "LeakReport",
    "Ledger",
    "LedgerPool",
    "LedgerRow",
    "LiveBlock",
    "Mark",
    "Model",
    "Module",
    "NotSupportedError",
    "OomHold",
    "OomProcess",
    "OomReport",
    "Op",
    "OutOfMemoryError",
    "PinnedPool",
    "PinnedStats",
    "Pool",
    "PoolHistograms",
    "PoolPeak",
    "PoolStats",
    "RecordedEvent",
    "Recording",
    "Run",
    "SleepReport",
    "Stream",
    "StreamStats",
    "TensorInfo",
    "TimeoutError",
    "TopServer",
    "Tracking",
    "allocator_of",
    "backend",
    "cann_version",
    "acopy",
    "copy",
    "copy_2d",
    "copy_async",
    "fill",
    "from_dlpack",
    "guard_findings",
    "ge",
    "include_dir",
    "library",
    "memory_ledger",
    "metrics",
    "numpy_pool",
    "ort",
    "pinned_empty",
    "pool_capi",
    "samples",
    "serve_top",
    "serving",
    "sim",
    "to_bytes",
    "to_numpy",
    "use_pool",
    "vllm",
]
# The names of pyACL.
__all__ += [
    "mdl",
    "op",
    "prof",
    "rt",
    "util",
    "app_log",
    "create_data_buffer",
    "create_graph_dump_opt",
    "create_tensor_desc",
    "data_type_size",
    "destroy_data_buffer",
    "destroy_graph_dump_opt",
    "destroy_tensor_desc",
    "finalize",
    "finalize_callback_register",
    "finalize_callback_unregister",
    "finalize_reference",
    "float16_to_float",
    "float_to_float16",
    "gen_graph_and_dump_for_op",
    "get_cann_attribute",
    "get_cann_attribute_list",
    "get_cann_version",
    "get_compileopt",
    "get_compileopt_size",
    "get_data_buffer_addr",
    "get_data_buffer_size",
    "get_data_buffer_size_v2",
    "get_device_capability",
    "get_recent_err_msg",
    "get_soc_name",
    "get_tensor_desc_address",
    "get_tensor_desc_by_index",
    "get_tensor_desc_dim",
    "get_tensor_desc_dim_range",
    "get_tensor_desc_dim_v2",
    "get_tensor_desc_element_count",
    "get_tensor_desc_format",
    "get_tensor_desc_name",
    "get_tensor_desc_num_dims",
    "get_tensor_desc_size",
    "get_tensor_desc_type",
    "get_version",
    "get_version_num",
    "get_version_str",
    "init",
    "init_callback_register",
    "init_callback_unregister",
    "platform_get_device_info",
    "platform_get_instruction_info",
    "recover_all_hccl_tasks",
    "set_compileopt",
    "set_tensor_const",
    "set_tensor_desc_name",
    "set_tensor_dynamic_input",
    "set_tensor_format",
    "set_tensor_origin_format",
    "set_tensor_origin_shape",
    "set_tensor_place_ment",
    "set_tensor_shape",
    "set_tensor_shape_range",
    "set_tensor_storage_format",
    "set_tensor_storage_shape",
    "set_tensor_value_range",
    "trans_tensor_desc_format",
    "update_data_buffer",
]

# Modules that are imported at first use, so that `import acl` is quick.  All are in `dir(acl)`.  `torch` and
# `mindspore` are not in `__all__`, because `from acl import *` would import these frameworks.
_MODULES = {"ge", "metrics", "mindspore", "ort", "samples", "serving", "sim", "torch", "vllm"}
_LATER = {
    "Array": "acl.runtime._array",
    "BlockInfo": "acl.inside._snapshot",
    "BudgetStats": "acl.inside._snapshot",
    "Capture": "acl.pool._capture",
    "GuardFinding": "acl.inside._guard_finding",
    "Histogram": "acl.inside._histograms",
    "Kernel": "acl.execution._kernel",
    "KernelChoice": "acl.execution._op",
    "LeakReport": "acl.inside._leaks",
    "Ledger": "acl.inside._ledger",
    "LedgerPool": "acl.inside._ledger",
    "LedgerRow": "acl.inside._ledger",
    "LiveBlock": "acl.inside._leaks",
    "Mark": "acl.inside._leaks",
    "Model": "acl.execution._model",
    "Module": "acl.execution._kernel",
    "OomHold": "acl.inside._oom",
    "OomProcess": "acl.inside._oom",
    "OomReport": "acl.inside._oom",
    "Op": "acl.execution._op",
    "PinnedPool": "acl.pool._pinned",
    "PinnedStats": "acl.inside._snapshot",
    "PoolHistograms": "acl.inside._histograms",
    "PoolPeak": "acl.inside._histograms",
    "PoolStats": "acl.inside._snapshot",
    "Run": "acl.execution._run",
    "SleepReport": "acl.inside._snapshot",
    "RecordedEvent": "acl.inside._recorded",
    "Recording": "acl.inside._recording",
    "StreamStats": "acl.inside._snapshot",
    "TensorInfo": "acl.runtime._tensor",
    "TopServer": "acl.inside._top",
    "Tracking": "acl.inside._recording",
    "from_dlpack": "acl.pool._dlpack",
    "guard_findings": "acl.pool._findings",
    "memory_ledger": "acl.inside._ledger",
    "numpy_pool": "acl.pool._nep49",
    "pinned_empty": "acl.pool._pinned",
    "pool_capi": "acl.pool._capi",
    "serve_top": "acl.inside._top",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        try:
            return importlib.import_module(f"acl.{name}")
        except (ImportError, OSError, RuntimeError) as error:
            # `hasattr`, pydoc and inspect need an AttributeError; `import acl.NAME` raises the ImportError.
            raise AttributeError(f"acl.{name} cannot be imported: {error}") from error
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    return _vendor.lookup(name)


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | set(__all__) | _MODULES)


if os.environ.get("ACL_POOL_TOP", "0") not in ("", "0"):
    importlib.import_module("acl.inside._top").serve_if_asked()

if (os.environ.get("ACL_BACKEND") == "sim"
        and {os.environ.get(name, "0") for name in ("ACL_SIM_RACES", "ACL_SIM_CHECK")} - {"", "0"}):
    importlib.import_module("acl.sim").lend_stack()
