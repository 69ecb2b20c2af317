/* model.h: loaded models, and the datasets and descriptions of their inputs and outputs.

   A model is found by its number. It is freed when it has been unloaded and its last queued work is
   done. Only its device memory from a user's allocator is freed earlier, at the unload. */
#ifndef SIM_MODEL_H
#define SIM_MODEL_H

#include "onnx/graph_ir.h"
#include "tensors/memory_source.h"
#include "tensors/tensordesc.h"

enum { GEARS_MAX = 128, GEAR_VALUES_MAX = 64 };

/* The kind of a model's gears. A gear is one of the sizes that a model was made for: a batch size,
   an image size, or a list of all dimensions. */
typedef enum GearKind { GEARS_NONE, GEARS_BATCH, GEARS_SIZE, GEARS_DIMS } GearKind;

typedef struct Gears {
    GearKind kind;
    int count;
    int values;                               /* number of values in each gear */
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
    struct Model *newer, *older; /* list of the loaded models; guarded by the lock of model.c's table */
    Net net;
    Gears gears;
    struct OrtModel *ort;   /* ONNX Runtime's session, if the node loop cannot run the model */
    void **addresses;       /* device address of each value that is a constant on the device, else NULL */
    void *weights;
    size_t weight_bytes;
    bool weights_owned;
    bool bundled;           /* the model belongs to a bundle, which unloads it */
    int32_t priority;
    pthread_mutex_t lock;   /* guards the lists below; not held while a callback runs */
    PoolEntry *pools;
    Leftover *leftovers;    /* blocks of failed runs: freed by the next run or at the unload */
    Pool *idle_pool;        /* for synchronous runs; NULL while one of them uses it */
    Tensor *last;           /* the outputs' shapes of the newest run; rank -1 = none yet */
    Tensor *geared;         /* the outputs' shapes under each gear, one gear after another */
    _Atomic int gear;       /* index of the gear set last, in any dataset; -1 = none yet */
} Model;

/* --- model.c --- */

/* Gives the model of that number with a reference, or 145003. */
aclError model_find(uint32_t id, Model **model);
void model_release(Model *model);

/* Gives a number that no model has or will have, for a bundle; false if there is no memory. */
bool model_number(uint32_t *id);

typedef struct ModelFile ModelFile;

/* The user's memory for the weights; NULL = the model allocates its own. */
typedef struct Memories {
    void *weight;
    size_t weight_bytes;
} Memories;

aclError model_load(const ModelFile *file, const Memories *memories, bool bundled, uint32_t *id);
/* Unloads a model of a bundle. */
void model_unload(uint32_t id);
aclError model_sizes(const ModelFile *file, size_t *work, size_t *weight);

/* Returns the bytes of the constants on the device. */
size_t model_weight_bytes(const Net *net);

/* Returns the pool for a stream that has no registered allocator; the pool exists until the stream
   or the model ends. NULL if there is no memory. */
Pool *model_pool(Model *model, const Stream *stream);

/* --- modelfile.c --- */

struct ModelFile {
    void *bytes;        /* mapped memory if they are from a file */
    size_t length;
    const char *path;   /* NULL if the bytes are in the user's memory */
    const char *name;   /* shown in messages if `path` is NULL; it may be NULL too */
};

aclError modelfile_open(const char *path, ModelFile *file);
void modelfile_close(ModelFile *file);
/* Reads and prepares a model. On failure returns 100013, with a message that names the file and the
   node. If the node loop cannot run the model and ONNX Runtime is installed, *ort is a session of
   ONNX Runtime (ort_free). */
aclError modelfile_parse(const ModelFile *file, Net *net, Gears *gears, struct OrtModel **ort);

/* --- bundle.c --- */

aclError bundle_load(uint32_t id, size_t index, const Memories *memories, uint32_t *model);

/* --- dataset.c --- */

typedef struct DatasetEntry {
    aclDataBuffer *buffer;
    aclTensorDesc *desc;    /* belongs to the dataset: a copy of the user's, or made by a run */
} DatasetEntry;

struct aclmdlDataset {
    DatasetEntry *entries;
    size_t count, room;
    int64_t gear[GEAR_VALUES_MAX];  /* the values that aclmdlSetDynamic... chose */
    int gear_values;
};

/* --- modelrun.c --- */

typedef enum RunMode { RUN_ASYNC, RUN_SYNC } RunMode;

aclError model_run(Model *model, Stream *stream, const Source *source, RunMode mode,
    const aclmdlDataset *input, aclmdlDataset *output);

/* Frees the blocks that failed runs have left: all, or only those of one pool. */
void model_leftovers_give(Model *model, const Pool *only);

/* --- modelshape.c --- */

/* Gives the outputs' types and shapes for the inputs of a gear or, if `gear_values` is 0, for the
   declared inputs. Runs no kernel. False if the shapes depend on data or are not known. */
bool model_output_shapes(
    const Model *model, const int64_t *gear, int gear_values, Tensor *outputs);

/* Fills model->geared, with rank -1 for unknown shapes; does nothing if the model has no gears. */
aclError model_gears_infer(Model *model);

/* Returns the shape of an output under a gear; if `gear` is -1, under the gear for which the
   output is largest. NULL if it is not known. */
const Tensor *model_geared_output(const Model *model, int gear, int output);

/* --- modelio.c --- */

/* Gives the declared shape of an input under a gear; -1 for unknown dimensions. */
void model_input_dims(
    const Model *model, int input, const int64_t *gear, int gear_values, Tensor *tensor);

#endif
