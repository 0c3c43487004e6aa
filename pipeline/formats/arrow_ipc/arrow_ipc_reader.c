/* SPDX-License-Identifier: Apache-2.0 */
/* Reader of the rows of Arrow files. The metadata of a batch is read first, so seeking to a row and
 * counting rows read nothing more of the batches before it. The body is read when rows of it are
 * requested. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/formats/arrow_ipc/arrow_ipc.h"
#include "pipeline/bytes.h"
#include "pipeline/files/file_name.h"
#include "pipeline/formats/arrow_ipc/arrow_ipc_source.h"
#include "pipeline/formats/format.h"
#include "pipeline/log.h"

enum { TAIL = 10, PLACE = 24, FIRST_MESSAGE = 8 };

typedef struct arrow_reader {
    mr_reader base;
    mr__arrow_opts opts;
    mr__arrow_source source;
    mr__arrow_schema schema;
    mr__arrow_loader *loader; /* NULL: rows are only counted */
    bool begun;
    int64_t first_message, next; /* of the stream: after the schema; after the current batch */
    int64_t end;                 /* of the stream, once it was met */
    /* of a file with a footer */
    mr_buffer *footer; /* NULL: a stream, or read as one */
    mr__flat flat;
    mr__flat_vector batches;
    mr_status late; /* error in the footer; MR_OK: none */
    /* the current batch */
    bool at_hand;
    int64_t number; /* of the batch, from 0; of the next one if none is current */
    int64_t offset, body;
    int64_t first, rows, at; /* record number of its first row; its rows; the next of them */
    mr_buffer *metadata;
    mr__arrow_message message;
    mr_buffer *whole; /* its body, if it was read as a whole */
    bool loaded;
    mr_block block;
    uint32_t *nulls;
    size_t row_bytes; /* on average */
    int64_t taken;    /* rows that the last read returned */
} arrow_reader;

static arrow_reader *of(mr_reader *r)
{
    return (arrow_reader *)r;
}

static mr_code damaged(const char *what, mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS, "damaged Arrow file: %s", what);
}

/* ---- the head and the footer ---- */

static mr_code read_footer(arrow_reader *r, mr_status *st)
{
    uint8_t tail[TAIL];
    size_t got;
    int64_t size = r->source.size, at = size - TAIL;
    if (at < FIRST_MESSAGE)
        return damaged("it has no footer; it is truncated", st);
    MR_TRY(mr__arrow_source_read(&r->source, at, tail, sizeof tail, &got, st));
    if (got < sizeof tail || memcmp(tail + 4, MR__ARROW_FILE_HEAD, 6) != 0)
        return damaged("it has no footer; it is truncated", st);
    uint32_t n = (uint32_t)mr__load_le(tail, 4);
    if (n > (uint64_t)(at - FIRST_MESSAGE))
        return damaged("its footer would be longer than the file", st);
    mr_buffer *b;
    MR_TRY(mr__arrow_source_get(&r->source, at - (int64_t)n, n, &b, st));
    mr__flat f = {.v = mr_buffer_data(b), .n = n};
    mr__flat_table t = mr__flat_root(&f), schema = mr__flat_child(&f, &t, 1);
    mr__flat_vector batches = mr__flat_items(&f, &t, 3, PLACE);
    mr_code rc = f.bad || !schema.at ? damaged("its footer has an invalid offset", st)
                                     : mr__arrow_schema_read(&r->schema, &f, &schema,
                                                             mr__flat_int(&f, &t, 0, 2, 0), st);
    if (rc != MR_OK) {
        mr_buffer_unref(b);
        mr__arrow_schema_reset(&r->schema);
        return rc;
    }
    r->footer = b;
    r->flat = f;
    r->batches = batches;
    return MR_OK;
}

/* Position of message i of a list in the footer. */
static mr_code place_of(arrow_reader *r, const mr__flat_vector *v, size_t i, int64_t *at,
                        mr_status *st)
{
    *at = mr__flat_read(&r->flat, v->at + PLACE * i, 8);
    if (*at < FIRST_MESSAGE || *at > r->source.size)
        return damaged("its footer has an invalid offset", st);
    return MR_OK;
}

