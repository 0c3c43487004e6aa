/* SPDX-License-Identifier: Apache-2.0 */
/* In memory an index has the compact form: an offset for each group of records, and for each record
 * its size less the part common to all sizes, in as few bytes as the largest needs. So an index of
 * records of equal size is tiny. */
#include "pipeline/formats/tfrecord/record_index_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/bytes.h"
#include "pipeline/crc32c.h"
#include "pipeline/files/atomic_file.h"
#include "pipeline/formats/tfrecord/tfrecord.h"
#include "pipeline/remote/object_ranges.h"
#include "pipeline/system/retry.h"

enum {
    GROUP = 64,
    HEADER = 40,
    FRAMING = 16,
    WANT = 4096,
    STRAY = 11, /* maximum bytes after the last record that are a clean end */
    LINE = 64
};
#define BLOCK_BYTES  ((size_t)1 << 20)
#define MOST_RECORDS (INT64_MAX / 16)

struct mr_record_index {
    uint64_t n, end;     /* end: after the last record */
    uint64_t common;     /* subtracted from each size */
    uint32_t width;      /* of an entry of sizes */
    uint8_t *offsets;    /* GROUP records each, 8 bytes */
    uint8_t *sizes;      /* n entries */
    size_t offsets_room; /* in entries */
    size_t sizes_room;   /* in bytes */
    uint64_t mark;       /* of the TFRecord file */
};

static const char magic[8] = "MRINDEX\1";

static uint64_t size_of(const mr_record_index *ix, uint64_t i)
{
    return ix->common + (ix->width ? mr__load_le(ix->sizes + i * ix->width, ix->width) : 0);
}

void mr_record_index_close(mr_record_index *ix)
{
    if (!ix)
        return;
    mr_free(ix->offsets);
    mr_free(ix->sizes);
    mr_free(ix);
}

int64_t mr_record_index_count(const mr_record_index *ix)
{
    return (int64_t)ix->n;
}

uint64_t mr__record_index_mark(const mr_record_index *ix)
{
    return ix->mark;
}

void mr_record_index_at(const mr_record_index *ix, int64_t i, int64_t *offset, int64_t *size)
{
    uint64_t k = (uint64_t)i, at = mr__load_le(ix->offsets + k / GROUP * 8, 8);
    at += k % GROUP * ix->common;
    if (ix->width) /* otherwise all sizes are equal */
        for (uint64_t j = k / GROUP * GROUP; j < k; j++)
            at += mr__load_le(ix->sizes + j * ix->width, ix->width);
    *offset = (int64_t)at;
    *size = (int64_t)size_of(ix, k);
}

/* ---- making ---- */

static mr_code new_index(mr_record_index **out, mr_status *st)
{
    *out = mr_calloc(1, sizeof **out);
    return *out ? MR_OK : mr_fail_memory(st, sizeof **out, "an index");
}

/* Changes the width of entries to `width` bytes over `common`, which must not exceed the old
 * one. */
static mr_code widen(mr_record_index *ix, uint64_t common, uint32_t width, mr_status *st)
{
    size_t room = (size_t)(ix->n + GROUP) * width;
    uint8_t *sizes = mr_malloc(room);
    if (!sizes)
        return mr_fail_memory(st, room, "an index");
    for (uint64_t i = 0; i < ix->n; i++)
        mr__store_le(sizes + i * width, size_of(ix, i) - common, width);
    mr_free(ix->sizes);
    ix->sizes = sizes;
    ix->sizes_room = room;
    ix->common = common;
    ix->width = width;
    return MR_OK;
}

static uint32_t width_for(uint64_t v)
{
    return v == 0 ? 0 : v <= UINT8_MAX ? 1 : v <= UINT16_MAX ? 2 : v <= UINT32_MAX ? 4 : 8;
}

