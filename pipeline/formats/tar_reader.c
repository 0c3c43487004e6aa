/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of tar archives. libarchive receives the byte stream piece by piece; the data that it
 * returns for a member is mostly a view into such a piece and is then not copied.
 *
 *     stream   | header data | header data | header ...
 *                              record's end ^ pending: read, but part of the next record
 *
 * The end of a record is only known from the header of the next one. The position of the reader is
 * therefore separate from that of the stream: it is the header of the pending member, where a new
 * archive can start reading. */
#include <archive.h>
#include <archive_entry.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "pipeline/formats/format.h"
#include "pipeline/formats/tar.h"
#include "pipeline/log.h"
#include "pipeline/warn_once.h"
#include "pipeline/system/late_library.h"

/* Loaded late, since it depends on a dozen other libraries. */
#define ARCHIVE(X)                                                                                 \
    X(archive_read_new)                                                                            \
    X(archive_read_support_format_tar)                                                             \
    X(archive_read_open)                                                                           \
    X(archive_read_next_header)                                                                    \
    X(archive_read_data_block)                                                                     \
    X(archive_read_data_skip)                                                                      \
    X(archive_filter_bytes)                                                                        \
    X(archive_read_free)                                                                           \
    X(archive_error_string)                                                                        \
    X(archive_entry_pathname)                                                                      \
    X(archive_entry_hardlink)                                                                      \
    X(archive_entry_filetype)                                                                      \
    X(archive_entry_size)
static struct {
    ARCHIVE(MR__LATE_MEMBER)
} tar;
static mr__late_library library =
    MR__LATE_LIBRARY("tar archives are read", "libarchive.so.13", "libarchive13", ARCHIVE, tar);

enum { MOST_ROWS = 64, BLOCK = 512 };
#define MOST_BYTES ((int64_t)1 << 32)
/* Limit of all holes of a sparse member: memory may only grow with the bytes of the file. */
#define MOST_HOLES ((int64_t)64 << 20)

const char mr__tar_missing[1] = "", mr__tar_twice[1] = "", mr__tar_linked[1] = "";

typedef struct tar_reader {
    mr_reader base;
    mr__tar_opts opts;           /* borrowed from the caller */
    struct archive *archive;     /* NULL: to be opened at the position of the stream */
    int64_t origin;              /* offset in the stream where it was opened */
    struct archive_entry *entry; /* NULL: no member is being read */
    char *key, *member; /* of the pending member, in one allocation; NULL: none is pending */
    int64_t offset;     /* of its header */
    bool first;         /* the pending member is the first of an archive */
    bool linked;        /* it is a link or a special file: the archive does not contain its data */
    bool found;         /* a member of a record was found in the file */
    char *unread;       /* the first file that belongs to no record; NULL: n_unread is 0 */
    int64_t n_unread;   /* the number of such files */
    bool listing;       /* only the members of the first record are read */
    mr_status failure;  /* of the stream, or one to return after the rows before it */
    mr_code due_code;
    bool failed, due, in_member; /* in_member: the last error is in the data of a member */
} tar_reader;

static tar_reader *of(mr_reader *r)
{
    return (tar_reader *)r;
}

static void drop_archive(tar_reader *t)
{
    if (t->archive)
        tar.archive_read_free(t->archive);
    mr_free(t->key);
    t->archive = NULL;
    t->entry = NULL;
    t->key = NULL;
    t->failed = false;
}

/* ---- callbacks and errors of libarchive ---- */

static la_ssize_t give_bytes(struct archive *a, void *ctx, const void **bytes)
{
    tar_reader *t = ctx;
    mr__byte_stream *in = &t->base.in;
    (void)a;
    if (in->at == in->end) {
        mr_code rc = mr__byte_stream_fill(in, 1, &t->failure);
        if (rc == MR_END)
            return 0;
        if (rc != MR_OK) {
            t->failed = true;
            return -1;
        }
    }
    *bytes = in->at;
    la_ssize_t n = in->end - in->at;
    in->at = in->end;
    return n;
}

/* ---- names ---- */

const char *mr__tar_name(const char **at, size_t *n)
{
    const char *name = *at;
    if (!name || !*name)
        return NULL;
    *n = strcspn(name, ";");
    *at = name + *n + (name[*n] == ';');
    *n -= *n && name[*n] == '\0' && name[*n - 1] == '?';
    return name;
}

