/* SPDX-License-Identifier: Apache-2.0 */
/* The entries of an array in the order of C are contiguous in the file: records are views of the
 * chunks. Those of other arrays are put together from memory, which holds the values of all
 * arrays: of an array in the order of Fortran, and of the arrays of an NPZ file.
 *
 *     entry of an NPZ file   | entry of array a | entry of array b | ...
 */
#include <archive.h>
#include <archive_entry.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "pipeline/bytes.h"
#include "pipeline/files/file_name.h"
#include "pipeline/formats/npy.h"
#include "pipeline/log.h"
#include "pipeline/memory_bound.h"
#include "pipeline/system/late_library.h"

#define ARCHIVE(X)                                                                                 \
    X(archive_read_new)                                                                            \
    X(archive_read_support_format_zip)                                                             \
    X(archive_read_set_read_callback)                                                              \
    X(archive_read_set_seek_callback)                                                              \
    X(archive_read_set_skip_callback)                                                              \
    X(archive_read_set_callback_data)                                                              \
    X(archive_read_open1)                                                                          \
    X(archive_read_next_header)                                                                    \
    X(archive_read_data)                                                                           \
    X(archive_read_free)                                                                           \
    X(archive_error_string)                                                                        \
    X(archive_entry_pathname)                                                                      \
    X(archive_entry_filetype)
static struct {
    ARCHIVE(MR__LATE_MEMBER)
} zip;
static mr__late_library library =
    MR__LATE_LIBRARY("npz files are read", "libarchive.so.13", "libarchive13", ARCHIVE, zip);

enum { FIRST_HEAD = 12, PIECE = 1 << 20, MOST_ARRAYS = 65536 };

/* An array in memory. */
typedef struct member {
    mr__npy_type type;
    mr_buffer *owner;
    const uint8_t *values;
    size_t at; /* of its entry in the entry of the file */
} member;

typedef struct npy_reader {
    mr_reader base;
    mr__npy_opts opts;
    mr__npy_type type; /* of the file's entries */
    int64_t values;    /* offset of the first entry, if there are no members */
    member *members;
    size_t n_members, members_room;
    size_t held; /* bytes of the members */
    struct archive *archive;
    mr_status failure; /* of the stream, within libarchive */
    bool failed;
} npy_reader;

static npy_reader *of(mr_reader *r)
{
    return (npy_reader *)r;
}

/* ---- heads ---- */

/* The window of the stream has n bytes. */
static mr_code need(mr__byte_stream *in, size_t n, mr_status *st)
{
    if ((size_t)(in->end - in->at) >= n)
        return MR_OK;
    mr_code rc = mr__byte_stream_fill(in, n, st);
    if (rc == MR_END || (rc == MR_OK && (size_t)(in->end - in->at) < n))
        return MR_END;
    return rc;
}

static mr_code truncated(int64_t count, int64_t have, mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS,
                   "the file is truncated: its head says %" PRId64
                   " entries, and the values end after %" PRId64,
                   count, have);
}

/* Elements must be what the graph says. */
static mr_code check_type(const npy_reader *n, mr_status *st)
{
    mr_spec *here = NULL;
    char is[200], wanted[200];
    if (!n->opts.spec)
        return MR_OK;
    MR_TRY(mr__npy_type_spec(&n->type, &here, st));
    bool same = mr_spec_equal(here, n->opts.spec);
    mr_spec_format(here, is, sizeof is);
    mr_spec_format(n->opts.spec, wanted, sizeof wanted);
    mr_spec_unref(here);
    return same ? MR_OK
                : mr_fail(st, MR_INVALID_ARGUMENT,
                          "its entries are %s, and those of the first file or the schema %s", is,
                          wanted);
}

/* Other arrays in the file would be lost in silence. */
static void warn_of_rest(const npy_reader *n, int64_t end)
{
    int64_t size = n->base.in.size;
    if (size > end)
        mr_log(MR_LOG_WARNING,
               "%s: %" PRId64 " bytes follow the array and are not read; an NPY file has one array",
               n->base.in.path, size - end);
}

