/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/wire/block_frame.h"

#include <inttypes.h>
#include <string.h>
#include <zstd.h>

#include "pipeline/engine/iterator.h"
#include "pipeline/crc32c.h"
#include "pipeline/memory/buffer.h"
#include "transport/wire/messages.h"
#include "transport/wire/messages.pb-c.h"

enum { ALIGN = 64, LONG_STRING = 8 << 10, MOST_PIECES = 1 << 24, MOST_COLUMNS = 1 << 16 };
/* Strings are sent as positions if the buffers kept for them have at most this many times their
 * bytes: half of a file's records may have been left out. */
enum { MOST_KEPT = 4 };
/* Limits of pieces, and of columns and pieces, for finding the buffers that contain them: with
 * more, the search is not worth its cost. */
enum { MOST_LENT = 64, MOST_LOOKS = 4096 };

static size_t aligned(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---- out ---- */

/* The plan of a column, made before its payload is laid out. */
typedef struct plan {
    Mr__Wire__Form form;
    size_t bytes;       /* of payload */
    size_t small_bytes; /* of those, gathered */
    size_t pieces;
    void *rows;       /* ROWS: the bytes, owned */
    size_t elsewhere; /* STRINGS, if all of them are in shared memory: their bytes */
} plan;

static mr_code plan_strings(const mr_array *a, plan *p, mr_status *st)
{
    const mr_bytes *s = a->data;
    size_t n = a->rows * mr_array_row_values(a), all = 8 * n, gathered = 8 * n, pieces = 2;
    for (size_t i = 0; i < n; i++) {
        if (__builtin_add_overflow(all, s[i].size, &all) || all > MR__FRAME_MOST_PAYLOAD)
            return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                           "a block of more than %" PRIu64 " bytes cannot be sent; make smaller "
                           "batches",
                           (uint64_t)MR__FRAME_MOST_PAYLOAD);
        if (s[i].size < LONG_STRING)
            gathered += s[i].size;
        else
            pieces += 2;
    }
    *p = (plan){MR__WIRE__FORM__STRINGS, all, gathered, pieces, NULL, 0};
    return MR_OK;
}

static mr_code plan_rows(const mr_array *a, size_t rows, plan *p, mr_status *st)
{
    mr_array copy = *a;
    mr_block one = {.rows = rows, .n_columns = 1, .columns = &copy};
    *p = (plan){.form = MR__WIRE__FORM__ROWS, .pieces = 2};
    MR_TRY(mr_block_to_bytes(&one, &p->rows, &p->bytes, st));
    p->small_bytes = p->bytes;
    return MR_OK;
}

static mr_code plan_column(const mr_array *a, size_t rows, plan *p, mr_status *st)
{
    if (a->storage == MR_DENSE) {
        *p = (plan){MR__WIRE__FORM__DENSE, rows * mr_array_row_bytes(a), 0, 2, NULL, 0};
        return MR_OK;
    }
    if (a->storage == MR_BYTES)
        return plan_strings(a, p, st);
    if (a->storage == MR_PLACED)
        return mr_fail(st, MR_INTERNAL, "rows in the consumer's memory cannot be sent");
    return plan_rows(a, rows, p, st);
}

static void piece(mr__outgoing *o, const void *p, size_t n)
{
    if (n == 0)
        return;
    struct iovec *last = o->n > 1 ? &o->v[o->n - 1] : NULL; /* the first is the front */
    if (last && (const char *)last->iov_base + last->iov_len == (const char *)p)
        last->iov_len += n;
    else
        o->v[o->n++] = (struct iovec){(void *)(uintptr_t)p, n};
}

static void lay_strings(mr__outgoing *o, const mr_array *a, uint8_t **small)
{
    const mr_bytes *s = a->data;
    size_t n = a->rows * mr_array_row_values(a);
    uint8_t *at = *small;
    for (size_t i = 0; i < n; i++, at += 8) {
        uint64_t size = s[i].size;
        memcpy(at, &size, 8); /* little-endian, like the whole library */
    }
    piece(o, *small, 8 * n);
    for (size_t i = 0; i < n; i++) {
        if (s[i].size >= LONG_STRING) {
            piece(o, s[i].data, s[i].size);
            continue;
        }
        if (s[i].size)
            memcpy(at, s[i].data, s[i].size);
        piece(o, at, s[i].size);
        at += s[i].size;
    }
    *small = at;
}

