/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/collective/ring/ring_mpi.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/engine/op_iterator.h"
#include "pipeline/system/system.h"
#include "trainer/device/device_modules_impl.h"
#include "trainer/collective/ring/ring_sums.h"

/* Number of tests before the core is yielded in between, and before they become rare. */
enum { AWAKE = 100, SPINS = 2000, PAUSE_NS = 20000, ASK_EVERY = 64 };

static const mr__mpi *module; /* NULL: see why_not */
static char why_not[256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Open MPI's plug-ins look up the symbols of its libraries globally. */
static void load(void)
{
    char path[PATH_MAX];
    void *so = NULL, *symbol;
    mr__mpi_fn *entry = NULL;
    if (!mr__module_find("millrace-mpi.so", "MILLRACE_MPI_MODULE", path, sizeof path)) {
        snprintf(why_not, sizeof why_not, "module not built");
        return;
    }
    so = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!so) {
        snprintf(why_not, sizeof why_not, "the module cannot be opened: %s", dlerror());
        return;
    }
    symbol = dlsym(so, MR__MPI_SYMBOL);
    memcpy(&entry, &symbol, sizeof entry);
    const mr__mpi *m = entry ? entry() : NULL;
    if (m && m->abi == MR__MPI_ABI)
        module = m;
    else
        snprintf(why_not, sizeof why_not, "%.200s is not a module of this release", path);
}

bool mr__mpi_is_there(char *why, size_t size)
{
    pthread_once(&once, load);
    if (!module)
        snprintf(why, size, "%s", why_not);
    return module != NULL;
}

mr_code mr__mpi_open(const mr__mpi **out, const mr__world *w, int *room, void *parts, mr_status *st)
{
    static const mr_dtype types[MR__MPI_TYPES] = {
        [MR__MPI_FLOAT16] = MR_FLOAT16, [MR__MPI_BFLOAT16] = MR_BFLOAT16,
        [MR__MPI_FLOAT32] = MR_FLOAT32, [MR__MPI_FLOAT64] = MR_FLOAT64,
        [MR__MPI_INT32] = MR_INT32,     [MR__MPI_INT64] = MR_INT64};
    static const mr__ring_op ops[] = {
        [MR__MPI_SUM] = MR__RING_SUM, [MR__MPI_MAX] = MR__RING_MAX, [MR__MPI_MIN] = MR__RING_MIN};
    mr__mpi_fold folds[MR__MPI_TYPES][3];
    char why[256] = "", version[64];
    int rank, size;
    if (!mr__mpi_is_there(why, sizeof why))
        return mr_fail(st, MR_NOT_FOUND, "mpi: %s", why);
    for (int t = 0; t < MR__MPI_TYPES; t++)
        for (int k = 0; k < 3; k++)
            folds[t][k] = mr__ring_fold(ops[k], types[t]);
    if (!module->open(folds, room, parts, why, sizeof why))
        return mr_fail(st, MR_FAILED_PRECONDITION, "mpi: %s", why);
    module->describe(&rank, &size, version, sizeof version);
    if ((uint32_t)rank != mr__world_rank(w) || (uint32_t)size != mr__world_size(w)) {
        module->close(false);
        return mr_fail(st, MR_FAILED_PRECONDITION,
                       "mpi: %s counts this process as %d of %d, the cluster as %" PRIu32
                       " of %" PRIu32 "; start all processes with one mpirun",
                       version, rank, size, mr__world_rank(w), mr__world_size(w));
    }
    *out = module;
    return MR_OK;
}

/* MPI's operations cannot be cancelled: one that a lost peer leaves open stays open. A rank that
 * has ended normally may have done its part, which MPI delivers once the others do theirs;
 * otherwise this loop would never end. */
static mr_code finish(const mr__mpi *m, mr__world *w, mr_status *st)
{
    char why[256];
    bool done = false;
    double short_since = 0;
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    for (uint64_t i = 1;; i++) { /* the caller has just checked the world */
        if (!m->test(&done, why, sizeof why)) {
            MR_TRY(mr__world_status(w, st));
            return mr_fail(st, MR_UNAVAILABLE, "%s", why);
        }
        if (done)
            return MR_OK;
        if (i % ASK_EVERY == 0)
            MR_TRY(mr__world_status(w, st));
        if (i % ASK_EVERY == 0 && mr__world_is_short(w)) {
            double now = mr_iter_now();
            short_since = short_since > 0 ? short_since : now;
            MR_TRY(mr__world_wait_short(w, now - short_since, st));
        }
        if (i > SPINS)
            nanosleep(&pause, NULL);
        else if (i > AWAKE)
            sched_yield();
    }
}

mr_code mr__mpi_run(const mr__mpi *m, mr__world *w, const mr__mpi_call *call, mr_status *st)
{
    char why[256];
    MR_TRY(mr__world_status(w, st));
    if (!m->start(call, why, sizeof why))
        return mr_fail(st, MR_UNAVAILABLE, "%s", why);
    mr_code rc = finish(m, w, st);
    if (rc != MR_OK)
        m->call_off();
    return rc;
}