static mr_code start_npy(mr_reader *r, const void *own, mr_status *st)
{
    npy_reader *n = of(r);
    mr__byte_stream *in = &r->in;
    size_t size;
    if (own)
        n->opts = *(const mr__npy_opts *)own;
    mr_code rc = need(in, FIRST_HEAD, st);
    if (rc == MR_OK || rc == MR_END)
        rc = mr__npy_head_size(in->at, (size_t)(in->end - in->at), &size, st);
    if (rc == MR_OK)
        rc = need(in, size, st);
    if (rc == MR_END)
        rc = mr_fail(st, MR_DATA_LOSS, "the file is truncated: it ends in its head");
    if (rc == MR_OK)
        rc = mr__npy_head_read(in->at, size, &n->type, st);
    if (rc == MR_OK)
        rc = check_type(n, st);
    if (rc != MR_OK) {
        mr_status_at(st, in->path, -1, -1);
        return rc;
    }
    in->at += size;
    n->values = (int64_t)size;
    const mr__npy_type *t = &n->type;
    int64_t bytes = (int64_t)t->entry * t->count;
    if (n->opts.heads_only)
        return MR_OK;
    warn_of_rest(n, n->values + bytes);
    if (!t->fortran || t->rank < 2)
        return MR_OK;
    rc = need(in, (size_t)bytes, st);
    if (rc == MR_END)
        rc = truncated(t->count, 0, st);
    if (rc == MR_OK)
        rc = MR_GROW(n->members, n->members_room, 1, 1, "an array", st);
    if (rc != MR_OK) {
        mr_status_at(st, in->path, -1, -1);
        return rc;
    }
    n->members[n->n_members++] =
        (member){.type = *t, .owner = mr_buffer_ref(in->chunk), .values = in->at};
    n->members[0].type.fields = NULL; /* the reader's */
    n->members[0].type.n = 0;
    return MR_OK;
}

/* ---- NPZ ---- */

static la_ssize_t give_bytes(struct archive *a, void *ctx, const void **bytes)
{
    npy_reader *n = ctx;
    mr__byte_stream *in = &n->base.in;
    (void)a;
    if (in->at == in->end) {
        mr_code rc = mr__byte_stream_fill(in, 1, &n->failure);
        if (rc == MR_END)
            return 0;
        if (rc != MR_OK) {
            n->failed = true;
            return -1;
        }
    }
    *bytes = in->at;
    la_ssize_t size = in->end - in->at;
    in->at = in->end;
    return size;
}

static mr_code zip_error(npy_reader *n, mr_status *st)
{
    if (n->failed) {
        if (st)
            *st = n->failure;
        return n->failure.code;
    }
    const char *why = zip.archive_error_string(n->archive);
    if (why && strstr(why, "llocate"))
        return mr_fail_memory(st, 0, "a zip archive");
    return mr_fail(st, MR_DATA_LOSS, "damaged NPZ file: %s", why ? why : "no zip archive");
}

static la_int64_t seek_bytes(struct archive *a, void *ctx, la_int64_t offset, int whence)
{
    npy_reader *n = ctx;
    mr__byte_stream *in = &n->base.in;
    (void)a;
    offset += whence == SEEK_CUR ? mr__byte_stream_offset(in) : whence == SEEK_END ? in->size : 0;
    offset = offset < 0 ? 0 : offset > in->size ? in->size : offset;
    if (mr__byte_stream_seek(in, offset, &n->failure) == MR_OK)
        return offset;
    n->failed = true;
    return ARCHIVE_FATAL;
}

static la_int64_t skip_bytes(struct archive *a, void *ctx, la_int64_t n)
{
    const mr__byte_stream *in = &((npy_reader *)ctx)->base.in;
    int64_t left = in->size - mr__byte_stream_offset(in);
    la_int64_t most = n < left ? n : left;
    return seek_bytes(a, ctx, most, SEEK_CUR) < 0 ? ARCHIVE_FATAL : most;
}

/* A file that can be read anywhere has its members found by the list at its end; nothing else of it
 * is read than the heads, and the arrays that are asked for. */
