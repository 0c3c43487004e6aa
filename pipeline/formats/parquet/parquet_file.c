/* SPDX-License-Identifier: Apache-2.0 */
/* Columns are decoded a number of rows at a time, and rows are returned as requested. If a column
 * ends early, because of damage or because its rows are large, the others keep their decoded
 * rows. */
#include "pipeline/formats/parquet/parquet_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "pipeline/files/remote.h"
#include "pipeline/formats/codec_impl.h"
#include "pipeline/formats/parquet/parquet_column.h"
#include "pipeline/formats/table_defaults.h"
#include "pipeline/formats/table_flaws.h"
#include "pipeline/remote/object_ahead.h"
#include "pipeline/remote/object_ranges.h"
#include "pipeline/system/retry.h"
#include "pipeline/wait/wait.h"

enum { TAIL = 64 << 10, BLOCK_BYTES = 256 << 10, MOST_ROWS = 16384, END_BYTES = 8 };
#define MOST_FOOTER ((int64_t)1 << 30)
#define MOST_AHEAD  ((int64_t)4 << 20) /* of a chunk, before its first page is requested */

typedef struct column {
    size_t leaf;
    size_t twin; /* a column of the same list, if `shared` is not 0 */
    int shared;  /* number of lists that contain both */
    mr__parquet_column chunk;
    mr__parquet_rows rows; /* decoded; those from `at` on have not been returned */
    size_t at;
} column;

struct mr__parquet {
    int fd;
    bool is_input;                           /* standard input, which is not closed */
    mr__object *object;                      /* of a URL; else NULL */
    mr__object_ahead *ahead, *ahead_of_next; /* of the open group of a URL, and of the next group */
    size_t next_group;                       /* whose that is */
    char *path;
    mr_file_opts opts;
    int64_t size, row;
    mr__parquet_footer footer;
    column *columns;
    size_t n;
    const mr_array *defaults; /* of the columns, or NULL */
    size_t group;             /* the open group; n_groups: none */
    bool open;
    size_t step;      /* rows to decode at a time */
    int64_t fails_at; /* number of the row; -1: no known error */
    mr_code fails;
    mr_status failure;
};

/* ---- bytes ---- */

/* As pread. Waits for data that is not in the page cache. */
static ssize_t read_some(const mr__parquet *f, void *p, size_t n, off_t offset)
{
    struct iovec v = {p, n};
    ssize_t got = mr__sys->preadv2(f->fd, &v, 1, offset, RWF_NOWAIT);
    if (got > 0)
        return got;
    int64_t began = mr__ticks();
    got = mr__sys->pread(f->fd, p, n, offset);
    int err = errno;
    mr__waited_since(began);
    errno = err;
    return got;
}

static mr_code read_object(const mr__parquet *f, int64_t offset, void *p, size_t n, mr_status *st)
{
    size_t got;
    if (f->ahead)
        MR_TRY(mr__object_ahead_read(f->ahead, offset, p, n, &got, f->opts.cancel, st));
    else
        MR_TRY(mr__object_read(f->object, offset, p, n, &got, f->opts.cancel, st));
    if (f->opts.on_read)
        f->opts.on_read(f->opts.on_read_ctx, got);
    if (got == n)
        return MR_OK;
    mr_fail(st, MR_DATA_LOSS, "the file has become shorter while it was read");
    mr_status_at(st, f->path, offset + (int64_t)got, -1);
    return MR_DATA_LOSS;
}

