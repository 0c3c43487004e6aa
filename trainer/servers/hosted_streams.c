/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/servers/hosted_streams.h"
#include <inttypes.h>
#include <string.h>
#include "pipeline/memory/alloc.h"

/* What an answer may hold, as base64 in a frame's head (transport/wire/frame.h). */
enum { MOST_BYTES = 11 << 20 };

/* ---- opening ---- */

static mr_code invalid(const char *what, mr_status *st)
{
    return mr_fail(st, MR_DATA_LOSS, "received a call whose %s is missing or wrong", what);
}

static mr_code set_files(mr__hosted_streams *x, const char *pattern, const json_t *list,
                         mr_status *st)
{
    size_t n = json_array_size(list);
    const char **files = mr_calloc(n + 1, sizeof *files);
    if (!files)
        return mr_fail_memory(st, n, "lists of files");
    mr_code rc = MR_OK;
    for (size_t i = 0; i < n && rc == MR_OK; i++)
        if (!(files[i] = json_string_value(json_array_get(list, i))))
            rc = invalid("files", st);
    if (rc == MR_OK)
        rc = mr__lone_streams_set_files(x->graphs, pattern, files, n, st);
    mr_free(files);
    return rc;
}

mr_code mr__hosted_streams_open(mr__hosted_streams *x, mr_dataset *ds, const mr__call *call,
                                mr_cancel *cancel, mr_strategy *s, mr_status *st)
{
    int64_t n, seed;
    const char *pattern;
    json_t *files = json_object_get(call->text, "files"), *list;
    MR_TRY(mr__call_integer(call, "streams", &n, st));
    MR_TRY(mr__call_integer(call, "data_seed", &seed, st));
    MR_TRY(mr__lone_streams_open(&x->graphs, ds, n, (uint64_t)seed, NULL, st));
    x->n = n;
    x->v = mr_calloc((size_t)n, sizeof *x->v);
    if (!x->v)
        return mr_fail_memory(st, (size_t)n * sizeof *x->v, "the streams of a job");
    json_object_foreach(files, pattern, list) MR_TRY(set_files(x, pattern, list, st));
    if (json_is_true(json_object_get(call->text, "ledger")))
        MR_TRY(mr__step_records_new(&x->records, s, st));
    MR_TRY(mr_executor_new(mr_usable_cpus(), &x->executor, st));
    x->internal = (mr__iterator_internal){
        .shares_memory = true,
        .seed_made_up = json_is_true(json_object_get(call->text, "seed_made_up"))};
    x->run = (mr_iterator_opts){.cancel = cancel,
                                .executor = x->executor,
                                .has_seed = true,
                                .positions = true,
                                .ledger = x->records ? mr__step_records_names(x->records) : NULL,
                                .internal = &x->internal};
    return MR_OK;
}

static void close_stream(mr__hosted_stream *v)
{
    mr_iterator_close(v->it);
    mr_block_reset(&v->ahead);
    *v = (mr__hosted_stream){0};
}

void mr__hosted_streams_close(mr__hosted_streams *x)
{
    mr_status ignored;
    for (int64_t i = 0; x->v && i < x->n; i++)
        close_stream(&x->v[i]);
    mr_block_reset(&x->batch);
    mr_code rc = mr__step_records_close(x->records, &ignored);
    (void)rc; /* it has no file */
    mr_executor_free(x->executor);
    mr__lone_streams_close(x->graphs);
    mr_free(x->position);
    mr_free(x->v);
    *x = (mr__hosted_streams){0};
}

/* ---- going to a stream ---- */

static void close_others(mr__hosted_streams *x, const json_t *hosted)
{
    for (int64_t s = 0; s < x->n; s++) {
        bool stays = false;
        for (size_t i = 0; i < json_array_size(hosted) && !stays; i++)
            stays = json_integer_value(json_array_get(hosted, i)) == s;
        if (!stays)
            close_stream(&x->v[s]);
    }
}