static bool is_optional(const char *wanted)
{
    size_t n = strlen(wanted);
    return n && wanted[n - 1] == '?';
}

/* Not tolower, which the program's locale decides. */
static char small(char c)
{
    return (char)(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
}

bool mr__tar_same(const char *a, size_t n, const char *b, size_t m)
{
    size_t i = 0;
    while (n == m && i < n && small(a[i]) == small(b[i]))
        i++;
    return n == m && i == n;
}

static bool is_wanted(const char *wanted, const char *member)
{
    const char *name;
    for (size_t n, m = strlen(member); (name = mr__tar_name(&wanted, &n));)
        if (mr__tar_same(name, n, member, m))
            return true;
    return false;
}

/* ---- errors ---- */

/* The error that libarchive reports, or the error of the stream that caused it. */
static mr_code damaged(tar_reader *t, mr_status *st)
{
    if (t->failed) {
        if (st)
            *st = t->failure;
        return t->failure.code;
    }
    const char *why = tar.archive_error_string(t->archive);
    if (why && strstr(why, "llocate"))
        return mr_fail_memory(st, 0, "a tar archive");
    return mr_fail(st, MR_DATA_LOSS, "damaged tar archive: %s%s", why ? why : "of an unknown kind",
                   t->listing ? "" : "; the rest of the file is skipped");
}

static mr_code open_archive(tar_reader *t, mr_status *st)
{
    mr__byte_stream *in = &t->base.in;
    MR_TRY(mr__late_library_need(&library, st));
    mr_code rc = in->at < in->end ? MR_OK : mr__byte_stream_fill(in, 1, st);
    if (rc == MR_END)
        return mr_fail(st, MR_DATA_LOSS,
                       "the file is empty; even an archive without members has "
                       "1024 bytes");
    MR_TRY(rc);
    t->archive = tar.archive_read_new();
    if (!t->archive)
        return mr_fail_memory(st, 0, "a tar archive");
    t->origin = mr__byte_stream_offset(in);
    t->first = true;
    tar.archive_read_support_format_tar(t->archive);
    if (tar.archive_read_open(t->archive, t, NULL, give_bytes, NULL) == ARCHIVE_OK)
        return MR_OK;
    rc = damaged(t, st);
    drop_archive(t);
    return rc;
}

/* ---- the end of an archive ---- */

/* Reports what is odd about the end of the file; then it ends. */
static mr_code odd_end(tar_reader *t, const char *what, mr_status *st)
{
    if (t->base.strict && !t->listing)
        return mr_fail(st, MR_DATA_LOSS, "%s", what);
    if (!t->listing)
        mr_log(MR_LOG_WARNING, "%s: %s (byte %" PRId64 ")", t->base.in.path, what, t->offset);
    return MR_END;
}

/* Skips zeros. MR_END: nothing else follows. */
static mr_code skip_zeros(mr__byte_stream *in, mr_status *st)
{
    for (;;) {
        while (in->at < in->end && *in->at == 0)
            in->at++;
        if (in->at < in->end)
            return MR_OK;
        MR_TRY(mr__byte_stream_fill(in, 1, st));
    }
}

/* Whether these bytes are the header of a member: it has the sum of its bytes, those of the sum
 * taken for spaces. Old programs add signed bytes. */
static bool is_header(const uint8_t *h)
{
    enum { AT = 148, DIGITS = 8 };
    int sum = 0, signed_sum = 0, said = 0;
    size_t i = AT;
    for (size_t k = 0; k < BLOCK; k++) {
        uint8_t c = k >= AT && k < AT + DIGITS ? ' ' : h[k];
        sum += c;
        signed_sum += (int8_t)c;
    }
    while (i < AT + DIGITS && h[i] == ' ')
        i++;
    for (; i < AT + DIGITS && h[i] >= '0' && h[i] <= '7'; i++)
        said = 8 * said + (h[i] - '0');
    return said == sum || said == signed_sum;
}

/* Goes to `at`, from where libarchive was given bytes but has not used them. */
static mr_code go_back(mr__byte_stream *in, int64_t at, mr_status *st)
{
    int64_t too_far = mr__byte_stream_offset(in) - at;
    if (too_far > in->at - in->base)
        return mr__byte_stream_seek(in, at, st);
    in->at -= too_far;
    return MR_OK;
}

static mr_code count_unread(tar_reader *t, const char *path, mr_status *st)
{
    if (t->n_unread++ == 0) {
        t->unread = mr_strdup(path);
        if (!t->unread)
            return mr_fail_memory(st, strlen(path), "a member's name");
    }
    return MR_OK;
}

/* At the end of the file: names the files that belong to no record. It is an error if there are no
 * others. */
static mr_code report_unread(tar_reader *t, mr_status *st)
{
    if (!t->n_unread || t->listing)
        return MR_END;
    if (t->base.record == 0 && !t->found) {
        t->offset = 0;
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "none of its %" PRId64
                       " files belongs to a record, such as \"%s\": a record "
                       "is the files that have a key and an extension, such as \"0001.jpg\"",
                       t->n_unread, t->unread);
    }
    mr__warn_once("%s: %" PRId64 " file%s without a key or an extension %s to no record and %s "
                  "not read, such as \"%s\"",
                  t->base.in.path, t->n_unread, t->n_unread == 1 ? "" : "s",
                  t->n_unread == 1 ? "belongs" : "belong", t->n_unread == 1 ? "is" : "are",
                  t->unread);
    return MR_END;
}