static mr_code open_zip(npy_reader *n, mr_status *st)
{
    struct archive *a = n->archive = zip.archive_read_new();
    if (!a)
        return mr_fail_memory(st, 0, "a zip archive");
    zip.archive_read_support_format_zip(a);
    zip.archive_read_set_callback_data(a, n);
    zip.archive_read_set_read_callback(a, give_bytes);
    if (n->base.in.size >= 0) {
        zip.archive_read_set_seek_callback(a, seek_bytes);
        zip.archive_read_set_skip_callback(a, skip_bytes);
    }
    return zip.archive_read_open1(a) == ARCHIVE_OK ? MR_OK : zip_error(n, st);
}

/* Reads up to `size` bytes of the current member. */
static mr_code read_member(npy_reader *n, void *to, size_t size, size_t *got, mr_status *st)
{
    for (*got = 0; *got < size;) {
        la_ssize_t more = zip.archive_read_data(n->archive, (char *)to + *got, size - *got);
        if (more < 0)
            return zip_error(n, st);
        if (more == 0)
            break;
        *got += (size_t)more;
    }
    return MR_OK;
}

/* *out = the values of an array; memory grows with the bytes that exist. */
static mr_code read_values(npy_reader *n, const mr__npy_type *t, mr_buffer **out, mr_status *st)
{
    size_t bytes = t->entry * (size_t)t->count, have = 0, room = bytes < PIECE ? bytes : PIECE;
    mr_buffer *b = NULL;
    MR_TRY(mr_buffer_alloc(&b, room + 1, st));
    mr_code rc = MR_OK;
    while (rc == MR_OK && have < bytes) {
        size_t got;
        if (have == room) {
            mr_buffer *larger = NULL;
            room = bytes - room < room ? bytes : 2 * room;
            rc = mr_buffer_alloc(&larger, room + 1, st);
            if (rc != MR_OK)
                break;
            memcpy(mr_buffer_data(larger), mr_buffer_data(b), have);
            mr_buffer_unref(b);
            b = larger;
        }
        rc = read_member(n, (char *)mr_buffer_data(b) + have, room - have, &got, st);
        have += got;
        if (rc == MR_OK && have < room)
            rc = truncated(t->count, t->entry ? (int64_t)(have / t->entry) : 0, st);
    }
    uint8_t beyond;
    size_t more = 0;
    if (rc == MR_OK) /* the checksum is checked at the end */
        rc = read_member(n, &beyond, 1, &more, st);
    if (rc == MR_OK && more)
        rc = mr_fail(st, MR_DATA_LOSS, "bytes follow the array");
    if (rc == MR_OK)
        *out = b;
    else
        mr_buffer_unref(b);
    return rc;
}

/* The arrays of a file follow one another, and are read side by side. */
static mr_code check_memory(npy_reader *n, const mr__npy_type *t, mr_status *st)
{
    size_t most = mr__memory_bound();
    if (__builtin_add_overflow(n->held, t->entry * (size_t)t->count, &n->held))
        n->held = SIZE_MAX;
    return n->held <= most
               ? MR_OK
               : mr_fail(st, MR_RESOURCE_EXHAUSTED,
                         "it and the arrays before it take %zu bytes, which are in memory at once, "
                         "and this memory limit allows at most %zu; name fewer in arrays=[...], or "
                         "save them as NPY files, which are read in pieces",
                         n->held, most);
}

