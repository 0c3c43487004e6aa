/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include <sys/resource.h>

#include <millrace/pipeline/memory/alloc.h>
#include "train.h"
#include "train_progress.h"

/* Much of it is taken by the stacks and heap arenas of threads. */
static void warn_of_limit(void)
{
    enum { ENOUGH = 1024 };
    struct rlimit space;
    if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur >> 20 < ENOUGH)
        fprintf(stderr,
                "millrace: warning: the address space is limited to %llu MiB (ulimit -v); with "
                "less than %d MiB training may run out of memory\n",
                (unsigned long long)(space.rlim_cur >> 20), ENOUGH);
}

mr_code train_devices_read(train_devices *d, const char *devices, int64_t replicas, mr_status *st)
{
    warn_of_limit();
    *d = (train_devices){.opts.num_replicas = (size_t)replicas};
    if (!devices)
        return MR_OK;
    if (!(d->text = mr_strdup(devices)))
        return mr_fail_memory(st, strlen(devices), "device names");
    size_t n = 0;
    for (char *at = d->text; at && n < MR_MAX_REPLICAS;) {
        d->names[n++] = at;
        at = strchr(at, ',');
        if (at)
            *at++ = '\0';
    }
    d->opts = (mr_strategy_opts){.devices = d->names, .n_devices = n};
    return MR_OK;
}

void train_devices_reset(train_devices *d)
{
    mr_free(d->text);
    d->text = NULL;
}

mr_code train_of_graph(const char *flag, mr_code rc, mr_status *st)
{
    if (rc < 0 && !cli_interrupted())
        mr_status_prefix(st, "%s", flag);
    return rc;
}
