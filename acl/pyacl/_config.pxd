"""Conversion of configurations, which pyACL takes as dicts and lists: see `_config.pyx`.

The functions return None if C is to get NULL.
"""


cdef bytes malloc_config(object given, const char *what, int argument)
cdef bytes launch_config(object given, const char *what, int argument)
cdef bytes load_options(object given, const char *what, int argument)
cdef tuple server_pids(object given, const char *what, int argument)