/* Adds the array of the current member, called `name`. */
static mr_code add_member(npy_reader *n, const char *name, mr_status *st)
{
    uint8_t *head = mr_malloc(FIRST_HEAD);
    size_t got, size = 0;
    mr__npy_type t = {0};
    mr_code rc = head ? read_member(n, head, FIRST_HEAD, &got, st)
                      : mr_fail_memory(st, FIRST_HEAD, "an array");
    if (rc == MR_OK)
        rc = mr__npy_head_size(head, got, &size, st);
    if (rc == MR_OK && size < FIRST_HEAD) /* what was read of it already */
        rc = mr_fail(st, MR_DATA_LOSS, "its head is too short");
    uint8_t *whole = rc == MR_OK ? mr_realloc(head, size + FIRST_HEAD) : NULL;
    if (rc == MR_OK && !whole)
        rc = mr_fail_memory(st, size, "an array");
    head = whole ? whole : head;
    if (rc == MR_OK)
        rc = read_member(n, head + FIRST_HEAD, size - FIRST_HEAD, &got, st);
    if (rc == MR_OK && got < size - FIRST_HEAD)
        rc = mr_fail(st, MR_DATA_LOSS, "it ends in its head");
    if (rc == MR_OK)
        rc = mr__npy_head_read(head, size, &t, st);
    mr_free(head);
    if (rc == MR_OK && n->n_members && t.count != n->type.count)
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "it has %" PRId64 " entries on axis 0, and the arrays before it %" PRId64
                     "; arrays=[...] says which are read",
                     t.count, n->type.count);
    member m = {.type = t, .at = n->type.entry};
    if (rc == MR_OK && !n->opts.heads_only)
        rc = check_memory(n, &t, st);
    if (rc == MR_OK && !n->opts.heads_only)
        rc = read_values(n, &t, &m.owner, st);
    m.values = m.owner ? mr_buffer_data(m.owner) : NULL;
    n->type.count = t.count;
    for (size_t i = 0; i < t.n && rc == MR_OK; i++) { /* its fields become the file's */
        mr__npy_field f = t.fields[i];
        f.name = *f.name ? mr_strf("%s/%s", name, f.name) : mr_strdup(name);
        f.offset += m.at;
        rc = f.name ? MR_GROW(n->type.fields, n->type.room, n->type.n + 1, MOST_ARRAYS,
                              "arrays of an NPZ file", st)
                    : mr_fail_memory(st, strlen(name), "an array's name");
        if (rc == MR_OK)
            n->type.fields[n->type.n++] = f;
        else
            mr_free(f.name);
    }
    if (rc == MR_OK)
        rc = MR_GROW(n->members, n->members_room, n->n_members + 1, MOST_ARRAYS,
                     "arrays of an NPZ file", st);
    if (rc == MR_OK) {
        n->type.entry += t.entry;
        n->members[n->n_members++] = m;
        return MR_OK;
    }
    mr_buffer_unref(m.owner);
    mr__npy_type_reset(&t);
    mr_status_prefix(st, "array '%.200s'", name);
    return rc;
}

/* Without names: what the elements consist of. */
static bool is_component(const mr_spec *spec, const char *name)
{
    size_t size = strlen(name);
    bool found = mr_spec_kind_of(spec) != MR_SPEC_RECORD;
    for (size_t i = 0; !found && i < mr_spec_n_children(spec); i++) {
        const char *child = mr_spec_child_name(spec, i);
        found = strncmp(child, name, size) == 0 && (child[size] == '\0' || child[size] == '/');
    }
    return found;
}

static bool is_wanted(const npy_reader *n, const char *name)
{
    const mr_strs *arrays = n->opts.arrays;
    bool wanted = !arrays || arrays->n == 0;
    if (wanted)
        return !n->opts.spec || is_component(n->opts.spec, name);
    for (size_t i = 0; !wanted && i < arrays->n; i++)
        wanted = strcmp(arrays->v[i].data, name) == 0;
    return wanted;
}

static mr_code read_arrays(npy_reader *n, mr_status *st)
{
    struct archive_entry *e;
    int said;
    mr_code rc = MR_OK;
    while (rc == MR_OK && (said = zip.archive_read_next_header(n->archive, &e)) != ARCHIVE_EOF) {
        if (said != ARCHIVE_OK && said != ARCHIVE_WARN)
            return zip_error(n, st);
        const char *path = zip.archive_entry_pathname(e);
        char *name = path ? mr_strdup(path) : NULL;
        size_t size = name ? strlen(name) : 0;
        if (path && !name)
            return mr_fail_memory(st, strlen(path), "an array's name");
        if (size > 4 && strcmp(name + size - 4, ".npy") == 0)
            name[size - 4] = '\0';
        if (name && zip.archive_entry_filetype(e) == S_IFREG && is_wanted(n, name))
            rc = add_member(n, name, st);
        mr_free(name);
    }
    return rc == MR_OK && n->failed ? zip_error(n, st) : rc;
}

