/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/wire/messages.h"

#include <string.h>

#include "pipeline/memory/alloc.h"

enum { NONCE = 32, HMAC = 32, SESSION = 16, KEY = MR__JOB_KEY_BYTES, MOST_STREAMS = 1 << 16 };
#define MOST_MEMORY ((uint64_t)1 << 40)

/* ctx: a bool, set if memory ran out. */
static void *take(void *ctx, size_t n)
{
    void *p = mr_malloc(n);
    if (!p && ctx)
        *(bool *)ctx = true;
    return p;
}

static void give(void *ctx, void *p)
{
    (void)ctx;
    mr_free(p);
}

mr_code mr__wire_unpack(const ProtobufCMessageDescriptor *kind, const void *bytes, size_t n,
                        void *out, mr_status *st)
{
    bool exhausted = false;
    ProtobufCAllocator memory = {take, give, &exhausted};
    ProtobufCMessage *m = protobuf_c_message_unpack(kind, &memory, n, bytes);
    if (!m && exhausted)
        return mr_fail_memory(st, n, "a message");
    if (!m)
        return mr_fail(st, MR_DATA_LOSS, "received %zu bytes that are not a valid %s", n,
                       kind->short_name);
    memcpy(out, &m, sizeof m);
    return MR_OK;
}

void mr__wire_free(void *m)
{
    ProtobufCAllocator memory = {take, give, NULL};
    if (m)
        protobuf_c_message_free_unpacked(m, &memory);
}

mr_code mr__wire_copy(const ProtobufCMessage *m, void *out, mr_status *st)
{
    size_t n = protobuf_c_message_get_packed_size(m);
    void *bytes = mr_malloc(n ? n : 1);
    if (!bytes)
        return mr_fail_memory(st, n, "a message");
    protobuf_c_message_pack(m, bytes);
    mr_code rc = mr__wire_unpack(m->descriptor, bytes, n, out, st);
    mr_free(bytes);
    return rc;
}

mr_code mr__message_pack(const mr__message *m, void **frame, size_t *bytes, mr_status *st)
{
    size_t n = mr__wire__message__get_packed_size(m);
    if (n > MR__FRAME_MOST_HEAD)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "a message of %zu bytes cannot be sent; a message has at most %zu", n,
                       (size_t)MR__FRAME_MOST_HEAD);
    uint8_t *p = mr_malloc(MR__FRAME_BYTES + n);
    if (!p)
        return mr_fail_memory(st, n, "a message");
    mr__wire__message__pack(m, p + MR__FRAME_BYTES);
    mr__frame_put(MR__FRAME_MESSAGE, p + MR__FRAME_BYTES, n, 0, p);
    *frame = p;
    *bytes = MR__FRAME_BYTES + n;
    return MR_OK;
}

void mr__message_free(mr__message *m)
{
    mr__wire_free(m);
}

/* ---- checks that generated code does not make ---- */

static bool text(const char *s)
{
    return s && strnlen(s, MR__MOST_TEXT + 1) <= MR__MOST_TEXT;
}

static bool status(const Mr__Wire__Status *s)
{
    return s && s->code < 0;
}

static bool places(Mr__Wire__Place *const *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (v[i]->stream >= MOST_STREAMS || !text(v[i]->worker) || !text(v[i]->home) ||
            v[i]->skip > v[i]->elements)
            return false;
    return n <= MOST_STREAMS;
}

static bool lists(Mr__Wire__FileList *const *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!v[i]->pattern)
            return false;
    return true;
}

static bool key(const ProtobufCBinaryData *k)
{
    return k->len == KEY || k->len == 0;
}

static bool job(const Mr__Wire__Job *j)
{
    return j && j->mode <= MR__WIRE__MODE__HINT && j->streams <= MOST_STREAMS &&
           j->block_length >= 1 && text(j->directory) && text(j->match) &&
           lists(j->lists, j->n_lists) && text(j->owner) && key(&j->key);
}

static bool join(const Mr__Wire__Join *j)
{
    return j->client_id && job(j->job) && text(j->name) && places(j->places, j->n_places) &&
           j->job->consumers <= MOST_STREAMS &&
           (j->job->consumers ? j->consumer < j->job->consumers : j->consumer == 0);
}

static bool hosted(Mr__Wire__Hosted *const *v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (v[i]->stream >= MOST_STREAMS)
            return false;
    return true;
}

