"""The class `Op`: a single operator that runs on a stream, also with the user's own kernels.

An operator is identified by its type.  It is one of the library's own operators, which ACL compiles
at first use.  Or the user has registered a compile function for the type with `Op.compiler`; this
function chooses a kernel for the given shapes.  It is called in the thread that calls the operator,
before that call returns.  ACL copies all that the kernel needs before the function returns.
"""

import threading

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc

from acl.runtime._buffer cimport Buffer, Uses, buffer_readable
from acl.core.types cimport TagScope
from acl.runtime._device cimport current_ensure
from acl.bind._error cimport check, made_check
from acl.bind.generated._libacl cimport (
    ACL_COMPILE_SYS, ACL_ENGINE_AICORE, ACL_ENGINE_SYS, ACL_ERROR_INTERNAL_ERROR, ACL_FORMAT_ND,
    aclCreateDataBuffer, aclCreateTensorDesc, aclDataBuffer, aclDataType, aclDestroyDataBuffer,
    aclDestroyTensorDesc, aclError, aclGetTensorDescDimV2, aclGetTensorDescNumDims,
    aclGetTensorDescType, aclTensorDesc, aclopAttr, aclopCompileAndExecuteV2, aclopCreateAttr,
    aclopCreateKernel, aclopDestroyAttr, aclopExecuteV2, aclopInferShape, aclopKernelDesc,
    aclopSetAttrBool, aclopSetAttrFloat, aclopSetAttrInt, aclopSetAttrListBool,
    aclopSetAttrListFloat, aclopSetAttrListInt, aclopSetAttrListListInt, aclopSetAttrListString,
    aclopSetAttrString, aclopSetKernelArgs, aclopSetKernelWorkspaceSizes, aclopUpdateParams,
    aclrtStream,
)
from acl.pool._pool cimport Pool
from acl.pool._refusals cimport books
from acl.pool._stacks cimport stack_enter, stack_leave
from acl.runtime._stream cimport Stream, stream_default, stream_device_check, stream_raw
from acl.pool._tags cimport tag_pop, tag_push

from acl.runtime._array import Array, extents_of, stream_memory
from acl.runtime._copy import copy
from acl.bind._error import AclError
from acl.pyacl._hooks import compiler_register, compiler_unregister
from acl.runtime._given import c_text, given_array, host_array, input_error
from acl.pool._registry import pool_of
from acl.execution._run import Run
from acl.runtime._tensor import DTYPE_CODES, DTYPE_NAMES, TensorInfo, dtype_name

__all__ = ["KernelChoice", "Op"]

# Types of operators for which the user registered a compile function.
compiled: set = set()
# Binaries of the user's kernels; ACL keeps their addresses and reads them at each launch.
binaries: dict = {}
# The exception that a compile function raised, by thread.  The call of the operator raises it
# again.
failures: dict = {}


# ---- attributes ---------------------------------------------------------------------------------

@cython.final
cdef class Attributes:
    """The attributes of an operator as an `aclopAttr`, which is freed with the object."""

    cdef aclopAttr *raw

    def __cinit__(self, dict given):
        self.raw = aclopCreateAttr()
        made_check(self.raw, "aclopCreateAttr")
        for name, value in given.items():
            self.put(c_text(name, "an attribute's name"), name, value)

    def __dealloc__(self):
        if self.raw is not NULL:
            aclopDestroyAttr(self.raw)

    cdef int put(self, const char *key, str name, object value) except -1:
        cdef bytes text
        if isinstance(value, bool):
            check(aclopSetAttrBool(self.raw, key, value), "aclopSetAttrBool")
        elif isinstance(value, int):
            check(aclopSetAttrInt(self.raw, key, value), "aclopSetAttrInt")
        elif isinstance(value, float):
            check(aclopSetAttrFloat(self.raw, key, value), "aclopSetAttrFloat")
        elif isinstance(value, str):
            text = c_text(value, f"attribute {name!r}")
            check(aclopSetAttrString(self.raw, key, text), "aclopSetAttrString")
        elif isinstance(value, (list, tuple)):
            self.put_list(key, name, list(value))
        else:
            raise TypeError(
                f"attribute {name!r} must be a bool, int, float, str, or a list of one of them or "
                f"of lists of ints, not {type(value).__name__}")
        return 0

    cdef int put_list(self, const char *key, str name, list values) except -1:
        import array

        cdef bytes data
        cdef int count = <int> len(values)
        kinds = {type(value) for value in values}
        if len(kinds) > 1 or not kinds <= {bool, int, float, str, list, tuple}:
            raise TypeError(
                f"attribute {name!r}: a list's values must be of one type, got {values!r}")
        kind = kinds.pop() if kinds else int
        if kind is bool:
            data = bytes(values)
            check(aclopSetAttrListBool(self.raw, key, count, <uint8_t *> PyBytes_AS_STRING(data)),
                  "aclopSetAttrListBool")
        elif kind is int:
            data = array.array("q", values).tobytes()
            check(aclopSetAttrListInt(self.raw, key, count, <int64_t *> PyBytes_AS_STRING(data)),
                  "aclopSetAttrListInt")
        elif kind is float:
            data = array.array("f", values).tobytes()
            check(aclopSetAttrListFloat(self.raw, key, count, <float *> PyBytes_AS_STRING(data)),
                  "aclopSetAttrListFloat")
        else:
            self.put_pointers(key, name, values, kind is str)
        return 0

    cdef int put_pointers(self, const char *key, str name, list values, bint texts) except -1:
        import array

        cdef int i, count = <int> len(values)
        cdef list kept = [c_text(v, f"attribute {name!r}") if texts
                          else array.array("q", v).tobytes() for v in values]
        cdef bytes lengths = array.array("i", [len(v) for v in values]).tobytes()
        cdef const char **pointers = <const char **> malloc(max(count, 1) * sizeof(char *))
        cdef aclError status
        if pointers is NULL:
            raise MemoryError("host memory for attributes")
        for i in range(count):
            pointers[i] = PyBytes_AS_STRING(kept[i])
        if texts:
            status = aclopSetAttrListString(self.raw, key, count, pointers)
        else:
            status = aclopSetAttrListListInt(
                self.raw, key, count, <int *> PyBytes_AS_STRING(lengths),
                <const int64_t **> pointers)
        free(pointers)
        check(status, "aclopSetAttrListString" if texts else "aclopSetAttrListListInt")
        return 0


