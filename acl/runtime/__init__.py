"""Devices, streams, events, buffers and copies: objects over ACL's handles.

`_device` and `_stream` own handles; `_buffer` owns memory; `_work` knows what a stream has not finished, so that no
memory goes from under it; `_later` ends what could not be ended at once; `_copy` and `_callback` queue work.

May import: `bind`, `core`; inside functions also `pool` and `execution`.  Start with `_stream.pyx`.
"""
