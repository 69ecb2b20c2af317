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

/* What memory_check found for the destination and the source of a copy. */
typedef struct CopyEnds {
    Seen dst, src;
} CopyEnds;

/* Computes the length in bytes from the first byte of the first row to the last byte of the last one. False on
 * overflow. */
bool copy_span(size_t pitch, size_t width, size_t height, size_t *span);
/* Sets the rate of the link: a copy between host and device then takes at least its bytes divided by the rate.
 * 0: copies are not slowed. */
void copy_rate_choose(uint64_t bytes_per_us);
/* Returns 107000 unless all bytes of source and destination are accessible. Fills in `ends`. */
aclError copy_check(const char *function, const Copy *copy, CopyEnds *ends);
/* Moves the bytes, in a task. Returns 507013 if source or destination is not accessible any more. */
aclError copy_move(Stream *stream, const Copy *copy);
/* Moves the bytes on the calling thread. The caller has called copy_check. */
void copy_now(const char *function, const Copy *copy, const CopyEnds *ends);
/* Queues the copy on the stream.  If source or destination is host memory that is neither pinned nor registered, waits
 * for the stream and copies on the calling thread, as the runtime does. */
aclError copy_submit(const char *function, Stream *stream, const Copy *copy, const CopyEnds *ends);
/* Like copy_submit, but saves the source's bytes first, so that the caller may change them immediately. */
aclError copy_submit_staged(Stream *stream, const Copy *copy, const CopyEnds *ends);

#endif