/* Adds a record of that size. */
static mr_code add(mr_record_index *ix, uint64_t size, mr_status *st)
{
    if (ix->n == 0)
        ix->common = size;
    /* Sizes that differ have only the framing in common. */
    uint64_t common = size == ix->common ? ix->common : FRAMING;
    uint32_t width = width_for(size - common);
    if (common < ix->common && width < width_for(ix->common - common))
        width = width_for(ix->common - common);
    if (common < ix->common || width > ix->width)
        MR_TRY(widen(ix, common, width > ix->width ? width : ix->width, st));
    if (ix->n % GROUP == 0) {
        size_t groups = (size_t)(ix->n / GROUP);
        MR_TRY(mr_grow((void **)&ix->offsets, &ix->offsets_room, groups + 1, 8,
                       MOST_RECORDS / GROUP, "an index", st));
        mr__store_le(ix->offsets + groups * 8, ix->end, 8);
    }
    if (ix->width) {
        MR_TRY(mr_grow((void **)&ix->sizes, &ix->sizes_room, (size_t)(ix->n + 1) * ix->width, 1,
                       SIZE_MAX / 16, "an index", st));
        mr__store_le(ix->sizes + ix->n * ix->width, size - ix->common, ix->width);
    }
    ix->n++;
    ix->end += size;
    return MR_OK;
}

/* path.idx; owned. */
static mr_code name_of(const char *path, char **out, mr_status *st)
{
    *out = mr_strf("%s.idx", path);
    return *out ? MR_OK : mr_fail_memory(st, strlen(path), "a file name");
}

static mr_code refuse(const char *path, const char *why, mr_status *st)
{
    mr_code rc = mr_fail(st, MR_FAILED_PRECONDITION, "%s", why);
    mr_status_at(st, path, -1, -1);
    return rc;
}

/* Reads the file from front to back. */
static mr_code scan(mr_record_index *ix, const char *path, mr_cancel *cancel, mr_status *st)
{
    mr_reader *r = NULL;
    mr_array a = {0};
    struct stat s;
    if (mr__sys->stat(path, &s) == 0 && !S_ISREG(s.st_mode) && !S_ISDIR(s.st_mode))
        return refuse(path, "only a regular file can have an index: a pipe cannot seek", st);
    const mr_file_opts o = {.compression = MR_COMPRESSION_DETECT, .cancel = cancel};
    MR_TRY(mr_reader_open(&r, &mr_format_tfrecord, path, &o, st));
    mr_code rc = MR_OK;
    if (mr_reader_compression(r) != MR_COMPRESSION_NONE)
        rc = refuse(path,
                    "the file is compressed as a whole, so its records have no offsets; an index "
                    "needs an uncompressed file",
                    st);
    while (rc == MR_OK) {
        rc = mr_reader_read(r, WANT, BLOCK_BYTES, &a, st);
        const mr_bytes *v = a.data;
        for (size_t i = 0; rc == MR_OK && i < a.rows; i++)
            rc = add(ix, v[i].size + FRAMING, st);
        mr_array_reset(&a);
    }
    mr_reader_close(r);
    return rc == MR_END ? MR_OK : rc;
}

static mr_code put_text(const mr_record_index *ix, mr_atomic_file *f, mr_status *st)
{
    char line[LINE];
    uint64_t at = 0;
    for (uint64_t i = 0; i < ix->n; i++) {
        uint64_t size = size_of(ix, i);
        int n = snprintf(line, sizeof line, "%" PRIu64 " %" PRIu64 "\n", at, size);
        MR_TRY(mr_atomic_file_put(f, line, (size_t)n, st));
        at += size;
    }
    return MR_OK;
}

static mr_code put_checked(mr_atomic_file *f, uint32_t *crc, const void *data, size_t n,
                           mr_status *st)
{
    *crc = mr_crc32c_extend(*crc, data, n);
    return mr_atomic_file_put(f, data, n, st);
}

