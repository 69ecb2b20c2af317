"""The class `Model`: inference with dynamic shapes, on NumPy arrays or arrays on the device.

A run is queued on a stream by `aclmdlExecuteAsync`, in the caller's thread.  The GIL is released
during this call, because it calls the allocator registered for the stream.  The memory of inputs
and outputs is allocated from the pool that is registered for the stream, else from the driver.
Output shapes are predicted (`_extents`), because ACL needs the buffers before it knows the shapes.
If a prediction is too small, one synchronous run finds the shapes, and the run is repeated.

ACL forbids that two threads run one model at the same time, so each model has a lock.  A thread
that holds the lock does not wait for a stream, except to unload the model, and after a wrong
prediction.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t
from libc.string cimport memset

import os
import threading

from acl.runtime._buffer cimport Buffer, Uses, buffer_readable
from acl.runtime._device cimport (
    alive_add, callback_check, current_device, current_ensure, fork_count, forked_raise, leaving,
)
from acl.bind._error cimport check, made_check
from acl.runtime._later cimport end_soon
from acl.bind.generated._libacl cimport (
    ACL_ERROR_RT_MEMORY_ALLOCATION, ACL_SUCCESS, aclError, aclGetDataBufferAddr, aclmdlCreateDesc,
    aclmdlDesc, aclmdlDestroyDesc, aclmdlExecute, aclmdlExecuteAsync, aclmdlGetDatasetBuffer,
    aclmdlGetDesc, aclmdlGetInputDataType, aclmdlGetInputDims, aclmdlGetInputNameByIndex,
    aclmdlGetNumInputs, aclmdlGetNumOutputs, aclmdlGetOutputDataType, aclmdlGetOutputDims,
    aclmdlGetOutputNameByIndex, aclmdlIODims, aclmdlLoadFromFile, aclmdlLoadFromFileWithMem,
    aclmdlLoadFromMem, aclmdlLoadFromMemWithMem, aclmdlUnload, aclrtContext, aclrtFree,
    aclrtGetCurrentContext, aclrtGetDevice, aclrtSetCurrentContext, aclrtSetDevice, aclrtStream,
)
from acl.execution._dataset cimport Dataset, dataset_of, dataset_of_buffers
from acl.core.types cimport TagScope
from acl.pool._pool cimport Pool
from acl.pool._refusals cimport books
from acl.pool._stacks cimport stack_enter, stack_leave
from acl.runtime._stream cimport Stream, stream_device_check, stream_raw
from acl.runtime._work cimport (
    WorkEnd, left_of, until_of, works_add, works_settle,
)
from acl.pool._tags cimport stream_name, tag_pop, tag_push

from acl.runtime._array import Array, stream_memory
from acl.runtime._copy import content_of
from acl.runtime._device import Device, ordinal_of
from acl.bind._error import OutOfMemoryError
from acl.execution._extents import Extents
from acl.runtime._given import c_path, given_array, host_array, input_error, is_path
from acl.pool._registry import pool_of
from acl.execution._run import Run
from acl.execution._staging import Staging
from acl.runtime._tensor import DTYPE_CODES, DTYPE_NAMES, TensorInfo, dtype_name
from acl.execution._weights import weights_memory

__all__ = ["Model"]


# ---- the description of a model -----------------------------------------------------------------

cdef object tensor_info(const char *name, int dtype, aclmdlIODims *dims):
    shape = tuple([dims.dims[i] for i in range(dims.dimCount)])
    return TensorInfo(name.decode(), DTYPE_NAMES.get(dtype, f"type {dtype}"), shape)


cdef tuple infos_of(aclmdlDesc *desc, bint outputs):
    cdef aclmdlIODims dims
    cdef size_t i, count = aclmdlGetNumOutputs(desc) if outputs else aclmdlGetNumInputs(desc)
    found = []
    for i in range(count):
        memset(&dims, 0, sizeof(dims))
        if outputs:
            check(aclmdlGetOutputDims(desc, i, &dims), "aclmdlGetOutputDims")
            found.append(tensor_info(
                aclmdlGetOutputNameByIndex(desc, i), aclmdlGetOutputDataType(desc, i), &dims))
        else:
            check(aclmdlGetInputDims(desc, i, &dims), "aclmdlGetInputDims")
            found.append(tensor_info(
                aclmdlGetInputNameByIndex(desc, i), aclmdlGetInputDataType(desc, i), &dims))
    return tuple(found)


cdef bint run_enter(Pool pool) except -1:
    """Count a run in its pool, and note its Python stack.

    Return True if the caller must call `stack_leave` afterwards.
    """
    if pool is None or pool.core is NULL:
        return False
    pool.core.notes.steps += 1
    return stack_enter(pool.core)


def name_of(source):
    """Return a model's tag: the file's name without folder and extension, or "model" if no file."""
    if not is_path(source):
        return "model"
    return os.path.splitext(os.path.basename(os.fsdecode(source)))[0] or "model"


# ---- the model ----------------------------------------------------------------------------------

cdef aclError model_unload(uint32_t number, int device) noexcept nogil:
    """Unload a model; return the status.

    Any thread may call this: a context of the model's device is current during the unload.
    """
    cdef aclrtContext before = NULL
    cdef aclError status
    cdef int32_t current = -1
    if aclrtGetDevice(&current) == ACL_SUCCESS and current == device:
        return aclmdlUnload(number)
    aclrtGetCurrentContext(&before)
    status = aclrtSetDevice(device)
    if status == ACL_SUCCESS:
        status = aclmdlUnload(number)
    if before != NULL:
        aclrtSetCurrentContext(before)
    return status


@cython.final
cdef class ModelEnd(WorkEnd):
    """The unloading of a model whose Python object was deleted; ready when its runs are done."""

    cdef uint32_t number
    cdef aclmdlDesc *desc
    cdef int device
    cdef bint loaded
    cdef object content
    cdef object weights

    cdef int finish(self) except -1:
        if self.loaded:
            alive_add(-1)
            with nogil:
                model_unload(self.number, self.device)
        if self.desc is not NULL:
            aclmdlDestroyDesc(self.desc)
        return 0


@cython.final
@cython.no_gc_clear                             # __dealloc__ needs `used` and `content`
cdef class Model:
    """A model on a device: an ``.om`` file, or an ONNX file on the simulator.

    Parameters
    ----------
    source : path or bytes-like
        Path of the file, or its content.
    device : int
        Number of the device.  If the thread has no current device, this one becomes current.
    name : str, optional
        The name under which ledger and reports count the memory of the model's runs.  Default: the
        file's name without its extension, or ``"model"``.

    Attributes
    ----------
    inputs, outputs : tuple of TensorInfo
        Name, shape and type of each input and output; -1 in a shape is a dimension that changes.
    device, name : int, str
        The device's number, and the model's name.

    Raises
    ------
    AclError
        The file cannot be read or loaded.  On the simulator, the message names the node and what
        the simulator lacks.
    """

    cdef uint32_t number
    cdef aclmdlDesc *desc           # NULL once closed
    cdef readonly int device
    cdef readonly str name          # the tag of the allocations of its runs
    cdef readonly tuple inputs      # a TensorInfo for each input
    cdef readonly tuple outputs
    cdef object lock                # held while a run is queued, because ACL forbids two at a time
    cdef bint busy                  # a thread is in a `Turn` of this model
    cdef object extents
    cdef object staging
    cdef object content             # the bytes that the model was loaded from
    cdef object weights             # Buffer that the instances share; None if ACL allocates it
    cdef Stream own                 # for calls without a stream; None before the first such call
    cdef object used                # works of its runs (see `_work`)
    cdef set pools                  # pools that served its runs; unloading frees blocks in them
    cdef int made                   # fork_count when it was made
    cdef bint loaded
    cdef list given_out             # caller's memory for each output, or None; valid under the lock
    cdef int64_t until              # end of this run's waits (`until_of`); valid under the lock
    cdef bint typed                 # the element types of all outputs are known
    cdef object __weakref__

    def __cinit__(self):
        self.made = fork_count
        self.pools = set()
        self.lock = threading.RLock()

    def __init__(self, source, device=0, *, name=None):
        if self.loaded or self.desc is not NULL:
            raise ValueError("the Model is loaded already")
        ordinal = ordinal_of(device)
        if Device.current() is None:
            Device(ordinal).use()
        self.device = ordinal
        self.name = name_of(source) if name is None else str(name)
        with Device(ordinal):
            self.open(source)

    cdef int open(self, object source) except -1:
        """Load the model and read its description.  Its device must be current in this thread."""
        current_ensure(NULL)
        self.load(source)
        self.desc = aclmdlCreateDesc()
        made_check(self.desc, "aclmdlCreateDesc")
        check(aclmdlGetDesc(self.desc, self.number), "aclmdlGetDesc")
        self.inputs = infos_of(self.desc, False)
        self.outputs = infos_of(self.desc, True)
        self.typed = all([info.dtype in DTYPE_CODES for info in self.outputs])
        self.extents = Extents(
            tuple([i.shape for i in self.inputs]), tuple([o.shape for o in self.outputs]))
        self.staging = Staging()
        return 0

    @staticmethod
    def instances(source, count, device=0, *, name=None):
        """Load several instances of one model, which share the memory of its weights.

        ACL forbids two runs of one model at the same time.  With an instance for each stream, runs
        can overlap.  If ACL does not report the size of the weights, each instance has its own
        copy.

        Parameters
        ----------
        source, device, name
            As for a `Model`.
        count : int
            Number of instances, at least 1.

        Returns
        -------
        list of Model
            The instances; the weights are freed with the last of them.
        """
        cdef Model one
        cdef list made = []
        if isinstance(count, bool) or not hasattr(count, "__index__"):
            raise TypeError(f"count must be an int, not {type(count).__name__}")
        if count < 1:
            raise ValueError(f"count must be at least 1, not {count}")
        content = source if is_path(source) else content_of(source, "a model's")
        weights = weights_memory(content, device)
        try:
            for _ in range(count):
                one = Model.__new__(Model)
                one.weights = weights
                one.__init__(content, device, name=name)
                made.append(one)
        except BaseException:
            for one in made:
                one.close()
            raise
        return made

    cdef int load(self, object source) except -1:
        cdef const char *path
        cdef const char *data
        cdef size_t size
        cdef aclError status
        cdef void *memory = NULL
        cdef size_t room = 0
        if self.weights is not None:
            memory = (<Buffer> self.weights).address
            room = (<Buffer> self.weights).size
        if is_path(source):
            name = c_path(source, "source")
            path = name
            with nogil:
                if memory is NULL:
                    status = aclmdlLoadFromFile(path, &self.number)
                else:
                    status = aclmdlLoadFromFileWithMem(path, &self.number, NULL, 0, memory, room)
            check(status, "aclmdlLoadFromFile" if memory is NULL else "aclmdlLoadFromFileWithMem")
        else:
            self.content = content_of(source, "a model's")
            data = self.content
            size = len(self.content)
            if size == 0:
                raise ValueError("source must be a model's content, not empty bytes")
            with nogil:
                if memory is NULL:
                    status = aclmdlLoadFromMem(data, size, &self.number)
                else:
                    status = aclmdlLoadFromMemWithMem(
                        data, size, &self.number, NULL, 0, memory, room)
            check(status, "aclmdlLoadFromMem" if memory is NULL else "aclmdlLoadFromMemWithMem")
        self.loaded = True
        alive_add(1)
        return 0

    def __dealloc__(self):
        cdef ModelEnd end
        if self.made != fork_count or leaving or not self.loaded and self.desc is NULL:
            return
        end = ModelEnd.__new__(ModelEnd)
        end.number = self.number
        end.desc = self.desc
        end.device = self.device
        end.loaded = self.loaded
        end.works = self.used
        end.content = self.content
        end.weights = self.weights
        end_soon(end)

    cdef int open_check(self) except -1:
        if self.made != fork_count:
            forked_raise(self)
        if not self.loaded:
            raise ValueError("the Model is closed")
        return 0

    # -- running

    def __call__(self, *inputs, stream=None, out=None, timeout_ms=None, **named):
        """Run once, wait, and return the outputs as a tuple of NumPy arrays.

        Parameters
        ----------
        *inputs, **named
            NumPy arrays, `Array`s, arrays with DLPack on the host or the NPU, or values that NumPy
            converts to arrays, in the model's order or by name.
        stream : Stream, optional
            The stream of the run.  Default: the model's own stream.
        out : sequence, optional
            As for `run_async`.
        timeout_ms : int, optional
            Milliseconds to wait at most.  Then `acl.TimeoutError` is raised, and the run continues.
        """
        cdef int64_t until = until_of(timeout_ms)
        results = self.run_until(self.bind(inputs, named), stream, out, until)
        # `numpy` waits for the stream of each buffer.
        arrays = tuple([
            result.numpy(timeout_ms=None if until < 0 else left_of(until)) for result in results])
        if not results:
            results.synchronize(None if until < 0 else left_of(until))
        for result in results:
            result.close()
        return arrays

    def arun(self, *inputs, stream=None, out=None, timeout=None, **named):
        """Run once in a coroutine, without blocking the event loop; return NumPy arrays.

        A thread of the stream converts the inputs, queues the run, and queues the copies of the
        outputs to the host directly behind it.  Runs of one stream are queued in the order of the
        calls.  The inputs must not be changed before the coroutine is done.  If the coroutine is
        cancelled before the run is queued, there is no run.  If it is cancelled later, the run
        continues, and its outputs are freed.

        Parameters
        ----------
        *inputs, stream, out, **named
            As for a call.
        timeout : float, optional
            Seconds to wait at most.  Then `acl.TimeoutError` is raised.
        """
        from acl.execution._await import model_run

        self.open_check()
        return model_run(self, self.bind(inputs, named), self.stream_of(stream), out, timeout)

    def run_async(self, inputs, Stream stream=None, *, out=None):
        """Queue a run and return its outputs, which stay on the device.

        If a pool is registered for the stream, the call usually does not wait.  It waits in two
        cases: in the first run of a model whose output shapes are not fixed, and if an output is
        larger than predicted from earlier runs.  If no pool is registered, the driver frees the
        inputs' memory, which waits for the run.

        Parameters
        ----------
        inputs : sequence, dict, or one array
            NumPy arrays, which are copied before the call returns, or `Array`s.  If other streams
            still write an `Array`, the caller must order the run after them.
        stream : Stream, optional
            Default: the model's own stream.
        out : sequence of Array, Buffer or None, optional
            Memory for each output, at least as large as the output; None for new memory.  Closing
            the run's outputs does not close this memory.

        Returns
        -------
        Run
            The tuple of the outputs, as `Array`s, with the outcome of the run.  Later work on the
            run's stream may use the outputs without a wait.  `Array.numpy` waits for the run, and
            raises its error if the run failed.

        Raises
        ------
        OutOfMemoryError
            Memory ran out, and again in a second try after the pool's out-of-memory hook was
            called.
        """
        if isinstance(inputs, dict):
            values = self.bind((), inputs)
        elif isinstance(inputs, (list, tuple)):
            values = self.bind(tuple(inputs), {})
        else:
            values = self.bind((inputs,), {})
        return self.run_until(values, stream, out, -1)

    cdef object run_until(self, list values, Stream stream, object out, int64_t until):
        """Queue a run and return it; its waits end at `until` (see `until_of` in `_work.pxd`)."""
        cdef Uses uses
        self.open_check()
        callback_check()
        stream = self.stream_of(stream)
        # Before the lock is taken, because `given` may call the user's code (`__array__`).
        values = [self.given(info, value, stream)
                  for info, value in zip(self.inputs, values, strict=True)]
        targets = self.targets(out, stream)
        if not self.typed or self.extents.untaught:
            stream.progress.settle(until)       # store earlier failures, which are not this run's
        with Turn(self):
            self.open_check()
            self.given_out = targets
            self.until = until
            uses = Uses(stream.progress, f"a run of model {self.name!r}")
            try:
                self.used = works_add(self.used, uses.work)
                results = self.run_locked(values, stream, uses)
            finally:
                # Even after an error, as the call may have queued copies and the run.  The uses end
                # first, because `close_batch` may be ended by Ctrl-C.
                self.given_out = None
                uses.end(True)
                self.staging.close_batch(stream)
        return Run(results, uses.work, stream)

    cdef tuple run_locked(self, list values, Stream stream, Uses uses):
        arrays = [self.place(info, value, stream)
                  for info, value in zip(self.inputs, values, strict=True)]
        for array in arrays:
            buffer_readable(array.buffer, False)
            uses.add(array.buffer, False)
        return self.execute(arrays, stream, uses)

    cdef Stream stream_of(self, Stream stream):
        if stream is not None:
            stream_device_check(stream, self.device, f"model {self.name!r}")
            return stream
        if self.own is None:
            self.own = Stream(self.device)
        return self.own

    cdef list bind(self, tuple given, dict named):
        """Return the positional and named inputs as one list, in the model's order."""
        names = [info.name for info in self.inputs]
        if len(given) > len(names):
            raise input_error(
                f"the model has {len(names)} inputs ({', '.join(names)}), got {len(given)}")
        values = dict(zip(names, given))
        for name, value in named.items():
            if name not in names:
                raise input_error(
                    f"the model has no input {name!r}; its inputs are {', '.join(names)}")
            if name in values:
                raise input_error(f"input {name!r} is given twice")
            values[name] = value
        missing = [name for name in names if name not in values]
        if missing:
            raise input_error(f"inputs are missing: {', '.join(missing)}")
        return [values[name] for name in names]

    cdef object given(self, object info, object value, Stream stream):
        """Return an input as an Array, or as a NumPy array of the required type and shape."""
        what = f"input {info.name!r}"
        if not isinstance(value, (Array, Buffer)):
            value = given_array(value, what, stream)
        if isinstance(value, Array):
            if dtype_name(value.dtype) != info.dtype or not info.fits(value.shape):
                raise input_error(
                    f"{what}: expected {info}, got {value.dtype} {list(value.shape)}")
            (<Buffer> value.buffer).open_check()
            stream_device_check(stream, (<Buffer> value.buffer).device, what)
            return value
        if isinstance(value, Buffer):
            (<Buffer> value).open_check()
            stream_device_check(stream, (<Buffer> value).device, what)
            if info.dynamic or Array.nbytes_of(info.shape, info.dtype) > value.size:
                raise input_error(
                    f"{what}: expected {info}, got a Buffer of {value.size} bytes; "
                    "an acl.Array has a shape")
            return Array.of(value, info.shape, info.dtype)
        value, _kind = host_array(value, what, info)
        if not info.fits(value.shape):
            raise input_error(f"{what}: expected {info}, got {value.dtype} {list(value.shape)}")
        return value

    cdef object place(self, object info, object value, Stream stream):
        """Return an input as an `Array`; a NumPy array is copied to the device in stream order."""
        if isinstance(value, Array):
            return value
        array = Array.of(stream_memory(value.nbytes, stream, "inputs", self.name), value.shape,
                         info.dtype)
        if value.nbytes:
            self.staging.queue(array.buffer, value.reshape(-1).view("uint8"), stream)
        return array

    cdef tuple execute(self, list arrays, Stream stream, Uses uses):
        """Queue the run and return the outputs with their actual shapes."""
        cdef Dataset inputs = dataset_of(arrays, self.inputs)
        cdef Dataset outputs
        shapes = tuple([array.shape for array in arrays])
        predicted, buffers = self.guess(shapes, stream)
        if buffers is None:
            predicted = self.shapes_by_running(inputs, shapes, stream)
            buffers = self.output_buffers(predicted, stream)
        outputs = written_dataset(buffers, uses)
        if self.queue(inputs, outputs, stream, must=False):
            # A buffer was too small, or another error occurred, which this synchronous run raises.
            predicted = self.shapes_by_running(inputs, shapes, stream)
            buffers = None
            uses.cut(len(arrays))               # frees them, as the stream was waited for
            buffers = self.output_buffers(predicted, stream)
            outputs = written_dataset(buffers, uses)
            self.queue(inputs, outputs, stream, must=True)
        found = outputs.shapes()
        if None in found:
            stream.progress.settle(self.until)  # some versions of CANN set the shapes at the end
            found = outputs.shapes()
        found = tuple([f if f is not None else p for f, p in zip(found, predicted)])
        self.extents.learn(shapes, found)
        return tuple([Array.of(buffer, shape, info.dtype)
                      for buffer, shape, info in zip(buffers, found, self.outputs)])

    cdef tuple guess(self, tuple shapes, Stream stream):
        """Return predicted shapes of the outputs, and buffers; (None, None) if nothing is known."""
        predicted = self.extents.predict(shapes)
        if predicted is None or not self.typed:
            return None, None
        try:
            return predicted, self.output_buffers(predicted, stream)
        except OutOfMemoryError:
            if self.extents.knows(shapes):
                raise
        return None, None                       # the real outputs may be smaller than predicted

    cdef list targets(self, object out, Stream stream):
        """Return a list with the caller's Buffer or None for each output; None without `out`."""
        cdef list found = []
        if out is None:
            return None
        if not isinstance(out, (list, tuple)) or len(out) != len(self.outputs):
            raise input_error(f"out must be a list or tuple of {len(self.outputs)}, one for each "
                              f"output, not {type(out).__name__}"
                              + (f" of {len(out)}" if isinstance(out, (list, tuple)) else ""))
        for info, one in zip(self.outputs, out):
            what = f"out for {info.name!r}"
            buffer = one.buffer if isinstance(one, Array) else one
            if buffer is not None and not isinstance(buffer, Buffer):
                raise input_error(
                    f"{what} must be an Array, a Buffer or None, not {type(one).__name__}")
            if buffer is not None:
                (<Buffer> buffer).open_check()
                stream_device_check(stream, (<Buffer> buffer).device, what)
            found.append(buffer)
        return found

    cdef list output_buffers(self, tuple shapes, Stream stream):
        cdef list given = self.given_out or [None] * len(self.outputs)
        return [output_memory(buffer, Array.nbytes_of(shape, info.dtype), info, stream, self.name)
                for buffer, shape, info in zip(given, shapes, self.outputs, strict=True)]

    cdef aclError queue(self, Dataset inputs, Dataset outputs, Stream stream, bint must) except? -1:
        """Call `aclmdlExecuteAsync`.  If memory ran out, call the pool's hook and try once more.

        Return the status.  Raise an error if memory ran out; with `must`, raise every error.
        """
        cdef aclrtStream raw
        cdef aclError status
        cdef Pool pool = pool_of(stream.handle)
        cdef TagScope scope
        cdef bint scoped = False
        cdef uint16_t tag = 0
        cdef uint32_t attempt
        cdef bint noted
        stream_raw(stream, &raw)
        if pool is not None:
            self.pools.add(pool)
            tag = pool.tag_index(self.name)
            stream_name(pool.core, raw, tag, False)
            if self.name not in pool.budgeted:
                tag = 0
        for attempt in range(2):
            ooms = 0 if pool is None else pool.core.reports.oom.number
            self.leave_note(pool, False)        # this call frees the blocks of the failed run
            noted = run_enter(pool)
            scoped = (pool is not None and pool.core.tagging
                      and tag_push(pool, pool.core, &scope, tag))
            with nogil:
                status = aclmdlExecuteAsync(self.number, inputs.raw, outputs.raw, raw)
            if scoped:
                tag_pop(&scope)
            if noted:
                stack_leave()
            if status == ACL_SUCCESS:
                return status
            report = None if pool is None else books().oom_of(pool, ooms, stream.handle)
            if report is None:
                break
            self.leave_note(pool, True)
            if attempt or not pool.oom_tell(report):
                raise books().oom_told(report, status, "aclmdlExecuteAsync")
        if must or status == ACL_ERROR_RT_MEMORY_ALLOCATION:
            check(status, "aclmdlExecuteAsync")
        return status

    cdef int leave_note(self, Pool pool, bint failed) except -1:
        """Note in the pool whether the model's last run failed, for reports.

        Reports need this, because ACL keeps the blocks of a failed run until the model's next run.
        """
        if pool is not None and (failed or pool.failed_runs):
            runs = (pool.failed_runs or frozenset()) - {self.name}
            pool.failed_runs = runs | {self.name} if failed else runs
        return 0

    cdef tuple shapes_by_running(self, Dataset inputs, tuple given, Stream stream):
        """Return the outputs' shapes, found by a synchronous run whose outputs ACL allocates."""
        cdef Dataset outputs = Dataset()
        cdef aclError status
        cdef size_t i
        cdef void *address
        for _ in self.outputs:
            outputs.add(NULL, 0)
        stream.progress.settle(self.until)
        with nogil:
            status = aclmdlExecute(self.number, inputs.raw, outputs.raw)
        for i in range(outputs.count):
            address = aclGetDataBufferAddr(aclmdlGetDatasetBuffer(outputs.raw, i))
            if address is not NULL:
                with nogil:
                    aclrtFree(address)
        check(status, "aclmdlExecute")
        if not self.typed:
            # The model does not declare the types; the run has set them in its outputs.
            self.outputs = tuple([
                info._replace(dtype=outputs.dtype(i)) for i, info in enumerate(self.outputs)])
            self.typed = True
        shapes = tuple([
            shape if shape is not None else info.shape
            for shape, info in zip(outputs.shapes(), self.outputs, strict=True)])
        self.extents.learn(given, shapes)
        return shapes

    # -- closing

    def close(self):
        """Wait for the model's runs and unload it; a second call does nothing.

        Any thread may call this.  The outputs of earlier runs stay readable.
        """
        if self.made != fork_count:
            forked_raise(self)
        if not self.loaded:
            return
        callback_check()
        with Turn(self):
            if not self.loaded:
                return
            if current_device() == self.device:
                self.unload()
                return
            with Device(self.device):
                self.unload()

    cdef int unload(self) except -1:
        """Unload the model, with its device current; if that fails, it stays loaded.

        The caller holds the lock.
        """
        cdef aclError status
        cdef list pools = list(self.pools)
        cdef Py_ssize_t begun = 0
        works_settle(self.used)
        self.used = None
        try:
            for pool in pools:
                if not pool.closed:             # another thread may close a pool during each wait
                    pool.unload_begin()
                begun += 1
            with nogil:
                status = aclmdlUnload(self.number)
            if status == ACL_SUCCESS:
                self.loaded = False
                alive_add(-1)
                self.weights = None
                for pool in pools:
                    self.leave_note(pool, False)
                self.pools.clear()
        finally:
            unloads_end(pools, begun)
        check(status, "aclmdlUnload")
        self.staging.close()
        if self.own is not None:
            self.own.close()
        return 0

    @property
    def closed(self):
        """True once `close` has run."""
        return not self.loaded

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def __repr__(self):
        if not self.loaded:
            return "<Model closed>"
        inputs = ", ".join(f"{i.name}: {i}" for i in self.inputs)
        outputs = ", ".join(f"{o.name}: {o}" for o in self.outputs)
        return f"<Model ({inputs}) -> ({outputs})>"


