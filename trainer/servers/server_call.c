/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/servers/server_call.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include "pipeline/formats/base64.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/system/system.h"
#include "trainer/files/json_file.h"

enum { MOST_VALUES = 1 << 28 }; /* per frame: 1 GiB */
enum { IDLE_SECONDS = 10, BETWEEN_SECONDS = 5, PROBES = 4, LOST_MS = 60000 };

void mr__call_watch(const mr__connection *c)
{
    const int on = 1, idle = IDLE_SECONDS, between = BETWEEN_SECONDS, probes = PROBES;
    const unsigned lost = LOST_MS;
    int fd = c->socket.fd;
    mr__sys->setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    mr__sys->setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    mr__sys->setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between, sizeof between);
    mr__sys->setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    /* While data are in flight the kernel retransmits instead of probing. */
    mr__sys->setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &lost, sizeof lost);
}

mr_code mr__call_check_values(size_t n, mr_status *st)
{
    if (n >= MOST_VALUES - 64)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "%zu values are too many for one parameter server; start more servers", n);
    return MR_OK;
}

static mr_code fill_block(mr_block *b, const float *values, size_t n, mr_status *st)
{
    MR_TRY(mr__call_check_values(n, st));
    MR_TRY(mr_block_prepare(b, 1, st));
    MR_TRY(mr_array_alloc(&b->columns[0], MR_FLOAT32, 0, NULL, n + 1, st));
    float *to = b->columns[0].data;
    if (n)
        memcpy(to, values, n * sizeof *to);
    to[n] = 0;
    b->rows = n + 1;
    return MR_OK;
}

/* Serialises text; *out is owned. */
static mr_code dump(const json_t *text, char **out, size_t *n, mr_status *st)
{
    const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(17);
    *n = text ? json_dumpb(text, NULL, 0, flags) : 2;
    *out = *n ? mr_malloc(*n) : NULL;
    if (!*out)
        return mr_fail_memory(st, *n, "a call");
    if (text)
        *n = json_dumpb(text, *out, *n, flags);
    else
        memcpy(*out, "{}", 2);
    return MR_OK;
}

mr_code mr__call_send(mr__connection *c, mr__call_kind kind, uint64_t job, uint64_t number,
                      const json_t *text, const float *values, size_t n, mr_status *st)
{
    mr_block b = MR_BLOCK_EMPTY;
    mr__outgoing o = {0};
    mr__block_place place = {.job = job, .stream = kind, .first = number};
    char *said;
    MR_TRY(dump(text, &said, &place.position_bytes, st));
    place.position = said;
    mr_code rc = fill_block(&b, values, n, st);
    if (rc == MR_OK)
        rc = mr__outgoing_block(&o, &place, &b, 0, st);
    if (rc == MR_OK)
        rc = mr__connection_send_block(c, &o, st);
    mr_block_reset(&b);
    mr_free(said);
    return rc;
}

mr_code mr__call_refuse(mr__connection *c, const mr__call *call, const mr_status *why, bool cut_off,
                        mr_status *st)
{
    char message[sizeof why->message];
    mr_text_visible(why->message, false, message, sizeof message);
    json_t *text = json_pack("{s:i, s:s, s:b}", "code", (int)why->code, "message", message,
                             "cut_off", (int)cut_off);
    if (!text)
        return mr_fail_memory(st, 0, "an answer");
    mr_code rc = mr__call_send(c, MR__CALL_ANSWER, call->job, call->number, text, NULL, 0, st);
    json_decref(text);
    return rc;
}

