"""The classes `Module`, a loaded kernel binary, and `Kernel`, one of its functions.

On an NPU the binary is device code; on the simulator it is a host shared object (see
`acl_sim_kernel.h`).  A launch copies its arguments before it returns and runs in the stream's
order.  The buffers among the arguments are not freed before the launch is done.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy, memset

import ctypes

from acl.runtime._buffer cimport Buffer, Uses
from acl.runtime._device cimport (
    alive_add, callback_check, current_ensure, fork_count, forked_raise, leaving,
)
from acl.bind._error cimport check
from acl.runtime._later cimport end_soon
from acl.bind.generated._libacl cimport (
    ACL_ERROR_RT_FEATURE_NOT_SUPPORT, ACL_RT_LAUNCH_KERNEL_ATTR_BLOCKDIM_OFFSET,
    ACL_RT_LAUNCH_KERNEL_ATTR_BLOCK_TASK_PREFETCH, ACL_RT_LAUNCH_KERNEL_ATTR_DATA_DUMP,
    ACL_RT_LAUNCH_KERNEL_ATTR_DYN_UBUF_SIZE, ACL_RT_LAUNCH_KERNEL_ATTR_ENABLE_PROFILING,
    ACL_RT_LAUNCH_KERNEL_ATTR_ENGINE_TYPE, ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE,
    ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT, ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US, aclError,
    aclrtArgsHandle, aclrtBinHandle, aclrtBinaryGetFunction, aclrtBinaryLoadFromData,
    aclrtBinaryLoadFromFile, aclrtBinaryUnLoad, aclrtFuncHandle, aclrtKernelArgsAppend,
    aclrtKernelArgsFinalize, aclrtKernelArgsInit, aclrtLaunchKernelAttr,
    aclrtLaunchKernelAttrId, aclrtLaunchKernelCfg, aclrtLaunchKernelV2,
    aclrtLaunchKernelWithConfig, aclrtLaunchKernelWithHostArgs, aclrtParamHandle, aclrtStream,
)
from acl.runtime._stream cimport Stream, stream_default, stream_device_check, stream_raw
from acl.runtime._work cimport Work, WorkEnd, works_add, works_settle

from acl.runtime._array import Array
from acl.runtime._copy import content_of
from acl.runtime._given import argument, c_path, c_text, is_path, packed

__all__ = ["Kernel", "Module"]

# For each keyword of `launch`: the launch attribute, and the number of bits of its value.
CONFIG = {
    "schem_mode": (<int> ACL_RT_LAUNCH_KERNEL_ATTR_SCHEM_MODE, 8),
    "dyn_ubuf_size": (<int> ACL_RT_LAUNCH_KERNEL_ATTR_DYN_UBUF_SIZE, 32),
    "engine_type": (<int> ACL_RT_LAUNCH_KERNEL_ATTR_ENGINE_TYPE, 32),
    "block_dim_offset": (<int> ACL_RT_LAUNCH_KERNEL_ATTR_BLOCKDIM_OFFSET, 32),
    "block_task_prefetch": (<int> ACL_RT_LAUNCH_KERNEL_ATTR_BLOCK_TASK_PREFETCH, 8),
    "data_dump": (<int> ACL_RT_LAUNCH_KERNEL_ATTR_DATA_DUMP, 8),
    "timeout_s": (<int> ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT, 16),
    "timeout_us": (<int> ACL_RT_LAUNCH_KERNEL_ATTR_TIMEOUT_US, 64),
    "profiling": (<int> ACL_RT_LAUNCH_KERNEL_ATTR_ENABLE_PROFILING, 8),
}


# ---- arguments ----------------------------------------------------------------------------------

cdef object buffer_of(object value):
    """Return the Buffer that an argument is or contains, or None."""
    if isinstance(value, Array):
        return value.buffer
    return value if isinstance(value, Buffer) else None


cdef object argument_of(object value, object kind, int index):
    """Return an argument as a ctypes object; a buffer becomes its address."""
    buffer = buffer_of(value)
    if buffer is None:
        return argument(value, kind, index)
    (<Buffer> buffer).open_check()
    if kind is not None and ctypes.sizeof(kind) != sizeof(void *):
        raise TypeError(f"argument {index}: {kind.__name__} does not take a device address")
    return ctypes.c_uint64(<size_t> (<Buffer> buffer).address)


cdef uint32_t count_checked(object value, str name) except? 0:
    """Return `value` as a number of at least 1; raise an error for other values."""
    if not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    value = value.__index__()
    if not 1 <= value < 1 << 32:
        raise ValueError(f"{name} must be from 1 to {(1 << 32) - 1}, not {value}")
    return value


cdef list arguments_of(tuple values, tuple types):
    if types is not None and len(values) != len(types):
        raise TypeError(f"the kernel takes {len(types)} arguments, got {len(values)}")
    return [argument_of(value, None if types is None else types[i], i)
            for i, value in enumerate(values)]


# ---- configuration ------------------------------------------------------------------------------

cdef class Config:
    """The attributes of a launch, as an `aclrtLaunchKernelCfg`; `raw` is NULL if there are none."""

    cdef aclrtLaunchKernelAttr[16] attrs
    cdef aclrtLaunchKernelCfg cfg
    cdef aclrtLaunchKernelCfg *raw

    def __cinit__(self, dict given):
        cdef uint64_t number
        memset(self.attrs, 0, sizeof(self.attrs))
        for i, (name, value) in enumerate(given.items()):
            if name not in CONFIG:
                raise TypeError(f"launch has no option {name!r}; there are {', '.join(CONFIG)}")
            which, bits = CONFIG[name]
            if not 0 <= value < 1 << bits:
                raise ValueError(f"{name} must be from 0 to {(1 << bits) - 1}, not {value}")
            number = value
            self.attrs[i].id = <aclrtLaunchKernelAttrId> <int> which
            memcpy(&self.attrs[i].value, &number, bits // 8)
        self.cfg.attrs = self.attrs
        self.cfg.numAttrs = len(given)
        self.raw = &self.cfg if given else NULL


# ---- modules and kernels ------------------------------------------------------------------------

@cython.final
cdef class ModuleEnd(WorkEnd):
    """The unloading of a module whose object was deleted; ready when its launches are done."""

    cdef aclrtBinHandle raw
    cdef object content

    cdef int finish(self) except -1:
        alive_add(-1)
        with nogil:
            aclrtBinaryUnLoad(self.raw)
        return 0


@cython.final
@cython.no_gc_clear                             # __dealloc__ needs `used` and `content`
cdef class Module:
    """A kernel binary on the device.

    Parameters
    ----------
    source : path or bytes-like
        Path of the file, or its content.
    """

    cdef aclrtBinHandle raw         # NULL once closed
    cdef object content             # the path or the bytes that it was loaded from
    cdef object used                # works of its launches (see `_work`)
    cdef int made
    cdef object __weakref__

    def __cinit__(self):
        self.made = fork_count

    def __init__(self, source):
        cdef const char *text
        cdef size_t size
        cdef aclError status
        if self.raw is not NULL:
            raise ValueError("the Module is loaded already")
        current_ensure(NULL)
        if is_path(source):
            self.content = c_path(source, "source")
            text = self.content
            with nogil:
                status = aclrtBinaryLoadFromFile(text, NULL, &self.raw)
            check(status, "aclrtBinaryLoadFromFile")
        else:
            self.content = content_of(source, "a binary's")
            text = PyBytes_AS_STRING(self.content)
            size = len(self.content)
            with nogil:
                status = aclrtBinaryLoadFromData(text, size, NULL, &self.raw)
            check(status, "aclrtBinaryLoadFromData")
        alive_add(1)

    def __dealloc__(self):
        cdef ModuleEnd end
        if self.raw is NULL or self.made != fork_count or leaving:
            return
        end = ModuleEnd.__new__(ModuleEnd)
        end.raw = self.raw
        end.content = self.content
        end.works = self.used
        end_soon(end)

    cdef int open_check(self) except -1:
        if self.made != fork_count:
            forked_raise(self)
        if self.raw is NULL:
            raise ValueError("the Module is closed")
        return 0

    cdef int note(self, Work work) except -1:
        """Note that a work uses the module."""
        while True:
            before = self.used
            after = works_add(before, work)
            if self.used is before:             # another thread may launch a kernel meanwhile
                self.used = after
                return 0

    def kernel(self, name, types=None):
        """Return a function of the binary as a `Kernel`.

        Parameters
        ----------
        name : str
            Name of the function, as the binary exports it.
        types : sequence of ctypes types, optional
            The type of each argument, so that `launch` accepts plain numbers; ``ctypes.c_void_p``
            for a device pointer.
        """
        return Kernel(self, name, types)

    def close(self):
        """Wait for the module's launches and unload it; a second call does nothing."""
        cdef aclError status
        if self.made != fork_count:
            forked_raise(self)
        if self.raw is NULL:
            return
        callback_check()
        raw, self.raw = self.raw, NULL
        try:
            works_settle(self.used)
        except BaseException:                   # Ctrl-C, for example; the module stays loaded
            self.raw = raw
            raise
        self.used = None
        alive_add(-1)
        with nogil:
            status = aclrtBinaryUnLoad(raw)
        check(status, "aclrtBinaryUnLoad")

    @property
    def closed(self):
        """True once `close` has run."""
        return self.raw is NULL

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


