/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/servers/stream_hosts.h"
#include <inttypes.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/files/json_file.h"

mr_code mr__stream_hosts_open(mr__stream_hosts *x, size_t streams, size_t workers, mr_status *st)
{
    x->v = mr_calloc(streams, sizeof *x->v);
    x->up = mr_calloc(workers, sizeof *x->up);
    if (!x->v || !x->up)
        return mr_fail_memory(st, streams * sizeof *x->v, "the streams of a job");
    x->n = streams;
    x->n_workers = workers;
    return MR_OK;
}

void mr__stream_hosts_close(mr__stream_hosts *x)
{
    for (size_t s = 0; s < x->n; s++)
        json_decref(x->v[s].position);
    mr_free(x->v);
    mr_free(x->up);
    *x = (mr__stream_hosts){0};
}

/* ---- hosts ---- */

static size_t hosted_by(const mr__stream_hosts *x, size_t worker)
{
    size_t n = 0;
    for (size_t s = 0; s < x->n; s++)
        n += x->v[s].hosted && x->v[s].host == worker;
    return n;
}

static size_t used_by(const mr__stream_hosts *x, size_t worker)
{
    size_t n = 0;
    for (size_t s = 0; s < x->n; s++)
        n += x->v[s].hosted && x->v[s].host == worker && x->v[s].used;
    return n;
}

/* The worker with the fewest streams, or the most. false: none is up */
static bool find_worker(const mr__stream_hosts *x, bool most, size_t *worker, size_t *has)
{
    bool found = false;
    for (size_t w = 0; w < x->n_workers; w++) {
        size_t n = x->up[w] ? hosted_by(x, w) : 0;
        if (!x->up[w] || (found && (most ? n <= *has : n >= *has)))
            continue;
        *worker = w;
        *has = n;
        found = true;
    }
    return found;
}

static void move(mr__stream_place *p, size_t to)
{
    p->host = to;
    p->hosted = true;
    p->open = false;
}

static bool move_one(mr__stream_hosts *x, size_t from, size_t to)
{
    for (size_t s = 0; s < x->n; s++) {
        mr__stream_place *p = &x->v[s];
        if (!p->hosted || p->host != from || p->used)
            continue;
        move(p, to);
        return true;
    }
    return false;
}

void mr__stream_hosts_share(mr__stream_hosts *x)
{
    size_t few, many, least, most;
    for (size_t s = 0; s < x->n; s++)
        if (!x->v[s].hosted && find_worker(x, false, &few, &least))
            move(&x->v[s], few);
    while (find_worker(x, false, &few, &least) && find_worker(x, true, &many, &most) &&
           most > least + 1)
        if (!move_one(x, many, few))
            return;
}

size_t mr__stream_hosts_set(mr__stream_hosts *x, size_t worker, bool is_up)
{
    size_t had = 0;
    if (x->n == 0)
        return 0;
    x->up[worker] = is_up;
    for (size_t s = 0; s < x->n && !is_up; s++)
        if (x->v[s].hosted && x->v[s].host == worker) {
            x->v[s].hosted = x->v[s].open = false;
            had++;
        }
    mr__stream_hosts_share(x);
    return had;
}

/* ---- steps ---- */

bool mr__stream_hosts_take(mr__stream_hosts *x, size_t *stream)
{
    const mr__stream_place *best = NULL;
    size_t least = 0;
    for (size_t s = 0; s < x->n; s++) {
        const mr__stream_place *p = &x->v[s];
        if (!p->hosted || !p->known || p->ended || p->used)
            continue;
        size_t load = used_by(x, p->host);
        if (best && (load > least || (load == least && p->steps >= best->steps)))
            continue;
        best = p;
        least = load;
        *stream = s;
    }
    if (best)
        x->v[*stream].used = true;
    return best != NULL;
}

bool mr__stream_hosts_over(const mr__stream_hosts *x)
{
    for (size_t s = 0; s < x->n; s++)
        if (!x->v[s].known || !x->v[s].ended)
            return false;
    return true;
}

bool mr__stream_hosts_to_look(mr__stream_hosts *x, size_t worker, size_t *stream)
{
    for (size_t s = 0; s < x->n; s++) {
        mr__stream_place *p = &x->v[s];
        if (!p->hosted || p->host != worker || p->known || p->used)
            continue;
        p->used = true;
        *stream = s;
        return true;
    }
    return false;
}

