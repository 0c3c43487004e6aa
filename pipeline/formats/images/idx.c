/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/images/idx.h"

#include <inttypes.h>
#include <string.h>

#include "pipeline/formats/byte_stream.h"

struct mr_idx_reader {
    mr__byte_stream in;
    mr_dtype dtype;
    int rank; /* of a row */
    int64_t rows, row, shape[MR_MAX_RANK];
    size_t row_bytes;
    bool ended;
};

static mr_code fail_here(mr_idx_reader *r, mr_code rc, mr_status *st)
{
    r->ended = true;
    mr_status_at(st, r->in.path, mr__byte_stream_offset(&r->in), r->rows > 0 ? r->row : -1);
    return rc;
}

/* Makes n bytes available at in.at. */
static mr_code have(mr_idx_reader *r, size_t n, const char *what, mr_status *st)
{
    while ((size_t)(r->in.end - r->in.at) < n) {
        mr_code rc = mr__byte_stream_fill(&r->in, n, st);
        if (rc == MR_END)
            rc = mr_fail(
                st, MR_DATA_LOSS,
                "truncated IDX file: %s needs %zu bytes here, but the file has only %td more", what,
                n, r->in.end - r->in.at);
        if (rc != MR_OK)
            return fail_here(r, rc, st);
    }
    return MR_OK;
}

static bool type_of(uint8_t code, mr_dtype *t)
{
    static const struct {
        uint8_t code;
        mr_dtype dtype;
    } types[] = {{0x08, MR_UINT8}, {0x09, MR_INT8},    {0x0B, MR_INT16},
                 {0x0C, MR_INT32}, {0x0D, MR_FLOAT32}, {0x0E, MR_FLOAT64}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].code == code) {
            *t = types[i].dtype;
            return true;
        }
    return false;
}

static mr_code read_dimensions(mr_idx_reader *r, int rank, mr_status *st)
{
    int64_t bytes = (int64_t)mr_dtype_size(r->dtype), all;
    MR_TRY(have(r, 4 * (size_t)rank, "the list of dimensions", st));
    for (int i = 0; i < rank; i++, r->in.at += 4) {
        int64_t d = (int64_t)((uint32_t)r->in.at[0] << 24 | (uint32_t)r->in.at[1] << 16 |
                              (uint32_t)r->in.at[2] << 8 | r->in.at[3]);
        if (i == 0) {
            r->rows = d;
            continue;
        }
        r->shape[i - 1] = d;
        if (__builtin_mul_overflow(bytes, d, &bytes))
            return fail_here(
                r, mr_fail(st, MR_DATA_LOSS, "not an IDX file: its dimensions overflow"), st);
    }
    r->rank = rank - 1;
    r->row_bytes = (size_t)bytes;
    int64_t left = r->in.size < 0 ? -1 : r->in.size - mr__byte_stream_offset(&r->in);
    if (__builtin_mul_overflow(bytes, r->rows, &all) || (left >= 0 && all != left))
        return fail_here(r,
                         mr_fail(st, MR_DATA_LOSS,
                                 "%s IDX file: %" PRId64 " rows of %" PRId64
                                 " bytes are announced, %" PRId64 " bytes follow",
                                 left < all ? "truncated" : "corrupted", r->rows, bytes, left),
                         st);
    return MR_OK;
}

static mr_code read_header(mr_idx_reader *r, mr_status *st)
{
    MR_TRY(have(r, 4, "its header", st));
    const uint8_t *p = r->in.at;
    if (p[0] || p[1] || !type_of(p[2], &r->dtype) || p[3] < 1 || p[3] > MR_MAX_RANK)
        return fail_here(
            r,
            mr_fail(st, MR_DATA_LOSS,
                    "not an IDX file: expected 00 00, a type of 08 to 0e and a rank of 1 "
                    "to %d, found %02x %02x %02x %02x",
                    MR_MAX_RANK, p[0], p[1], p[2], p[3]),
            st);
    int rank = p[3];
    r->in.at += 4;
    return read_dimensions(r, rank, st);
}

mr_code mr_idx_reader_open(mr_idx_reader **out, const char *path, mr_cancel *cancel, mr_status *st)
{
    const mr_file_opts o = {.compression = MR_COMPRESSION_DETECT, .cancel = cancel};
    mr_idx_reader *r = mr_calloc(1, sizeof *r);
    if (!r)
        return mr_fail_memory(st, sizeof *r, "an IDX reader");
    mr_code rc = mr__byte_stream_open(&r->in, path, &o, st);
    if (rc == MR_OK)
        rc = read_header(r, st);
    if (rc != MR_OK) {
        mr_idx_reader_close(r);
        return rc;
    }
    *out = r;
    return MR_OK;
}

void mr_idx_reader_close(mr_idx_reader *r)
{
    if (!r)
        return;
    mr__byte_stream_close(&r->in);
    mr_free(r);
}

mr_dtype mr_idx_reader_dtype(const mr_idx_reader *r)
{
    return r->dtype;
}

int64_t mr_idx_reader_rows(const mr_idx_reader *r)
{
    return r->rows;
}

const int64_t *mr_idx_reader_shape(const mr_idx_reader *r, int *rank)
{
    *rank = r->rank;
    return r->shape;
}

/* Converts big-endian values in place to the byte order of the host. */
static void to_host(void *data, size_t bytes, size_t size)
{
    uint8_t *p = data;
    if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ || size == 1)
        return;
    for (uint8_t *end = p + bytes; p < end; p += size)
        for (size_t i = 0; i < size / 2; i++) {
            uint8_t t = p[i];
            p[i] = p[size - 1 - i];
            p[size - 1 - i] = t;
        }
}

/* No bytes may follow the last row. */
static mr_code finish(mr_idx_reader *r, mr_status *st)
{
    mr_code rc = r->in.at < r->in.end ? MR_OK : mr__byte_stream_fill(&r->in, 1, st);
    r->ended = true;
    if (rc == MR_OK)
        rc = mr_fail(st, MR_DATA_LOSS, "corrupted IDX file: more bytes follow its %" PRId64 " rows",
                     r->rows);
    return rc == MR_END ? rc : fail_here(r, rc, st);
}

mr_code mr_idx_reader_read(mr_idx_reader *r, size_t want, mr_array *out, mr_status *st)
{
    if (r->ended)
        return MR_END;
    if (r->row == r->rows)
        return finish(r, st);
    /* At least one row; up to all rows in the window, or about a chunk of them. */
    size_t n = (size_t)(r->rows - r->row), there = SIZE_MAX;
    if (r->row_bytes) {
        MR_TRY(have(r, r->row_bytes, "a row", st));
        there = (size_t)(r->in.end - r->in.at) / r->row_bytes;
    }
    n = n < want ? n : want;
    n = n < there ? n : there;
    mr_array a = {0};
    MR_TRY(mr_array_alloc(&a, r->dtype, r->rank, r->shape, n, st));
    if (r->row_bytes) {
        memcpy(a.data, r->in.at, n * r->row_bytes);
        to_host(a.data, n * r->row_bytes, mr_dtype_size(r->dtype));
    }
    r->in.at += n * r->row_bytes;
    r->row += (int64_t)n;
    *out = a;
    return MR_OK;
}
