/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that reaches other processes itself: two ranks, each in its own thread, agree on it,
 * find each other by its id, and abort its work when the other fails. */
#include "trainer/collective/collective_processes.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "tests/harness.h"

enum { RANKS = 2, DEVICES = 2 };

typedef struct rank {
    pthread_t thread;
    const char *name; /* of the engine that it asks for */
    mr__world *w;
    mr__ring *ring;
    mr_device *devices[DEVICES];
    const mr_collective_backend *chosen;
    mr_collective_world seen; /* by the engine */
    char id[8];
    atomic_int aborts;
    mr_code rc;
    mr_status why;
} rank;

static rank ranks[RANKS];
static bool unsuited[RANKS], fails[RANKS];
static char address[64];
static int meetings;
static pthread_barrier_t together;

static rank *rank_of(mr_device *const *devices)
{
    return devices == ranks[0].devices ? &ranks[0] : &ranks[1];
}

/* ---- the engine ---- */

static bool suits(mr_device *const *devices, size_t n, char *why, size_t size)
{
    mr_check(n == DEVICES);
    if (unsuited[rank_of(devices) - ranks])
        snprintf(why, size, "it has had enough");
    return !unsuited[rank_of(devices) - ranks];
}

static mr_code make_id(void *id, mr_status *st)
{
    (void)st;
    memcpy(id, "seven77", 8);
    return MR_OK;
}

/* Returns when all have opened theirs, or when the job has ended. */
static mr_code open_world(const mr_collective_world *x, void **self, mr_status *st)
{
    rank *r = rank_of(x->devices);
    r->seen = *x;
    memcpy(r->id, x->id, sizeof r->id);
    *self = r;
    if (fails[r - ranks])
        return mr_fail(st, MR_DATA_LOSS, "the engine is broken");
    while (fails[0] || fails[1]) {
        mr_code rc = x->well(x->ctx, st);
        if (rc != MR_OK)
            return rc;
        usleep(1000);
    }
    return MR_OK;
}

static void end_operations(void *self)
{
    atomic_fetch_add(&((rank *)self)->aborts, 1);
}

static void close_part(void *self)
{
    (void)self;
}

static mr_code submit(void *self, const mr_collective_call *calls, size_t n, uint64_t rotation,
                      mr_status *st)
{
    (void)self;
    (void)calls;
    (void)n;
    (void)rotation;
    return mr_fail(st, MR_INTERNAL, "nothing is summed here");
}

static const mr_collective_backend engine = {.abi = MR_COLLECTIVE_ABI,
                                             .name = "nccl",
                                             .suits = suits,
                                             .close = close_part,
                                             .submit = submit,
                                             .abort = end_operations,
                                             .id_bytes = 8,
                                             .make_id = make_id,
                                             .open_world = open_world};

/* ---- two ranks ---- */

/* A loopback address of this process alone. The ports are below those that the kernel and
 * free_ports.py choose from. */
static void choose_address(void)
{
    mr_status st;
    unsigned p = (unsigned)getpid();
    snprintf(address, sizeof address, "127.%u.%u.%u:%u", p >> 16 & 127, p >> 8 & 255, (p & 127) + 2,
             10000 + (p >> 7 & 1) * 100 + (unsigned)meetings++);
    if (meetings == 1)
        mr_ok(mr_collective_backend_register(&engine, &st), &st);
}

static mr_code meet(rank *r)
{
    mr_cluster c = {0};
    mr_code rc = mr_cluster_add(&c, MR_TASK_WORKER, address, &r->why);
    if (rc == MR_OK)
        rc = mr_cluster_add(&c, MR_TASK_WORKER, "127.0.0.1:1", &r->why);
    if (rc == MR_OK)
        rc = mr_cluster_set_task(&c, MR_TASK_WORKER, r - ranks, &r->why);
    c.source = MR_CLUSTER_TORCHRUN; /* others are found through the first */
    const mr__world_opts o = {
        .rendezvous = {.cluster = &c, .connect_timeout_s = 600, .sockets_only = true},
        .peer_timeout_s = 600};
    if (rc == MR_OK)
        rc = mr__world_open(&r->w, &o, &r->why);
    if (rc == MR_OK)
        rc = mr__ring_open(&r->ring, r->w, &r->why);
    for (size_t i = 0; i < DEVICES && rc == MR_OK; i++)
        rc = mr_device_open(&r->devices[i], i ? "cpu:1" : "cpu:0", &r->why);
    mr_cluster_reset(&c);
    return rc;
}

/* Neither rank leaves before the other has finished. */
static void part(rank *r)
{
    pthread_barrier_wait(&together);
    mr__ring_close(r->ring);
    mr__world_close(r->w);
    for (size_t i = 0; i < DEVICES; i++)
        mr_device_close(r->devices[i]);
}