static void lay_column(mr__outgoing *o, const mr_array *a, const plan *p, uint8_t **small)
{
    static const uint8_t zeros[ALIGN];
    if (p->form == MR__WIRE__FORM__DENSE)
        piece(o, a->data, p->bytes);
    else if (p->form == MR__WIRE__FORM__STRINGS)
        lay_strings(o, a, small);
    else {
        memcpy(*small, p->rows, p->bytes);
        piece(o, *small, p->bytes);
        *small += p->bytes;
    }
    piece(o, zeros, aligned(p->bytes) - p->bytes);
}

/* ---- the same in shared memory ---- */

static void put_strings(uint8_t *to, const mr_array *a)
{
    const mr_bytes *s = a->data;
    size_t n = a->rows * mr_array_row_values(a);
    uint8_t *sizes = to;
    to += 8 * n;
    for (size_t i = 0; i < n; i++) {
        uint64_t size = s[i].size;
        memcpy(sizes + 8 * i, &size, 8);
        if (size)
            memcpy(to, s[i].data, size);
        to += size;
    }
}

/* The bytes of a column's strings, if all of them are already in the shared memory
 * [memory, memory + n) and the buffers kept for them are not much larger; else 0. */
static size_t bytes_in(const uint8_t *memory, size_t n, const mr_array *a)
{
    const mr_bytes *s = a->data;
    size_t values = a->rows * mr_array_row_values(a), all = 0, outside = 0;
    for (size_t i = 0; i < values; i++) {
        uintptr_t at = (uintptr_t)s[i].data - (uintptr_t)memory;
        outside |= (size_t)(s[i].size > 0) & (size_t)(at >= n || s[i].size > n - at);
        all += s[i].size;
    }
    return !outside && all && all >= mr_buffer_held_bytes(a->owner) / MOST_KEPT ? all : 0;
}

static void put_places(uint8_t *to, const uint8_t *memory, const mr_array *a)
{
    const mr_bytes *s = a->data;
    size_t values = a->rows * mr_array_row_values(a);
    for (size_t i = 0; i < values; i++) {
        uintptr_t at = s[i].size ? (uintptr_t)s[i].data - (uintptr_t)memory : 0;
        const uint32_t place[2] = {(uint32_t)at, (uint32_t)s[i].size};
        memcpy(to + 8 * i, place, 8);
    }
}

/* `keeps` holds references to the buffers of the strings, so that their views need not be kept. */
static mr_code hold_strings(mr_buffer *keeps, const uint8_t *memory, size_t n, const mr_array *a)
{
    uintptr_t at = (uintptr_t)mr_buffer_data(a->owner) - (uintptr_t)memory;
    return at < n ? mr_buffer_hold(keeps, a->owner, NULL)
                  : mr_buffer_hold_all(keeps, a->owner, NULL);
}

/* Strings sent as positions are kept until the peer returns the block. */
static bool keep(const mr__outgoing *o, const plan *plans, mr__lender *lender)
{
    size_t n;
    const uint8_t *memory = mr__lender_memory(lender, &n);
    mr_buffer *keeps = NULL;
    bool kept = mr_buffer_alloc(&keeps, 1, NULL) == MR_OK;
    for (size_t c = 0; c < o->block.n_columns && kept; c++)
        if (plans[c].form == MR__WIRE__FORM__PLACES)
            kept = hold_strings(keeps, memory, n, &o->block.columns[c]) == MR_OK;
    kept = kept && mr__lender_keep(lender, o->lent_at, keeps);
    mr_buffer_unref(keeps);
    return kept;
}

/* Sends strings in shared memory as positions. *raw = the bytes of the payload then.
 * returns  bytes of these strings */
static size_t plan_places(const mr__outgoing *o, plan *plans, const mr__lender *lender, size_t *raw)
{
    size_t all = 0, n;
    const uint8_t *memory = mr__lender_memory(lender, &n);
    *raw = 0;
    for (size_t c = 0; c < o->block.n_columns; c++) {
        plan *p = &plans[c];
        if (p->form == MR__WIRE__FORM__STRINGS && n <= UINT32_MAX)
            p->elsewhere = bytes_in(memory, n, &o->block.columns[c]);
        if (p->elsewhere) {
            p->form = MR__WIRE__FORM__PLACES;
            p->bytes -= p->elsewhere;
        }
        all += p->elsewhere;
        *raw += aligned(p->bytes);
    }
    return all;
}