static mr_code read_at(void *ctx, int64_t offset, void *p, size_t n, mr_status *st)
{
    mr__parquet *f = ctx;
    size_t done = 0;
    if (f->object)
        return read_object(f, offset, p, n, st);
    while (done < n) {
        if (mr_cancel_is_cancelled(f->opts.cancel))
            return mr_fail(st, MR_CANCELLED, "reading was cancelled");
        ssize_t got = read_some(f, (char *)p + done, n - done, (off_t)offset + (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            mr_fail_errno(st, errno, "cannot read the file");
        else if (got == 0)
            mr_fail(st, MR_DATA_LOSS, "the file has become shorter while it was read");
        if (got <= 0) {
            mr_status_at(st, f->path, offset + (int64_t)done, -1);
            return got < 0 && st ? st->code : got < 0 ? MR_UNKNOWN : MR_DATA_LOSS;
        }
        done += (size_t)got;
        if (f->opts.on_read)
            f->opts.on_read(f->opts.on_read_ctx, (size_t)got);
    }
    return MR_OK;
}

/* ---- opening ---- */

static mr_code open_url(mr__parquet *f, const char *url, mr_status *st)
{
    MR_TRY(mr__object_open(&f->object, url, st));
    MR_TRY(mr__object_need_ranges(f->object, f->opts.cancel, st));
    f->size = f->object->info.size;
    if (f->opts.mark)
        *f->opts.mark = mr__object_mark(f->object);
    return MR_OK;
}

static mr_code open_file(mr__parquet *f, const char *path, mr_status *st)
{
    struct stat s;
    char what[256];
    if (mr__is_url(path))
        return open_url(f, path, st);
    f->is_input = strcmp(path, "-") == 0;
    f->fd = f->is_input ? STDIN_FILENO : mr__open_again(path, O_RDONLY | O_NONBLOCK);
    snprintf(what, sizeof what, "cannot open the file%s", mr__remote_hint(path));
    if (f->fd < 0 || mr__sys->fstat(f->fd, &s) != 0)
        return mr_fail_errno(st, errno, "%s", what);
    if (S_ISDIR(s.st_mode))
        return mr_fail_errno(st, EISDIR, "%s", what);
    if (S_ISFIFO(s.st_mode) || S_ISSOCK(s.st_mode))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "a Parquet file is read from its end, and a pipe cannot seek there; write "
                       "it to a file first");
    if (!S_ISREG(s.st_mode))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "not a regular file; a Parquet file is read from its end");
    f->size = s.st_size;
    return MR_OK;
}

static mr_code no_parquet(const char *why, mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS, "not a Parquet file: %s", why);
}

/* The file begins with other bytes. */
static mr_code no_start(const uint8_t *b, size_t n, mr_status *st)
{
    const char *name = mr__compressor_of_table(b, n);
    if (!name)
        return no_parquet("it does not begin with \"PAR1\"", st);
    return mr_fail(st, MR_DATA_LOSS,
                   "not a Parquet file: it is compressed with %s as a whole, and only compression "
                   "within Parquet files is read; decompress it",
                   name);
}

/* Checks the last bytes of the file, n of them at `tail`. */
static mr_code check_end(const mr__parquet *f, const uint8_t *tail, size_t n, int64_t *footer,
                         mr_status *st)
{
    uint32_t size;
    const uint8_t *end = tail + n - END_BYTES;
    memcpy(&size, end, sizeof size);
    *footer = size;
    if (memcmp(end + 4, "PARE", 4) == 0)
        return mr_fail(st, MR_UNIMPLEMENTED,
                       "the file is encrypted; decrypt it first (no key can be given)");
    if (memcmp(end + 4, MR__PARQUET_MAGIC, 4) != 0)
        return mr_fail(
            st, MR_DATA_LOSS,
            "it does not end in \"PAR1\": the file is cut short, or its writer did not close it");
    if (size > f->size - END_BYTES - 4 || size > MOST_FOOTER)
        return mr_fail(st, MR_DATA_LOSS,
                       "damaged footer: it has %" PRIu32 " bytes, but the file %" PRId64, size,
                       f->size);
    return MR_OK;
}

static mr_code read_footer(mr__parquet *f, mr_status *st)
{
    uint8_t magic[4 + END_BYTES];
    size_t n = f->size < TAIL ? (size_t)f->size : TAIL;
    int64_t size;
    mr_buffer *b = NULL;
    if (f->size < 4 + END_BYTES)
        return f->size ? no_parquet("it is too short to be one", st)
                       : no_parquet("it is empty", st);
    MR_TRY(read_at(f, 0, magic, sizeof magic, st));
    if (memcmp(magic, MR__PARQUET_MAGIC, 4) != 0 && memcmp(magic, "PARE", 4) != 0)
        return no_start(magic, sizeof magic, st);
    MR_TRY(mr_buffer_alloc(&b, n, st));
    mr_code rc = read_at(f, f->size - (int64_t)n, mr_buffer_data(b), n, st);
    if (rc == MR_OK)
        rc = check_end(f, mr_buffer_data(b), n, &size, st);
    if (rc == MR_OK && size + END_BYTES > (int64_t)n) {
        mr_buffer_unref(b);
        b = NULL;
        n = (size_t)size + END_BYTES;
        rc = mr_buffer_alloc(&b, n, st);
        if (rc == MR_OK)
            rc = read_at(f, f->size - (int64_t)n, mr_buffer_data(b), n, st);
    }
    if (rc == MR_OK) {
        int64_t end = f->size - END_BYTES - size;
        const uint8_t *p = (const uint8_t *)mr_buffer_data(b) + n - END_BYTES - (size_t)size;
        rc = mr__parquet_footer_read(p, (size_t)size, end, &f->footer, st);
        mr_status_at(st, f->path, rc == MR_OK ? -1 : end, -1);
    }
    mr_buffer_unref(b);
    return rc;
}

