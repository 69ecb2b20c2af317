/* control_api.h: the control door: what tests and tools do to the simulator from outside the API.

   Exported with names of their own (acl_sim_*), which no program written for CANN meets.
   acl.sim in Python and the ACL_SIM_* variables reach everything here.

   Thread rule: any thread.  Settings (acl_sim_set) want a moment when no device is in use. */
#ifndef SIM_CONTROL_API_H
#define SIM_CONTROL_API_H

#include "base/core.h"

/* Sets what the ACL_SIM_* variable of that name sets, with the same texts.  100000 for an unknown
   name or a value that makes no sense, 107003 while devices are in use; the message says more. */
SIM_SHARED aclError acl_sim_set(const char *variable, const char *value);
/* The value in effect, as acl_sim_set takes it; 0 if there is no such setting, else its length. */
SIM_SHARED size_t acl_sim_get(const char *variable, char *value, size_t size);

/* The thread's messages that aclGetRecentErrMsg would give; they stay unread. */
SIM_SHARED const char *acl_sim_message(void);

/* Counters: functions are numbered from 0; NULL ends the names. */
SIM_SHARED const char *acl_sim_function(size_t index);
SIM_SHARED uint64_t acl_sim_calls(size_t index);
SIM_SHARED void acl_sim_calls_clear(void);

/* Live handles: kinds are numbered from 0; NULL ends the names. */
SIM_SHARED const char *acl_sim_kind(size_t index);
SIM_SHARED size_t acl_sim_live(size_t index);

/* The chips of the table, the default one first; NULL ends the names. */
SIM_SHARED const char *acl_sim_soc(size_t index);

/* The operators: their names, and 1 for those of ONNX, 2 for single operators, 4 for com.microsoft, added up;
   NULL ends the names. */
SIM_SHARED const char *acl_sim_operator(size_t index, uint32_t *domains);

/* Faults (faults.c).  A rule in text, as ACL_SIM_FAULTS has it; *rule is its number. */
SIM_SHARED aclError acl_sim_fault_add(const char *text, uint32_t *rule);
SIM_SHARED aclError acl_sim_fault_remove(uint32_t rule);
SIM_SHARED uint64_t acl_sim_fault_hits(uint32_t rule);
SIM_SHARED void acl_sim_fault_clear(void);
/* A device that answers each call with `code`; 0 repairs it. */
SIM_SHARED aclError acl_sim_device_lost(int32_t device, aclError code);
/* The stream's next task fails with `code`. */
SIM_SHARED aclError acl_sim_stream_fail(aclrtStream stream, aclError code);

/* The names of the ACL_SIM_* variables; NULL ends them. */
SIM_SHARED const char *acl_sim_variable(size_t index);

/* What call_hooks.c asks of faults.c and trace.c. */
aclError fault_due(unsigned function);
void trace_begin(unsigned function);
void trace_write(unsigned function, aclError status);
void coverage_count(unsigned function, aclError status);
void latency_wait(unsigned function);

/* Traces to that file from now on, emptied first if `fresh`; "" ends it. */
aclError trace_open(const char *name, bool fresh);
/* A file to write to, at its end; "%p" in its name is the process's number.  -1, and errno. */
int output_open(const char *name, bool fresh);
/* A preset by name: "off", "pcie", "pcie:RATE" or "memory". */
aclError latency_choose(const char *name);
/* Writes the preset in effect, and returns its length. */
size_t latency_chosen(char *text, size_t room);

#endif
