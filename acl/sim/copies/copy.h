/* Copies, as the files of their several forms share them. */
#ifndef SIM_COPY_H
#define SIM_COPY_H

#include "memory/memory.h"

/* One row or more of bytes to move. */
typedef struct Copy {
    void *dst;
    const void *src;
    size_t dst_pitch, src_pitch;
    size_t width, height; /* height 1: the pitches mean nothing */
} Copy;

/* What a copy's two ends are. */
typedef struct CopyEnds {
    Seen dst, src;
} CopyEnds;

/* Bytes from an end's first to its last; false on overflow. */
bool copy_span(size_t pitch, size_t width, size_t height, size_t *span);
/* 107000 unless both ends may be touched throughout. */
aclError copy_check(const char *function, const Copy *copy, CopyEnds *ends);
/* Moves the bytes in a task; 507013 if an end is not there (any more). */
aclError copy_move(Stream *stream, const Copy *copy);
/* Moves them for the host itself, in the calling thread, after copy_check. */
void copy_now(const char *function, const Copy *copy, const CopyEnds *ends);
/* As a task of the stream.  If an end is host memory that is neither pinned nor registered, waits
 * for the stream and copies at once, as the runtime does. */
aclError copy_submit(const char *function, Stream *stream, const Copy *copy, const CopyEnds *ends);
/* As copy_submit, but the source's bytes are copied now, so that the caller may change them at
   once. */
aclError copy_submit_staged(Stream *stream, const Copy *copy, const CopyEnds *ends);

#endif
