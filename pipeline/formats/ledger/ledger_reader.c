/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "pipeline/crc32c.h"
#include "pipeline/bytes.h"
#include "pipeline/formats/ledger/ledger.h"
#include "pipeline/formats/ledger/ledger_format.h"
#include "pipeline/formats/ledger/ledger_names.h"
#include "pipeline/formats/compression_libraries.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/retry.h"
#include "pipeline/varint.h"

struct mr_ledger_reader {
    int fd;
    char *path;
    bool steps, ended;
    int64_t offset; /* of the current chunk, or of the next one */
    mr__ledger_names names;
    mr_identity last;
    mr_identity *ids;
    size_t ids_room;
    int64_t number; /* of the next entry */
    unsigned char *chunk;
    size_t chunk_room, at, n; /* chunk_room: of chunk; at, n: in text */
    unsigned char text[MR__LEDGER_TEXT];
};

static mr_code damaged(const mr_ledger_reader *r, const char *what, mr_status *st)
{
    mr_fail(st, MR_DATA_LOSS, "damaged ledger: %s", what);
    mr_status_at(st, r->path, r->offset, -1);
    return MR_DATA_LOSS;
}

static mr_code cut_short(const mr_ledger_reader *r, mr_status *st)
{
    mr_fail(
        st, MR_DATA_LOSS,
        "the ledger stops after %" PRId64
        " entries, without its end: the run that wrote it was killed, or the file was truncated",
        r->number);
    mr_status_at(st, r->path, r->offset, -1);
    return MR_DATA_LOSS;
}

/* Reads up to n bytes, *got of them; fewer only at the end of the file. */
static mr_code read_up_to(const mr_ledger_reader *r, void *to, size_t n, size_t *got, mr_status *st)
{
    ssize_t k = mr__read_all(r->fd, to, n, -1);
    *got = k < 0 ? 0 : (size_t)k;
    return k < 0 ? mr_fail_errno(st, errno, "%s: cannot read the ledger", r->path) : MR_OK;
}

static mr_code check_end(mr_ledger_reader *r, mr_status *st)
{
    unsigned char more;
    size_t got;
    MR_TRY(read_up_to(r, &more, 1, &got, st));
    if (got)
        return damaged(r, "bytes follow its end", st);
    r->ended = true;
    return MR_END;
}

/* Reads the next chunk into r->text. MR_END: no more chunks. */
static mr_code read_chunk(mr_ledger_reader *r, mr_status *st)
{
    unsigned char head[MR__LEDGER_CHUNK];
    size_t got;
    if (r->ended)
        return MR_END;
    MR_TRY(read_up_to(r, head, sizeof head, &got, st));
    if (got < sizeof head)
        return cut_short(r, st);
    uint64_t size = mr__load_le(head, 4), n = mr__load_le(head + 4, 4);
    if (size > r->chunk_room || n > MR__LEDGER_TEXT || !size != !n)
        return damaged(r, "a chunk has impossible sizes", st);
    MR_TRY(read_up_to(r, r->chunk, size, &got, st));
    if (got < size)
        return cut_short(r, st);
    uint32_t crc = mr_crc32c_extend(mr_crc32c(head, 8), r->chunk, size);
    if (mr_crc32c_mask(crc) != mr__load_le(head + 8, 4))
        return damaged(r, "the checksum of a chunk does not match", st);
    if (!size)
        return check_end(r, st);
    size_t made = mr__zstd.ZSTD_decompress(r->text, MR__LEDGER_TEXT, r->chunk, size);
    if (mr__zstd.ZSTD_isError(made) || made != n)
        return damaged(r, "a chunk cannot be decompressed", st);
    r->offset += MR__LEDGER_CHUNK + (int64_t)size;
    r->at = 0;
    r->n = n;
    return MR_OK;
}

/* MR_END: no more bytes. */
static mr_code get_byte(mr_ledger_reader *r, unsigned char *b, mr_status *st)
{
    if (r->at == r->n)
        MR_TRY(read_chunk(r, st));
    *b = r->text[r->at++];
    return MR_OK;
}

/* Turns MR_END into an error, because an entry must be complete. */
static mr_code inside(const mr_ledger_reader *r, mr_code rc, mr_status *st)
{
    return rc == MR_END ? damaged(r, "it ends within an entry", st) : rc;
}

static mr_code get_number(mr_ledger_reader *r, uint64_t *v, mr_status *st)
{
    unsigned char b;
    *v = 0;
    for (int i = 0; i < 10; i++) {
        mr_code rc = get_byte(r, &b, st);
        if (rc != MR_OK)
            return i ? inside(r, rc, st) : rc;
        *v |= (uint64_t)(b & 127) << 7 * i;
        if (b < 128)
            return i == 9 && b > 1 ? damaged(r, "a number has more than 64 bits", st) : MR_OK;
    }
    return damaged(r, "a number has more than 64 bits", st);
}