static size_t n_groups(uint64_t n)
{
    return (size_t)(n / GROUP + (n % GROUP != 0));
}

static mr_code put_compact(const mr_record_index *ix, mr_atomic_file *f, mr_status *st)
{
    uint8_t head[HEADER] = {0}, tail[4];
    uint32_t crc = 0;
    memcpy(head, magic, sizeof magic);
    mr__store_le(head + 8, ix->n, 8);
    mr__store_le(head + 16, ix->end, 8);
    mr__store_le(head + 24, ix->common, 8);
    mr__store_le(head + 32, ix->width, 4);
    MR_TRY(put_checked(f, &crc, head, sizeof head, st));
    if (ix->n)
        MR_TRY(put_checked(f, &crc, ix->offsets, n_groups(ix->n) * 8, st));
    if (ix->width)
        MR_TRY(put_checked(f, &crc, ix->sizes, (size_t)ix->n * ix->width, st));
    mr__store_le(tail, crc, 4);
    return mr_atomic_file_put(f, tail, sizeof tail, st);
}

mr_code mr_record_index_write(const char *path, const mr_record_index_opts *opts, int64_t *records,
                              mr_status *st)
{
    static const mr_record_index_opts none;
    opts = opts ? opts : &none;
    mr_record_index *ix = NULL;
    char *name = NULL;
    mr_atomic_file *f = NULL;
    mr_code rc = name_of(path, &name, st);
    if (rc == MR_OK)
        rc = new_index(&ix, st);
    if (rc == MR_OK)
        rc = scan(ix, path, opts->cancel, st);
    if (rc == MR_OK)
        rc = mr_atomic_file_open(&f, name, &(mr_atomic_file_opts){.sync = MR_SYNC_NONE}, st);
    if (rc == MR_OK)
        rc = opts->compact ? put_compact(ix, f, st) : put_text(ix, f, st);
    rc = mr_atomic_file_close(f, rc, st);
    if (rc == MR_OK && records)
        *records = (int64_t)ix->n;
    mr_record_index_close(ix);
    mr_free(name);
    return rc;
}

/* ---- reading ---- */

static mr_code damaged(const char *name, int64_t line, const char *what, mr_status *st)
{
    mr_code rc = mr_fail(
        st, MR_DATA_LOSS,
        "%s%.0" PRId64
        "%s; not an index of TFRecords, or a damaged one: make it again with 'millrace index'",
        line ? "line " : "", line, what);
    mr_status_at(st, name, -1, -1);
    return rc;
}

/* Decimal digits up to `end` from *p on; false: no digits, or too many. */
static bool parse_number(const char **p, const char *end, uint64_t *out)
{
    const char *at = *p;
    uint64_t v = 0;
    while (at < end && *at >= '0' && *at <= '9') {
        if (v > (INT64_MAX - 9) / 10)
            return false;
        v = v * 10 + (uint64_t)(*at++ - '0');
    }
    bool any = at > *p;
    *p = at;
    *out = v;
    return any;
}

static mr_code add_line(mr_record_index *ix, const char *name, const mr_bytes *line, mr_status *st)
{
    const char *p = line->data, *end = p + line->size;
    uint64_t offset, size;
    int64_t number = (int64_t)ix->n + 1;
    bool good = parse_number(&p, end, &offset) && p < end && (*p == ' ' || *p == '\t');
    while (good && p < end && (*p == ' ' || *p == '\t'))
        p++;
    if (!good || !parse_number(&p, end, &size) || p != end)
        return damaged(name, number, ": expected a byte offset and a size", st);
    if (size < FRAMING || size > INT64_MAX - ix->end)
        return damaged(name, number, ": no record has that size including 16 bytes of framing", st);
    if (offset != ix->end)
        return damaged(name, number, ": the record does not follow the previous one", st);
    return add(ix, size, st);
}

