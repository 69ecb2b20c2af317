/* Managed memory: the interface for other files. */
#ifndef SIM_MANAGED_H
#define SIM_MANAGED_H

/* Called when managed memory is freed: deletes the data stored about it. `owner` is BlockInfo.owner. */
void managed_freed(void *owner);

#endif