/* Undoes this: back to a form that can be sent over the socket. */
static void plan_no_places(const mr__outgoing *o, plan *plans)
{
    for (size_t c = 0; c < o->block.n_columns; c++)
        if (plans[c].form == MR__WIRE__FORM__PLACES) {
            plans[c].form = MR__WIRE__FORM__STRINGS;
            plans[c].bytes += plans[c].elsewhere;
        }
}

/* Writes the payload of `raw` bytes to shared memory; false: no room. */
static bool lend(mr__outgoing *o, const plan *plans, mr__lender *lender, size_t raw,
                 size_t elsewhere)
{
    size_t n;
    const uint8_t *memory = mr__lender_memory(lender, &n);
    uint8_t *to = mr__lender_take(lender, raw, &o->lent_at);
    if (!to)
        return false;
    if (elsewhere && !keep(o, plans, lender)) {
        mr__lender_give(lender, o->lent_at);
        return false;
    }
    for (size_t c = 0; c < o->block.n_columns; c++) {
        const mr_array *a = &o->block.columns[c];
        const plan *p = &plans[c];
        if (p->form == MR__WIRE__FORM__PLACES)
            put_places(to, memory, a);
        else if (p->form == MR__WIRE__FORM__STRINGS)
            put_strings(to, a);
        else if (p->bytes)
            memcpy(to, p->form == MR__WIRE__FORM__DENSE ? a->data : p->rows, p->bytes);
        memset(to + p->bytes, 0, aligned(p->bytes) - p->bytes);
        to += aligned(p->bytes);
    }
    o->lender = mr__lender_ref(lender);
    return true;
}

/* Compresses all pieces into one zstd frame; leaves them unchanged if that saves nothing. */
static mr_code pack(mr__outgoing *o, size_t raw, int level, size_t *packed, mr_status *st)
{
    size_t room = ZSTD_compressBound(raw);
    ZSTD_CCtx *z = ZSTD_createCCtx();
    mr_code rc = z ? mr_buffer_alloc(&o->packed, room, st) : mr_fail_memory(st, 0, "zstd");
    size_t left = 0;
    ZSTD_outBuffer out = {rc == MR_OK ? mr_buffer_data(o->packed) : NULL, room, 0};
    if (rc == MR_OK) {
        ZSTD_CCtx_setParameter(z, ZSTD_c_compressionLevel, level);
        ZSTD_CCtx_setPledgedSrcSize(z, raw);
    }
    for (size_t i = 1; i < o->n && rc == MR_OK; i++) {
        ZSTD_inBuffer in = {o->v[i].iov_base, o->v[i].iov_len, 0};
        ZSTD_EndDirective end = i + 1 == o->n ? ZSTD_e_end : ZSTD_e_continue;
        do {
            left = ZSTD_compressStream2(z, &out, &in, end);
            if (ZSTD_isError(left))
                rc = mr_fail(st, MR_INTERNAL, "zstd: %s", ZSTD_getErrorName(left));
        } while (rc == MR_OK && (end == ZSTD_e_end ? left > 0 : in.pos < in.size));
    }
    ZSTD_freeCCtx(z);
    *packed = rc == MR_OK && out.pos < raw ? out.pos : 0;
    if (*packed) {
        o->n = 1;
        piece(o, out.dst, out.pos);
    }
    return rc;
}

/* ---- pages that are lent ---- */

/* The buffer that contains the piece; NULL: none whose pages can be lent. */
static mr_buffer *owning(const mr__outgoing *o, const struct iovec *v)
{
    mr_buffer *b = mr__buffer_owning(o->small, v->iov_base, v->iov_len);
    if (!b)
        b = mr__buffer_owning(o->packed, v->iov_base, v->iov_len);
    for (size_t c = 0; c < o->block.n_columns && !b; c++)
        b = mr__buffer_owning(o->block.columns[c].owner, v->iov_base, v->iov_len);
    return b;
}

static bool can_lend(const mr__outgoing *o)
{
    size_t large = 0;
    for (size_t i = 1; i < o->n; i++)
        large += o->v[i].iov_len >= MR__LENT_LEAST;
    if (!large || large > MOST_LENT || large * o->block.n_columns > MOST_LOOKS)
        return false;
    for (size_t i = 1; i < o->n; i++)
        if (o->v[i].iov_len >= MR__LENT_LEAST && !owning(o, &o->v[i]))
            return false;
    return true;
}

