/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device/cpu/matmul.h"
#include <dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

/* Debian's oneDNN runs on OpenMP, whose thread count belongs to the calling thread. Declared here
 * because clang does not find gcc's omp.h. */
extern void omp_set_num_threads(int n);
extern int omp_get_max_threads(void);

void mr__matmul_version(char *buf, size_t size)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(buf, size, "%d.%d.%d", v->major, v->minor, v->patch);
}

int mr__matmul_enter_one_thread(void)
{
    int threads = omp_get_max_threads();
    omp_set_num_threads(1);
    return threads;
}

void mr__matmul_leave_one_thread(int threads)
{
    omp_set_num_threads(threads);
}

static _Thread_local bool takes_no_signals;

/* All but those of an instruction that fails, whose handlers report it. */
static void block_signals(sigset_t *before)
{
    static const int of_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof of_faults / sizeof *of_faults; i++)
        sigdelset(&set, of_faults[i]);
    pthread_sigmask(SIG_SETMASK, &set, before);
}

void mr__onednn_own_thread(void)
{
    block_signals(NULL);
    takes_no_signals = true;
}

void mr__onednn_enter(sigset_t *before)
{
    if (!takes_no_signals)
        block_signals(before);
}

void mr__onednn_leave(const sigset_t *before)
{
    if (!takes_no_signals)
        pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* Maximum memory of one call of oneDNN in addition to its operands: generated code, packed panels,
 * the 64 MiB that malloc reserves for a thread. */
enum { ROOM = 80 << 20 };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct rlimit space; /* at the first call */

static void find_limit(void)
{
    if (getrlimit(RLIMIT_AS, &space) != 0)
        space.rlim_cur = RLIM_INFINITY;
}

mr_code mr__onednn_room(mr_status *st)
{
    pthread_once(&once, find_limit);
    if (space.rlim_cur == RLIM_INFINITY)
        return MR_OK;
    void *p = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED,
                       "the address space is limited to %llu MiB, of which less than %d MiB are "
                       "left: oneDNN, which computes on CPUs, would end the process; raise the "
                       "limit (ulimit -v)",
                       (unsigned long long)(space.rlim_cur >> 20), ROOM >> 20);
    munmap(p, ROOM);
    return MR_OK;
}

mr_code mr__matmul(bool trans_a, bool trans_b, size_t m, size_t n, size_t k, const float *a,
                   const float *b, bool add, float *c, mr_status *st)
{
    if (m == 0 || n == 0)
        return MR_OK;
    if (k == 0) {
        if (!add)
            memset(c, 0, m * n * sizeof *c);
        return MR_OK;
    }
    MR_TRY(mr__onednn_room(st));
    sigset_t before;
    mr__onednn_enter(&before);
    dnnl_status_t s =
        dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', (dnnl_dim_t)m, (dnnl_dim_t)n,
                   (dnnl_dim_t)k, 1.0f, a, (dnnl_dim_t)(trans_a ? m : k), b,
                   (dnnl_dim_t)(trans_b ? k : n), add ? 1.0f : 0.0f, c, (dnnl_dim_t)n);
    mr__onednn_leave(&before);
    if (s == dnnl_out_of_memory)
        return mr_fail(st, MR_RESOURCE_EXHAUSTED, "no memory for a matrix product");
    if (s != dnnl_success)
        return mr_fail(st, MR_INTERNAL, "oneDNN refused a %zux%zux%zu product (status %d)", m, n, k,
                       (int)s);
    return MR_OK;
}