/* All arrays that are asked for are there. */
static mr_code check_arrays(const npy_reader *n, mr_status *st)
{
    const mr_strs *asked = n->opts.arrays;
    for (size_t i = 0; asked && i < asked->n; i++) {
        const char *name = asked->v[i].data;
        size_t size = strlen(name);
        bool there = false;
        for (size_t k = 0; k < n->type.n && !there; k++)
            there = strncmp(n->type.fields[k].name, name, size) == 0 &&
                    (n->type.fields[k].name[size] == '\0' || n->type.fields[k].name[size] == '/');
        if (!there)
            return mr_fail(st, MR_INVALID_ARGUMENT, "there is no array '%.200s'", name);
    }
    return n->type.n ? MR_OK : mr_fail(st, MR_INVALID_ARGUMENT, "the file has no arrays");
}

static mr_code start_npz(mr_reader *r, const void *own, mr_status *st)
{
    npy_reader *n = of(r);
    if (own)
        n->opts = *(const mr__npy_opts *)own;
    mr_code rc = mr__late_library_need(&library, st);
    if (rc == MR_OK)
        rc = open_zip(n, st);
    if (rc == MR_OK)
        rc = read_arrays(n, st);
    if (rc == MR_OK)
        rc = check_arrays(n, st);
    if (rc == MR_OK)
        rc = check_type(n, st);
    if (n->archive)
        zip.archive_read_free(n->archive);
    n->archive = NULL;
    mr_status_at(st, rc == MR_OK ? NULL : r->in.path, -1, -1);
    return rc;
}

static void stop(mr_reader *r)
{
    npy_reader *n = of(r);
    for (size_t i = 0; i < n->n_members; i++) {
        mr_buffer_unref(n->members[i].owner);
        mr__npy_type_reset(&n->members[i].type);
    }
    mr_free(n->members);
    mr__npy_type_reset(&n->type);
}

/* ---- entries ---- */

/* Copies entry i of an array to `to`. */
static void copy_entry(const member *m, int64_t i, uint8_t *to)
{
    const mr__npy_type *t = &m->type;
    int64_t index[MR_MAX_RANK + 1] = {i};
    if (!t->fortran || t->rank < 2) {
        memcpy(to, m->values + (size_t)i * t->entry, t->entry);
        return;
    }
    for (size_t k = 0; k < t->entry; k += t->item) {
        size_t from = 0;
        for (int d = t->rank; d-- > 0;)
            from = from * (size_t)t->shape[d] + (size_t)index[d];
        memcpy(to + k, m->values + from * t->item, t->item);
        for (int d = t->rank - 1; d > 0 && ++index[d] == t->shape[d]; d--)
            index[d] = 0;
    }
}

static mr_code read_memory(npy_reader *n, size_t rows, mr_array *a, mr_status *st)
{
    size_t entry = n->type.entry;
    mr_buffer *b = NULL;
    MR_TRY(mr_buffer_alloc(&b, rows * entry + 1, st));
    uint8_t *to = mr_buffer_data(b);
    for (size_t i = 0; i < rows; i++, to += entry) {
        for (size_t k = 0; k < n->n_members; k++)
            copy_entry(&n->members[k], n->base.record + (int64_t)i, to + n->members[k].at);
        ((mr_bytes *)a->data)[i] = (mr_bytes){(const char *)to, entry};
    }
    mr_code rc = mr_buffer_hold(a->owner, b, st);
    mr_buffer_unref(b);
    return rc;
}