/* At the end of an archive: continues with the one that follows it, as `cat` joins them. MR_END:
 * no other follows. */
static mr_code next_archive(tar_reader *t, mr_status *st)
{
    mr__byte_stream *in = &t->base.in;
    int64_t at = t->origin + tar.archive_filter_bytes(t->archive, 0);
    if (at == t->offset)
        return odd_end(t, "the archive has no end and may be cut short", st);
    MR_TRY(go_back(in, at, st));
    MR_TRY(skip_zeros(in, st));
    t->offset = mr__byte_stream_offset(in);
    if (in->end - in->at < BLOCK) {
        mr_code rc = mr__byte_stream_fill(in, BLOCK, st);
        if (rc < MR_OK)
            return rc;
    }
    if ((t->offset - at) % BLOCK || in->end - in->at < BLOCK || !is_header(in->at))
        return odd_end(t, "bytes that are not an archive follow its end and are not read", st);
    drop_archive(t);
    return open_archive(t, st);
}

/* Splits a path at the first dot of its last component. false: it has none, or starts with one. */
static bool split(tar_reader *t, const char *path, mr_status *st, mr_code *rc)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    const char *point = strchr(base, '.');
    *rc = MR_OK;
    if (!point || point == base || !point[1])
        return false;
    mr_free(t->key);
    t->key = mr_strdup(path);
    if (!t->key) {
        *rc = mr_fail_memory(st, strlen(path), "a member's name");
        return false;
    }
    t->key[point - path] = '\0';
    t->member = t->key + (point - path) + 1;
    return true;
}

/* Skips the rest of the current member. The stream is then at the next header. */
static mr_code leave_member(tar_reader *t, mr_status *st)
{
    int said = t->entry ? tar.archive_read_data_skip(t->archive) : ARCHIVE_OK;
    t->entry = NULL;
    t->in_member = said < ARCHIVE_WARN;
    if (t->in_member)
        return damaged(t, st);
    t->offset = t->origin + tar.archive_filter_bytes(t->archive, 0);
    return MR_OK;
}

/* Makes the next member pending. MR_END: no more members. */
static mr_code next_member(tar_reader *t, mr_status *st)
{
    if (!t->archive)
        MR_TRY(open_archive(t, st));
    else
        t->first = false;
    mr_free(t->key);
    t->key = NULL;
    for (;;) {
        mr_code rc;
        struct archive_entry *entry;
        MR_TRY(leave_member(t, st));
        int said = tar.archive_read_next_header(t->archive, &entry);
        if (said == ARCHIVE_EOF && !t->failed) {
            rc = next_archive(t, st);
            if (rc == MR_OK)
                continue;
            return rc == MR_END ? report_unread(t, st) : rc;
        }
        if (said != ARCHIVE_OK && said != ARCHIVE_WARN)
            return damaged(t, st);
        t->entry = entry;
        const char *path = tar.archive_entry_pathname(entry);
        unsigned type = tar.archive_entry_filetype(entry);
        if (type == S_IFDIR || !path)
            continue;
        t->linked = type != S_IFREG ||
                    (tar.archive_entry_hardlink(entry) && tar.archive_entry_size(entry) == 0);
        t->found |= split(t, path, st, &rc);
        if (rc != MR_OK || t->key)
            return rc;
        MR_TRY(count_unread(t, path, st));
    }
}

