/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of whole files as one record. */
#include "pipeline/formats/format.h"
#include "pipeline/formats/file_contents.h"

#define MOST_BYTES ((int64_t)1 << 32)

static mr_code start(mr_reader *r, const void *own, mr_status *st)
{
    (void)own;
    return mr__reader_keep_path(r, st);
}

/* An error in the bytes names the file; a record number would add nothing. */
static void set_origin(mr_reader *r)
{
    const mr_origin o = {.path = r->path, .at = r->in.at, .offset = -1, .record = -1};
    mr_buffer_set_origin(r->in.chunk, &o);
}

static mr_code read_all(mr_reader *r, mr_status *st)
{
    for (;;) {
        size_t have = (size_t)(r->in.end - r->in.at), need = 2 * have + 1;
        if (r->in.size > MOST_BYTES || (int64_t)have > MOST_BYTES)
            return mr_fail(
                st, MR_RESOURCE_EXHAUSTED,
                "the file has more than 4 GiB, too much for one string; read it in records");
        if (r->in.size >= 0 && (size_t)r->in.size > have)
            need = (size_t)r->in.size;
        mr_code rc = mr__byte_stream_fill(&r->in, need, st);
        if (rc != MR_OK)
            return rc == MR_END ? MR_OK : rc;
    }
}

static mr_code read(mr_reader *r, size_t want, size_t max_bytes, mr_array *out, mr_status *st)
{
    mr_array a;
    (void)want;
    (void)max_bytes;
    if (r->record > 0) {
        r->ended = true;
        return MR_END;
    }
    mr_code rc = read_all(r, st);
    if (rc != MR_OK)
        return rc == MR_CANCELLED ? rc : mr__reader_give_up(r, rc, st);
    MR_TRY(mr_array_alloc(&a, MR_STRING, 0, NULL, 1, st));
    size_t n = (size_t)(r->in.end - r->in.at);
    *(mr_bytes *)a.data = (mr_bytes){(const char *)r->in.at, n};
    set_origin(r); /* an empty file has a chunk too, for its errors to name it */
    rc = mr__reader_emit(r, &a, 1, out, st);
    if (rc == MR_OK) {
        r->in.at = r->in.end;
        r->record = 1;
    }
    return rc;
}

const mr_format mr__format_contents = {
    .reader_size = sizeof(mr_reader), .start = start, .read = read};
