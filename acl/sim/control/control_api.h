/* control_api.h: the control API: functions by which tests and tools control the simulator, besides CANN's API.

   Exported as acl_sim_*, names that CANN does not have, so a program written for CANN never calls them.
   acl.sim in Python and the ACL_SIM_* variables give access to everything here.

   Thread rule: any thread.  Most settings (acl_sim_set) can be changed only while no device is in use. */
#ifndef SIM_CONTROL_API_H
#define SIM_CONTROL_API_H

#include "base/core.h"

/* Changes a setting; `variable` is the name of an ACL_SIM_* variable and `value` its new text.  Returns 100000 for
   an unknown name or an invalid value, 148051 if the setting cannot change because a device is in use. */
SIM_SHARED aclError acl_sim_set(const char *variable, const char *value);
/* Copies the value in effect to `value`, in the form that acl_sim_set takes.  Returns the length of the text; 0 if
   there is no such setting. */
SIM_SHARED size_t acl_sim_get(const char *variable, char *value, size_t size);

/* Returns the thread's messages, as aclGetRecentErrMsg does, but does not mark them as read; NULL if there are none. */
SIM_SHARED const char *acl_sim_message(void);

/* Counters of calls.  `index` is the number of a function, from 0; the name is NULL after the last function. */
SIM_SHARED const char *acl_sim_function(size_t index);
SIM_SHARED uint64_t acl_sim_calls(size_t index);
SIM_SHARED void acl_sim_calls_clear(void);

/* Numbers of live handles.  `index` is the number of a kind, from 0; the name is NULL after the last kind. */
SIM_SHARED const char *acl_sim_kind(size_t index);
SIM_SHARED size_t acl_sim_live(size_t index);

/* Returns the name of a chip of the table in soc.c, the default chip first; NULL after the last one. */
SIM_SHARED const char *acl_sim_soc(size_t index);

/* Returns the name of an operator; NULL after the last one.  Sets *domains to a sum of 1 (an operator of ONNX), 2 (a
   single operator of ACL) and 4 (an operator of the domain com.microsoft). */
SIM_SHARED const char *acl_sim_operator(size_t index, uint32_t *domains);

/* Faults (faults.c).  Adds a rule, written as in ACL_SIM_FAULTS, and stores its number in *rule. */
SIM_SHARED aclError acl_sim_fault_add(const char *text, uint32_t *rule);
SIM_SHARED aclError acl_sim_fault_remove(uint32_t rule);
SIM_SHARED uint64_t acl_sim_fault_hits(uint32_t rule);
SIM_SHARED void acl_sim_fault_clear(void);
/* Makes each call for the device fail with `code`, as if the device was lost; 0 repairs it. */
SIM_SHARED aclError acl_sim_device_lost(int32_t device, aclError code);
/* Queues a task on the stream that fails with `code` when it runs. */
SIM_SHARED aclError acl_sim_stream_fail(aclrtStream stream, aclError code);

/* Returns the name of an ACL_SIM_* variable; NULL after the last one. */
SIM_SHARED const char *acl_sim_variable(size_t index);

/* Called by call_hooks.c; defined in faults.c, trace.c and counters.c. */
aclError fault_due(unsigned function);
/* True if the rule with this number was added and not removed. */
bool fault_in_force(uint32_t number);
void trace_begin(unsigned function);
void trace_write(unsigned function, aclError status);
void coverage_count(unsigned function, aclError status);
void latency_wait(unsigned function);

/* Starts to write the trace to that file; `fresh` empties the file first.  The name "" ends the trace. */
aclError trace_open(const char *name, bool fresh);
/* Opens a file for appending and returns its descriptor; `fresh` empties the file first.  "%p" in the name is
   replaced by the process's number.  On failure returns -1 with errno set. */
int output_open(const char *name, bool fresh);
/* Chooses a latency preset: "off", "pcie", "pcie:RATE" or "memory". */
aclError latency_choose(const char *name);
/* Copies the name of the latency preset in effect to `text` and returns its length. */
size_t latency_chosen(char *text, size_t room);

#endif