# ---- inputs and outputs of a call ---------------------------------------------------------------

@cython.final
cdef class Ends:
    """The inputs or the outputs of a call: ACL's descriptions and data buffers.

    These are freed with the object; the memory that they describe is not.
    """

    cdef aclTensorDesc **descs
    cdef aclDataBuffer **buffers
    cdef int count

    def __cinit__(self, Py_ssize_t room):
        self.descs = <aclTensorDesc **> malloc(max(room, 1) * sizeof(void *))
        self.buffers = <aclDataBuffer **> malloc(max(room, 1) * sizeof(void *))
        if self.descs is NULL or self.buffers is NULL:
            raise MemoryError("host memory for an operator's ends")

    def __dealloc__(self):
        cdef int i
        for i in range(self.count):
            aclDestroyTensorDesc(self.descs[i])
            aclDestroyDataBuffer(self.buffers[i])
        free(self.descs)
        free(self.buffers)

    cdef int add(self, object shape, object dtype, void *address, size_t size) except -1:
        cdef int64_t[32] dims
        cdef int i
        if len(shape) > 32:
            raise ValueError(
                f"an operator's array has at most 32 dimensions here, not {len(shape)}")
        for i in range(<int> len(shape)):
            dims[i] = shape[i]
        cdef aclTensorDesc *desc = aclCreateTensorDesc(
            <aclDataType> <int> DTYPE_CODES[dtype_name(dtype)], <int> len(shape), dims,
            ACL_FORMAT_ND)
        cdef aclDataBuffer *buffer = aclCreateDataBuffer(address, size)
        if desc is NULL or buffer is NULL:
            aclDestroyTensorDesc(desc)
            if buffer is not NULL:
                aclDestroyDataBuffer(buffer)
            made_check(desc, "aclCreateTensorDesc")
            made_check(buffer, "aclCreateDataBuffer")
        self.descs[self.count] = desc
        self.buffers[self.count] = buffer
        self.count += 1
        return 0


cdef Ends ends_of(list arrays):
    cdef Ends ends = Ends(len(arrays))
    for array in arrays:
        ends.add(array.shape, array.dtype, (<Buffer> array.buffer).address, array.nbytes)
    return ends


cdef object info_of(aclTensorDesc *desc):
    """Return the shape and type of a tensor description as a TensorInfo without a name."""
    cdef int64_t dim
    cdef size_t i
    shape = []
    for i in range(aclGetTensorDescNumDims(desc)):
        check(aclGetTensorDescDimV2(desc, i, &dim), "aclGetTensorDescDimV2")
        shape.append(dim)
    code = <int> aclGetTensorDescType(desc)
    return TensorInfo("", DTYPE_NAMES.get(code, f"type {code}"), tuple(shape))


# ---- the user's own kernels ---------------------------------------------------------------------