mr_code mr__parquet_open(mr__parquet **out, const char *path, const mr_file_opts *opts,
                         mr_status *st)
{
    mr_status why;
    mr_status_init(&why);
    mr__parquet *f = mr_calloc(1, sizeof *f);
    if (!f)
        return mr_fail_memory(st, sizeof *f, "a Parquet file");
    f->fd = -1;
    f->fails_at = -1;
    if (opts)
        f->opts = *opts;
    f->path = mr_strdup(path);
    mr_code rc = f->path ? open_file(f, path, &why) : mr_fail_memory(&why, 0, "a path");
    if (rc == MR_OK)
        rc = read_footer(f, &why);
    if (rc == MR_OK) {
        *out = f;
        return MR_OK;
    }
    mr__parquet_close(f);
    mr_status_at(&why, path, -1, -1);
    if (st)
        *st = why;
    return rc;
}

static void close_group(mr__parquet *f)
{
    for (size_t i = 0; i < f->n; i++) {
        mr__parquet_column_reset(&f->columns[i].chunk);
        mr__parquet_rows_reset(&f->columns[i].rows);
        f->columns[i].at = 0;
    }
    mr__object_ahead_close(f->ahead);
    f->ahead = NULL;
    f->open = false;
    f->fails_at = -1;
}

void mr__parquet_close(mr__parquet *f)
{
    if (!f)
        return;
    close_group(f);
    mr__object_ahead_close(f->ahead_of_next);
    mr_free(f->columns);
    mr__parquet_footer_reset(&f->footer);
    if (f->fd >= 0 && !f->is_input)
        mr__sys->close(f->fd);
    mr__object_unref(f->object);
    mr_free(f->path);
    mr_free(f);
}

const mr__parquet_footer *mr__parquet_footer_of(const mr__parquet *f)
{
    return &f->footer;
}

int64_t mr__parquet_row(const mr__parquet *f)
{
    return f->row;
}

int64_t mr__parquet_count(const mr__parquet *f)
{
    return f->footer.rows;
}

static const mr__parquet_leaf *leaf_of(const mr__parquet *f, size_t i)
{
    return &f->footer.leaves[f->columns[i].leaf];
}

static bool is_there(const column *c)
{
    return c->leaf != MR__PARQUET_NO_LEAF;
}

static int shared_lists(const mr__parquet_leaf *a, const mr__parquet_leaf *b)
{
    int k = 0;
    while (k < a->lists && k < b->lists && a->list[k] == b->list[k])
        k++;
    return k;
}

/* Leaves are in depth-first order: of the leaves before a leaf, the last shares the most lists with
 * it. */
static mr_code find_twins(mr__parquet *f, mr_status *st)
{
    /* 1 + the column of a leaf */
    size_t *columns = mr_calloc(f->footer.n_leaves + 1, sizeof *columns);
    if (!columns)
        return mr_fail_memory(st, f->footer.n_leaves * sizeof *columns, "columns");
    for (size_t i = 0; i < f->n; i++)
        if (is_there(&f->columns[i]))
            columns[f->columns[i].leaf] = i + 1;
    size_t before = 0;
    for (size_t k = 0; k < f->footer.n_leaves; k++) {
        if (!columns[k])
            continue;
        column *c = &f->columns[columns[k] - 1];
        if (before) {
            c->twin = before - 1;
            c->shared = shared_lists(leaf_of(f, before - 1), &f->footer.leaves[k]);
        }
        before = columns[k];
    }
    mr_free(columns);
    return MR_OK;
}

