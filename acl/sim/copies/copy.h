/* The copy task and its checks: the interface for the files of this folder. */
#ifndef SIM_COPY_H
#define SIM_COPY_H

#include "memory/memory.h"

/* The bytes that a copy moves: one or more rows. */
typedef struct Copy {
    void *dst;
    const void *src;
    size_t dst_pitch, src_pitch;
    size_t width, height; /* bytes in a row, and number of rows; the pitches are ignored if there is one row */
} Copy;

/* The results of memory_check for the destination and the source of a copy. */
typedef struct CopyEnds {
    Seen dst, src;
} CopyEnds;

/* Computes the length in bytes from the first byte of the first row to the last byte of the last one. False on
 * overflow. */
bool copy_span(size_t pitch, size_t width, size_t height, size_t *span);
/* Sets the rate of the link: a copy between host and device then takes at least its bytes divided by the rate.
 * 0: copies are not slowed. */
void copy_rate_choose(uint64_t bytes_per_us);
/* Returns 107000 if not all bytes of the source can be read, if not all bytes of the destination can be written, or if
 * a pitch times the height overflows. Fills in `ends`. */
aclError copy_check(const char *function, const Copy *copy, CopyEnds *ends);
/* Moves the bytes, in a task. Returns 507013 if the memory of the source or of the destination was unmapped since the
 * task was queued. */
aclError copy_move(Stream *stream, const Copy *copy);
/* Moves the bytes on the calling thread. The caller has called copy_check. */
void copy_now(const char *function, const Copy *copy, const CopyEnds *ends);
/* Queues the copy on the stream.  If source or destination is host memory that is neither pinned nor registered, waits
 * for the stream instead and copies on the calling thread, as the runtime does.  A call from a task of this stream
 * always queues the copy, because it cannot wait for its own stream. */
aclError copy_submit(const char *function, Stream *stream, const Copy *copy, const CopyEnds *ends);
/* Saves the bytes of the source, which must be one row, and queues a copy of the saved bytes: the caller may change the
 * source immediately. Never waits for the stream. */
aclError copy_submit_staged(Stream *stream, const Copy *copy, const CopyEnds *ends);

#endif