void mr__outgoing_forsake(mr__outgoing *o)
{
    for (size_t i = 1; i < o->n; i++)
        if (o->v[i].iov_len >= MR__LENT_LEAST)
            mr__buffer_forsake(owning(o, &o->v[i]));
}

static mr_code put_front(mr__outgoing *o, const Mr__Wire__BlockHead *head, uint64_t payload,
                         mr_status *st)
{
    size_t n = mr__wire__block_head__get_packed_size(head);
    if (n > MR__FRAME_MOST_HEAD)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "a block's head of %zu bytes cannot be sent", n);
    o->front = mr_malloc(MR__FRAME_BYTES + n);
    if (!o->front)
        return mr_fail_memory(st, n, "a block's head");
    mr__wire__block_head__pack(head, o->front + MR__FRAME_BYTES);
    mr__frame_put(MR__FRAME_BLOCK, o->front + MR__FRAME_BYTES, n, payload, o->front);
    o->v[0] = (struct iovec){o->front, MR__FRAME_BYTES + n};
    o->bytes = MR__FRAME_BYTES + n + payload;
    return MR_OK;
}

/* Makes the pieces and the head from the planned columns. */
static mr_code lay_out(mr__outgoing *o, const mr__block_place *place, plan *plans,
                       Mr__Wire__Column *columns, Mr__Wire__Column **list, int level, mr_status *st)
{
    const mr_block *b = &o->block;
    size_t pieces = 1, small_bytes = 0, raw = 0, packed = 0, lent_bytes = 0, elsewhere = 0;
    for (size_t c = 0; c < b->n_columns; c++) {
        pieces += plans[c].pieces;
        small_bytes += plans[c].small_bytes;
        if (__builtin_add_overflow(raw, aligned(plans[c].bytes), &raw) ||
            raw > MR__FRAME_MOST_PAYLOAD)
            return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                           "a block of more than %" PRIu64 " bytes cannot be sent; make smaller "
                           "batches",
                           (uint64_t)MR__FRAME_MOST_PAYLOAD);
    }
    bool lent = place->lender && raw >= MR__LEND_LEAST;
    if (lent) {
        elsewhere = plan_places(o, plans, place->lender, &lent_bytes);
        lent = lend(o, plans, place->lender, lent_bytes, elsewhere);
        if (!lent)
            plan_no_places(o, plans);
    }
    MR_TRY(MR_GROW(o->v, o->capacity, lent ? 1 : pieces, MOST_PIECES, "the pieces of a block", st));
    if (!lent)
        MR_TRY(mr_buffer_alloc(&o->small, small_bytes, st));
    uint8_t *small = lent ? NULL : mr_buffer_data(o->small);
    uint64_t at = 0;
    o->n = 1;
    for (size_t c = 0; c < b->n_columns; c++) {
        const mr_array *a = &b->columns[c];
        if (!lent)
            lay_column(o, a, &plans[c], &small);
        mr__wire__column__init(&columns[c]);
        list[c] = &columns[c];
        columns[c].form = plans[c].form;
        columns[c].dtype = (uint32_t)a->dtype;
        columns[c].n_shape = plans[c].form == MR__WIRE__FORM__ROWS ? 0 : (size_t)a->rank;
        columns[c].shape = (uint64_t *)(uintptr_t)a->shape; /* not negative */
        columns[c].offset = at;
        columns[c].bytes = plans[c].bytes;
        at += aligned(plans[c].bytes);
    }
    if (level > 0 && raw > 0 && !lent)
        MR_TRY(pack(o, raw, level, &packed, st));
    uint32_t crc = mr_crc32c(NULL, 0);
    for (size_t i = 1; i < o->n; i++)
        crc = mr_crc32c_extend(crc, o->v[i].iov_base, o->v[i].iov_len);
    Mr__Wire__BlockHead head = MR__WIRE__BLOCK_HEAD__INIT;
    head.job_id = place->job;
    head.stream = (uint32_t)place->stream;
    head.generation = place->generation;
    head.first = place->first;
    head.position.data = (uint8_t *)(uintptr_t)place->position;
    head.position.len = place->position_bytes;
    head.rows = b->rows;
    head.n_columns = b->n_columns;
    head.columns = list;
    head.raw_bytes = packed ? raw : 0;
    head.crc = lent ? 0 : crc;
    head.memory = lent ? lent_bytes : 0;
    head.memory_at = o->lent_at;
    head.elsewhere = lent ? elsewhere : 0;
    o->raw = lent ? lent_bytes + elsewhere : raw;
    MR_TRY(put_front(o, &head, lent ? 0 : packed ? packed : raw, st));
    if (lent)
        mr_block_reset(&o->block);
    o->lends = !lent && can_lend(o);
    return MR_OK;
}