mr_code mr__call_read(const mr__incoming *head, mr_buffer *payload, mr__call *out, mr_status *st)
{
    mr_spec *spec = mr_spec_scalar(MR_FLOAT32);
    *out = (mr__call){.kind = (mr__call_kind)head->place.stream,
                      .job = head->place.job,
                      .number = head->place.first};
    if (!spec) {
        mr_buffer_unref(payload);
        return mr_fail_memory(st, 0, "a call");
    }
    mr_code rc = MR_OK;
    if (head->memory) { /* its columns would be outside the payload */
        mr_buffer_unref(payload);
        rc = mr_fail(st, MR_DATA_LOSS, "a call refers to shared memory, but none is shared");
    } else {
        rc = mr__incoming_block(head, payload, spec, &out->block, st);
    }
    mr_spec_unref(spec);
    if (rc == MR_OK && out->block.columns[0].storage != MR_DENSE)
        rc = mr_fail(st, MR_DATA_LOSS, "the values of a call are not dense");
    if (rc == MR_OK && (out->kind < MR__CALL_ANSWER || out->kind > MR__CALL_LOOK))
        rc = mr_fail(st, MR_DATA_LOSS, "unknown call %d", (int)out->kind);
    if (rc == MR_OK) {
        out->text = json_loadb(head->place.position, head->place.position_bytes, 0, NULL);
        if (!json_is_object(out->text))
            rc = mr_fail(st, MR_DATA_LOSS, "received a call without its object");
        out->values = out->block.columns[0].data;
        out->n = out->block.rows - 1;
    }
    if (rc != MR_OK)
        mr__call_reset(out);
    return rc;
}

void mr__call_reset(mr__call *c)
{
    mr_block_reset(&c->block);
    json_decref(c->text);
    *c = (mr__call){0};
}

mr_code mr__call_error(const mr__call *answer, mr_status *st)
{
    const json_t *code = json_object_get(answer->text, "code");
    const char *message = json_string_value(json_object_get(answer->text, "message"));
    if (!code)
        return MR_OK;
    json_int_t v = json_integer_value(code);
    mr_code rc = v < 0 && v > INT32_MIN ? (mr_code)v : MR_UNKNOWN;
    return mr_fail(st, rc, "%.700s", message ? message : "no reason was given");
}

bool mr__call_is_cut_off(const mr__call *answer)
{
    return json_is_true(json_object_get(answer->text, "cut_off"));
}

static mr_code missing(const char *name, mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS, "received a call whose %s is missing or wrong", name);
}

mr_code mr__call_text(const mr__call *c, const char *name, const char **out, mr_status *st)
{
    *out = json_string_value(json_object_get(c->text, name));
    return *out ? MR_OK : missing(name, st);
}

mr_code mr__call_integer(const mr__call *c, const char *name, int64_t *out, mr_status *st)
{
    const json_t *v = json_object_get(c->text, name);
    *out = json_integer_value(v);
    return json_is_integer(v) ? MR_OK : missing(name, st);
}

mr_code mr__call_number(const mr__call *c, const char *name, double *out, mr_status *st)
{
    return mr__read_json_number(json_object_get(c->text, name), out) ? MR_OK : missing(name, st);
}

mr_code mr__call_list(const mr__call *c, const char *name, json_t **out, mr_status *st)
{
    *out = json_object_get(c->text, name);
    return json_is_array(*out) ? MR_OK : missing(name, st);
}

bool mr__call_put_bytes(json_t *to, const char *name, const void *bytes, size_t n)
{
    char *text = mr_malloc((n / 3 + 1) * 4);
    json_t *v = text ? json_stringn(text, mr_base64_encode(bytes, n, text)) : NULL;
    mr_free(text);
    return v && json_object_set_new(to, name, v) == 0;
}

mr_code mr__call_get_bytes(const json_t *from, const char *name, void **out, size_t *n,
                           mr_status *st)
{
    const json_t *v = json_object_get(from, name);
    size_t length = json_string_length(v);
    *out = NULL;
    *n = 0;
    if (!v)
        return MR_OK;
    void *bytes = mr_malloc(mr_base64_room(length) + 1);
    if (!bytes)
        return mr_fail_memory(st, length, name);
    if (!json_is_string(v) || !mr_base64_decode(json_string_value(v), length, bytes, n)) {
        mr_free(bytes);
        return missing(name, st);
    }
    *out = bytes;
    return MR_OK;
}

mr_code mr__call_lengths(const json_t *list, int *rank, int64_t *shape, mr_status *st)
{
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > MR_MAX_RANK)
        return missing("shape", st);
    for (size_t d = 0; d < n; d++) {
        const json_t *v = json_array_get(list, d);
        shape[d] = json_integer_value(v);
        if (!json_is_integer(v) || shape[d] < 0)
            return missing("shape", st);
    }
    *rank = (int)n;
    return MR_OK;
}