static mr_code fail_not_arrow(const mr__arrow_source *s, mr_status *st)
{
    char text[4 * sizeof s->first + 1];
    size_t n = 0;
    const char *name = mr__compressor_of_table(s->first, s->n_first);
    if (name)
        return mr_fail(st, MR_DATA_LOSS,
                       "not an Arrow IPC file or stream: it is compressed with %s as a whole, and "
                       "only compression within Arrow files is read; decompress it",
                       name);
    if (s->n_first == 0)
        return mr_fail(st, MR_DATA_LOSS, "not an Arrow IPC file or stream: it is empty");
    for (size_t i = 0; i < s->n_first; i++) {
        unsigned c = s->first[i];
        bool shown = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
        n += (size_t)snprintf(text + n, sizeof text - n, shown ? "%c" : "\\x%02x", c);
    }
    return mr_fail(st, MR_DATA_LOSS,
                   "not an Arrow IPC file or stream: it begins with \"%s\", where a file has "
                   "\"ARROW1\", and a stream \"\\xff\\xff\\xff\\xff\" or the length of its schema",
                   text);
}

/* Reads the schema of the file or stream; r->first_message is then after it. */
static mr_code read_schema(arrow_reader *r, bool is_file, mr_status *st)
{
    static const uint8_t mark[4] = {0xff, 0xff, 0xff, 0xff};
    const mr__arrow_source *s = &r->source;
    mr__arrow_message m;
    mr_status why;
    mr_buffer *bytes = NULL;
    int64_t body;
    bool marked = is_file || (s->n_first >= sizeof mark && !memcmp(s->first, mark, sizeof mark));
    mr_status_init(&why);
    r->first_message = is_file ? FIRST_MESSAGE : 0;
    mr_code rc = mr__arrow_source_message(&r->source, r->first_message, &bytes, &m, &body, &why);
    if (rc == MR_END || (rc == MR_OK && m.kind != MR__ARROW_IS_SCHEMA))
        rc = damaged("it does not begin with a schema", &why);
    if (rc == MR_DATA_LOSS && !why.sys_errno && !marked)
        rc = fail_not_arrow(s, &why);
    if (rc != MR_OK && st)
        *st = why;
    if (rc == MR_OK)
        rc = mr__arrow_schema_read(&r->schema, &m.flat, &m.header, m.version, st);
    mr_buffer_unref(bytes);
    if (rc != MR_OK)
        return rc;
    r->first_message = body;
    if (m.body_bytes <= INT64_MAX - body)
        r->first_message += m.body_bytes;
    return MR_OK;
}

/* Undoes begin() after a failure. */
static void unbegin(arrow_reader *r)
{
    mr__arrow_loader_close(r->loader);
    mr__arrow_schema_reset(&r->schema);
    mr_buffer_unref(r->footer);
    r->loader = NULL;
    r->footer = NULL;
}

static mr_code load_dictionaries(arrow_reader *r, mr_status *st);

/* Reads the schema and the footer. */
static mr_code begin(arrow_reader *r, mr_status *st)
{
    bool is_file;
    if (r->begun)
        return MR_OK;
    if (!r->source.file)
        MR_TRY(mr__arrow_source_open(&r->source, r->base.in.source, r->base.in.path, st));
    MR_TRY(mr__arrow_source_is_file(&r->source, &is_file, st));
    mr_status_init(&r->late);
    if (is_file && r->source.size >= 0) {
        mr_code rc = read_footer(r, &r->late);
        if (rc != MR_OK && rc != MR_DATA_LOSS) {
            if (st)
                *st = r->late;
            return rc;
        }
    }
    mr_code rc = MR_OK;
    if (!r->footer)
        rc = read_schema(r, is_file, st);
    if (rc == MR_OK && r->opts.spec)
        rc = mr__arrow_loader_open(&r->loader, &r->schema, r->opts.spec, r->opts.all,
                                   r->opts.defaults, st);
    if (rc == MR_OK && r->footer && r->loader)
        rc = load_dictionaries(r, st);
    if (rc != MR_OK) {
        unbegin(r);
        return rc;
    }
    r->next = r->first_message;
    r->begun = true;
    return MR_OK;
}

