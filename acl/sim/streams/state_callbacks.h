/* Calls the user's callbacks on changes of streams and devices: the interface for other folders. */
#ifndef SIM_STATE_CALLBACKS_H
#define SIM_STATE_CALLBACKS_H

#include "base/core.h"

/* Calls every registered callback, in the order of their names.  No lock may be held. */
void stream_state_tell(Stream *stream, aclrtStreamState state);
void device_state_tell(int32_t device, aclrtDeviceState state);
/* Calls every registered callback; returns the first result that is not 0, or 0. */
int32_t device_abort_tell(int32_t device, aclrtDeviceTaskAbortStage stage, uint32_t timeout_ms);

#endif
