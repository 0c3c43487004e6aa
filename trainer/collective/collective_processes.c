/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/collective/collective_processes.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "trainer/collective/collective_impl.h"

/* ---- agreement on an engine */

/* The offer of a process, followed by the GPUs of its ranks. */
typedef struct offer {
    uint32_t suits;
    char why[224]; /* why not */
} offer;
typedef struct gpu {
    char uuid[64]; /* "": unknown */
} gpu;

static void fill_offer(const mr_collective_backend *b, mr_device *const *devices, size_t n,
                       offer *mine)
{
    gpu *gpus = (gpu *)(mine + 1);
    memset(mine, 0, sizeof *mine + n * sizeof *gpus);
    if (!b || !b->open_world)
        snprintf(mine->why, sizeof mine->why,
                 "%s, and the GPU module is not available (see millrace devices)",
                 mr_device_name(devices[0]));
    else
        mine->suits = b->suits(devices, n, mine->why, sizeof mine->why);
    for (size_t i = 0; i < n && mine->suits; i++) {
        mr_device_properties p;
        mr_device_describe(devices[i], &p);
        snprintf(gpus[i].uuid, sizeof gpus[i].uuid, "%s", p.uuid);
    }
}

/* Whether two processes use the same GPU. */
static bool share_one(const offer *a, const offer *b, size_t n)
{
    const gpu *x = (const gpu *)(a + 1), *y = (const gpu *)(b + 1);
    for (size_t i = 0; i < n * n; i++)
        if (x[i / n].uuid[0] && strcmp(x[i / n].uuid, y[i % n].uuid) == 0)
            return true;
    return false;
}

/* Whether the engine suits all; why names the first process that it does not suit. */
static bool suits_all(const mr__ring *ring, const char *offers, size_t bytes, size_t n, char *why,
                      size_t size)
{
    const mr__world *w = mr__ring_world(ring);
    for (uint32_t i = 0; i < mr__world_size(w); i++) {
        const offer *o = (const offer *)(offers + i * bytes);
        if (!o->suits) {
            snprintf(why, size, "rank %u (%s): %.*s", i, mr__world_address(w, i),
                     (int)sizeof o->why - 1, o->why);
            return false;
        }
        for (uint32_t k = 0; k < i; k++)
            if (share_one(o, (const offer *)(offers + k * bytes), n)) {
                snprintf(why, size, "rank %u (%s) and rank %u (%s) share a GPU", k,
                         mr__world_address(w, k), i, mr__world_address(w, i));
                return false;
            }
    }
    return true;
}

mr_code mr__engine_agree(mr__ring *ring, const char *name, mr_device *const *devices, size_t n,
                         const mr_collective_backend **out, mr_status *st)
{
    const mr_collective_backend *nccl = mr__collective_find("nccl");
    const mr__world *w = mr__ring_world(ring);
    size_t world = mr__world_size(w), bytes = sizeof(offer) + n * sizeof(gpu);
    bool asked = name && strcmp(name, "nccl") == 0;
    char why[512] = "";
    *out = NULL;
    if (name && !asked && strcmp(name, "auto") != 0)
        return MR_OK;
    char *offers = mr_calloc(world, bytes);
    size_t *sizes = mr_calloc(world, sizeof *sizes);
    mr_code rc = offers && sizes ? MR_OK : mr_fail_memory(st, world * bytes, "a collective");
    for (size_t i = 0; i < world && rc == MR_OK; i++)
        sizes[i] = bytes;
    if (rc == MR_OK) {
        fill_offer(nccl, devices, n, (offer *)(offers + mr__world_rank(w) * bytes));
        rc = mr__ring_all_gather(ring, offers, sizes, st);
    }
    if (rc == MR_OK && suits_all(ring, offers, bytes, n, why, sizeof why))
        *out = nccl;
    else if (rc == MR_OK && asked)
        rc = mr_fail(st, MR_INVALID_ARGUMENT, "nccl: %s", why);
    else if (rc == MR_OK && mr__world_rank(w) == 0)
        mr__say_engine(devices[0], "processes", mr__ring_description(ring), why);
    mr_free(offers);
    mr_free(sizes);
    return rc;
}

