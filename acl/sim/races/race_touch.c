/* race_touch.c: builds an operation from what a task states: its steps, and the bytes of each.
 *
 * Thread rule: an operation belongs to the thread that builds it until it is submitted; the boxes of
 * events are exchanged under race_lock. */
#include "base/checks.h"
#include "numbers/tensor.h"
#include "races/race_inside.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS_MOST = 65536 }; /* rows of a copy that are noted one by one; the rest is one range */

RaceMemory race_memory;

/* ---- operations ---------------------------------------------------------------------------------- */

static void *grown(void *array, size_t *room, size_t size)
{
    size_t more = *room * 2 + 4;
    void *made = realloc(array, more * size);
    if (made == NULL) {
        race_give_up("out of host memory");
        return NULL;
    }
    *room = more;
    return made;
}

RaceStep *touch_step(Touch *touch)
{
    RaceOp *op = touch->op;
    if (op->step_count == op->step_room) {
        RaceStep *more = grown(op->steps, &op->step_room, sizeof *more);
        if (more == NULL) {
            return NULL;
        }
        op->steps = more;
    }
    RaceStep *step = &op->steps[op->step_count++];
    *step = (RaceStep){.thread = touch->thread, .first = op->byte_count};
    touch->step = op->step_count;
    return step;
}

/* Returns the step that is being built, and gives it a task if it has none. */
static RaceStep *step_here(Touch *touch)
{
    RaceStep *step = touch->step != 0 ? &touch->op->steps[touch->step - 1] : touch_step(touch);
    if (step != NULL && step->task == NULL) {
        step->task = malloc(sizeof *step->task);
        if (step->task == NULL) {
            race_give_up("out of host memory");
            return NULL;
        }
        *step->task = (RaceTask){.refs = 1, .name = touch->name, .site = touch->site,
                                 .stream = touch->stream, .device = touch->device,
                                 .number = touch->number};
    }
    return step;
}

void task_unuse(RaceTask *task)
{
    if (task != NULL && --task->refs == 0) {
        free(task);
    }
}

void op_free(RaceOp *op)
{
    for (size_t i = 0; i < op->step_count; i++) {
        task_unuse(op->steps[i].task);
        box_unuse(op->steps[i].after);
        box_unuse(op->steps[i].place);
    }
    free(op->steps);
    free(op->bytes);
    clock_free(&op->host);
    free(op);
}

/* ---- from addresses to bytes --------------------------------------------------------------------- */

static void bytes_add(void *context, const RaceBytes *bytes)
{
    RaceOp *op = context;
    if (op->byte_count == op->byte_room) {
        RaceBytes *more = grown(op->bytes, &op->byte_room, sizeof *more);
        if (more == NULL) {
            return;
        }
        op->bytes = more;
    }
    op->bytes[op->byte_count++] = *bytes;
}

static void touch_unchecked(Touch *touch, const void *address, size_t bytes, TouchKind kind)
{
    RaceStep *step = step_here(touch);
    if (step != NULL) {
        race_memory.resolve(address, bytes, kind, bytes_add, touch->op);
        step->count = touch->op->byte_count - step->first;
    }
}

void touch_bytes(Touch *touch, const void *address, size_t bytes, TouchKind kind)
{
    if (check_on(CHECK_MEM)) {
        checks.access(touch->name, address, bytes, kind == TOUCH_WRITE);
    }
    touch_unchecked(touch, address, bytes, kind);
}

void touch_rows(Touch *touch, const void *address, size_t pitch, size_t bytes, size_t rows,
                TouchKind kind)
{
    if (rows <= 1 || pitch == bytes) {
        touch_bytes(touch, address, rows == 0 ? 0 : bytes * rows, kind);
        return;
    }
    for (size_t i = 0; i < rows && i < ROWS_MOST; i++) {
        touch_bytes(touch, (const char *)address + i * pitch, bytes, kind);
    }
    if (rows > ROWS_MOST && kind == TOUCH_WRITE) {
        /* TOUCH_USE: the bytes between the rows are not written, so this conflicts with writes only */
        touch_unchecked(touch, (const char *)address + ROWS_MOST * pitch, (rows - ROWS_MOST - 1) * pitch + bytes, TOUCH_USE);
    }
}

void touch_tensor(Touch *touch, const Tensor *tensor, TouchKind kind)
{
    if (tensor->rank >= 0 && tensor->data != NULL) {
        touch_bytes(touch, tensor->data, (size_t)tensor_bytes(tensor), kind);
    }
}

void touch_pointers(Touch *touch, const void *words, size_t bytes)
{
    for (size_t at = 0; at + sizeof(uintptr_t) <= bytes; at += sizeof(uintptr_t)) {
        uintptr_t word;
        memcpy(&word, (const char *)words + at, sizeof word);
        if (check_on(CHECK_MEM)) {
            checks.pointer(touch->name, word);
        }
        size_t reach = word == 0 ? 0 : race_memory.reach(word);
        if (reach != 0) {
            touch_unchecked(touch, (const void *)word, reach, TOUCH_USE);
        }
    }
}

/* ---- order --------------------------------------------------------------------------------------- */

/* Adds a step without a task, so that the next bytes belong to another step. */
static RaceStep *order_step(Touch *touch)
{
    RaceStep *step = touch_step(touch);
    touch->step = 0;
    return step;
}

void touch_record(Touch *touch, RaceBox **box)
{
    RaceStep *step = order_step(touch);
    if (step == NULL) {
        return;
    }
    pthread_mutex_lock(&race_lock);
    RaceBox *made = box_new();
    if (made != NULL) {
        box_unuse(*box);
        *box = made;
        step->place = box_use(made);
    }
    pthread_mutex_unlock(&race_lock);
}

void touch_share(RaceBox **box, RaceBox *const *other)
{
    pthread_mutex_lock(&race_lock);
    if (*box == NULL && *other != NULL) {
        *box = box_use(*other);
    }
    pthread_mutex_unlock(&race_lock);
}

bool touch_wait(Touch *touch, RaceBox *const *box)
{
    RaceStep *step = order_step(touch);
    pthread_mutex_lock(&race_lock);
    bool found = *box != NULL;
    if (step != NULL && found) {
        step->after = box_use(*box);
    }
    pthread_mutex_unlock(&race_lock);
    return found;
}

void touch_late(Touch *touch)
{
    touch->op->late = touch->op->marked = true;
}

void touch_marked(Touch *touch)
{
    touch->op->marked = true;
}

void touch_choice(Touch *touch)
{
    touch->op->choice = true;
}