static mr_code read_text(mr_record_index *ix, const char *name, mr_status *st)
{
    mr_reader *r = NULL;
    mr_array a = {0};
    MR_TRY(mr_reader_open(&r, &mr_format_text_line, name, NULL, st));
    mr_code rc;
    while ((rc = mr_reader_read(r, WANT, BLOCK_BYTES, &a, st)) == MR_OK) {
        const mr_bytes *v = a.data;
        for (size_t i = 0; rc == MR_OK && i < a.rows; i++)
            rc = add_line(ix, name, &v[i], st);
        mr_array_reset(&a);
        if (rc != MR_OK)
            break;
    }
    mr_reader_close(r);
    return rc == MR_END ? MR_OK : rc;
}

/* An open file: a descriptor, or the object of a URL. */
typedef struct place {
    int fd;
    mr__object *object;
} place;

/* Reads n bytes of the file. MR_END: it ends before. */
static mr_code read_exactly(const place *f, const char *name, uint8_t *to, size_t n, int64_t from,
                            mr_status *st)
{
    size_t count = 0;
    if (f->object) {
        MR_TRY(mr__object_read(f->object, from, to, n, &count, NULL, st));
        return count == n ? MR_OK : MR_END;
    }
    ssize_t got = mr__read_all(f->fd, to, n, from);
    if (got >= 0)
        return (size_t)got == n ? MR_OK : MR_END;
    mr_code rc = mr_fail_errno(st, errno, "cannot read the file");
    mr_status_at(st, name, -1, -1);
    return rc;
}

static mr_code read_part(const place *f, const char *name, uint8_t *to, size_t n, int64_t from,
                         mr_status *st)
{
    mr_code rc = read_exactly(f, name, to, n, from, st);
    return rc == MR_END ? damaged(name, 0, "it is cut short", st) : rc;
}

/* Whether the lengths of all records add up to the numbers of the header. */
static bool adds_up(const mr_record_index *ix)
{
    uint64_t at = 0;
    for (uint64_t i = 0; i < ix->n; i++) {
        uint64_t more = mr__load_le(ix->sizes + i * ix->width, ix->width);
        if (i % GROUP == 0 && mr__load_le(ix->offsets + i / GROUP * 8, 8) != at)
            return false;
        if (more > (uint64_t)INT64_MAX - ix->common || ix->common + more < FRAMING ||
            ix->common + more > (uint64_t)INT64_MAX - at)
            return false;
        at += ix->common + more;
    }
    return at == ix->end;
}

static mr_code read_compact(mr_record_index *ix, const place *f, const char *name,
                            int64_t file_size, mr_status *st)
{
    uint8_t head[HEADER], tail[4];
    if (file_size < HEADER + 4)
        return damaged(name, 0, "it is cut short", st);
    MR_TRY(read_part(f, name, head, HEADER, 0, st));
    if (head[7] != 1)
        return damaged(name, 0, "its format has another version", st);
    uint64_t n = mr__load_le(head + 8, 8), width = mr__load_le(head + 32, 4), body;
    ix->end = mr__load_le(head + 16, 8);
    ix->common = mr__load_le(head + 24, 8);
    bool good = width <= 8 && (width & (width - 1)) == 0 && n <= MOST_RECORDS &&
                ix->end <= INT64_MAX && ix->common <= INT64_MAX && mr__load_le(head + 36, 4) == 0;
    good = good && !__builtin_mul_overflow(n, width, &body);
    /* Checked before allocating: the file must have as many bytes as its numbers require. */
    if (!good || body / 2 + n_groups(n) * 4 > INT64_MAX / 2 ||
        (uint64_t)file_size != HEADER + n_groups(n) * 8 + body + 4)
        return damaged(name, 0, "its counts do not match its size", st);
    size_t groups = n_groups(n) * 8;
    ix->offsets = mr_malloc(groups + 1);
    ix->sizes = mr_malloc((size_t)body + 1);
    if (!ix->offsets || !ix->sizes)
        return mr_fail_memory(st, groups + (size_t)body, "an index");
    MR_TRY(read_part(f, name, ix->offsets, groups, HEADER, st));
    MR_TRY(read_part(f, name, ix->sizes, (size_t)body, HEADER + (int64_t)groups, st));
    MR_TRY(read_part(f, name, tail, 4, file_size - 4, st));
    uint32_t crc = mr_crc32c(head, HEADER);
    crc = mr_crc32c_extend(crc, ix->offsets, groups);
    crc = mr_crc32c_extend(crc, ix->sizes, (size_t)body);
    if (crc != mr__load_le(tail, 4))
        return damaged(name, 0, "its checksum does not match", st);
    ix->n = n;
    ix->width = (uint32_t)width;
    return adds_up(ix) ? MR_OK : damaged(name, 0, "its sizes do not add up", st);
}

