/* opfailure.h: the operators of models that failed, by device, stream and task. */
#ifndef SIM_OPFAILURE_H
#define SIM_OPFAILURE_H

#include "base/core.h"
#include "numbers/tensor.h"

/* A kernel's task calls this before it returns an error, to name its operator.  `tensors` has the inputs, then the
   outputs; rank -1 means that one was left out. */
void opfailure_note(const char *name, const Tensor *tensors, int inputs, int outputs);
#endif
