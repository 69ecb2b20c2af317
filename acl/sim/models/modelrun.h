/* modelrun.h: what the files of the node loop share (modelrun.c, modelcontrol.c,
   modelsequence.c, modelio.c, modeltask.c). */
#ifndef SIM_MODELRUN_H
#define SIM_MODELRUN_H

#include "models/model.h"

/* A block that one or several values lie in. */
typedef struct Hold {
    Block block;
    int users;
} Hold;

typedef struct Sequence Sequence;

/* A value during a run. */
typedef struct Slot {
    Tensor tensor;      /* data is the device address, NULL while only the host has the value */
    const void *host;   /* the value on the host, NULL if only the device has it */
    Hold *hold;         /* the block behind tensor.data, NULL if it is not the run's */
    Sequence *sequence; /* then it is not a tensor */
    int output;         /* which output of the model it is, -1 none */
} Slot;

/* Host memory that queued kernels read: freed with the run. */
typedef struct Owned {
    struct Owned *next;
    void *data;
} Owned;

typedef struct Run {
    _Atomic int references; /* the call's, and one per queued kernel */
    Model *model;
    const Net *net;
    Stream *stream;
    Source source;
    RunMode mode;
    Slot *slots;
    DatasetEntry *outputs;  /* of the user's dataset; only during the call */
    Owned *owned;
} Run;

/* Arrays that each node of the run uses in turn. */
typedef struct NodeScratch {
    Tensor *views, *outputs;
    const Tensor **inputs;
    char message[OP_MESSAGE_ROOM];
} NodeScratch;

void run_release(Run *run);
/* Host memory that the run frees in the end; freed at once if that cannot be remembered. */
aclError run_own(Run *run, void *data);
/* Makes `to` the same value as `from`; the memory behind it has one more user. */
void slot_share(Run *run, Slot *to, const Slot *from);
/* Gives up what is behind a slot; after a failure the model keeps the blocks. */
void slot_drop(Run *run, Slot *slot, bool good);

/* Makes a value as it is before a run: without a block, or a constant where the model has it. */
void slot_reset(Run *run, int value);

/* Memory for a value. hold_drop by the last of its users frees the block. */
aclError hold_take(Run *run, size_t bytes, Hold **hold);
void hold_drop(Hold **hold);
/* The end of one in a run that failed: the model keeps the block until its next run. */
void hold_leave(Run *run, Hold **hold);

/* Memory for one output of a node, and its slot: the user's buffer if it is an output of the model,
   else a block. */
aclError output_place(Run *run, const NetNode *node, int i, Tensor *tensor);

/* Runs the nodes of a body in order; its outputs keep their blocks. */
aclError body_run(Run *run, const Body *body);

aclError node_fail(const Run *run, const NetNode *node, aclError code, const char *message);

/* --- modelcontrol.c --- */

/* Runs an If, a Loop or a Scan: their bodies, as often as they say. */
aclError control_run(Run *run, const NetNode *node);

/* The one number that a value is, and a value where the host can read it; both wait for the stream
   if a kernel makes it. */
aclError number_read(Run *run, const NetNode *node, int value, int64_t *number);
aclError value_look(Run *run, int value, Tensor *view);

/* A host value that the run owns. */
aclError host_copy(Run *run, const void *data, size_t bytes, const void **host);

/* --- modelsequence.c --- */

aclError sequence_run(Run *run, const NetNode *node);
void sequence_share(Sequence *sequence);
void sequence_drop(Run *run, Sequence **sequence, bool good);

/* --- modeltask.c --- */

/* Queues one node's kernel; outputs have their addresses. */
aclError node_submit(
    Run *run, const NetNode *node, const Tensor *outputs, void *workspace, size_t workspace_bytes);

/* Queues a copy within the device, or from host memory that the run owns. */
aclError run_copy(Run *run, void *to, const void *from, size_t bytes);

/* The same for `rows` rows of `bytes`, each `pitch` after the one before. */
typedef struct Rows {
    size_t rows, bytes;
    char *to;
    size_t to_pitch;
    const char *from;
    size_t from_pitch;
} Rows;

aclError run_copy_rows(Run *run, const Rows *copy);

/* True if the stream whose task this thread runs is being aborted or destroyed. */
bool stream_interrupted(void);

/* --- modelio.c --- */

aclError inputs_bind(Run *run, const aclmdlDataset *input);
aclError outputs_bind(Run *run, aclmdlDataset *output);

/* 145000 unless the user's buffer has room for an output. */
aclError output_check(const Run *run, int output, size_t bytes);

/* Queues copies for outputs that no kernel wrote in place, and describes all of them. */
aclError outputs_finish(Run *run);

#endif
