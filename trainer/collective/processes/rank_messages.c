/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers are little endian; a text is preceded by its length and ends with a NUL byte. */
#include "trainer/collective/processes/rank_messages.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/bytes.h"
#include "pipeline/memory/alloc.h"

enum { MAGIC = 0x544d524d /* "MRMT" */ };

/* ---- writing ---- */

static mr_code put_bytes(mr__outbox *o, const void *p, size_t n, mr_status *st)
{
    MR_TRY(MR_GROW(o->data, o->capacity, o->size + n, (size_t)64 << 20, "a message", st));
    if (n)
        memcpy(o->data + o->size, p, n);
    o->size += n;
    return MR_OK;
}

static mr_code put_u32(mr__outbox *o, uint32_t v, mr_status *st)
{
    unsigned char b[4];
    mr__store_le(b, v, 4);
    return put_bytes(o, b, sizeof b, st);
}

static mr_code put_text(mr__outbox *o, const char *s, mr_status *st)
{
    MR_TRY(put_u32(o, (uint32_t)strlen(s), st));
    return put_bytes(o, s, strlen(s) + 1, st);
}

static mr_code begin(mr__outbox *o, mr__rank_message kind, size_t *at, mr_status *st)
{
    *at = o->size;
    MR_TRY(put_u32(o, MAGIC, st));
    MR_TRY(put_u32(o, MR__RANK_PROTOCOL, st));
    MR_TRY(put_u32(o, (uint32_t)kind, st));
    return put_u32(o, 0, st);
}

static void end(mr__outbox *o, size_t at)
{
    mr__store_le(o->data + at + 12, (uint32_t)(o->size - at - MR__RANK_HEAD_BYTES), 4);
}

/* An incomplete message is not sent. */
static mr_code finish(mr__outbox *o, size_t at, mr_code rc)
{
    if (rc == MR_OK)
        end(o, at);
    else
        o->size = at;
    return rc;
}

static mr_code write_hello(mr__outbox *o, const mr__hello *h, mr_status *st)
{
    MR_TRY(put_u32(o, h->rank, st));
    MR_TRY(put_u32(o, h->world, st));
    MR_TRY(put_u32(o, h->port, st));
    MR_TRY(put_u32(o, h->process, st));
    MR_TRY(put_bytes(o, h->nonce, sizeof h->nonce, st));
    MR_TRY(put_text(o, h->node, st));
    MR_TRY(put_text(o, h->machine_id, st));
    MR_TRY(put_text(o, h->local, st));
    MR_TRY(put_u32(o, h->n_facts, st));
    for (uint32_t i = 0; i < h->n_facts; i++) {
        MR_TRY(put_text(o, h->facts[i].name, st));
        MR_TRY(put_text(o, h->facts[i].value, st));
    }
    return MR_OK;
}

mr_code mr__write_hello(mr__outbox *o, const mr__hello *h, mr_status *st)
{
    size_t at = o->size;
    mr_code rc = begin(o, MR__RANK_HELLO, &at, st);
    if (rc == MR_OK)
        rc = write_hello(o, h, st);
    if (rc == MR_OK && o->size - at - MR__RANK_HEAD_BYTES > MR__MAX_HELLO)
        rc = mr_fail(st, MR_INVALID_ARGUMENT,
                     "the data graph, the model and the other facts that the processes compare "
                     "have %zu bytes, at most %d",
                     o->size - at, (int)MR__MAX_HELLO);
    return finish(o, at, rc);
}

mr_code mr__write_table(mr__outbox *o, const char *const *addresses, uint32_t n, mr_status *st)
{
    size_t at = o->size;
    mr_code rc = begin(o, MR__RANK_TABLE, &at, st);
    for (uint32_t i = 0; i < n && rc == MR_OK; i++)
        rc = put_text(o, addresses[i], st);
    return finish(o, at, rc);
}