static mr_code open_stream(mr__hosted_streams *x, int64_t stream, const mr__call *call,
                           mr_status *st)
{
    mr__hosted_stream *v = &x->v[stream];
    mr_dataset *ds;
    void *position;
    size_t size;
    MR_TRY(mr__lone_streams_make(x->graphs, stream, &ds, &x->run.seed, st));
    mr_code rc = mr_iterator_open(&v->it, ds, &x->run, st);
    mr_dataset_unref(ds);
    MR_TRY(rc);
    MR_TRY(mr__call_get_bytes(call->text, "position", &position, &size, st));
    if (!position)
        return MR_OK;
    rc = mr__call_integer(call, "at_pass", &v->pass, st);
    if (rc == MR_OK)
        rc = mr_iterator_restore(v->it, position, size, st);
    mr_free(position);
    return rc;
}

static mr_code enter(mr__hosted_streams *x, const mr__call *call, int64_t stream, int64_t pass,
                     mr_status *st)
{
    mr__hosted_stream *v = &x->v[stream];
    if (json_object_get(call->text, "position"))
        close_stream(v);
    if (!v->it)
        MR_TRY(open_stream(x, stream, call, st));
    for (; v->pass < pass; v->pass++) {
        mr_block_reset(&v->ahead);
        v->looked = false;
        MR_TRY(mr_iterator_rewind(v->it, st));
    }
    x->now = v;
    return MR_OK;
}

mr_code mr__hosted_streams_enter(mr__hosted_streams *x, const mr__call *call, mr_status *st)
{
    int64_t stream, pass;
    json_t *hosted;
    MR_TRY(mr__call_integer(call, "stream", &stream, st));
    MR_TRY(mr__call_integer(call, "pass", &pass, st));
    MR_TRY(mr__call_list(call, "hosted", &hosted, st));
    if (stream < 0 || stream >= x->n)
        return invalid("stream", st);
    close_others(x, hosted);
    x->noted_size = 0;
    mr_free(x->position);
    x->position = NULL;
    mr_code rc = enter(x, call, stream, pass, st);
    if (rc != MR_OK)
        close_stream(&x->v[stream]);
    return rc;
}

/* ---- batches ---- */

static void look(mr__hosted_stream *v)
{
    if (v->looked)
        return;
    mr_status_init(&v->st);
    v->rc = mr_iterator_next(v->it, 1, &v->ahead, &v->st);
    v->looked = true;
}

static mr_code save(mr__hosted_streams *x, mr_status *st)
{
    mr_free(x->position);
    x->position = NULL;
    return mr_iterator_save(x->now->it, &x->position, &x->position_size, st);
}

mr_code mr__hosted_streams_next(void *ctx, mr_step *out, mr_status *st)
{
    static const bool has_data[] = {true};
    mr__hosted_streams *x = ctx;
    mr__hosted_stream *v = x->now;
    look(v);
    if (v->rc != MR_END)
        v->looked = false;
    if (v->rc < 0 && st)
        *st = v->st;
    MR_TRY(v->rc);
    mr_block_move(&x->batch, &v->ahead);
    *out = (mr_step){.n_replicas = 1, .replicas = &x->batch, .has_data = has_data};
    if (x->records)
        MR_TRY(mr__step_records_pack(x->records, out, &x->noted, &x->noted_size, st));
    return save(x, st);
}

mr_code mr__hosted_streams_report(mr__hosted_streams *x, json_t *to, mr_status *st)
{
    mr__hosted_stream *v = x->now;
    if (!x->position) /* no batch was taken in this call */
        MR_TRY(save(x, st));
    look(v);
    if (x->position_size <= MOST_BYTES && x->position_size + x->noted_size > MOST_BYTES)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "stream %td has a position of %zu bytes and %zu bytes of records for the "
                       "ledger, and a worker of parameter servers returns at most %d with a step; "
                       "use smaller batches, or no ledger",
                       v - x->v, x->position_size, x->noted_size, (int)MOST_BYTES);
    if (x->position_size > MOST_BYTES)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "stream %td has a position of %zu bytes, and a worker of parameter servers "
                       "returns at most %d with a step; hold fewer elements in ops like window, "
                       "group_by_window and unique, or train with another strategy, whose "
                       "positions may be larger",
                       v - x->v, x->position_size, (int)MOST_BYTES);
    bool good = mr__call_put_bytes(to, "position", x->position, x->position_size) &&
                json_object_set_new(to, "ended", json_boolean(v->rc == MR_END)) == 0 &&
                (!x->records || mr__call_put_bytes(to, "records", x->noted, x->noted_size));
    return good ? MR_OK : mr_fail_memory(st, x->position_size, "an answer");
}