/* ---- contents of members ---- */

static void release(void *ctx, void *data)
{
    (void)ctx;
    mr_free(data);
}

/* Makes data, which `keeper` keeps (NULL: data is taken), a string of a whose origin is the header
 * at `offset`. */
static mr_code put_string(const tar_reader *t, mr_array *a, void *data, size_t size,
                          mr_buffer *keeper, int64_t offset, mr_bytes *to, mr_status *st)
{
    mr_buffer *b;
    mr_code rc = mr_buffer_wrap(&b, data, size, true, keeper ? NULL : release, NULL, st);
    if (rc != MR_OK) {
        if (!keeper)
            mr_free(data);
        return rc;
    }
    const mr_origin o = {
        .path = t->base.path, .at = data, .offset = offset, .record = t->base.record};
    mr_buffer_set_origin(b, &o);
    if (keeper)
        rc = mr_buffer_hold(b, keeper, st);
    if (rc == MR_OK)
        rc = mr_buffer_hold(a->owner, b, st);
    mr_buffer_unref(b);
    *to = (mr_bytes){data, size};
    return rc;
}

/* Joins the pieces of a member that has several, or holes. said: ARCHIVE_EOF for no pieces. */
static mr_code gather(tar_reader *t, int said, const void *piece, size_t n, int64_t at, char **out,
                      size_t *size, mr_status *st)
{
    char *all = NULL;
    size_t capacity = 0, used = 0;
    int64_t holes = 0;
    for (bool ended = false; !ended;) {
        mr_code rc = MR_OK;
        ended = said == ARCHIVE_EOF;
        if (ended) { /* a hole may follow the last piece */
            int64_t all_bytes = tar.archive_entry_size(t->entry);
            at = all_bytes > (int64_t)used ? all_bytes : (int64_t)used;
            n = 0;
        }
        if (!ended && said != ARCHIVE_OK && said != ARCHIVE_WARN)
            rc = damaged(t, st);
        else if (at < (int64_t)used || at > MOST_BYTES || (int64_t)n > MOST_BYTES - at)
            rc =
                mr_fail(st, MR_DATA_LOSS, "a member of more than 4 GiB, or with overlapping parts");
        else if ((holes += at - (int64_t)used) > MOST_HOLES)
            rc =
                mr_fail(st, MR_DATA_LOSS, "a sparse member with %" PRId64 " bytes of holes", holes);
        else
            rc = MR_GROW(all, capacity, (size_t)at + n + 1, SIZE_MAX, "a member", st);
        if (rc != MR_OK) {
            mr_free(all);
            return rc;
        }
        memset(all + used, 0, (size_t)at - used);
        if (n)
            memcpy(all + at, piece, n);
        used = (size_t)at + n;
        if (!ended)
            said = tar.archive_read_data_block(t->archive, &piece, &n, &at);
    }
    *out = all;
    *size = used;
    return MR_OK;
}

/* An empty string too has an origin. */
static mr_code put_empty(const tar_reader *t, mr_array *a, int64_t offset, mr_bytes *to,
                         mr_status *st)
{
    char *nothing = mr_calloc(1, 1);
    return nothing ? put_string(t, a, nothing, 0, NULL, offset, to, st)
                   : mr_fail_memory(st, 1, "an empty member");
}

static mr_code read_member(tar_reader *t, mr_array *a, mr_bytes *to, mr_status *st)
{
    const void *piece = NULL;
    size_t n = 0;
    int64_t at = 0;
    int said = tar.archive_read_data_block(t->archive, &piece, &n, &at);
    if (said == ARCHIVE_EOF && tar.archive_entry_size(t->entry) == 0)
        return put_empty(t, a, t->offset, to, st);
    if (said != ARCHIVE_OK && said != ARCHIVE_WARN && said != ARCHIVE_EOF)
        return damaged(t, st);
    mr_buffer *chunk = t->base.in.chunk;
    const char *first = chunk ? mr_buffer_data(chunk) : NULL, *p = piece;
    if (at == 0 && (int64_t)n == tar.archive_entry_size(t->entry) && first && p >= first &&
        p + n <= first + mr_buffer_size(chunk))
        return put_string(t, a, (void *)(uintptr_t)piece, n, chunk, t->offset, to, st);
    char *all = NULL;
    MR_TRY(gather(t, said, piece, n, at, &all, &n, st));
    return put_string(t, a, all, n, NULL, t->offset, to, st);
}