/* ---- stale indexes ---- */

static mr_code stale(const char *name, const char *path, const char *why, mr_status *st)
{
    mr_code rc =
        mr_fail(st, MR_FAILED_PRECONDITION,
                "the index is stale: %s %s; make it again with 'millrace index', or remove "
                "it",
                path, why);
    mr_status_at(st, name, -1, -1);
    return rc;
}

/* Checks that record i is where the index says. */
static mr_code probe(const mr_record_index *ix, const place *f, const char *name, const char *path,
                     uint64_t i, mr_status *st)
{
    uint8_t head[12];
    int64_t offset, size;
    mr_record_index_at(ix, (int64_t)i, &offset, &size);
    mr_code rc = read_exactly(f, path, head, sizeof head, offset, st);
    if (rc < MR_OK)
        return rc;
    if (rc == MR_OK && mr__load_le(head, 8) == (uint64_t)size - FRAMING &&
        mr__load_le(head + 8, 4) == mr_crc32c_mask(mr_crc32c(head, 8)))
        return MR_OK;
    return stale(name, path, "has different records", st);
}

/* Checks the first record, the last one and one between. */
static mr_code probe_some(const mr_record_index *ix, const place *f, const char *name,
                          const char *path, mr_status *st)
{
    MR_TRY(probe(ix, f, name, path, 0, st));
    MR_TRY(probe(ix, f, name, path, ix->n / 2, st));
    return probe(ix, f, name, path, ix->n - 1, st);
}

static mr_code check_size(const mr_record_index *ix, int64_t size, const char *name,
                          const char *path, mr_status *st)
{
    if (size < (int64_t)ix->end || size > (int64_t)ix->end + STRAY)
        return stale(name, path, "does not have the size that the index says", st);
    return MR_OK;
}

static mr_code check_fresh(const mr_record_index *ix, const struct stat *index, const char *name,
                           const char *path, mr_status *st)
{
    struct stat data;
    if (mr__sys->stat(path, &data) != 0) {
        mr_code rc = mr_fail_errno(st, errno, "cannot stat the file");
        mr_status_at(st, path, -1, -1);
        return rc;
    }
    if (data.st_mtim.tv_sec > index->st_mtim.tv_sec ||
        (data.st_mtim.tv_sec == index->st_mtim.tv_sec &&
         data.st_mtim.tv_nsec > index->st_mtim.tv_nsec))
        return stale(name, path, "was changed after the index was made", st);
    MR_TRY(check_size(ix, (int64_t)data.st_size, name, path, st));
    if (ix->n == 0)
        return MR_OK;
    const place f = {.fd = mr__open_again(path, O_RDONLY)};
    if (f.fd < 0) {
        mr_code rc = mr_fail_errno(st, errno, "cannot open the file");
        mr_status_at(st, path, -1, -1);
        return rc;
    }
    mr_code rc = probe_some(ix, &f, name, path, st);
    mr__sys->close(f.fd);
    return rc;
}

