/* opfailure.h: the operators of models that failed, by device, stream and task. */
#ifndef SIM_OPFAILURE_H
#define SIM_OPFAILURE_H

#include "base/core.h"
#include "numbers/tensor.h"

/* A kernel's task says before it returns its error which operator it was; the tensors are inputs,
 * then outputs, rank -1: left out. */
void opfailure_note(const char *name, const Tensor *tensors, int inputs, int outputs);
#endif