/* ---- bodies ---- */

static mr_code get_bytes(void *ctx, int64_t offset, size_t size, mr_buffer **owner,
                         const uint8_t **data, mr_status *st)
{
    arrow_reader *r = ctx;
    if (r->whole) {
        *owner = mr_buffer_ref(r->whole);
        *data = (const uint8_t *)mr_buffer_data(r->whole) + offset;
        return MR_OK;
    }
    MR_TRY(mr__arrow_source_get(&r->source, r->body + offset, size, owner, st));
    *data = mr_buffer_data(*owner);
    return MR_OK;
}

/* Opens the body of message m, which begins at `body`. It is read as a whole if all of it is
 * requested, or from a pipe, because its parts may be requested in any order. */
static mr_code begin_body(arrow_reader *r, const mr__arrow_message *m, int64_t body, bool all,
                          mr__arrow_body *out, mr_status *st)
{
    r->body = body;
    mr_buffer_unref(r->whole);
    r->whole = NULL;
    *out = (mr__arrow_body){.bytes = m->body_bytes, .ctx = r, .get = get_bytes};
    if (!all && r->source.seekable && r->source.size >= 0)
        return MR_OK;
    return mr__arrow_source_get(&r->source, body, (uint64_t)m->body_bytes, &r->whole, st);
}

static void end_body(arrow_reader *r)
{
    mr_buffer_unref(r->whole);
    r->whole = NULL;
}

static mr_code load_dictionary(arrow_reader *r, mr__arrow_message *m, int64_t body, mr_status *st)
{
    mr__arrow_body b;
    int64_t id = mr__flat_int(&m->flat, &m->header, 0, 8, 0);
    if (!r->loader || !mr__arrow_loader_wants(r->loader, id))
        return MR_OK;
    mr_code rc = begin_body(r, m, body, true, &b, st);
    if (rc == MR_OK)
        rc = mr__arrow_load_dictionary(r->loader, m, &b, st);
    end_body(r);
    if (rc != MR_OK)
        mr_status_prefix(st, "dictionary %" PRId64, id);
    return rc;
}

/* Loads all dictionaries that the footer lists. */
static mr_code load_dictionaries(arrow_reader *r, mr_status *st)
{
    mr__flat_table t = mr__flat_root(&r->flat);
    mr__flat_vector v = mr__flat_items(&r->flat, &t, 2, PLACE);
    for (size_t i = 0; i < v.n; i++) {
        int64_t at, body;
        mr_buffer *bytes = NULL;
        mr__arrow_message m;
        MR_TRY(place_of(r, &v, i, &at, st));
        mr_code rc = mr__arrow_source_message(&r->source, at, &bytes, &m, &body, st);
        if (rc == MR_END || (rc == MR_OK && m.kind != MR__ARROW_IS_DICTIONARY))
            rc = damaged("its footer does not point to a dictionary", st);
        if (rc == MR_OK)
            rc = load_dictionary(r, &m, body, st);
        mr_buffer_unref(bytes);
        if (rc != MR_OK) {
            mr_status_at(st, r->base.in.path, at, -1);
            return rc;
        }
    }
    return r->flat.bad ? damaged("its footer has an invalid offset", st) : MR_OK;
}

/* ---- the current batch ---- */

static void drop_rows(arrow_reader *r)
{
    mr_block_clear(&r->block);
    mr_free(r->nulls);
    r->nulls = NULL;
    r->loaded = false;
    r->taken = 0;
}

static void drop_batch(arrow_reader *r)
{
    drop_rows(r);
    mr_buffer_unref(r->metadata);
    r->metadata = NULL;
    r->at_hand = false;
}