bool mr__stream_hosts_describe(const mr__stream_hosts *x, size_t stream, json_t *to)
{
    const mr__stream_place *p = &x->v[stream];
    json_t *hosted = json_array();
    for (size_t s = 0; s < x->n; s++)
        if (x->v[s].hosted && x->v[s].host == p->host)
            json_array_append_new(hosted, json_integer((json_int_t)s));
    bool good = json_object_set_new(to, "stream", json_integer((json_int_t)stream)) == 0 &&
                json_object_set_new(to, "pass", json_integer(x->pass)) == 0 &&
                json_object_set_new(to, "hosted", hosted) == 0;
    if (good && p->position && !p->open)
        good = json_object_set(to, "position", p->position) == 0 &&
               json_object_set_new(to, "at_pass", json_integer(p->at_pass)) == 0;
    return good;
}

mr_code mr__stream_hosts_answered(mr__stream_hosts *x, size_t stream, bool step,
                                  const mr__call *answer, mr_status *st)
{
    mr__stream_place *p = &x->v[stream];
    const char *position;
    const json_t *ended = json_object_get(answer->text, "ended");
    MR_TRY(mr__call_text(answer, "position", &position, st));
    if (!json_is_boolean(ended))
        return mr_fail(st, MR_DATA_LOSS, "a worker did not say whether a stream has ended");
    json_decref(p->position);
    p->position = json_incref(json_object_get(answer->text, "position"));
    p->at_pass = x->pass;
    p->ended = json_is_true(ended);
    p->known = p->open = true;
    p->used = false;
    p->steps += step;
    return MR_OK;
}

void mr__stream_hosts_rewind(mr__stream_hosts *x)
{
    x->pass++;
    for (size_t s = 0; s < x->n; s++) {
        x->v[s].known = x->v[s].ended = false;
        x->v[s].steps = 0;
    }
}

/* ---- positions ---- */

mr_code mr__stream_hosts_save(const mr__stream_hosts *x, void **bytes, size_t *size, mr_status *st)
{
    json_t *list = json_array();
    for (size_t s = 0; s < x->n; s++) {
        const mr__stream_place *p = &x->v[s];
        json_array_append_new(list, json_pack("{s:O*, s:I, s:b, s:b}", "position", p->position,
                                              "at_pass", (json_int_t)p->at_pass, "known",
                                              (int)p->known, "ended", (int)p->ended));
    }
    json_t *all = json_pack("{s:I, s:o}", "pass", (json_int_t)x->pass, "streams", list);
    bool good = all && json_array_size(list) == x->n;
    *bytes = good ? mr__json_text(all, JSON_COMPACT, size) : NULL;
    json_decref(all);
    return *bytes ? MR_OK : mr_fail_memory(st, x->n, "the positions of streams");
}

static mr_code restore_place(mr__stream_place *p, const json_t *from, mr_status *st)
{
    json_t *position = json_object_get(from, "position");
    const json_t *at_pass = json_object_get(from, "at_pass");
    if (!json_is_integer(at_pass) || (position && !json_is_string(position)))
        return mr_fail(st, MR_INVALID_ARGUMENT, "damaged positions of streams");
    *p = (mr__stream_place){.position = json_incref(position),
                            .at_pass = json_integer_value(at_pass),
                            .known = json_is_true(json_object_get(from, "known")),
                            .ended = json_is_true(json_object_get(from, "ended"))};
    return MR_OK;
}

mr_code mr__stream_hosts_restore(mr__stream_hosts *x, const void *bytes, size_t size, int64_t pass,
                                 mr_status *st)
{
    json_t *all = bytes ? json_loadb(bytes, size, 0, NULL) : NULL;
    const json_t *list = json_object_get(all, "streams"), *at = json_object_get(all, "pass");
    mr_code rc = MR_OK;
    if (bytes && (!json_is_array(list) || !json_is_integer(at)))
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "these are not positions of streams");
    else if (bytes && json_array_size(list) != x->n)
        rc = mr_fail(st, MR_FAILED_PRECONDITION,
                     "the positions are of %zu elastic streams, this job has %zu",
                     json_array_size(list), x->n);
    for (size_t s = 0; s < x->n && rc == MR_OK; s++) {
        json_decref(x->v[s].position);
        x->v[s] = (mr__stream_place){0};
        if (bytes)
            rc = restore_place(&x->v[s], json_array_get(list, s), st);
    }
    x->pass = rc == MR_OK && bytes ? json_integer_value(at) : pass;
    json_decref(all);
    mr__stream_hosts_share(x);
    return rc;
}