static mr_code add_difference(mr_ledger_reader *r, uint64_t *v, mr_status *st)
{
    uint64_t d;
    MR_TRY(inside(r, get_number(r, &d, st), st));
    *v += (uint64_t)mr__unzigzag(d);
    return MR_OK;
}

static mr_code get_record(mr_ledger_reader *r, mr_identity *id, mr_status *st)
{
    MR_TRY(add_difference(r, &r->last.source, st));
    MR_TRY(add_difference(r, &r->last.file, st));
    MR_TRY(add_difference(r, &r->last.ordinal, st));
    MR_TRY(add_difference(r, &r->last.epoch, st));
    *id = r->last;
    return MR_OK;
}

static mr_code get_name(mr_ledger_reader *r, mr_status *st)
{
    uint64_t source, file, size;
    char name[MR__LEDGER_NAME];
    const mr__ledger_file *added;
    MR_TRY(inside(r, get_number(r, &source, st), st));
    MR_TRY(inside(r, get_number(r, &file, st), st));
    MR_TRY(inside(r, get_number(r, &size, st), st));
    if (size > sizeof name || mr__ledger_names_find(&r->names, source, file))
        return damaged(r, "a name is too long, or the second of a file", st);
    for (size_t i = 0; i < size; i++)
        MR_TRY(inside(r, get_byte(r, (unsigned char *)&name[i], st), st));
    return mr__ledger_names_add(&r->names, source, file, name, size, &added, st);
}

static mr_code get_entry(mr_ledger_reader *r, uint64_t n, mr_ledger_entry *out, mr_status *st)
{
    if (n > MR__LEDGER_RECORDS)
        return damaged(r, "an entry has too many records", st);
    for (size_t i = 0; i < n; i++) {
        MR_TRY(
            MR_GROW(r->ids, r->ids_room, i + 1, MR__LEDGER_RECORDS, "the records of an entry", st));
        MR_TRY(get_record(r, &r->ids[i], st));
    }
    *out = (mr_ledger_entry){r->number++, n, r->ids};
    return MR_OK;
}

mr_code mr_ledger_next(mr_ledger_reader *r, mr_ledger_entry *out, mr_status *st)
{
    uint64_t n;
    do {
        MR_TRY(get_number(r, &n, st));
        if (n == 0)
            MR_TRY(get_name(r, st));
    } while (n == 0);
    return get_entry(r, n - 1, out, st);
}

static mr_code read_header(mr_ledger_reader *r, mr_status *st)
{
    unsigned char h[MR__LEDGER_HEADER];
    size_t got;
    r->fd = mr__sys->open(r->path, O_RDONLY | O_CLOEXEC, 0);
    if (r->fd < 0)
        return mr_fail_errno(st, errno, "%s: cannot open the ledger", r->path);
    MR_TRY(read_up_to(r, h, sizeof h, &got, st));
    if (got < sizeof h || memcmp(h, MR__LEDGER_MAGIC, 8) != 0)
        return mr_fail(st, MR_DATA_LOSS, "%s: not a ledger: it does not start with %s", r->path,
                       MR__LEDGER_MAGIC);
    if (h[8] != MR__LEDGER_VERSION)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "%s: a ledger of version %d; this program reads version %d", r->path, h[8],
                       MR__LEDGER_VERSION);
    for (int i = 9; i < MR__LEDGER_HEADER; i++)
        if (h[i] > (i == 9))
            return damaged(r, "invalid header", st);
    r->steps = h[9];
    r->offset = MR__LEDGER_HEADER;
    return MR_OK;
}

mr_code mr_ledger_open(const char *path, mr_ledger_reader **out, mr_status *st)
{
    MR_TRY(mr__zstd_need(st));
    mr_ledger_reader *r = mr_calloc(1, sizeof *r);
    if (!r)
        return mr_fail_memory(st, sizeof *r, "a reader of ledgers");
    r->fd = -1;
    r->last.ordinal = UINT64_MAX;
    r->chunk_room = mr__zstd.ZSTD_compressBound(MR__LEDGER_TEXT);
    r->path = mr_memdup(path, strlen(path) + 1);
    r->chunk = mr_malloc(r->chunk_room);
    mr_code rc = r->path && r->chunk ? read_header(r, st)
                                     : mr_fail_memory(st, r->chunk_room, "a reader of ledgers");
    if (rc == MR_OK)
        *out = r;
    else
        mr_ledger_reader_close(r);
    return rc;
}

bool mr_ledger_is_of_steps(const mr_ledger_reader *r)
{
    return r->steps;
}

const char *mr_ledger_name_of(const mr_ledger_reader *r, const mr_identity *id)
{
    return mr__ledger_names_find(&r->names, id->source, id->file);
}

void mr_ledger_reader_close(mr_ledger_reader *r)
{
    if (!r)
        return;
    if (r->fd >= 0)
        mr__sys->close(r->fd);
    mr__ledger_names_reset(&r->names);
    mr_free(r->path);
    mr_free(r->ids);
    mr_free(r->chunk);
    mr_free(r);
}