mr_code mr__outgoing_block(mr__outgoing *o, const mr__block_place *place, mr_block *b, int level,
                           mr_status *st)
{
    mr__outgoing_reset(o);
    mr_block_move(&o->block, b);
    size_t n = o->block.n_columns;
    plan *plans = mr_calloc(n + 1, sizeof *plans);
    Mr__Wire__Column *columns = mr_calloc(n + 1, sizeof *columns);
    Mr__Wire__Column **list = mr_calloc(n + 1, sizeof *list);
    mr_code rc = plans && columns && list ? MR_OK : mr_fail_memory(st, n, "a block's head");
    for (size_t c = 0; c < n && rc == MR_OK; c++)
        rc = plan_column(&o->block.columns[c], o->block.rows, &plans[c], st);
    if (rc == MR_OK)
        rc = lay_out(o, place, plans, columns, list, level, st);
    for (size_t c = 0; plans && c < n; c++)
        mr_free(plans[c].rows);
    mr_free(plans);
    mr_free(columns);
    mr_free(list);
    if (rc != MR_OK)
        mr__outgoing_reset(o);
    return rc;
}

void mr__outgoing_sent(mr__outgoing *o)
{
    mr__lender_unref(o->lender);
    o->lender = NULL;
    mr__outgoing_reset(o);
}

void mr__outgoing_reset(mr__outgoing *o)
{
    if (o->lender)
        mr__lender_give(o->lender, o->lent_at);
    mr__lender_unref(o->lender);
    mr_block_reset(&o->block);
    mr_buffer_unref(o->small);
    mr_buffer_unref(o->packed);
    mr_free(o->front);
    mr_free(o->v);
    *o = (mr__outgoing){0};
}

/* ---- in ---- */

static mr_code damaged(mr_status *st, const char *what)
{
    return mr_fail(st, MR_DATA_LOSS, "received a damaged block: %s", what);
}

static mr_code check_layout(const Mr__Wire__BlockHead *head, uint64_t payload_bytes, mr_status *st)
{
    uint64_t raw = head->raw_bytes ? head->raw_bytes : payload_bytes, at = 0;
    if (head->memory) {
        if (head->raw_bytes || payload_bytes)
            return damaged(st, "it is in two places");
        raw = head->memory;
    } else if (head->elsewhere) {
        return damaged(st, "it is in two places");
    }
    if (head->rows == 0 || head->rows > INT32_MAX || head->n_columns > MOST_COLUMNS ||
        raw > MR__FRAME_MOST_PAYLOAD || head->elsewhere > MR__FRAME_MOST_PAYLOAD)
        return damaged(st, "its numbers are out of range");
    for (size_t c = 0; c < head->n_columns; c++) {
        const Mr__Wire__Column *column = head->columns[c];
        if (column->offset != at || column->bytes > raw - at || column->n_shape > MR_MAX_RANK)
            return damaged(st, "a column is outside it");
        at += aligned(column->bytes);
        if (at > raw)
            return damaged(st, "a column is outside it");
    }
    return at == raw ? MR_OK : damaged(st, "its columns do not fill it");
}

mr_code mr__incoming_head(mr__incoming *in, const void *bytes, size_t n, uint64_t payload_bytes,
                          mr_status *st)
{
    Mr__Wire__BlockHead *head = NULL;
    MR_TRY(mr__wire_unpack(&mr__wire__block_head__descriptor, bytes, n, &head, st));
    mr_code rc = check_layout(head, payload_bytes, st);
    if (rc != MR_OK) {
        mr__wire_free(head);
        return rc;
    }
    *in = (mr__incoming){.place = {.job = head->job_id,
                                   .stream = head->stream,
                                   .generation = head->generation,
                                   .first = head->first,
                                   .position = head->position.data,
                                   .position_bytes = head->position.len},
                         .rows = head->rows,
                         .raw = head->memory      ? head->memory + head->elsewhere
                                : head->raw_bytes ? head->raw_bytes
                                                  : payload_bytes,
                         .memory = head->memory,
                         .memory_at = head->memory_at,
                         .head = head,
                         .crc = mr_crc32c(NULL, 0)};
    return MR_OK;
}

