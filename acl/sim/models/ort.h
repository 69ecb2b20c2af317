/* ort.h: the second engine: ONNX Runtime, through its C API, for models that the node loop lacks
   operators for. Its library is opened when first wanted; without it these calls only say so. */
#ifndef SIM_ORT_H
#define SIM_ORT_H

#include "models/modelrun.h"

typedef struct OrtModel OrtModel;

/* Makes a session and fills the net with what its inputs and outputs look like, so that a
   description of the model is made as for the other engine. False with the reason in `reason`. */
bool ort_load(
    const void *bytes, size_t length, Net *net, OrtModel **model, char *reason, size_t room);
void ort_free(OrtModel *model);

/* One run, at once, on the calling thread, after the stream's earlier work. Every tensor comes from
   the run's source; results are copied into the outputs. */
aclError ort_run(OrtModel *model, Run *run);

#endif