/* ---- records ---- */

static mr_code put_key(tar_reader *t, mr_array *a, mr_bytes *to, mr_status *st)
{
    size_t n = strlen(t->key);
    char *copy = mr_memdup(t->key, n + 1);
    if (!copy)
        return mr_fail_memory(st, n, "a key");
    return put_string(t, a, copy, n, NULL, t->offset, to, st);
}

static mr_code put_member(tar_reader *t, mr_array *a, mr_bytes *row, mr_status *st)
{
    for (size_t i = 0; i < t->opts.n; i++) {
        if (!is_wanted(t->opts.wanted[i], t->member))
            continue;
        if (row[i].data == mr__tar_missing && !t->linked)
            return read_member(t, a, &row[i], st);
        row[i] = (mr_bytes){row[i].data == mr__tar_missing ? mr__tar_linked : mr__tar_twice, 0};
        return MR_OK;
    }
    return MR_OK;
}

/* Keeps an error to return after the rows before it. */
static void keep_failure(tar_reader *t, mr_code rc, const mr_status *why)
{
    t->due = true;
    t->due_code = rc;
    t->failure = *why;
    mr_status_at(&t->failure, NULL, t->offset, -1);
    mr_free(t->key);
    t->key = NULL;
}

/* Whether a member that a record may lack was not found. */
static bool may_go_on(const tar_reader *t, const mr_bytes *row)
{
    for (size_t i = 0; i < t->opts.n; i++)
        if (row[i].data == mr__tar_missing && is_optional(t->opts.wanted[i]))
            return true;
    return false;
}

/* Reads the record that begins with the pending member into `row`; then the next record's first
 * member is pending. Damage after a member ends the record and is returned after it, unless a
 * member that the record may lack could be in what is damaged: then it replaces the record. */
static mr_code read_record(tar_reader *t, mr_array *a, mr_bytes *row, mr_status *st)
{
    int64_t offset = t->offset;
    for (size_t i = 0; i < t->opts.n; i++) {
        row[i] = (mr_bytes){mr__tar_missing, 0};
        if (strcmp(t->opts.wanted[i], MR__TAR_KEY) == 0)
            MR_TRY(put_key(t, a, &row[i], st));
    }
    char *key = mr_strdup(t->key);
    if (!key)
        return mr_fail_memory(st, strlen(t->key), "a key");
    mr_code rc = MR_OK;
    bool other = false; /* the pending member is of another archive */
    while (rc == MR_OK && t->key && !other && strcmp(t->key, key) == 0) {
        mr_status why;
        rc = put_member(t, a, row, st);
        if (rc != MR_OK)
            break;
        rc = next_member(t, &why);
        if (rc != MR_OK && rc != MR_END && !t->in_member && !may_go_on(t, row)) {
            keep_failure(t, rc, &why);
            rc = MR_OK;
        } else if (rc != MR_OK && rc != MR_END && st)
            *st = why;
        other = t->first;
    }
    mr_free(key);
    for (size_t i = 0; rc >= MR_OK && i < t->opts.n; i++)
        if (row[i].data == mr__tar_missing && is_optional(t->opts.wanted[i]))
            rc = put_empty(t, a, offset, &row[i], st);
    return rc == MR_END ? MR_OK : rc;
}

static size_t row_bytes(const tar_reader *t, const mr_bytes *row)
{
    size_t bytes = 0;
    for (size_t i = 0; i < t->opts.n; i++)
        bytes += row[i].size;
    return bytes;
}

/* Fills rows of a; *rows is their number. An error after a row is kept for the next call. */
static mr_code read_rows(tar_reader *t, mr_array *a, size_t want, size_t max_bytes, size_t *rows,
                         mr_status *st)
{
    mr_status why;
    mr_code rc = t->key ? MR_OK : next_member(t, &why);
    size_t bytes = 0;
    while (rc == MR_OK && t->key && *rows < want && (*rows == 0 || bytes < max_bytes)) {
        mr_bytes *row = mr_array_at(a, *rows);
        rc = read_record(t, a, row, &why);
        if (rc != MR_OK)
            break;
        bytes += row_bytes(t, row);
        t->base.record++;
        t->base.place = t->offset;
        t->base.ended = !t->key && !t->due; /* bytes after the last member are not read again */
        ++*rows;
    }
    if (rc != MR_OK && rc != MR_END && *rows)
        keep_failure(t, rc, &why);
    else if (rc != MR_OK && rc != MR_END && st)
        *st = why;
    return *rows ? MR_OK : rc;
}

