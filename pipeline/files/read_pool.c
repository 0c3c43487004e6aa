/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/files/read_async.h"

#include <errno.h>
#include <pthread.h>

#include "pipeline/system/system.h"
#include "pipeline/memory/alloc.h"
#include "pipeline/wait/wait.h"

enum { THREADS = 4, DONE = 1 };

/* One pool per process, which exists while a file uses it: threads are expensive, and a file needs
 * them only until its reads are done. */
static struct {
    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t work;
    mr__read_request *first, **last;
    pthread_t threads[THREADS];
    int n_threads, users;
    bool stopping;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .work = PTHREAD_COND_INITIALIZER};

/* Held while threads are started or joined, so that a new user waits until the threads of the last
 * user are joined. Lock order: before pool.lock. */
static pthread_mutex_t lifetime = PTHREAD_MUTEX_INITIALIZER;

/* A child has none of the threads, and no file that waits for them. */
static void empty_in_child(void)
{
    pthread_mutex_init(&lifetime, NULL);
    pthread_mutex_init(&pool.lock, NULL);
    pthread_cond_init(&pool.work, NULL);
    pool.first = NULL;
    pool.n_threads = pool.users = 0;
    pool.stopping = false;
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, empty_in_child);
}

static void *run(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&pool.lock);
    for (;;) {
        while (!pool.first && !pool.stopping)
            pthread_cond_wait(&pool.work, &pool.lock);
        mr__read_request *r = pool.first;
        if (!r)
            break;
        pool.first = r->next;
        if (!pool.first)
            pool.last = &pool.first;
        pthread_mutex_unlock(&pool.lock);
        ssize_t got = mr__sys->pread(r->fd, r->data, r->n, r->offset);
        r->result = got < 0 ? -errno : got;
        /* Release pairs with the acquire in wait_for. From here on the owner of r may free it;
         * waking needs only the address. */
        atomic_fetch_or_explicit(&r->state, DONE, memory_order_release);
        mr__wait_wake(&r->state);
        pthread_mutex_lock(&pool.lock);
    }
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

static int start(mr__read_async *a, mr__read_request *request)
{
    (void)a;
    /* Relaxed: the lock orders it. */
    atomic_store_explicit(&request->state, 0, memory_order_relaxed);
    request->done = false;
    request->next = NULL;
    pthread_mutex_lock(&pool.lock);
    *pool.last = request;
    pool.last = &request->next;
    pthread_cond_signal(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    return 0;
}

static int wait_for(mr__read_async *a, mr__read_request *request, mr_cancel *cancel)
{
    (void)a;
    for (;;) {
        unsigned seen = atomic_load_explicit(&request->state, memory_order_acquire);
        if (seen & DONE)
            break;
        if (mr_cancel_is_cancelled(cancel))
            return -ECANCELED;
        mr__wait_while(&request->state, seen, cancel);
    }
    request->done = true;
    return 0;
}

static void leave(mr__read_async *a)
{
    pthread_mutex_lock(&lifetime);
    pthread_mutex_lock(&pool.lock);
    bool last = --pool.users == 0;
    int n = pool.n_threads;
    if (last) {
        pool.stopping = true;
        pthread_cond_broadcast(&pool.work);
    }
    pthread_mutex_unlock(&pool.lock);
    if (last) {
        for (int i = 0; i < n; i++)
            pthread_join(pool.threads[i], NULL);
        pool.n_threads = 0;
        pool.stopping = false;
    }
    pthread_mutex_unlock(&lifetime);
    mr_free(a);
}

static const mr__read_async_class pool_class = {start, wait_for, leave};

mr__read_async *mr__read_pool_open(void)
{
    mr__read_async *a = mr_calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->class_ = &pool_class;
    pthread_mutex_lock(&lifetime);
    pthread_mutex_lock(&pool.lock);
    if (!pool.first)
        pool.last = &pool.first;
    while (pool.n_threads < THREADS) {
        if (pthread_create(&pool.threads[pool.n_threads], NULL, run, NULL) != 0)
            break;
        pool.n_threads++;
    }
    bool usable = pool.n_threads > 0;
    if (usable)
        pool.users++;
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&lifetime);
    if (!usable) {
        mr_free(a);
        return NULL;
    }
    return a;
}
