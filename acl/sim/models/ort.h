/* ort.h: the second engine: ONNX Runtime, through its C API, for models with operators that the
   node loop does not have. Its library is opened at the first use; without it, these calls fail
   with a message. */
#ifndef SIM_ORT_H
#define SIM_ORT_H

#include "models/modelrun.h"

typedef struct OrtModel OrtModel;

/* Makes a session and fills the net with the names, types and shapes of its inputs and outputs,
   so that the model's description is made as for the other engine. On failure returns false, with
   the reason in `reason`. */
bool ort_load(
    const void *bytes, size_t length, Net *net, OrtModel **model, char *reason, size_t room);
void ort_free(OrtModel *model);

/* Runs the model once, on the calling thread, after the stream's earlier work is done. Every
   tensor is allocated from the run's source; results are copied into the outputs. */
aclError ort_run(OrtModel *model, Run *run);

#endif
