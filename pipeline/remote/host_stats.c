/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/remote/host_stats.h"

#include <pthread.h>
#include <string.h>

#include "pipeline/remote/host_counters.h"
#include "pipeline/system/fork.h"

enum { MOST = 64 };
const double mr_host_bounds[MR_HOST_BOUNDS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                               0.25,  0.5,    1,     2.5,  5,     10};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the names and their number */
MR__AROUND_FORK(lock, NULL)
static mr__host hosts[MOST];
static size_t n_hosts;

/* "host:port" of "http://user:secret@host:port/path" */
static size_t find_name(const char *url, const char **name)
{
    const char *at = strstr(url, "://");
    at = at ? at + 3 : url;
    size_t n = strcspn(at, "/?#");
    for (const char *user; (user = memchr(at, '@', n));) {
        n -= (size_t)(user + 1 - at);
        at = user + 1;
    }
    *name = at;
    return n;
}

mr__host *mr__host_of(const char *url)
{
    const char *name;
    size_t n = find_name(url, &name), i = 0;
    n = n < sizeof hosts->name ? n : sizeof hosts->name - 1;
    pthread_mutex_lock(&lock);
    while (i < n_hosts && (strncmp(hosts[i].name, name, n) != 0 || hosts[i].name[n]))
        i++;
    if (i == n_hosts && i < MOST) {
        if (i == MOST - 1) {
            name = "other";
            n = strlen(name);
        }
        memcpy(hosts[i].name, name, n);
        n_hosts++;
    }
    i = i < MOST ? i : MOST - 1;
    pthread_mutex_unlock(&lock);
    return &hosts[i];
}

void mr__host_answered(mr__host *h, int64_t microseconds)
{
    size_t i = 0;
    while (i < MR_HOST_BOUNDS && (double)microseconds > mr_host_bounds[i] * 1e6)
        i++;
    mr__host_add(&h->first_byte_us, microseconds);
    mr__host_add(&h->first_bytes[i], 1);
}

static int64_t count_of(const atomic_int_fast64_t *v)
{
    return atomic_load_explicit(v, memory_order_relaxed);
}

size_t mr_host_stats_read(mr_host_stats *out, size_t capacity)
{
    pthread_mutex_lock(&lock);
    size_t n = n_hosts;
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < n && i < capacity; i++) {
        const mr__host *h = &hosts[i];
        mr_host_stats *s = &out[i];
        *s = (mr_host_stats){.bytes = count_of(&h->bytes),
                             .requests = count_of(&h->requests),
                             .retries = count_of(&h->retries),
                             .open_connections = count_of(&h->open_connections),
                             .cached_bytes = count_of(&h->cached_bytes),
                             .cache_hits = count_of(&h->cache_hits),
                             .cache_misses = count_of(&h->cache_misses),
                             .first_byte_seconds = (double)count_of(&h->first_byte_us) * 1e-6};
        memcpy(s->host, h->name, sizeof s->host);
        for (size_t k = 0; k <= MR_HOST_BOUNDS; k++)
            s->first_bytes[k] = count_of(&h->first_bytes[k]);
    }
    return n;
}
