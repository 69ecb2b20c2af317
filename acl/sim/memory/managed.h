/* Managed memory: the interface for other files. */
#ifndef SIM_MANAGED_H
#define SIM_MANAGED_H

/* Forgets what is stored about an allocation, which is being freed. */
void managed_freed(void *owner);

#endif
