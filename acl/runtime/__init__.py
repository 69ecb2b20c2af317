"""Devices, streams, events, buffers and copies: objects over ACL's handles.

`_device` and `_stream` own handles; `_buffer` owns memory; `_work` notes the work that a stream has not finished, so
that its memory is not freed; `_later` frees what could not be freed at once; `_copy` and `_callback` queue work.

May import: `bind`, `core`; inside functions also `pool` and `execution`.  Start with `_stream.pyx`.
"""
