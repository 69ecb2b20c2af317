"""Configurations that pyACL takes as dicts and lists: see `_config.pyx`.  None stands for NULL."""


cdef bytes malloc_config(object given, const char *what, int argument)
cdef bytes launch_config(object given, const char *what, int argument)
cdef bytes load_options(object given, const char *what, int argument)
cdef tuple server_pids(object given, const char *what, int argument)