@cython.final
cdef class KernelChoice:
    """The object with which a compile function chooses a kernel.

    Invalid after the function ends.
    """

    cdef aclopKernelDesc *raw

    def use(self, kernel_id, blocks, args=b"", workspaces=()):
        """Choose a kernel.

        Parameters
        ----------
        kernel_id : str
            The kernel's name, as `Op.add_kernel` got it.
        blocks : int
            Number of blocks in which the kernel runs.
        args : bytes
            Arguments of the kernel behind the pointers to the inputs, outputs and workspaces.
        workspaces : sequence of int
            Bytes of each workspace.  If `use` is called again, these are added to the earlier ones;
            16 workspaces at most.
        """
        import array

        cdef bytes data = bytes(args)
        cdef bytes name = c_text(kernel_id, "kernel_id")
        cdef bytes sizes = array.array("Q", workspaces).tobytes()
        if self.raw is NULL:
            raise ValueError("a KernelChoice is valid only while the compile function runs")
        check(aclopSetKernelArgs(self.raw, name, blocks, PyBytes_AS_STRING(data), len(data)),
              "aclopSetKernelArgs")
        if len(workspaces):
            check(aclopSetKernelWorkspaceSizes(
                self.raw, <int> len(workspaces), <size_t *> PyBytes_AS_STRING(sizes)),
                "aclopSetKernelWorkspaceSizes")


cdef object chooser(object function):
    """Return a user's compile function as ACL calls it: with addresses, and returning a status."""
    def choose(ins, inputs, outs, outputs, attr, kernel):
        cdef KernelChoice choice = KernelChoice()
        choice.raw = <aclopKernelDesc *> <size_t> kernel
        try:
            function(
                tuple([info_of(<aclTensorDesc *> <size_t> desc) for desc in inputs]),
                tuple([info_of(<aclTensorDesc *> <size_t> desc) for desc in outputs]), choice)
        except BaseException as error:
            failures[threading.get_ident()] = error
            return <int> ACL_ERROR_INTERNAL_ERROR
        finally:
            choice.raw = NULL
        return 0

    return choose


# ---- operators ----------------------------------------------------------------------------------