void mr__incoming_came(mr__incoming *in, const void *p, size_t n)
{
    in->crc = mr_crc32c_extend(in->crc, p, n);
    in->crc_bytes += n;
}

/* The checksum of the whole payload. */
static uint32_t checksum(const mr__incoming *in, mr_buffer *payload)
{
    const uint8_t *rest = (const uint8_t *)mr_buffer_data(payload) + in->crc_bytes;
    return mr_crc32c_extend(in->crc, rest, mr_buffer_size(payload) - in->crc_bytes);
}

void mr__incoming_reset(mr__incoming *in)
{
    mr__wire_free(in->head);
    *in = (mr__incoming){0};
}

static mr_code unpack(mr_buffer **payload, uint64_t raw_bytes, mr_status *st)
{
    mr_buffer *raw;
    MR_TRY(mr_buffer_alloc(&raw, (size_t)raw_bytes, st));
    size_t n = ZSTD_decompress(mr_buffer_data(raw), (size_t)raw_bytes, mr_buffer_data(*payload),
                               mr_buffer_size(*payload));
    if (ZSTD_isError(n) || n != raw_bytes) {
        mr_buffer_unref(raw);
        return damaged(st, "it cannot be decompressed");
    }
    mr_buffer_unref(*payload);
    *payload = raw;
    return MR_OK;
}

/* The number of values in `rows` rows of the column; false: it overflows the address space. */
static bool count_values(const Mr__Wire__Column *column, uint64_t rows, int64_t *shape,
                         size_t *values)
{
    *values = (size_t)rows;
    for (size_t d = 0; d < column->n_shape; d++) {
        if (column->shape[d] > INT64_MAX ||
            __builtin_mul_overflow(*values, (size_t)column->shape[d], values))
            return false;
        shape[d] = (int64_t)column->shape[d];
    }
    return true;
}

static mr_code get_strings(mr_array *a, const uint8_t *p, size_t bytes, size_t values,
                           mr_buffer *payload, mr_status *st)
{
    mr_bytes *s = a->data;
    const uint8_t *at = p + 8 * values, *end = p + bytes;
    for (size_t i = 0; i < values; i++) {
        /* Read it once: in shared memory it may change at any time. */
        uint64_t size = ((const volatile uint64_t *)(const void *)p)[i];
        if (size > (uint64_t)(end - at))
            return damaged(st, "a string ends outside of it");
        s[i] = (mr_bytes){(const char *)at, (size_t)size};
        at += size;
    }
    if (at != end)
        return damaged(st, "its strings do not fill their column");
    return mr_buffer_hold(a->owner, payload, st);
}

/* Strings anywhere in the shared memory; subtracts their bytes from *elsewhere. */
static mr_code get_places(mr_array *a, const uint8_t *p, size_t values, const mr__incoming *in,
                          uint64_t *elsewhere, mr_buffer *payload, mr_status *st)
{
    mr_bytes *s = a->data;
    size_t most = in->shared_bytes < MR_SLACK ? 0 : in->shared_bytes - MR_SLACK;
    for (size_t i = 0; i < values; i++) {
        /* Read it once, as above. */
        const volatile uint32_t *place = (const volatile uint32_t *)(const void *)(p + 8 * i);
        size_t at = place[0], size = place[1];
        if (size > most || at > most - size || size > *elsewhere)
            return damaged(st, "a string is outside shared memory");
        *elsewhere -= size;
        s[i] = (mr_bytes){(const char *)in->shared + at, (size_t)size};
    }
    return mr_buffer_hold(a->owner, payload, st);
}

static mr_code get_rows(mr_array *a, const uint8_t *p, size_t bytes, const mr_leaf *leaf,
                        uint64_t rows, mr_status *st)
{
    mr_spec *spec = mr_spec_of_leaf(leaf);
    if (!spec)
        return mr_fail_memory(st, sizeof *leaf, "a spec");
    mr_block one = MR_BLOCK_EMPTY;
    mr_code rc = mr_block_from_bytes(p, bytes, spec, &one, st);
    mr_spec_unref(spec);
    if (rc == MR_OK && (one.rows != rows || one.n_columns != 1))
        rc = damaged(st, "a column has another number of rows");
    else if (rc == MR_INVALID_ARGUMENT)
        rc = damaged(st, "rows of a column are inconsistent");
    if (rc == MR_OK)
        mr_array_move(a, &one.columns[0]);
    mr_block_reset(&one);
    return rc;
}

