/* Managed memory, as the rest of the simulator sees it. */
#ifndef SIM_MANAGED_H
#define SIM_MANAGED_H

/* What is known of an allocation that is freed just now. */
void managed_freed(void *owner);

#endif