mr_code mr__parquet_select(mr__parquet *f, const size_t *leaves, size_t n, const mr_array *defaults,
                           mr_status *st)
{
    for (size_t i = 0; i < n; i++) {
        const char *refusal = leaves[i] == MR__PARQUET_NO_LEAF
                                  ? NULL
                                  : mr__parquet_footer_refusal(&f->footer, leaves[i]);
        if (refusal)
            return mr_fail(st, MR_UNIMPLEMENTED,
                           "column '%.200s' cannot be read: %s; columns=[...] says which are read",
                           f->footer.leaves[leaves[i]].name, refusal);
    }
    f->columns = mr_calloc(n ? n : 1, sizeof *f->columns);
    if (!f->columns)
        return mr_fail_memory(st, n * sizeof *f->columns, "columns");
    f->n = n;
    f->defaults = defaults;
    for (size_t i = 0; i < n; i++)
        f->columns[i].leaf = leaves[i];
    return find_twins(f, st);
}

void mr__parquet_seek(mr__parquet *f, int64_t row)
{
    close_group(f);
    f->row = row;
}

/* ---- rows ---- */

/* Adds column i and row `row` to an error. */
static void at_row(const mr__parquet *f, size_t i, int64_t row, mr_code rc, mr_status *st)
{
    if (rc != MR_CANCELLED && is_there(&f->columns[i]))
        mr_status_prefix(st, "row group %zu, column '%.200s'", f->group, leaf_of(f, i)->name);
    mr_status_at(st, f->path, -1, row);
}