static mr_code read_entries(mr_reader *r, size_t want, size_t max_bytes, mr_array *out,
                            mr_status *st)
{
    npy_reader *n = of(r);
    mr__byte_stream *in = &r->in;
    int64_t left = n->type.count - r->record;
    size_t entry = n->type.entry, fit = entry && max_bytes / entry ? max_bytes / entry : 1;
    size_t rows = entry ? fit : want;
    rows = rows < want ? rows : want;
    rows = (int64_t)rows < left ? rows : (size_t)left;
    if (left == 0) {
        r->ended = true;
        return MR_END;
    }
    if (!n->n_members && entry) {
        mr_code rc = need(in, entry, st);
        if (rc == MR_END)
            rc = truncated(n->type.count, r->record, st);
        if (rc != MR_OK)
            return mr__reader_give_up(r, rc, st);
        size_t there = (size_t)(in->end - in->at) / entry;
        rows = rows < there ? rows : there;
    }
    mr_array a = {0};
    MR_TRY(mr_array_alloc(&a, MR_STRING, 0, NULL, rows, st));
    if (n->n_members) {
        mr_code rc = read_memory(n, rows, &a, st);
        if (rc != MR_OK) {
            mr_array_reset(&a);
            return rc;
        }
        *out = a;
    } else {
        for (size_t i = 0; i < rows; i++)
            ((mr_bytes *)a.data)[i] = (mr_bytes){(const char *)in->at + i * entry, entry};
        MR_TRY(mr__reader_emit(r, &a, rows, out, st));
        in->at += rows * entry;
    }
    r->record += (int64_t)rows;
    return MR_OK;
}

static mr_code seek(mr_reader *r, const mr_file_position *to, mr_status *st)
{
    const npy_reader *n = of(r);
    if (to->record < 0 || to->record > n->type.count)
        return mr_fail(st, MR_OUT_OF_RANGE,
                       "the file has %" PRId64 " entries, and the position is entry %" PRId64
                       "; is it the file that was saved?",
                       n->type.count, to->record);
    return n->n_members
               ? MR_OK
               : mr__byte_stream_seek(&r->in, n->values + to->record * (int64_t)n->type.entry, st);
}

static mr_code skip(mr_reader *r, int64_t count, int64_t *skipped, mr_status *st)
{
    const npy_reader *n = of(r);
    int64_t left = n->type.count - r->record;
    const mr_file_position to = {.record = r->record + (count < left ? count : left)};
    MR_TRY(seek(r, &to, st));
    *skipped = to.record - r->record;
    r->record = to.record;
    return MR_OK;
}

const mr_format mr__format_npy = {.reader_size = sizeof(npy_reader),
                                  .start = start_npy,
                                  .read = read_entries,
                                  .seek = seek,
                                  .skip = skip,
                                  .stop = stop};
const mr_format mr__format_npz = {.reader_size = sizeof(npy_reader),
                                  .start = start_npz,
                                  .read = read_entries,
                                  .seek = seek,
                                  .skip = skip,
                                  .stop = stop};

/* ---- columns ---- */

/* Copies values of a number. */
static void copy_numbers(const mr__npy_field *f, const uint8_t *from, uint8_t *to)
{
    size_t n = f->values * f->stored;
    memcpy(to, from, n);
    for (size_t i = 0; f->kind == 'b' && i < n; i++)
        to[i] = to[i] != 0;
    for (size_t i = 0; f->swapped && i < n; i += f->stored)
        for (size_t k = 0; k < f->stored / 2; k++) {
            uint8_t low = to[i + k];
            to[i + k] = to[i + f->stored - 1 - k];
            to[i + f->stored - 1 - k] = low;
        }
}

/* Writes the characters of a string of numpy's type U as UTF-8; returns the bytes. */
static size_t put_characters(const mr__npy_field *f, const uint8_t *from, uint8_t *to)
{
    size_t n = f->stored / 4, size = 0;
    uint32_t v[4];
    for (; n; n--) { /* zeros fill it up */
        memcpy(v, from + 4 * (n - 1), 4);
        if (v[0])
            break;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t c = (uint32_t)mr__load_le(from + 4 * i, 4);
        c = f->swapped ? __builtin_bswap32(c) : c;
        if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
            c = 0xfffd;
        if (c < 0x80)
            to[size++] = (uint8_t)c;
        else {
            int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
            static const uint8_t lead[] = {0, 0xc0, 0xe0, 0xf0};
            to[size++] = (uint8_t)(lead[more] | c >> 6 * more);
            while (more-- > 0)
                to[size++] = (uint8_t)(0x80 | (c >> 6 * more & 0x3f));
        }
    }
    return size;
}

