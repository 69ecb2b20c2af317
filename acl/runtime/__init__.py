"""Devices, streams, events, buffers and copies: objects over ACL's handles.

`_device` and `_stream` own handles; `_buffer` owns memory; `_work` stores which work a stream has not finished, so
that the memory of this work is not freed; `_later` does clean-up that had to be delayed;
`_ended` drops what tables have of streams that other code destroyed; `_copy` and `_callback`
queue work; `_array`, `_tensor` and `_given` describe and convert values.

May import: `bind`, `core`; inside functions also `pool` and `execution`.  Start with `_stream.pyx`.
"""