static mr_code read_records(mr_reader *r, size_t want, size_t max_bytes, mr_array *out,
                            mr_status *st)
{
    tar_reader *t = of(r);
    const int64_t shape[] = {(int64_t)t->opts.n};
    size_t rows = 0, room = want < MOST_ROWS ? want : MOST_ROWS;
    mr_array a;
    if (t->due) {
        t->due = false;
        if (st)
            *st = t->failure;
        return mr__reader_give_up(r, t->due_code, st);
    }
    if (!r->has_place) {
        r->has_place = true;
        r->place = mr__byte_stream_offset(&r->in);
    }
    MR_TRY(mr_array_alloc(&a, MR_STRING, 1, shape, room, st));
    mr_status why;
    mr_code rc = read_rows(t, &a, room, max_bytes, &rows, &why);
    if (rc == MR_OK && rows) {
        a.rows = rows;
        *out = a;
        return MR_OK;
    }
    mr_array_reset(&a);
    if (rc == MR_OK || rc == MR_END) {
        r->ended = true;
        return MR_END;
    }
    if (st)
        *st = why;
    mr_status_at(st, r->in.path, t->offset, r->record);
    return mr__reader_give_up(r, rc, st);
}

static mr_code start(mr_reader *r, const void *own, mr_status *st)
{
    static const mr__tar_opts none;
    of(r)->opts = own ? *(const mr__tar_opts *)own : none;
    return mr__reader_keep_path(r, st);
}

static void forget_unread(tar_reader *t)
{
    mr_free(t->unread);
    t->unread = NULL;
    t->n_unread = 0;
    t->found = false;
}

static void moved(mr_reader *r)
{
    drop_archive(of(r));
    forget_unread(of(r));
    of(r)->due = false;
    r->has_place = false;
}

static void stop(mr_reader *r)
{
    drop_archive(of(r));
    forget_unread(of(r));
}

const mr_format mr__format_tar = {.reader_size = sizeof(tar_reader),
                                  .start = start,
                                  .read = read_records,
                                  .moved = moved,
                                  .stop = stop};

/* ---- members of the first record ---- */

static mr_code add_name(tar_reader *t, char ***names, size_t *n, size_t *capacity, mr_status *st)
{
    for (char *c = t->member; *c; c++)
        *c = small(*c);
    for (size_t i = 0; i < *n; i++)
        if (strcmp((*names)[i], t->member) == 0)
            return MR_OK;
    MR_TRY(
        mr_grow((void **)names, capacity, *n + 1, sizeof **names, 65536, "names of members", st));
    (*names)[*n] = mr_strdup(t->member);
    if (!(*names)[*n])
        return mr_fail_memory(st, strlen(t->member), "a member's name");
    ++*n;
    return MR_OK;
}

static mr_code list_members(tar_reader *t, char ***names, size_t *n, mr_status *st)
{
    size_t capacity = 0;
    t->listing = true;
    mr_code rc = next_member(t, st);
    if (rc == MR_END)
        return mr_fail(
            st, MR_INVALID_ARGUMENT,
            "the archive has no members with a key and an extension, such as \"0001.jpg\"");
    MR_TRY(rc);
    char *key = mr_strdup(t->key);
    if (!key)
        return mr_fail_memory(st, strlen(t->key), "a key");
    for (bool other = false; rc == MR_OK && t->key && !other && strcmp(t->key, key) == 0;) {
        rc = add_name(t, names, n, &capacity, st);
        if (rc == MR_OK)
            rc = next_member(t, st);
        other = t->first;
    }
    mr_free(key);
    return rc == MR_END ? MR_OK : rc;
}

mr_code mr__tar_members(const char *path, const mr_file_opts *opts, char ***names, size_t *n,
                        mr_status *st)
{
    mr_reader *r = NULL;
    *names = NULL;
    *n = 0;
    mr_code rc = mr_reader_open(&r, &mr__format_tar, path, opts, st);
    if (rc == MR_OK)
        rc = list_members(of(r), names, n, st);
    if (rc != MR_OK) {
        mr_status_at(st, path, -1, -1);
        for (size_t i = 0; i < *n; i++)
            mr_free((*names)[i]);
        mr_free(*names);
    }
    mr_reader_close(r);
    return rc;
}
