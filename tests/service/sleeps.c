/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin with one function, map(sleeps): elements take SLEEP_MS milliseconds each, one after the
 * other in a process, whatever else it does. The process holds HOLD_MB megabytes for it. */
#include <millrace/millrace.h>

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static void *held;

static mr_code sleeps(void *ctx, const mr_block *in, mr_block *out, mr_status *st)
{
    const char *ms = getenv("SLEEP_MS");
    long ns = ms ? strtol(ms, NULL, 10) * 1000000 : 0;
    const struct timespec t = {.tv_nsec = ns};
    (void)ctx;
    for (size_t i = 0; i < in->rows; i++) {
        pthread_mutex_lock(&one);
        nanosleep(&t, NULL);
        pthread_mutex_unlock(&one);
    }
    MR_TRY(mr_block_prepare(out, 1, st));
    MR_TRY(mr_array_alloc(&out->columns[0], MR_INT64, 0, NULL, in->rows, st));
    const int64_t *x = in->columns[0].data;
    int64_t *y = out->columns[0].data;
    for (size_t i = 0; i < in->rows; i++)
        y[i] = x[i];
    out->rows = in->rows;
    return MR_OK;
}

mr_code mr_plugin_register(mr_status *st);

mr_code mr_plugin_register(mr_status *st)
{
    const char *mb = getenv("HOLD_MB");
    size_t bytes = mb ? strtoul(mb, NULL, 10) << 20 : 0;
    if (bytes && (held = malloc(bytes)))
        memset(held, 1, bytes);
    mr_fn *fn = mr_fn_block(sleeps, NULL, NULL);
    mr_code rc = mr_fn_register("sleeps", fn, st);
    mr_fn_unref(fn);
    return rc;
}