/* Closes the current batch. */
static void leave_batch(arrow_reader *r)
{
    if (!r->at_hand)
        return;
    r->first += r->rows;
    r->number++;
    drop_batch(r);
}

/* Adds the position to an error in the current batch, or where the next one should be. */
static mr_code at_batch(const arrow_reader *r, mr_code rc, mr_status *st)
{
    if (rc != MR_RESOURCE_EXHAUSTED && rc != MR_CANCELLED)
        mr_status_prefix(st, "batch %" PRId64, r->number);
    mr_status_at(st, r->base.in.path, r->offset, r->base.record);
    return rc;
}

/* Reads the metadata of the next message, keeps it in *bytes and advances past the message. */
static mr_code read_message(arrow_reader *r, mr_buffer **bytes, mr_status *st)
{
    int64_t body;
    size_t i = (size_t)r->number;
    if (r->footer && i == r->batches.n)
        return MR_END;
    if (r->footer)
        MR_TRY(place_of(r, &r->batches, i, &r->next, st));
    r->offset = r->next;
    mr_code rc = mr__arrow_source_message(&r->source, r->next, bytes, &r->message, &body, st);
    if (rc == MR_END && r->footer)
        return damaged("its footer does not point to a batch", st);
    if (rc == MR_END)
        r->end = body;
    MR_TRY(rc);
    r->body = body;
    int64_t end = body + r->message.body_bytes;
    if (r->source.size >= 0 && end > r->source.size)
        return mr_fail(st, MR_DATA_LOSS, "the file ends in the middle of it; it is truncated");
    r->next = end;
    return MR_OK;
}

/* Makes the next batch current and loads dictionaries on the way. MR_END: no more batches. */
static mr_code next_batch(arrow_reader *r, mr_status *st)
{
    leave_batch(r);
    for (;;) {
        mr_buffer *bytes = NULL;
        int64_t before = r->next;
        mr_code rc = read_message(r, &bytes, st);
        if (rc == MR_END)
            return MR_END;
        bool batch = rc == MR_OK && r->message.kind == MR__ARROW_IS_BATCH;
        if (batch)
            rc = mr__arrow_message_rows(&r->message, &r->rows, st);
        else if (rc == MR_OK && r->footer)
            rc = damaged("its footer does not point to a batch", st);
        else if (rc == MR_OK && r->message.kind == MR__ARROW_IS_DICTIONARY)
            rc = load_dictionary(r, &r->message, r->body, st);
        if (rc == MR_OK && batch && r->rows > INT64_MAX - r->first)
            rc = damaged("it has more rows than can be counted", st);
        if (rc != MR_OK || !batch)
            mr_buffer_unref(bytes);
        if (rc != MR_OK) {
            r->next = before;
            return at_batch(r, rc, st);
        }
        if (batch) {
            r->metadata = bytes;
            r->at_hand = true;
            r->at = 0;
            return MR_OK;
        }
    }
}

static void rewind_batches(arrow_reader *r)
{
    drop_batch(r);
    r->number = r->first = r->at = 0;
    r->next = r->first_message;
    if (r->loader && !r->footer)
        mr__arrow_loader_forget(r->loader);
}

/* Advances to record `to`, or to the end. *at: the number of the record there. */
static mr_code go_to_record(arrow_reader *r, int64_t to, int64_t *at, mr_status *st)
{
    MR_TRY(begin(r, st));
    if (to < r->first && !r->source.seekable)
        return mr_fail(st, MR_FAILED_PRECONDITION, "row %" PRId64 " of a pipe cannot be read again",
                       to);
    if (to < r->first)
        rewind_batches(r);
    for (;;) {
        if (r->at_hand && to < r->first + r->rows) {
            r->at = to - r->first;
            *at = to;
            return MR_OK;
        }
        mr_code rc = next_batch(r, st);
        if (rc == MR_END) {
            *at = r->first;
            return MR_OK;
        }
        MR_TRY(rc);
    }
}