mr_code mr__write_data(mr__outbox *o, uint32_t rank, const uint8_t *nonce, mr_status *st)
{
    size_t at = o->size;
    mr_code rc = begin(o, MR__RANK_DATA, &at, st);
    if (rc == MR_OK)
        rc = put_u32(o, rank, st);
    if (rc == MR_OK)
        rc = put_bytes(o, nonce, MR__RANK_NONCE, st);
    return finish(o, at, rc);
}

static mr_code put_u64(mr__outbox *o, uint64_t v, mr_status *st)
{
    MR_TRY(put_u32(o, (uint32_t)v, st));
    return put_u32(o, (uint32_t)(v >> 32), st);
}

mr_code mr__write_values(mr__outbox *o, uint32_t channel, uint64_t number, const double *values,
                         uint32_t n, mr_status *st)
{
    size_t at = o->size;
    mr_code rc = begin(o, MR__RANK_VALUES, &at, st);
    if (rc == MR_OK)
        rc = put_u32(o, channel, st);
    if (rc == MR_OK)
        rc = put_u64(o, number, st);
    for (uint32_t i = 0; i < n && rc == MR_OK; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        rc = put_u64(o, bits, st);
    }
    return finish(o, at, rc);
}

mr_code mr__write_announcement(mr__outbox *o, uint64_t number, int64_t step, const char *what,
                               mr_status *st)
{
    size_t at = o->size;
    mr_code rc = begin(o, MR__RANK_ANNOUNCEMENT, &at, st);
    if (rc == MR_OK)
        rc = put_u64(o, number, st);
    if (rc == MR_OK)
        rc = put_u64(o, (uint64_t)step, st);
    if (rc == MR_OK)
        rc = put_text(o, what, st);
    return finish(o, at, rc);
}

mr_code mr__write_abort(mr__outbox *o, const mr_status *why, mr_status *st)
{
    size_t at = o->size;
    mr_code rc = begin(o, MR__RANK_ABORT, &at, st);
    if (rc == MR_OK)
        rc = put_u32(o, (uint32_t)-why->code, st);
    if (rc == MR_OK)
        rc = put_text(o, why->message, st);
    return finish(o, at, rc);
}

mr_code mr__write_empty(mr__outbox *o, mr__rank_message kind, mr_status *st)
{
    size_t at = o->size;
    return finish(o, at, begin(o, kind, &at, st));
}

mr_code mr__write_proof(mr__outbox *o, mr__rank_message kind,
                        const uint8_t proof[MR__RANK_PROOF_BYTES], mr_status *st)
{
    size_t at = o->size;
    mr_code rc = begin(o, kind, &at, st);
    if (rc == MR_OK)
        rc = put_bytes(o, proof, MR__RANK_PROOF_BYTES, st);
    return finish(o, at, rc);
}

void mr__outbox_reset(mr__outbox *o)
{
    mr_free(o->data);
    *o = (mr__outbox){0};
}

/* ---- reading ---- */

typedef struct reader {
    const unsigned char *at, *end;
} reader;

static mr_code cut_short(mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS, "the peer sent an incomplete message");
}

static mr_code get_u32(reader *r, uint32_t *v, mr_status *st)
{
    if (r->end - r->at < 4)
        return cut_short(st);
    *v = (uint32_t)mr__load_le(r->at, 4);
    r->at += 4;
    return MR_OK;
}

static mr_code get_bytes(reader *r, uint8_t *out, size_t n, mr_status *st)
{
    if ((size_t)(r->end - r->at) < n)
        return cut_short(st);
    memcpy(out, r->at, n);
    r->at += n;
    return MR_OK;
}

static mr_code get_text(reader *r, const char **out, mr_status *st)
{
    uint32_t n = 0;
    MR_TRY(get_u32(r, &n, st));
    size_t left = (size_t)(r->end - r->at);
    if (n >= left || r->at[n] != '\0' || memchr(r->at, 0, n))
        return cut_short(st);
    *out = (const char *)r->at;
    r->at += n + 1;
    return MR_OK;
}

