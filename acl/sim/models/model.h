/* model.h: loaded models and the things a user describes their inputs and outputs with.

   A model is reached by its number. It lives until it was unloaded and the last of its queued work
   is done; only its device memory from a user's allocator is returned at unload. */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

#include "onnx/graph_ir.h"
#include "tensors/memory_source.h"
#include "tensors/tensordesc.h"

enum { GEARS_MAX = 128, GEAR_VALUES_MAX = 64 };

/* What a model with gears may be set to: one list of values for each gear. */
typedef enum GearKind { GEARS_NONE, GEARS_BATCH, GEARS_SIZE, GEARS_DIMS } GearKind;

typedef struct Gears {
    GearKind kind;
    int count;
    int values;                               /* numbers in each */
    int64_t value[GEARS_MAX][GEAR_VALUES_MAX];
} Gears;

typedef struct PoolEntry {
    struct PoolEntry *next;
    const Stream *stream;
    Pool *pool;
} PoolEntry;

typedef struct Leftover {
    struct Leftover *next;
    Block block;
} Leftover;

typedef struct Model {
    _Atomic int references;
    uint32_t id;
    struct Model *newer, *older; /* of those that are loaded; guarded by model.c's table */
    Net net;
    Gears gears;
    struct OrtModel *ort;   /* ONNX Runtime's session, if the node loop cannot run the model */
    void **addresses;       /* of each value that is a constant on the device, else NULL */
    void *weights;
    size_t weight_bytes;
    bool weights_owned;
    bool bundled;           /* a bundle unloads it */
    int32_t priority;
    pthread_mutex_t lock;   /* of the lists below; never held over a callback */
    PoolEntry *pools;
    Leftover *leftovers; /* blocks of runs that failed: given back by the next run or at unload */
    Pool *idle_pool;        /* for synchronous runs, while none of them uses it */
    Tensor *last;           /* the outputs' shapes of the newest run; rank -1 = none yet */
    Tensor *geared;         /* the outputs' shapes under each gear, one gear after another */
    _Atomic int gear;       /* the one that was set last, for whichever dataset; -1 = none yet */
} Model;

/* --- model.c --- */

/* The model of that number with a reference, or 145003. */
aclError model_find(uint32_t id, Model **model);
void model_release(Model *model);

/* A number that no model has or will have; false without memory. */
bool model_number(uint32_t *id);

typedef struct ModelFile ModelFile;

/* The user's memory for the weights; NULL = the model has its own. */
typedef struct Memories {
    void *weight;
    size_t weight_bytes;
} Memories;

aclError model_load(const ModelFile *file, const Memories *memories, bool bundled, uint32_t *id);
/* Of a bundle's model. */
void model_unload(uint32_t id);
aclError model_sizes(const ModelFile *file, size_t *work, size_t *weight);

/* Bytes that the constants take on the device. */
size_t model_weight_bytes(const Net *net);

/* The pool that serves a stream where no allocator is registered, until the stream or the model ends;
   NULL without memory. */
Pool *model_pool(Model *model, const Stream *stream);

/* --- modelfile.c --- */

struct ModelFile {
    void *bytes;        /* mapped, if from a file */
    size_t length;
    const char *path;   /* NULL: the user's memory */
    const char *name;   /* in messages, where there is no path; or NULL */
};

aclError modelfile_open(const char *path, ModelFile *file);
void modelfile_close(ModelFile *file);
/* Reads and prepares; 100013 with a message that names file and node. If the node
   loop cannot run the model and ONNX Runtime is there, *ort is a session of it (ort_free). */
aclError modelfile_parse(const ModelFile *file, Net *net, Gears *gears, struct OrtModel **ort);

/* --- bundle.c --- */

aclError bundle_load(uint32_t id, size_t index, const Memories *memories, uint32_t *model);

/* --- dataset.c --- */

typedef struct DatasetEntry {
    aclDataBuffer *buffer;
    aclTensorDesc *desc;    /* the dataset's own: a copy of the user's, or made by a run */
} DatasetEntry;

struct aclmdlDataset {
    DatasetEntry *entries;
    size_t count, room;
    int64_t gear[GEAR_VALUES_MAX];  /* what aclmdlSetDynamic... chose */
    int gear_values;
};

/* --- modelrun.c --- */

typedef enum RunMode { RUN_ASYNC, RUN_SYNC } RunMode;

aclError model_run(Model *model, Stream *stream, const Source *source, RunMode mode,
    const aclmdlDataset *input, aclmdlDataset *output);

/* Gives back the blocks of runs that failed, all or those of one pool. */
void model_leftovers_give(Model *model, const Pool *only);

/* --- modelshape.c --- */

/* The outputs' types and shapes for inputs of a gear, or of the declared shapes if `gear_values` is
   0; computes nothing but shape arithmetic. False if they depend on data or are not known. */
bool model_output_shapes(
    const Model *model, const int64_t *gear, int gear_values, Tensor *outputs);

/* Fills model->geared, with rank -1 for what is not known; 0 gears need nothing. */
aclError model_gears_infer(Model *model);

/* The shape of an output under a gear, or of the gear that makes it largest if `gear` is -1; NULL if
   it is not known. */
const Tensor *model_geared_output(const Model *model, int gear, int output);

/* --- modelio.c --- */

/* The declared shape of an input under a gear; -1 where it is not known. */
void model_input_dims(
    const Model *model, int input, const int64_t *gear, int gear_values, Tensor *tensor);

#endif
