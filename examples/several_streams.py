"""Requests spread over four streams, all queued before the first result is read, one pool for all."""

import os

os.environ.setdefault("ACL_BACKEND", "sim")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # NumPy checks small products only

import numpy as np

import aclpool as acl
from acl.samples import encoder, evaluate, requests

built = encoder()
work = [request for request in requests(48, seed=1) if request.model == "encoder"]
with acl.Pool(0) as pool, acl.use_pool(pool):
    # Streams that are made in this block have the pool registered.
    streams = [acl.Stream(0) for _ in range(4)]
    with acl.Model(built.to_bytes()) as model:
        queued = []
        for number, request in enumerate(work):
            stream = streams[number % len(streams)]
            queued.append(model.run_async(request.inputs, stream))
        for request, (result,) in zip(work, queued, strict=True):
            assert np.allclose(result.numpy(), evaluate(built, *request.inputs)[0], rtol=1e-3, atol=1e-4)
        for part in pool.stats().streams:
            print(f"stream {part.stream:#x}: {part.hits + part.fits + part.slow} allocations, "
                  f"{part.slow} slow, {part.reserved / 2**20:.0f} MiB reserved")
    for stream in streams:
        stream.close()
print(f"{len(work)} requests right, on {len(streams)} streams")
