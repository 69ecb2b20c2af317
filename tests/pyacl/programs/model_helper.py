"""The usual helper class around a model: it loads, describes, makes datasets, sets the gear, executes, releases."""

import sys

import numpy as np

import acl

ACL_MEM_MALLOC_HUGE_FIRST = 0
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
buffer_method = {
    "in": acl.mdl.get_input_size_by_index,
    "out": acl.mdl.get_output_size_by_index,
}


def check_ret(message, ret):
    if ret != 0:
        raise Exception("{} failed ret={}".format(message, ret))


class Net:
    def __init__(self, device_id, model_path, from_memory=False):
        self.device_id = device_id
        check_ret("acl.rt.set_device", acl.rt.set_device(self.device_id))
        self.context, ret = acl.rt.create_context(self.device_id)
        check_ret("acl.rt.create_context", ret)
        if from_memory:
            with open(model_path, "rb") as file:
                self.content = file.read()
            address = acl.util.bytes_to_ptr(self.content)
            self.model_id, ret = acl.mdl.load_from_mem(address, len(self.content))
        else:
            self.model_id, ret = acl.mdl.load_from_file(model_path)
        check_ret("acl.mdl.load", ret)
        self.model_desc = acl.mdl.create_desc()
        check_ret("acl.mdl.get_desc", acl.mdl.get_desc(self.model_desc, self.model_id))
        self.input_data, self.output_data = [], []
        self._allocate(acl.mdl.get_num_inputs(self.model_desc), "in")
        self._allocate(acl.mdl.get_num_outputs(self.model_desc), "out")

    def _allocate(self, count, des):
        for i in range(count):
            size = buffer_method[des](self.model_desc, i)
            buffer, ret = acl.rt.malloc(size, ACL_MEM_MALLOC_HUGE_FIRST)
            check_ret("acl.rt.malloc", ret)
            (self.input_data if des == "in" else self.output_data).append({"buffer": buffer, "size": size})

    def describe(self):
        for i in range(acl.mdl.get_num_inputs(self.model_desc)):
            dims, ret = acl.mdl.get_input_dims(self.model_desc, i)
            check_ret("acl.mdl.get_input_dims", ret)
            print("input", dims["name"], dims["dimCount"], dims["dims"],
                  acl.mdl.get_input_data_type(self.model_desc, i), acl.mdl.get_input_format(self.model_desc, i))
        for i in range(acl.mdl.get_num_outputs(self.model_desc)):
            dims, ret = acl.mdl.get_output_dims(self.model_desc, i)
            print("output", dims["dims"], acl.mdl.get_output_data_type(self.model_desc, i), ret)

    def _dataset(self, items):
        dataset = acl.mdl.create_dataset()
        for item in items:
            buffer = acl.create_data_buffer(item["buffer"], item["size"])
            _, ret = acl.mdl.add_dataset_buffer(dataset, buffer)
            check_ret("acl.mdl.add_dataset_buffer", ret)
        return dataset

    def _release(self, dataset):
        for i in range(acl.mdl.get_dataset_num_buffers(dataset)):
            buffer = acl.mdl.get_dataset_buffer(dataset, i)
            if buffer:
                check_ret("acl.destroy_data_buffer", acl.destroy_data_buffer(buffer))
        check_ret("acl.mdl.destroy_dataset", acl.mdl.destroy_dataset(dataset))

    def run(self, array, batch=None, stream=None):
        if "bytes_to_ptr" in dir(acl.util):
            raw = array.tobytes()
            address = acl.util.bytes_to_ptr(raw)
        else:
            address = acl.util.numpy_to_ptr(array)
        size = array.nbytes
        first = self.input_data[0]
        check_ret("acl.rt.memcpy", acl.rt.memcpy(first["buffer"], first["size"], address, size, HOST_TO_DEVICE))
        inputs, outputs = self._dataset(self.input_data), self._dataset(self.output_data)
        if batch is not None:
            index, ret = acl.mdl.get_input_index_by_name(self.model_desc, "ascend_mbatch_shape_data")
            check_ret("acl.mdl.get_input_index_by_name", ret)
            check_ret("set_dynamic_batch_size", acl.mdl.set_dynamic_batch_size(self.model_id, inputs, index, batch))
        if stream is None:
            check_ret("acl.mdl.execute", acl.mdl.execute(self.model_id, inputs, outputs))
        else:
            check_ret("acl.mdl.execute_async", acl.mdl.execute_async(self.model_id, inputs, outputs, stream))
            check_ret("acl.rt.synchronize_stream", acl.rt.synchronize_stream(stream))
        dims, ret = acl.mdl.get_cur_output_dims(self.model_desc, 0)
        shape = dims["dims"] if ret == 0 and batch is not None else [array.shape[0], -1]
        count = int(np.prod(shape)) if -1 not in shape else array.shape[0] * 3
        host, ret = acl.rt.malloc_host(count * 4)
        check_ret("acl.rt.malloc_host", ret)
        place = self.output_data[0]["buffer"]
        check_ret("acl.rt.memcpy", acl.rt.memcpy(host, count * 4, place, count * 4, DEVICE_TO_HOST))
        result = np.frombuffer(acl.util.ptr_to_bytes(host, count * 4), dtype=np.float32).copy()
        check_ret("acl.rt.free_host", acl.rt.free_host(host))
        self._release(inputs)
        self._release(outputs)
        return result.reshape(array.shape[0], -1)

    def __del__(self):
        # Many programs release in this order: the model first, its memory last.
        check_ret("acl.mdl.unload", acl.mdl.unload(self.model_id))
        check_ret("acl.mdl.destroy_desc", acl.mdl.destroy_desc(self.model_desc))
        while self.input_data + self.output_data:
            item = (self.input_data or self.output_data).pop()
            check_ret("acl.rt.free", acl.rt.free(item["buffer"]))
        check_ret("acl.rt.destroy_context", acl.rt.destroy_context(self.context))
        check_ret("acl.rt.reset_device", acl.rt.reset_device(self.device_id))
        print("Resources released successfully.")


if __name__ == "__main__":
    check_ret("acl.init", acl.init())
    fixed, geared = sys.argv[1:3]
    weight = np.arange(12, dtype=np.float32).reshape(4, 3)
    for path, batches in ((fixed, [None]), (geared, [1, 2, 4])):
        net = Net(0, path, from_memory=path is fixed)
        net.describe()
        if batches[0] is not None:
            print("gears", acl.mdl.get_dynamic_batch(net.model_desc))
        for batch in batches:
            x = np.arange(4 * (batch or 2), dtype=np.float32).reshape(-1, 4) - 3
            expected = np.maximum(x @ weight, 0)
            stream, ret = acl.rt.create_stream()
            for s in (None, stream):
                print("batch", batch, "async" if s else "sync", np.allclose(net.run(x, batch, s), expected))
            check_ret("acl.rt.destroy_stream", acl.rt.destroy_stream(stream))
        del net
    print("finalize", acl.finalize())