@cython.final
cdef class Launch:
    """The steps of queueing one launch, whose work uses the module and the buffers.

    The package does not know which buffers a kernel writes.  So if the kernel fails, reading any of
    its buffers raises an error.
    """

    cdef Uses uses

    def __cinit__(self, Kernel kernel, tuple arguments, Stream stream, Buffer read=None):
        if stream is None:
            stream = stream_default()
        self.uses = Uses(stream.progress, f"kernel {kernel.name}")
        for value in arguments:
            buffer = buffer_of(value)
            if buffer is not None:
                stream_device_check(
                    stream, (<Buffer> buffer).device, f"an argument of kernel {kernel.name}")
                self.uses.add(buffer, True)
        if read is not None:
            self.uses.add(read, False)
        kernel.module.note(self.uses.work)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.uses.end(kind is None)


@cython.final
cdef class Kernel:
    """A function of a `Module`; made by `Module.kernel`.

    Parameters
    ----------
    module : Module
        The module of the function; the kernel keeps a reference to it.
    name : str
        Name of the function, as the binary exports it.
    types : sequence, optional
        The ctypes types of its parameters, so that `launch` accepts plain numbers.

    Raises
    ------
    AclError
        The binary has no such function.
    """

    cdef aclrtFuncHandle raw
    cdef Module module
    cdef readonly str name
    cdef tuple types

    def __init__(self, Module module not None, name, types=None):
        cdef const char *text
        cdef aclError status
        module.open_check()
        current_ensure(NULL)
        encoded = c_text(name, "name")
        text = encoded
        with nogil:
            status = aclrtBinaryGetFunction(module.raw, text, &self.raw)
        check(status, "aclrtBinaryGetFunction")
        self.module = module
        self.name = name
        self.types = None if types is None else tuple(types)

    def launch(self, blocks, *arguments, Stream stream=None, **config):
        """Queue the kernel; its arguments are copied before the call returns.

        Parameters
        ----------
        blocks : int
            Number of blocks in which the function runs, at least 1.
        *arguments
            Buffers and Arrays (their addresses are passed), ctypes or NumPy scalars, and plain
            numbers if the kernel's types were given.
        stream : Stream, optional
            Default: the default stream.
        schem_mode, dyn_ubuf_size, engine_type, block_dim_offset, block_task_prefetch, data_dump, \
timeout_s, timeout_us, profiling : int, optional
            ACL's launch attributes with these names.
        """
        cdef aclrtStream raw = NULL
        cdef uint32_t count = count_checked(blocks, "blocks")
        cdef Config cfg = Config(config)
        cdef aclError status
        cdef bytes content
        cdef char *data
        cdef size_t size
        cdef Launch launch
        content, pieces = packed(arguments_of(arguments, self.types))
        data = PyBytes_AS_STRING(content)
        size = len(content)
        stream_raw(stream, &raw)
        self.open_check()           # `stream_raw` may let another thread run and close the module
        launch = Launch(self, arguments, stream)
        with launch:
            with nogil:
                status = aclrtLaunchKernelWithHostArgs(
                    self.raw, count, raw, cfg.raw, data, size, NULL, 0)
            if status == ACL_ERROR_RT_FEATURE_NOT_SUPPORT:
                # CANN before 8.2 does not have this function: append the arguments one by one.
                self.launch_appended(count, pieces, cfg, raw)
            else:
                check(status, "aclrtLaunchKernelWithHostArgs")

    def launch_device(self, blocks, Buffer arguments not None, nbytes=None, Stream stream=None,
                      **config):
        """Queue the kernel with arguments that are in device memory (`aclrtLaunchKernelV2`).

        Parameters
        ----------
        blocks : int
            Number of blocks in which the function runs, at least 1.
        arguments : Buffer
            Device memory with the arguments; the kernel reads it when it runs.
        nbytes : int, optional
            Bytes of the arguments.  Default: the size of the buffer.
        """
        cdef aclrtStream raw = NULL
        cdef uint32_t count = count_checked(blocks, "blocks")
        cdef Config cfg = Config(config)
        cdef size_t size = arguments.size if nbytes is None else count_checked(nbytes, "nbytes")
        cdef void *address = arguments.address
        cdef aclError status
        cdef Launch launch
        stream_raw(stream, &raw)
        self.open_check()
        arguments.open_check()
        if size > arguments.size:
            raise ValueError(f"nbytes must be at most {arguments.size}, not {nbytes}")
        launch = Launch(self, (), stream, arguments)
        with launch:
            with nogil:
                status = aclrtLaunchKernelV2(self.raw, count, address, size, cfg.raw, raw)
            check(status, "aclrtLaunchKernelV2")

    cdef int launch_appended(
        self, uint32_t blocks, list pieces, Config cfg, aclrtStream raw
    ) except -1:
        cdef aclrtArgsHandle args = NULL
        cdef aclrtParamHandle param
        cdef aclError status
        check(aclrtKernelArgsInit(self.raw, &args), "aclrtKernelArgsInit")
        for piece in pieces:
            check(aclrtKernelArgsAppend(args, PyBytes_AS_STRING(piece), len(piece), &param),
                  "aclrtKernelArgsAppend")
        check(aclrtKernelArgsFinalize(args), "aclrtKernelArgsFinalize")
        with nogil:
            status = aclrtLaunchKernelWithConfig(self.raw, blocks, raw, cfg.raw, args, NULL)
        check(status, "aclrtLaunchKernelWithConfig")
        return 0

    cdef int open_check(self) except -1:
        if self.module is None:
            raise ValueError("the Kernel was not made by Module.kernel")
        return self.module.open_check()

    def __repr__(self):
        return f"<Kernel {self.name}>"