static mr_code load(arrow_reader *r, mr_status *st)
{
    mr__arrow_body body;
    if (!r->loader)
        return mr_fail(st, MR_INTERNAL, "an Arrow file was opened only for counting");
    mr_code rc =
        begin_body(r, &r->message, r->body, mr__arrow_loader_wants_all(r->loader), &body, st);
    if (rc == MR_OK)
        rc = mr__arrow_load_batch(r->loader, &r->message, &body, &r->block, &r->nulls, st);
    end_body(r);
    if (rc != MR_OK)
        return at_batch(r, rc, st);
    size_t rows = r->block.rows;
    r->row_bytes = rows ? mr_block_payload_bytes(&r->block) / rows : 0;
    r->loaded = true;
    return MR_OK;
}

/* ---- the reader interface ---- */

static void set_place(arrow_reader *r)
{
    r->base.has_place = true;
    r->base.place = r->at_hand && r->at < r->rows ? r->offset : r->next;
}

/* At the end of a stream: another one may follow, as if joined by `cat`, or anything else. Does not
 * wait for a pipe. */
static mr_code check_end(const arrow_reader *r, mr_status *st)
{
    int64_t more = r->source.size - r->end;
    if (r->footer || more <= 0)
        return MR_END;
    if (r->base.strict) {
        mr_fail(st, MR_DATA_LOSS, "%" PRId64 " bytes follow the end of the stream", more);
        mr_status_at(st, r->base.in.path, r->end, r->base.record);
        return MR_DATA_LOSS;
    }
    mr_log(MR_LOG_WARNING,
           "%s: the %" PRId64 " bytes after the end of its stream, at byte %" PRId64
           ", are not read: of several streams in a file only the first is",
           r->base.in.path, more, r->end);
    return MR_END;
}

/* Makes a loaded batch with rows left current. */
static mr_code find_rows(arrow_reader *r, mr_status *st)
{
    MR_TRY(begin(r, st));
    while (!r->at_hand || r->at == r->rows)
        MR_TRY(next_batch(r, st));
    return r->loaded ? MR_OK : load(r, st);
}

static mr_code read(mr_reader *base, size_t want, size_t max_bytes, mr_array *out, mr_status *st)
{
    arrow_reader *r = of(base);
    r->taken = 0;
    mr_code rc = find_rows(r, st);
    if (rc == MR_END && r->late.code != MR_OK) {
        if (st)
            *st = r->late;
        mr_status_at(st, base->in.path, r->source.size, base->record);
        rc = r->late.code;
    } else if (rc == MR_END)
        rc = check_end(r, st);
    if (rc == MR_END) {
        base->ended = true;
        return MR_END;
    }
    if (rc != MR_OK)
        return mr__reader_give_up(base, rc, st);
    size_t left = (size_t)(r->rows - r->at), n = want < left ? want : left;
    size_t most = max_bytes / (r->row_bytes ? r->row_bytes : 1);
    most = most ? most : 1;
    n = n < most ? n : most;
    r->taken = (int64_t)n;
    r->at += (int64_t)n;
    base->record += (int64_t)n;
    set_place(r);
    *out = (mr_array){.dtype = MR_STRING, .storage = MR_PLACED, .rows = n};
    return MR_OK;
}

mr_code mr__arrow_take_rows(mr_reader *base, mr_block *rows, const uint32_t **nulls, int64_t *batch,
                            mr_status *st)
{
    arrow_reader *r = of(base);
    size_t from = (size_t)(r->at - r->taken);
    MR_TRY(mr_block_slice(rows, &r->block, from, (size_t)r->taken, st));
    *nulls = r->nulls ? r->nulls + from : NULL;
    *batch = r->number;
    return MR_OK;
}