/* The same for bytes that another process may write while they are read. */
static mr_code get_rows_of_memory(mr_array *a, const uint8_t *p, size_t bytes, const mr_leaf *leaf,
                                  uint64_t rows, mr_status *st)
{
    void *copy = mr_memdup(p, bytes ? bytes : 1);
    if (!copy)
        return mr_fail_memory(st, bytes, "a column");
    mr_code rc = get_rows(a, copy, bytes, leaf, rows, st);
    mr_free(copy);
    return rc;
}

static mr_code get_column(const mr__incoming *in, const Mr__Wire__Column *column,
                          const mr_leaf *leaf, mr_buffer *payload, uint64_t *elsewhere, mr_array *a,
                          mr_status *st)
{
    uint8_t *p = (uint8_t *)mr_buffer_data(payload) + column->offset;
    size_t bytes = (size_t)column->bytes, values, needed;
    uint64_t rows = in->rows;
    int64_t shape[MR_MAX_RANK];
    bool places = column->form == MR__WIRE__FORM__PLACES && in->memory && in->shared;
    bool strings = places || column->form == MR__WIRE__FORM__STRINGS;
    size_t each = strings ? 8 : mr_dtype_size(leaf->dtype);
    if (column->dtype != (uint32_t)leaf->dtype)
        return damaged(st, "a column is of another type");
    if (column->form == MR__WIRE__FORM__ROWS)
        return (in->memory ? get_rows_of_memory : get_rows)(a, p, bytes, leaf, rows, st);
    if ((column->form != MR__WIRE__FORM__DENSE && !strings) || leaf->dtype == MR_DATASET ||
        strings != (leaf->dtype == MR_STRING))
        return damaged(st, "a column is of another form");
    int rank = (int)column->n_shape;
    if (!count_values(column, rows, shape, &values) || !mr_leaf_admits(leaf, rank, shape) ||
        __builtin_mul_overflow(values, each, &needed) ||
        (strings && !places ? needed > bytes : needed != bytes))
        return damaged(st, "a column is of another shape");
    if (strings) {
        MR_TRY(mr_array_alloc(a, MR_STRING, rank, shape, (size_t)rows, st));
        return places ? get_places(a, p, values, in, elsewhere, payload, st)
                      : get_strings(a, p, bytes, values, payload, st);
    }
    *a = (mr_array){.dtype = leaf->dtype,
                    .storage = MR_DENSE,
                    .rank = (int8_t)rank,
                    .rows = (size_t)rows,
                    .data = p,
                    .owner = mr_buffer_ref(payload)};
    memcpy(a->shape, shape, (size_t)rank * sizeof *shape);
    return MR_OK;
}

mr_code mr__incoming_block(const mr__incoming *in, mr_buffer *payload, const mr_spec *spec,
                           mr_block *b, mr_status *st)
{
    const Mr__Wire__BlockHead *head = in->head;
    uint64_t elsewhere = head->elsewhere;
    mr_code rc = MR_OK;
    if (!head->memory && checksum(in, payload) != head->crc)
        rc = damaged(st, "its checksum does not match");
    if (rc == MR_OK && head->raw_bytes)
        rc = unpack(&payload, head->raw_bytes, st);
    if (rc == MR_OK && head->n_columns != mr_spec_n_leaves(spec))
        rc = damaged(st, "it has another number of columns");
    if (rc == MR_OK)
        rc = mr_block_prepare(b, head->n_columns, st);
    for (size_t c = 0; c < head->n_columns && rc == MR_OK; c++)
        rc = get_column(in, head->columns[c], mr_spec_leaf(spec, c), payload, &elsewhere,
                        &b->columns[c], st);
    if (rc == MR_OK && elsewhere)
        rc = damaged(st, "its strings have another number of bytes");
    b->rows = (size_t)head->rows;
    if (rc != MR_OK)
        mr_block_clear(b);
    mr_buffer_unref(payload);
    return rc;
}