/* ---- the engine */

struct mr__engine_guard {
    const mr_collective_backend *b;
    mr__world *world;
    void *self;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    bool ended, closing;
};

static mr_code is_well(void *world, mr_status *st)
{
    return mr__world_status(world, st);
}

static void on_end(void *link)
{
    mr__engine_guard *l = link;
    pthread_mutex_lock(&l->lock);
    l->ended = true;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
}

/* A separate thread, because the caller of the end function holds the world's lock, and an abort
 * may wait. */
static void *watch(void *link)
{
    mr__engine_guard *l = link;
    pthread_mutex_lock(&l->lock);
    while (!l->ended && !l->closing)
        pthread_cond_wait(&l->moved, &l->lock);
    bool ended = l->ended;
    pthread_mutex_unlock(&l->lock);
    if (ended)
        l->b->abort(l->self);
    return NULL;
}

/* Sends the first process's id to all. */
static mr_code share_id(const mr_collective_backend *b, mr__ring *ring, void *id, mr_status *st)
{
    if (mr__world_rank(mr__ring_world(ring)) == 0)
        MR_TRY(b->make_id(id, st));
    return mr__ring_broadcast(ring, 0, id, b->id_bytes, st);
}

static mr_code open_part(const mr_collective_backend *b, mr__ring *ring, mr_device *const *devices,
                         size_t n, void **self, mr_status *st)
{
    mr__world *w = mr__ring_world(ring);
    void *id = mr_calloc(1, b->id_bytes);
    if (!id)
        return mr_fail_memory(st, b->id_bytes, "a collective");
    mr_code rc = share_id(b, ring, id, st);
    const mr_collective_world part = {.devices = devices,
                                      .n = n,
                                      .first = n * mr__world_rank(w),
                                      .total = n * mr__world_size(w),
                                      .id = id,
                                      .well = is_well,
                                      .ctx = w};
    if (rc == MR_OK)
        rc = b->open_world(&part, self, st);
    mr_free(id);
    return rc;
}

mr_code mr__engine_guard_new(mr__engine_guard **out, const mr_collective_backend *b, mr__ring *ring,
                             mr_device *const *devices, size_t n, void **self, mr_status *st)
{
    mr__world *w = mr__ring_world(ring);
    mr__engine_guard *l = mr_calloc(1, sizeof *l);
    mr_status why;
    mr_code rc = l ? open_part(b, ring, devices, n, self, &why)
                   : mr_fail_memory(&why, sizeof *l, "a collective");
    if (rc == MR_OK) {
        *l = (mr__engine_guard){.b = b, .world = w, .self = *self};
        pthread_mutex_init(&l->lock, NULL);
        pthread_cond_init(&l->moved, NULL);
        int err = pthread_create(&l->thread, NULL, watch, l);
        if (err == 0) {
            mr__world_on_end(w, MR__PART_ENGINE, on_end, l);
            *out = l;
            return MR_OK;
        }
        pthread_cond_destroy(&l->moved);
        pthread_mutex_destroy(&l->lock);
        rc = mr_fail_errno(&why, err, "cannot start the thread that watches a collective");
    }
    mr_free(l);
    mr__world_abort(w, &why, false); /* the others may be waiting for this process */
    if (st)
        *st = why;
    return rc;
}

void mr__engine_guard_free(mr__engine_guard *l)
{
    if (!l)
        return;
    mr__world_on_end(l->world, MR__PART_ENGINE, NULL, NULL);
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_cond_broadcast(&l->moved);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    pthread_cond_destroy(&l->moved);
    pthread_mutex_destroy(&l->lock);
    mr_free(l);
}