static mr_code seek(mr_reader *base, const mr_file_position *to, mr_status *st)
{
    arrow_reader *r = of(base);
    int64_t at;
    MR_TRY(go_to_record(r, to->record, &at, st));
    if (at != to->record)
        return mr_fail(st, MR_OUT_OF_RANGE,
                       "cannot resume at row %" PRId64 ": the file has %" PRId64, to->record, at);
    base->record = at;
    set_place(r);
    return MR_OK;
}

static mr_code skip(mr_reader *base, int64_t n, int64_t *skipped, mr_status *st)
{
    arrow_reader *r = of(base);
    int64_t at, from = base->record;
    mr_code rc = go_to_record(r, n < INT64_MAX - from ? from + n : INT64_MAX, &at, st);
    if (rc != MR_OK) { /* the rows before the unreadable ones are valid */
        *skipped = r->first - from > 0 ? r->first - from : 0;
        base->record = from + *skipped;
        return mr__reader_give_up(base, rc, st);
    }
    *skipped = at - from;
    base->record = at;
    set_place(r);
    return MR_OK;
}

static mr_code start(mr_reader *base, const void *own, mr_status *st)
{
    (void)st;
    if (own)
        of(base)->opts = *(const mr__arrow_opts *)own;
    return MR_OK;
}

static void stop(mr_reader *base)
{
    arrow_reader *r = of(base);
    drop_batch(r);
    end_body(r);
    mr_block_reset(&r->block);
    unbegin(r);
    mr__arrow_source_close(&r->source);
}

const mr_format mr__format_arrow = {.reader_size = sizeof(arrow_reader),
                                    .start = start,
                                    .read = read,
                                    .stop = stop,
                                    .seek = seek,
                                    .skip = skip};

/* ---- schema and count ---- */

/* Returns the schema of standard input, a pipe. */
static mr_code input_spec(const mr_bytes *names, size_t n, mr_spec **out, mr_status *st)
{
    arrow_reader r = {.base = {.in = {.path = NULL}}};
    bool is_file = false;
    mr_code rc = mr__arrow_input_head(&r.source, st);
    if (rc == MR_OK)
        rc = mr__arrow_source_is_file(&r.source, &is_file, st);
    if (rc == MR_OK)
        rc = read_schema(&r, is_file, st);
    if (rc == MR_OK)
        rc = mr__arrow_schema_spec(&r.schema, names, n, out, st);
    mr__arrow_schema_reset(&r.schema);
    mr__arrow_source_close(&r.source);
    return rc;
}

mr_code mr__arrow_file_spec(const char *path, const mr_bytes *names, size_t n, mr_spec **out,
                            mr_status *st)
{
    mr_reader *r = NULL;
    const mr_file_opts opts = {.no_ahead = true};
    mr_code rc;
    if (mr__file_is_pipe(path) && strcmp(path, "-") != 0)
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "a pipe can be read only once, and its first bytes determine the type of "
                     "elements: pass it as standard input, \"-\", or give the schema");
    else if (mr__file_is_pipe(path))
        rc = input_spec(names, n, out, st);
    else {
        rc = mr_reader_open(&r, &mr__format_arrow, path, &opts, st);
        if (rc == MR_OK)
            rc = begin(of(r), st);
        if (rc == MR_OK)
            rc = mr__arrow_schema_spec(&of(r)->schema, names, n, out, st);
    }
    mr_status_at(st, path, -1, -1);
    mr_reader_close(r);
    return rc;
}

mr_code mr__arrow_file_count(const char *path, int64_t *rows, uint64_t *mark, mr_status *st)
{
    mr_reader *r = NULL;
    const mr_file_opts opts = {.no_ahead = true, .mark = mark};
    if (mr__file_is_pipe(path))
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the rows of a pipe cannot be counted in advance");
    mr_code rc = mr_reader_open(&r, &mr__format_arrow, path, &opts, st);
    if (rc == MR_OK)
        rc = go_to_record(of(r), INT64_MAX, rows, st);
    if (rc == MR_OK && of(r)->late.code != MR_OK) {
        if (st)
            *st = of(r)->late;
        rc = of(r)->late.code;
    }
    mr_reader_close(r);
    return rc;
}