static mr_code no_index(const char *path, mr_status *st)
{
    mr_code rc = mr_fail(st, MR_NOT_FOUND, "it has no index; make one with 'millrace index'");
    mr_status_at(st, path, -1, -1);
    return rc;
}

/* As check_fresh; stores keep times to a second, so they are not compared. */
static mr_code check_fresh_object(mr_record_index *ix, const char *name, const char *path,
                                  mr_status *st)
{
    place f = {.fd = -1};
    MR_TRY(mr__object_open(&f.object, path, st));
    mr_code rc = mr__object_need_ranges(f.object, NULL, st);
    if (rc == MR_OK)
        rc = check_size(ix, f.object->info.size, name, path, st);
    if (rc == MR_OK && ix->n)
        rc = probe_some(ix, &f, name, path, st);
    ix->mark = mr__object_mark(f.object);
    mr__object_unref(f.object);
    return rc;
}

static mr_code read_index_object(mr_record_index *ix, const char *name, const char *path,
                                 mr_status *st)
{
    char first[sizeof magic - 1];
    place f = {.fd = -1};
    MR_TRY(mr__object_open(&f.object, name, st));
    mr_code rc = mr__object_need_ranges(f.object, NULL, st);
    int64_t size = f.object->info.size;
    bool compact = false;
    if (rc == MR_OK && size >= (int64_t)sizeof first) {
        rc = read_part(&f, name, (uint8_t *)first, sizeof first, 0, st);
        compact = rc == MR_OK && memcmp(first, magic, sizeof first) == 0;
    }
    if (rc == MR_OK)
        rc = compact ? read_compact(ix, &f, name, size, st) : read_text(ix, name, st);
    mr__object_unref(f.object);
    if (rc == MR_NOT_FOUND)
        return no_index(path, st);
    return rc == MR_OK ? check_fresh_object(ix, name, path, st) : rc;
}

static mr_code read_index(mr_record_index *ix, const char *name, const char *path, mr_status *st)
{
    struct stat s;
    char first[sizeof magic - 1];
    if (mr__is_url(name))
        return read_index_object(ix, name, path, st);
    const place f = {.fd = mr__open_again(name, O_RDONLY | O_NONBLOCK)};
    if (f.fd < 0 && errno == ENOENT)
        return no_index(path, st);
    mr_code rc = MR_OK;
    if (f.fd < 0)
        rc = mr_fail_errno(st, errno, "cannot open the index");
    else if (mr__sys->fstat(f.fd, &s) != 0)
        rc = mr_fail_errno(st, errno, "cannot stat the index");
    else if (!S_ISREG(s.st_mode))
        rc = mr_fail(st, MR_FAILED_PRECONDITION, "not a regular file, which an index must be");
    if (rc != MR_OK)
        mr_status_at(st, name, -1, -1);
    bool compact = false;
    if (rc == MR_OK && s.st_size >= (off_t)sizeof first) {
        rc = read_part(&f, name, (uint8_t *)first, sizeof first, 0, st);
        compact = rc == MR_OK && memcmp(first, magic, sizeof first) == 0;
    }
    if (rc == MR_OK)
        rc = compact ? read_compact(ix, &f, name, (int64_t)s.st_size, st) : read_text(ix, name, st);
    if (rc == MR_OK)
        rc = check_fresh(ix, &s, name, path, st);
    if (f.fd >= 0)
        mr__sys->close(f.fd);
    return rc;
}

mr_code mr_record_index_open(mr_record_index **out, const char *path, mr_status *st)
{
    mr_record_index *ix = NULL;
    char *name = NULL;
    MR_TRY(name_of(path, &name, st));
    mr_code rc = new_index(&ix, st);
    if (rc == MR_OK)
        rc = read_index(ix, name, path, st);
    mr_free(name);
    if (rc != MR_OK) {
        mr_record_index_close(ix);
        return rc;
    }
    *out = ix;
    return MR_OK;
}