@cython.final
cdef class Op:
    """A single operator.

    Parameters
    ----------
    kind : str
        The operator's type, such as ``"Add"`` or ``"MatMulV2"``.
    **attributes
        Values of its attributes: bool, int, float or str, a list of one of these types, or a list
        of lists of ints.
    """

    cdef readonly str kind
    cdef readonly dict attributes

    def __init__(self, kind, **attributes):
        c_text(kind, "kind")
        self.kind = kind
        self.attributes = attributes

    def __call__(self, *inputs, outputs=None, Stream stream=None):
        """Queue the operator on a stream and return its outputs, which stay on the device.

        Parameters
        ----------
        *inputs : Array or NumPy array
            NumPy arrays are copied to the device before the call returns.
        outputs : sequence of Array or of (shape, dtype), optional
            Arrays for the results, or shapes and types for new arrays.  Default: new arrays, whose
            shapes and types ACL infers.
        stream : Stream, optional
            Default: the default stream.

        Returns
        -------
        Run
            The tuple of the outputs, as `Array`s; see `Model.run_async`.
        """
        if self.kind is None:
            raise ValueError("the Op was not made by Op(...)")
        cdef Attributes attr = Attributes(self.attributes)
        cdef Uses uses
        cdef bint wrote = False
        cdef aclrtStream raw
        if stream is None:
            stream = stream_default()
        stream_raw(stream, &raw)
        arrays = [self.placed(value, i, stream) for i, value in enumerate(inputs)]
        for array in arrays:
            buffer_readable(array.buffer, False)
        results = self.targets(arrays, outputs, attr, stream)
        uses = Uses(stream.progress, f"operator {self.kind!r}")
        try:
            for array in arrays:
                uses.add(array.buffer, False)
            for array in results:
                uses.add(array.buffer, True)
            self.execute(ends_of(arrays), ends_of(results), attr, stream)
            wrote = True
        finally:
            uses.end(wrote)
        return Run(results, uses.work, stream)

    cdef object placed(self, object value, int index, Stream stream):
        if not isinstance(value, (Array, Buffer)):
            value = given_array(value, f"input {index} of {self.kind}", stream)
        if isinstance(value, Array):
            stream_device_check(
                stream, (<Buffer> value.buffer).device, f"input {index} of {self.kind}")
            return value
        if isinstance(value, Buffer):
            raise input_error(
                f"input {index} of {self.kind}: expected an Array or what NumPy takes, got a "
                "Buffer, which has no shape")
        value, kind = host_array(value, f"input {index} of {self.kind}")
        array = Array.of(stream_memory(value.nbytes, stream), value.shape, kind)
        if value.nbytes:
            copy(array.buffer, value, nbytes=value.nbytes, stream=stream)
        return array

    cdef list targets(self, list arrays, object outputs, Attributes attr, Stream stream):
        """Return the outputs as arrays; allocate an output that is given or inferred as a shape."""
        if outputs is None:
            outputs = self.inferred(ends_of(arrays), attr)
        found = []
        for output in outputs:
            if isinstance(output, Array):
                stream_device_check(
                    stream, (<Buffer> output.buffer).device, f"an output of {self.kind}")
            else:
                shape, dtype = output
                shape = extents_of(shape)
                output = Array.of(
                    stream_memory(Array.nbytes_of(shape, dtype), stream), shape, dtype)
            found.append(output)
        return found

    cdef list inferred(self, Ends inputs, Attributes attr):
        cdef Ends outputs = Ends(1)
        cdef bytes kind = self.kind.encode()
        cdef const char *name = kind
        cdef aclError status
        outputs.add((), "float32", NULL, 0)
        with nogil:
            status = aclopInferShape(
                name, inputs.count, inputs.descs, inputs.buffers, outputs.count, outputs.descs,
                attr.raw)
        check(status, "aclopInferShape")
        info = info_of(outputs.descs[0])
        return [(info.shape, info.dtype)]

    cdef int execute(self, Ends inputs, Ends outputs, Attributes attr, Stream stream) except -1:
        cdef Pool pool = pool_of(stream.handle)
        cdef TagScope scope
        cdef bint noted
        cdef bint scoped = False
        cdef uint64_t ooms = 0 if pool is None else pool.core.reports.oom.number
        if pool is not None and pool.core.tagging:
            scoped = tag_push(pool, pool.core, &scope, 0)
        noted = pool is not None and stack_enter(pool.core)
        try:
            return self.queue(inputs, outputs, attr, stream)
        except AclError as error:
            report = None if pool is None else books().oom_of(pool, ooms, stream.handle)
            if report is None:
                raise
            raise books().oom_told(report, error.code, error.function) from error
        finally:
            if noted:
                stack_leave()
            if scoped:
                tag_pop(&scope)

    cdef int queue(self, Ends inputs, Ends outputs, Attributes attr, Stream stream) except -1:
        cdef bytes kind = self.kind.encode()
        cdef const char *name = kind
        cdef aclrtStream raw = NULL
        cdef aclError status
        stream_raw(stream, &raw)
        if self.kind in compiled:
            with nogil:
                status = aclopUpdateParams(
                    name, inputs.count, <const aclTensorDesc **> inputs.descs, outputs.count,
                    <const aclTensorDesc **> outputs.descs, attr.raw)
            failure = failures.pop(threading.get_ident(), None)
            if failure is not None:
                raise failure
            check(status, "aclopUpdateParams")
            with nogil:
                status = aclopExecuteV2(
                    name, inputs.count, inputs.descs, inputs.buffers, outputs.count, outputs.descs,
                    outputs.buffers, attr.raw, raw)
            check(status, "aclopExecuteV2")
            return 0
        with nogil:
            status = aclopCompileAndExecuteV2(
                name, inputs.count, inputs.descs, inputs.buffers, outputs.count, outputs.descs,
                outputs.buffers, attr.raw, ACL_ENGINE_SYS, ACL_COMPILE_SYS, NULL, raw)
        check(status, "aclopCompileAndExecuteV2")
        return 0

    @staticmethod
    def add_kernel(kind, kernel_id, name, binary):
        """Register a kernel for a type of operators.

        Parameters
        ----------
        kind, kernel_id : str
            The operator's type, and the name of the kernel for `KernelChoice.use`.
        name : str
            Name of the function, as the binary exports it.
        binary : bytes
            Content of the kernel's file.  It is kept in memory, because ACL reads it at each
            launch.
        """
        cdef bytes c_kind = c_text(kind, "kind"), c_id = c_text(kernel_id, "kernel_id")
        cdef bytes c_name = c_text(name, "name")
        cdef bytes data = bytes(binary)
        current_ensure(NULL)
        check(aclopCreateKernel(
            c_kind, c_id, c_name, <void *> PyBytes_AS_STRING(data), <int> len(data),
            ACL_ENGINE_AICORE, NULL), "aclopCreateKernel")
        binaries[kind, kernel_id] = data

    @staticmethod
    def compiler(kind):
        """Return a decorator for the function that chooses the kernel for an operator's shapes.

        The function is called with the inputs and the outputs, both tuples of `TensorInfo`, and a
        `KernelChoice`.  It calls `KernelChoice.use`.  If it raises an exception, the call of the
        operator raises it again.
        """
        def register(function):
            check(compiler_register(kind, chooser(function)), "aclopRegisterCompileFunc")
            compiled.add(kind)
            return function

        return register

    @staticmethod
    def remove_compiler(kind):
        """Remove the function that `compiler` registered."""
        check(compiler_unregister(kind), "aclopUnregisterCompileFunc")
        compiled.discard(kind)

    def __repr__(self):
        attributes = "".join(f", {name}={value!r}" for name, value in self.attributes.items())
        return f"Op({self.kind!r}{attributes})"