static void both(void *(*fn)(void *))
{
    memset(ranks, 0, sizeof ranks);
    choose_address();
    pthread_barrier_init(&together, NULL, RANKS);
    for (size_t i = 0; i < RANKS; i++)
        mr_check(pthread_create(&ranks[i].thread, NULL, fn, &ranks[i]) == 0);
    for (size_t i = 0; i < RANKS; i++)
        pthread_join(ranks[i].thread, NULL);
    pthread_barrier_destroy(&together);
}

static const char *asked;

static void *agree(void *arg)
{
    rank *r = arg;
    r->chosen = &engine;
    r->rc = meet(r);
    if (r->rc == MR_OK)
        r->rc = mr__engine_agree(r->ring, asked, r->devices, DEVICES, &r->chosen, &r->why);
    part(r);
    return NULL;
}

MR_TEST(all_use_the_engine_that_suits_all)
{
    static const char *const names[] = {NULL, "auto", "nccl", "ring"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        asked = names[i];
        mr_test_context("%s", asked ? asked : "none");
        both(agree);
        for (size_t k = 0; k < RANKS; k++) {
            mr_ok(ranks[k].rc, &ranks[k].why);
            mr_check(ranks[k].chosen == (i < 3 ? &engine : NULL));
        }
    }
    unsuited[1] = true;
    asked = "auto";
    both(agree);
    for (size_t k = 0; k < RANKS; k++) {
        mr_ok(ranks[k].rc, &ranks[k].why);
        mr_check(ranks[k].chosen == NULL);
    }
    asked = "nccl";
    both(agree);
    for (size_t k = 0; k < RANKS; k++) {
        mr_code_is(ranks[k].rc, MR_INVALID_ARGUMENT, &ranks[k].why);
        mr_has_str(ranks[k].why.message, "nccl: rank 1 (");
        mr_has_str(ranks[k].why.message, "it has had enough");
    }
}

static void *link_up(void *arg)
{
    rank *r = arg;
    mr__engine_guard *l = NULL;
    void *self = NULL;
    r->rc = meet(r);
    if (r->rc == MR_OK)
        r->rc = mr__engine_guard_new(&l, &engine, r->ring, r->devices, DEVICES, &self, &r->why);
    mr__engine_guard_free(l);
    part(r);
    return NULL;
}

MR_TEST(each_opens_its_part_by_the_id_of_the_first)
{
    both(link_up);
    for (size_t k = 0; k < RANKS; k++) {
        mr_ok(ranks[k].rc, &ranks[k].why);
        mr_check(memcmp(ranks[k].id, "seven77", 8) == 0);
        mr_eq_u64(ranks[k].seen.n, DEVICES);
        mr_eq_u64(ranks[k].seen.first, k * DEVICES);
        mr_eq_u64(ranks[k].seen.total, RANKS * DEVICES);
        mr_check(atomic_load(&ranks[k].aborts) == 0);
    }
}

/* A rank that waits for the other's part ends with the error of the other. */
MR_TEST(one_whose_part_fails_ends_the_job)
{
    for (size_t bad = 0; bad < RANKS; bad++) {
        fails[bad] = true;
        both(link_up);
        fails[bad] = false;
        mr_code_is(ranks[bad].rc, MR_DATA_LOSS, &ranks[bad].why);
        mr_check(ranks[1 - bad].rc < 0);
        mr_has_str(ranks[1 - bad].why.message, "the engine is broken");
    }
}

static void *end_with(void *arg)
{
    rank *r = arg;
    mr__engine_guard *l = NULL;
    void *self = NULL;
    r->rc = meet(r);
    if (r->rc == MR_OK)
        r->rc = mr__engine_guard_new(&l, &engine, r->ring, r->devices, DEVICES, &self, &r->why);
    pthread_barrier_wait(&together);
    if (r->rc == MR_OK && r == &ranks[1]) {
        mr_status why;
        usleep(
            50000); /* those who watch sleep by then; one that does not yet sees it all the more */
        mr_fail(&why, MR_DATA_LOSS, "something else broke");
        mr__world_abort(r->w, &why, false);
    }
    while (r->rc == MR_OK && atomic_load(&r->aborts) == 0) /* it would wait for the other */
        usleep(1000);
    mr__engine_guard_free(l);
    part(r);
    return NULL;
}

MR_TEST(operations_of_all_end_with_the_job)
{
    both(end_with);
    for (size_t k = 0; k < RANKS; k++) {
        mr_ok(ranks[k].rc, &ranks[k].why);
        mr_eq_i64(atomic_load(&ranks[k].aborts), 1);
    }
}