static mr_code at_end(const reader *r, mr_status *st)
{
    return r->at == r->end ? MR_OK : cut_short(st);
}

mr_code mr__read_head(const unsigned char *head, uint32_t *version, mr__rank_message *kind,
                      size_t *bytes, mr_status *st)
{
    static const size_t most[] = {[MR__RANK_HELLO] = MR__MAX_HELLO,
                                  [MR__RANK_TABLE] = MR__MAX_HELLO,
                                  [MR__RANK_DATA] = 64,
                                  [MR__RANK_READY] = 0,
                                  [MR__RANK_ALIVE] = 0,
                                  [MR__RANK_ABORT] = 4096,
                                  [MR__RANK_BYE] = 0,
                                  [MR__RANK_VALUES] = 12 + 8 * MR__MAX_VALUES,
                                  [MR__RANK_ANNOUNCEMENT] = 20 + MR__MAX_ANNOUNCEMENT,
                                  [MR__RANK_ASK] = MR__RANK_PROOF_BYTES,
                                  [MR__RANK_CHALLENGE] = MR__RANK_PROOF_BYTES,
                                  [MR__RANK_PROOF] = MR__RANK_PROOF_BYTES,
                                  [MR__RANK_WELCOME] = MR__RANK_PROOF_BYTES};
    if ((uint32_t)mr__load_le(head, 4) != MAGIC)
        return mr_fail(st, MR_DATA_LOSS, "it is not a Millrace training process");
    *version = (uint32_t)mr__load_le(head + 4, 4);
    if (*version != MR__RANK_PROTOCOL)
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "protocol version %d here, version %" PRIu32
                       " there; run the same release everywhere",
                       (int)MR__RANK_PROTOCOL, *version);
    uint32_t w = (uint32_t)mr__load_le(head + 8, 4), n = (uint32_t)mr__load_le(head + 12, 4);
    if (w < MR__RANK_HELLO || w > MR__RANK_WELCOME || n > most[w])
        return mr_fail(st, MR_DATA_LOSS, "it sent message %" PRIu32 " of %" PRIu32 " bytes", w, n);
    *kind = (mr__rank_message)w;
    *bytes = n;
    return MR_OK;
}

mr_code mr__read_hello(const unsigned char *data, size_t bytes, mr__hello *h, mr_status *st)
{
    reader r = {data, data + bytes};
    *h = (mr__hello){0};
    MR_TRY(get_u32(&r, &h->rank, st));
    MR_TRY(get_u32(&r, &h->world, st));
    MR_TRY(get_u32(&r, &h->port, st));
    MR_TRY(get_u32(&r, &h->process, st));
    MR_TRY(get_bytes(&r, h->nonce, sizeof h->nonce, st));
    MR_TRY(get_text(&r, &h->node, st));
    MR_TRY(get_text(&r, &h->machine_id, st));
    MR_TRY(get_text(&r, &h->local, st));
    MR_TRY(get_u32(&r, &h->n_facts, st));
    if (h->n_facts > MR__MAX_FACTS || h->port > 65535)
        return cut_short(st);
    for (uint32_t i = 0; i < h->n_facts; i++) {
        MR_TRY(get_text(&r, &h->facts[i].name, st));
        MR_TRY(get_text(&r, &h->facts[i].value, st));
    }
    return at_end(&r, st);
}

mr_code mr__read_table(const unsigned char *data, size_t bytes, const char **addresses, uint32_t n,
                       mr_status *st)
{
    reader r = {data, data + bytes};
    for (uint32_t i = 0; i < n; i++)
        MR_TRY(get_text(&r, &addresses[i], st));
    return at_end(&r, st);
}

mr_code mr__read_data(const unsigned char *data, size_t bytes, uint32_t *rank, uint8_t *nonce,
                      mr_status *st)
{
    reader r = {data, data + bytes};
    MR_TRY(get_u32(&r, rank, st));
    MR_TRY(get_bytes(&r, nonce, MR__RANK_NONCE, st));
    return at_end(&r, st);
}