/* The group that contains the next row; groups without rows are skipped. */
static size_t find_group(const mr__parquet *f)
{
    size_t low = 0, high = f->footer.n_groups;
    while (low < high) { /* the first that ends after the row */
        size_t middle = low + (high - low) / 2;
        const mr__parquet_group *g = &f->footer.groups[middle];
        if (g->first + g->rows > f->row)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Number of rows to decode at a time: about 256 KiB. */
static size_t step_of(const mr__parquet *f, const mr__parquet_group *g)
{
    int64_t bytes = 1;
    for (size_t i = 0; i < f->n; i++) {
        if (!is_there(&f->columns[i]))
            continue;
        int64_t size = (int64_t)mr_dtype_size(leaf_of(f, i)->dtype);
        int64_t stored = g->chunks[f->columns[i].leaf].bytes / g->rows;
        bytes += stored > size ? (stored < BLOCK_BYTES ? stored : BLOCK_BYTES) : size;
    }
    int64_t rows = BLOCK_BYTES / bytes;
    return rows < 1 ? 1 : rows > MOST_ROWS ? MOST_ROWS : (size_t)rows;
}

/* Requests the columns of a group. */
static mr_code request_group(mr__parquet *f, size_t group, mr__object_ahead **out, mr_status *st)
{
    const mr__parquet_group *g = &f->footer.groups[group];
    mr__object_part *parts = mr_calloc(f->n + 1, sizeof *parts);
    size_t n = 0;
    if (!parts)
        return mr_fail_memory(st, f->n * sizeof *parts, "parts of a remote object");
    for (size_t i = 0; i < f->n; i++) {
        if (!is_there(&f->columns[i]))
            continue;
        const mr__parquet_chunk *c = &g->chunks[f->columns[i].leaf];
        int64_t left = f->size - c->begin; /* a damaged footer may say more */
        if (c->begin >= 0 && c->size > 0 && left > 0)
            parts[n++] = (mr__object_part){c->begin, c->begin + (c->size < left ? c->size : left)};
    }
    mr_code rc = mr__object_ahead_open(out, f->object, parts, n, st);
    mr_free(parts);
    return rc;
}

/* Requests the columns of the open group, and those of the next one if groups are read in order. */
static mr_code request_groups(mr__parquet *f, mr_status *st)
{
    bool in_order = f->ahead_of_next && f->next_group == f->group;
    mr__object_ahead_close(f->ahead);
    f->ahead = NULL;
    if (in_order) {
        f->ahead = f->ahead_of_next;
        f->ahead_of_next = NULL;
    } else
        MR_TRY(request_group(f, f->group, &f->ahead, st));
    mr__object_ahead_close(f->ahead_of_next);
    f->ahead_of_next = NULL;
    in_order = in_order || (f->next_group == f->group && f->group > 0);
    f->next_group = f->group + 1;
    return in_order && f->next_group < f->footer.n_groups
               ? request_group(f, f->next_group, &f->ahead_of_next, st)
               : MR_OK;
}

static mr_code open_group(mr__parquet *f, mr_status *st)
{
    f->group = find_group(f);
    const mr__parquet_group *g = &f->footer.groups[f->group];
    f->step = step_of(f, g);
    if (f->object)
        MR_TRY(request_groups(f, st));
    f->open = true;
    for (size_t i = 0; i < f->n && f->row == g->first && !f->object;
         i++) { /* starts reading ahead */
        if (!is_there(&f->columns[i]))
            continue;
        const mr__parquet_chunk *c = &g->chunks[f->columns[i].leaf];
        int64_t size = c->size < MOST_AHEAD ? c->size : MOST_AHEAD;
        mr__sys->posix_fadvise(f->fd, (off_t)c->begin, (off_t)size, POSIX_FADV_WILLNEED);
    }
    for (size_t i = 0; i < f->n; i++) {
        column *c = &f->columns[i];
        if (!is_there(c))
            continue;
        const mr__parquet_chunk *chunk = &g->chunks[c->leaf];
        mr_code rc = MR_OK;
        mr__parquet_column_start(&c->chunk, leaf_of(f, i), chunk, read_at, f);
        if (!leaf_of(f, i)->lists && chunk->values != g->rows)
            rc = mr_fail(st, MR_DATA_LOSS,
                         "its chunk has %" PRId64 " values, but the row group %" PRId64 " rows",
                         chunk->values, g->rows);
        else if (f->row > g->first)
            rc = mr__parquet_column_skip(&c->chunk, f->row - g->first, st);
        if (rc != MR_OK) {
            at_row(f, i, f->row, rc, st);
            return rc;
        }
    }
    return MR_OK;
}

static size_t pending(const column *c)
{
    return c->rows.a.rows - c->at;
}

/* The first of the next n pending rows that has a flaw in the column, or n. */
static size_t first_flaw(const column *c, size_t n)
{
    const uint8_t *flaws = c->rows.flaws ? mr_buffer_data(c->rows.flaws) : NULL;
    for (uint8_t which = MR__PARQUET_NULL; flaws && which <= MR__PARQUET_UNEVEN; which++) {
        const uint8_t *found = memchr(flaws + c->at, which, n);
        n = found ? (size_t)(found - flaws) - c->at : n;
    }
    return n;
}

/* Whether both rows have equal lengths in the lists they share, `shared` deep. */
static bool same_lists(const mr_row *a, const mr_row *b, int shared)
{
    if (a->shape[0] != b->shape[0])
        return false;
    if (shared > 1 &&
        memcmp(a->splits, b->splits, ((size_t)a->shape[0] + 1) * sizeof *a->splits) != 0)
        return false;
    for (int k = 2; k < shared; k++)
        if (a->shape[k] != b->shape[k])
            return false;
    return true;
}

/* The first of the next n pending rows whose lists differ in length from those of the column's
 * twin, or n. */
static size_t first_unlike(const mr__parquet *f, const column *c, size_t n)
{
    if (!c->shared)
        return n;
    const column *twin = &f->columns[c->twin];
    const mr_row *a = (const mr_row *)c->rows.a.data + c->at;
    const mr_row *b = (const mr_row *)twin->rows.a.data + twin->at;
    for (size_t i = 0; i < n; i++)
        if (!same_lists(&a[i], &b[i], c->shared))
            return i;
    return n;
}

/* Decodes the next rows of a column, at most `most`; the group has `left` rows left. If the chunk
 * has bytes after the last row of the group, that row is dropped. */
static mr_code decode_column(column *c, size_t most, int64_t left, const mr_array *value,
                             mr_status *st)
{
    mr__parquet_rows_reset(&c->rows);
    c->at = 0;
    if (!is_there(c))
        return mr__table_repeat(value, most, &c->rows.a, st);
    MR_TRY(mr__parquet_column_rows(&c->chunk, most, &c->rows, st));
    if ((int64_t)c->rows.a.rows < left)
        return MR_OK;
    mr_code rc = mr__parquet_column_end(&c->chunk, st);
    if (rc != MR_OK)
        c->rows.a.rows--;
    return rc;
}

/* Replaces the nulls of the decoded rows. */
static mr_code fill_nulls(column *c, const mr_array *value, mr_status *st)
{
    size_t rows = c->rows.a.rows;
    uint8_t *flaws = c->rows.flaws ? mr_buffer_data(c->rows.flaws) : NULL;
    if (!value || !flaws || rows == 0 || !memchr(flaws, MR__PARQUET_NULL, rows))
        return MR_OK;
    bool *null = mr_malloc(rows);
    if (!null)
        return mr_fail_memory(st, rows, "nulls");
    for (size_t i = 0; i < rows; i++)
        null[i] = flaws[i] == MR__PARQUET_NULL;
    mr_code rc = mr__table_fill(&c->rows.a, null, value, st);
    for (size_t i = 0; i < rows && rc == MR_OK; i++)
        flaws[i] = null[i] ? 0 : flaws[i];
    mr_free(null);
    return rc;
}

/* Decodes columns that have no pending rows. Returns the number of rows that all columns have. */
static size_t decode(mr__parquet *f, int64_t left)
{
    size_t most = left < (int64_t)f->step ? (size_t)left : f->step, n = most;
    for (size_t i = 0; i < f->n; i++) {
        column *c = &f->columns[i];
        mr_status why;
        if (f->fails_at >= 0 && f->fails_at - f->row < (int64_t)n)
            n = (size_t)(f->fails_at - f->row);
        if (n == 0)
            return 0;
        if (pending(c) == 0) {
            const mr_array *value = mr__table_has_default(f->defaults, i) ? &f->defaults[i] : NULL;
            mr_status other;
            mr_code rc = decode_column(c, most, left, value, &why);
            mr_code filled = fill_nulls(c, value, &other);
            if (filled != MR_OK) { /* the rows are lost */
                c->rows.a.rows = 0;
                rc = filled;
                why = other;
            }
            if (rc != MR_OK) {
                f->fails_at = f->row + (int64_t)c->rows.a.rows;
                f->fails = rc;
                at_row(f, i, f->fails_at, rc, &why);
                f->failure = why;
            }
        }
        n = n < pending(c) ? n : pending(c);
    }
    return n;
}

static void take(mr__parquet *f, size_t n)
{
    for (size_t i = 0; i < f->n; i++)
        f->columns[i].at += n;
    f->row += (int64_t)n;
    const mr__parquet_group *g = &f->footer.groups[f->group];
    if (f->row == g->first + g->rows)
        close_group(f);
}

static mr_code give_up(mr__parquet *f, mr_code rc)
{
    close_group(f);
    f->row = f->footer.rows;
    return rc;
}

static mr_code fail_flaw(mr__parquet *f, size_t i, mr_status *st)
{
    const column *c = &f->columns[i];
    uint8_t flaw = ((const uint8_t *)mr_buffer_data(c->rows.flaws))[c->at];
    mr_fail(st, MR_INVALID_ARGUMENT, "%s",
            flaw == MR__PARQUET_NULL     ? MR__TABLE_NULL
            : flaw == MR__PARQUET_WITHIN ? MR__TABLE_NULL_WITHIN
                                         : MR__TABLE_UNEVEN);
    at_row(f, i, f->row, MR_INVALID_ARGUMENT, st);
    take(f, 1);
    return MR_INVALID_ARGUMENT;
}

static mr_code fail_unlike(mr__parquet *f, size_t i, mr_status *st)
{
    const column *c = &f->columns[i];
    mr_fail(st, MR_DATA_LOSS,
            "damaged pages: its lists differ in length from those of column '%.200s', which belong "
            "to the same list",
            leaf_of(f, c->twin)->name);
    at_row(f, i, f->row, MR_DATA_LOSS, st);
    return give_up(f, MR_DATA_LOSS);
}

mr_code mr__parquet_read(mr__parquet *f, size_t want, mr_array *columns, size_t *rows,
                         mr_status *st)
{
    if (f->row >= f->footer.rows)
        return MR_END;
    if (!f->open) {
        mr_code rc = open_group(f, st);
        if (rc != MR_OK)
            return give_up(f, rc);
    }
    const mr__parquet_group *g = &f->footer.groups[f->group];
    size_t n = decode(f, g->first + g->rows - f->row);
    if (n == 0) {
        if (st)
            *st = f->failure;
        return give_up(f, f->fails);
    }
    size_t good = n < want ? n : want, bad = 0;
    for (size_t i = 0; i < f->n && good; i++) {
        size_t k = first_flaw(&f->columns[i], good);
        if (k < good) {
            good = k;
            bad = i;
        }
    }
    if (good == 0)
        return fail_flaw(f, bad, st);
    for (size_t i = 0; i < f->n && good; i++) { /* rows without flaws */
        size_t k = first_unlike(f, &f->columns[i], good);
        if (k < good) {
            good = k;
            bad = i;
        }
    }
    if (good == 0)
        return fail_unlike(f, bad, st);
    for (size_t i = 0; i < f->n; i++)
        mr_array_slice(&columns[i], &f->columns[i].rows.a, f->columns[i].at, good);
    *rows = good;
    take(f, good);
    return MR_OK;
}