/* Sets the strings of a field; `room` has the bytes of those of type U. */
static void put_strings(const mr__npy_field *f, const uint8_t *from, uint8_t **room, mr_bytes *to)
{
    for (size_t i = 0; i < f->values; i++, from += f->stored) {
        size_t n = f->stored;
        if (f->kind == 'U') {
            n = put_characters(f, from, *room);
            to[i] = (mr_bytes){(const char *)*room, n};
            *room += n;
            continue;
        }
        while (n && !from[n - 1])
            n--;
        to[i] = (mr_bytes){(const char *)from, n};
    }
}

static mr_code column_of(const mr__npy_field *f, const mr_array *records, mr_array *out,
                         mr_status *st)
{
    const mr_bytes *v = records->data;
    size_t size = mr_dtype_size(f->dtype), per_row = f->items * f->values;
    mr_buffer *text = NULL;
    mr_array a;
    MR_TRY(mr_array_alloc(&a, f->dtype, f->rank, f->shape, records->rows, st));
    mr_code rc = MR_OK;
    if (f->kind == 'U') { /* a character has at most four bytes in both */
        rc = mr_buffer_alloc(&text, records->rows * per_row * f->stored + 1, st);
        if (rc == MR_OK)
            rc = mr_buffer_hold(a.owner, text, st);
    } else if (f->kind == 'S')
        rc = mr_buffer_hold_all(a.owner, records->owner, st);
    uint8_t *room = text ? mr_buffer_data(text) : NULL, *to = a.data;
    for (size_t r = 0; r < records->rows && rc == MR_OK; r++)
        for (size_t k = 0; k < f->items; k++, to += f->values * size) {
            const uint8_t *from = (const uint8_t *)v[r].data + f->offset + k * f->stride;
            if (f->dtype == MR_STRING)
                put_strings(f, from, &room, (mr_bytes *)(void *)to);
            else if (f->values)
                copy_numbers(f, from, to);
        }
    mr_buffer_unref(text);
    if (rc == MR_OK)
        *out = a;
    else
        mr_array_reset(&a);
    return rc;
}

/* In the order of the names, as the components of a record are. */
static size_t place_of(const mr__npy_type *t, size_t field)
{
    size_t place = 0;
    for (size_t i = 0; i < t->n; i++)
        place += strcmp(t->fields[i].name, t->fields[field].name) < 0;
    return place;
}

mr_code mr__npy_columns(const mr_reader *r, const mr_array *records, mr_array *columns,
                        mr_status *st)
{
    const mr__npy_type *t = &((const npy_reader *)r)->type;
    for (size_t i = 0; i < t->n; i++)
        MR_TRY(column_of(&t->fields[i], records, &columns[place_of(t, i)], st));
    return MR_OK;
}

/* ---- known before reading ---- */

static mr_code look(const mr_format *format, const char *path, const mr_strs *arrays,
                    uint64_t *mark, mr_reader **out, mr_status *st)
{
    const mr__npy_opts own = {.arrays = arrays, .heads_only = true};
    const mr_file_opts opts = {.no_ahead = true, .own = &own, .mark = mark};
    if (mr__file_is_pipe(path))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "a pipe can be read only once, and its first bytes determine the type of "
                       "elements: give the schema, or write it to a file first");
    return mr_reader_open(out, format, path, &opts, st);
}

mr_code mr__npy_file_spec(const mr_format *format, const char *path, const mr_strs *arrays,
                          mr_spec **out, mr_status *st)
{
    mr_reader *r = NULL;
    MR_TRY(look(format, path, arrays, NULL, &r, st));
    mr_code rc = mr__npy_type_spec(&of(r)->type, out, st);
    mr_reader_close(r);
    return rc;
}

mr_code mr__npy_file_count(const mr_format *format, const char *path, const mr_strs *arrays,
                           int64_t *rows, uint64_t *mark, mr_status *st)
{
    mr_reader *r = NULL;
    MR_TRY(look(format, path, arrays, mark, &r, st));
    *rows = of(r)->type.count;
    mr_reader_close(r);
    return MR_OK;
}
