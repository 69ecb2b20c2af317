/* modelrun.h: the interface between the files of the node loop (modelrun.c, modelcontrol.c,
   modelsequence.c, modelio.c, modeltask.c). */
#ifndef SIM_MODELRUN_H
#define SIM_MODELRUN_H

#include "models/model.h"

/* A block in which one or several values lie. */
typedef struct Hold {
    Block block;
    int users;
} Hold;

typedef struct Sequence Sequence;

/* A value during a run. */
typedef struct Slot {
    Tensor tensor;      /* data is the device address, NULL while only the host has the value */
    const void *host;   /* the value on the host, NULL if only the device has it */
    Hold *hold;         /* the block behind tensor.data; NULL if the run does not own that memory */
    Sequence *sequence; /* not NULL: the value is a sequence and not a tensor */
    int output;         /* index among the model's outputs; -1 = the value is not an output */
} Slot;

/* Host memory that queued kernels read: freed with the run. */
typedef struct Owned {
    struct Owned *next;
    void *data;
} Owned;

typedef struct Run {
    _Atomic int references; /* number of users: the call, and each queued kernel */
    Model *model;
    const Net *net;
    Stream *stream;
    Source source;
    RunMode mode;
    Slot *slots;
    DatasetEntry *outputs;  /* the user's dataset; valid only during the call */
    Owned *owned;
} Run;

/* Arrays that all nodes of a run use, one node after another. */
typedef struct NodeScratch {
    Tensor *views, *outputs;
    const Tensor **inputs;
    char message[OP_MESSAGE_ROOM];
} NodeScratch;

void run_release(Run *run);
/* Makes the run free `data` at its end; if that cannot be stored, frees it at once and fails. */
aclError run_own(Run *run, void *data);
/* Makes `to` share the value of `from`, whose memory then has one more user. */
void slot_share(Run *run, Slot *to, const Slot *from);
/* Empties a slot and frees its block if it was the last user; after a failure the model keeps the
   block. */
void slot_drop(Run *run, Slot *slot, bool good);

/* Sets a value to its state before a run: empty, or a constant of the model. */
void slot_reset(Run *run, int value);

/* Allocates memory for a value. hold_drop by the last user frees the block. */
aclError hold_take(Run *run, size_t bytes, Hold **hold);
void hold_drop(Hold **hold);
/* Ends a Hold of a run that failed: the model keeps the block until its next run. */
void hold_leave(Run *run, Hold **hold);

/* Takes memory for one output of a node and fills its slot: the user's buffer if it is an output
   of the model, else a block. */
aclError output_place(Run *run, const NetNode *node, int i, Tensor *tensor);

/* Runs the nodes of a body in order; its outputs keep their blocks. */
aclError body_run(Run *run, const Body *body);

aclError node_fail(const Run *run, const NetNode *node, aclError code, const char *message);

/* --- modelcontrol.c --- */

/* Runs an If, a Loop or a Scan: one of the branches, or the body once for each iteration. */
aclError control_run(Run *run, const NetNode *node);

/* number_read gives the single number in a value; value_look gives a value that the host can
   read. Both wait for the stream if a kernel computes the value. */
aclError number_read(Run *run, const NetNode *node, int value, int64_t *number);
aclError value_look(Run *run, int value, Tensor *view);

/* Makes a host copy of a value, which the run frees. */
aclError host_copy(Run *run, const void *data, size_t bytes, const void **host);

/* --- modelsequence.c --- */

aclError sequence_run(Run *run, const NetNode *node);
void sequence_share(Sequence *sequence);
void sequence_drop(Run *run, Sequence **sequence, bool good);

/* --- modeltask.c --- */

/* Queues one node's kernel; the outputs have their addresses already. */
aclError node_submit(
    Run *run, const NetNode *node, const Tensor *outputs, void *workspace, size_t workspace_bytes);

/* Queues a copy within the device, or from host memory that the run owns. */
aclError run_copy(Run *run, void *to, const void *from, size_t bytes);

/* A copy of `rows` rows of `bytes` bytes. The rows are `to_pitch` bytes apart in the target,
   `from_pitch` bytes in the source. */
typedef struct Rows {
    size_t rows, bytes;
    char *to;
    size_t to_pitch;
    const char *from;
    size_t from_pitch;
} Rows;

aclError run_copy_rows(Run *run, const Rows *copy);

/* True if the stream whose task is running on this thread is being aborted or destroyed. */
bool stream_interrupted(void);

/* --- modelio.c --- */

aclError inputs_bind(Run *run, const aclmdlDataset *input);
aclError outputs_bind(Run *run, aclmdlDataset *output);

/* Returns 145000 unless the user's buffer has room for an output. */
aclError output_check(const Run *run, int output, size_t bytes);

/* Queues copies for the outputs that no kernel wrote in place, and writes the descriptions of all
   outputs. */
aclError outputs_finish(Run *run);

#endif