mr_code mr__read_proof(const unsigned char *data, size_t bytes, uint8_t proof[MR__RANK_PROOF_BYTES],
                       mr_status *st)
{
    reader r = {data, data + bytes};
    MR_TRY(get_bytes(&r, proof, MR__RANK_PROOF_BYTES, st));
    return at_end(&r, st);
}

static mr_code get_u64(reader *r, uint64_t *v, mr_status *st)
{
    uint32_t low = 0, high = 0;
    MR_TRY(get_u32(r, &low, st));
    MR_TRY(get_u32(r, &high, st));
    *v = (uint64_t)high << 32 | low;
    return MR_OK;
}

mr_code mr__read_values(const unsigned char *data, size_t bytes, uint32_t *channel,
                        uint64_t *number, double *values, uint32_t *n, mr_status *st)
{
    reader r = {data, data + bytes};
    MR_TRY(get_u32(&r, channel, st));
    MR_TRY(get_u64(&r, number, st));
    for (*n = 0; r.at < r.end && *n < MR__MAX_VALUES; ++*n) {
        uint64_t bits = 0;
        MR_TRY(get_u64(&r, &bits, st));
        memcpy(&values[*n], &bits, sizeof bits);
    }
    return at_end(&r, st);
}

mr_code mr__read_announcement(const unsigned char *data, size_t bytes, uint64_t *number,
                              int64_t *step, const char **what, mr_status *st)
{
    reader r = {data, data + bytes};
    uint64_t at = 0;
    MR_TRY(get_u64(&r, number, st));
    MR_TRY(get_u64(&r, &at, st));
    *step = (int64_t)at;
    MR_TRY(get_text(&r, what, st));
    if (strlen(*what) >= MR__MAX_ANNOUNCEMENT)
        return cut_short(st);
    return at_end(&r, st);
}

mr_code mr__read_abort(const unsigned char *data, size_t bytes, mr_status *why, mr_status *st)
{
    reader r = {data, data + bytes};
    uint32_t code = 0;
    const char *text = "";
    MR_TRY(get_u32(&r, &code, st));
    MR_TRY(get_text(&r, &text, st));
    if (code < 1 || code > (uint32_t)-MR_DATA_LOSS)
        code = (uint32_t)-MR_UNKNOWN;
    mr_fail(why, (mr_code)(-(int)code), "%s", text);
    return at_end(&r, st);
}

/* ---- comparing ---- */

/* A value, or for a long one the part around the first difference. */
static void show(const char *value, size_t difference, char *out, size_t size)
{
    size_t n = strlen(value), most = size - 16, from = difference > 40 ? difference - 40 : 0;
    if (n <= most)
        from = 0;
    if (from > n)
        from = n;
    snprintf(out, size, "'%s%.*s%s'", from ? "..." : "", (int)most, value + from,
             n - from > most ? "..." : "");
}

mr_code mr__compare_facts(const mr__hello *mine, const mr__hello *theirs, const char *whose,
                          mr_status *st)
{
    for (uint32_t i = 0; i < mine->n_facts || i < theirs->n_facts; i++) {
        const mr__fact *a = i < mine->n_facts ? &mine->facts[i] : NULL;
        const mr__fact *b = i < theirs->n_facts ? &theirs->facts[i] : NULL;
        if (!a || !b || strcmp(a->name, b->name) != 0)
            return mr_fail(st, MR_FAILED_PRECONDITION,
                           "the processes compare '%.64s' here and '%.64s' on %s; run the same "
                           "program everywhere",
                           a ? a->name : "nothing", b ? b->name : "nothing", whose);
        if (strcmp(a->value, b->value) == 0)
            continue;
        char x[200], y[200];
        size_t d = 0;
        while (a->value[d] && a->value[d] == b->value[d])
            d++;
        show(a->value, d, x, sizeof x);
        show(b->value, d, y, sizeof y);
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "the %s is %s here and %s on %s; all processes of a job need the same",
                       a->name, x, y, whose);
    }
    return MR_OK;
}