static bool sound(const mr__message *m)
{
    switch (m->body_case) {
    case MR__WIRE__MESSAGE__BODY_HELLO:
        return m->hello->nonce.len == NONCE && text(m->hello->host) &&
               (m->hello->session.len == 0 || m->hello->session.len == SESSION);
    case MR__WIRE__MESSAGE__BODY_CHALLENGE:
        return m->challenge->nonce.len == NONCE && text(m->challenge->local);
    case MR__WIRE__MESSAGE__BODY_PROOF:
        return m->proof->hmac.len == HMAC || m->proof->hmac.len == 0;
    case MR__WIRE__MESSAGE__BODY_WELCOME:
        return m->welcome->hmac.len == HMAC || m->welcome->hmac.len == 0;
    case MR__WIRE__MESSAGE__BODY_REFUSAL:
        return status(m->refusal->status);
    case MR__WIRE__MESSAGE__BODY_JOIN:
        return join(m->join);
    case MR__WIRE__MESSAGE__BODY_JOINED:
        return job(m->joined->job) && places(m->joined->places, m->joined->n_places);
    case MR__WIRE__MESSAGE__BODY_PLACED:
        return places(m->placed->places, m->placed->n_places);
    case MR__WIRE__MESSAGE__BODY_ACKNOWLEDGE:
        return places(m->acknowledge->places, m->acknowledge->n_places);
    case MR__WIRE__MESSAGE__BODY_FAILED:
        return status(m->failed->status);
    case MR__WIRE__MESSAGE__BODY_LOST:
        return m->lost->stream < MOST_STREAMS;
    case MR__WIRE__MESSAGE__BODY_PREPARE:
        return m->prepare->stream < MOST_STREAMS && text(m->prepare->worker);
    case MR__WIRE__MESSAGE__BODY_PREPARED:
        return m->prepared->stream < MOST_STREAMS;
    case MR__WIRE__MESSAGE__BODY_WARNING:
        return text(m->warning->text);
    case MR__WIRE__MESSAGE__BODY_REGISTER_WORKER:
        return text(m->register_worker->address) &&
               hosted(m->register_worker->hosted, m->register_worker->n_hosted);
    case MR__WIRE__MESSAGE__BODY_HOST:
        return job(m->host->job) && m->host->place && places(&m->host->place, 1);
    case MR__WIRE__MESSAGE__BODY_UNHOST:
        return m->unhost->stream < MOST_STREAMS;
    case MR__WIRE__MESSAGE__BODY_RETURNED:
        return m->returned->place && places(&m->returned->place, 1);
    case MR__WIRE__MESSAGE__BODY_LISTS:
        return lists(m->lists->lists, m->lists->n_lists) && m->lists->streams <= MOST_STREAMS &&
               (!m->lists->status || status(m->lists->status));
    case MR__WIRE__MESSAGE__BODY_MATCH:
        return job(m->match->job);
    case MR__WIRE__MESSAGE__BODY_WANT_SPLIT:
        return m->want_split->stream < MOST_STREAMS;
    case MR__WIRE__MESSAGE__BODY_SPLIT:
        return m->split->stream < MOST_STREAMS;
    case MR__WIRE__MESSAGE__BODY_OPEN:
        return m->open->stream < MOST_STREAMS && m->open->compression <= 22 && key(&m->open->key);
    case MR__WIRE__MESSAGE__BODY_CREDIT:
        return m->credit->stream < MOST_STREAMS;
    case MR__WIRE__MESSAGE__BODY_SHUT:
        return m->shut->stream < MOST_STREAMS;
    case MR__WIRE__MESSAGE__BODY_STREAM_ERROR:
        return m->stream_error->stream < MOST_STREAMS && status(m->stream_error->status);
    case MR__WIRE__MESSAGE__BODY_STREAM_END:
        return m->stream_end->stream < MOST_STREAMS;
    case MR__WIRE__MESSAGE__BODY_STREAM_SPLITS:
        return m->stream_splits->stream < MOST_STREAMS;
    case MR__WIRE__MESSAGE__BODY_MEMORY:
        return m->memory->bytes > 0 && m->memory->bytes <= MOST_MEMORY;
    case MR__WIRE__MESSAGE__BODY_ASK:
        return text(m->ask->what) && text(m->ask->name);
    case MR__WIRE__MESSAGE__BODY_REPORT:
        return !m->report->status || status(m->report->status);
    case MR__WIRE__MESSAGE__BODY_PULSE:
        return m->pulse->n_usage <= MOST_STREAMS;
    case MR__WIRE__MESSAGE__BODY_ACKNOWLEDGED:
    case MR__WIRE__MESSAGE__BODY_LEAVE:
    case MR__WIRE__MESSAGE__BODY_FINISHED:
    case MR__WIRE__MESSAGE__BODY_REGISTERED:
    case MR__WIRE__MESSAGE__BODY_GIVE_BACK:
    case MR__WIRE__MESSAGE__BODY_RECEIVED:
        return true;
    case MR__WIRE__MESSAGE__BODY__NOT_SET:
    default:
        return false;
    }
}

mr_code mr__message_unpack(const void *head, size_t bytes, mr__message **out, mr_status *st)
{
    mr__message *m = NULL;
    MR_TRY(mr__wire_unpack(&mr__wire__message__descriptor, head, bytes, &m, st));
    if (!sound(m)) {
        int kind = (int)m->body_case;
        mr__message_free(m);
        return mr_fail(st, MR_DATA_LOSS, "a message of kind %d has fields out of range", kind);
    }
    *out = m;
    return MR_OK;
}

void mr__status_to_wire(const mr_status *st, Mr__Wire__Status *out)
{
    mr__wire__status__init(out);
    out->code = (int32_t)st->code;
    out->sys_errno = st->sys_errno;
    out->message = (char *)(uintptr_t)st->message;
    out->op = (char *)(uintptr_t)st->op;
    out->file = (char *)(uintptr_t)st->file;
    out->offset = st->offset;
    out->record = st->record;
    out->element = (uint64_t)(st->element + 1);
}

void mr__status_from_wire(const Mr__Wire__Status *in, mr_status *st)
{
    mr_status_init(st);
    bool known = in->code < 0 && strcmp(mr_code_text((mr_code)in->code), "unknown code") != 0;
    mr_fail(st, known ? (mr_code)in->code : MR_UNKNOWN, "%s", in->message ? in->message : "");
    st->sys_errno = in->sys_errno;
    mr_status_at(st, in->file && in->file[0] ? in->file : NULL, in->offset, in->record);
    if (in->op && in->op[0])
        mr_status_set_op(st, in->op);
    if (in->element)
        mr_status_set_element(st, (int64_t)(in->element - 1));
}