@cython.final
cdef class Turn:
    """A `with` block that holds a model's lock, so that one thread at a time uses the model.

    Hooks and finalizers that are called inside the block must not run or close that model.
    """

    cdef Model model

    def __cinit__(self, Model model):
        self.model = model

    def __enter__(self):
        self.model.lock.acquire()
        if self.model.busy:                     # this thread is in an outer block of the model
            self.model.lock.release()
            raise RuntimeError("a call of the Model is under way in this thread: its hooks and "
                               "finalizers must not run or close it")
        self.model.busy = True

    def __exit__(self, *error):
        self.model.busy = False
        self.model.lock.release()


cdef int unloads_end(list pools, Py_ssize_t begun) except -1:
    """End the unloading in the first `begun` pools, and then raise the first error, if any."""
    cdef object first = None
    cdef Py_ssize_t i
    for i in range(begun):
        try:
            if not pools[i].closed:
                pools[i].unload_end()
        except BaseException as error:          # Ctrl-C, for example
            first = error if first is None else first
    if first is not None:
        raise first
    return 0


cdef Dataset written_dataset(list buffers, Uses uses):
    """Return a dataset of buffers that the run writes, and note these buffers in `uses`."""
    for buffer in buffers:
        uses.add(buffer, True)
    return dataset_of_buffers(buffers)


cdef Buffer output_memory(Buffer given, size_t size, object info, Stream stream, str owner):
    """Return memory for an output: a view of the caller's buffer, or else new memory."""
    if given is None:
        return stream_memory(size, stream, "outputs", owner)
    if given.size < size:
        raise input_error(
            f"out for {info.name!r} must have {size} bytes for this run, not {given.size}")
    return given.view()
