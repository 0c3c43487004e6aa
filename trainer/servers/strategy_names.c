/* SPDX-License-Identifier: Apache-2.0 */
/* Strategies by name, and the default choice. */
#include <string.h>
#include "trainer/servers/layout.h"
#include "trainer/servers/remote_steps.h"
#include "trainer/strategy/strategy_impl.h"

static bool has_workers(const mr_workers_opts *w)
{
    return w && w->cluster && mr_cluster_num_workers(w->cluster) > 1;
}

static mr_code open_default(mr_strategy **out, const mr_strategy_opts *o, mr_status *st)
{
    if (o->devices || o->num_replicas > 1 || o->cross_device_ops)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the default strategy has one replica on a device that it chooses; use "
                       "one_device or mirrored to name devices");
    *out = mr__strategy_default();
    return mr__strategy_ready(*out, st);
}

static mr_code open_one_device(mr_strategy **out, const mr_strategy_opts *o, mr_status *st)
{
    if (o->n_devices > 1 || o->num_replicas > 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "one_device has one replica on one device, found %zu; mirrored takes more",
                       o->n_devices > 1 ? o->n_devices : o->num_replicas);
    return mr_strategy_one_device(out, o->devices ? o->devices[0] : NULL, st);
}

static mr_code open_workers(mr_strategy **out, const mr_strategy_opts *o, const mr_workers_opts *w,
                            mr_status *st)
{
    if (!w || !w->cluster)
        return mr_strategy_mirrored(out, o, st); /* a single worker */
    return mr_strategy_multi_worker_mirrored(out, o, w, st);
}

mr_code mr_strategy_parameter_server(mr_strategy **out, const mr_strategy_opts *opts,
                                     const mr_workers_opts *workers, mr_status *st)
{
    mr__servers *servers;
    const char *device = opts && opts->devices ? opts->devices[0] : NULL;
    if (opts && (opts->n_devices > 1 || opts->num_replicas > 1 || opts->cross_device_ops))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the coordinator of parameter servers has one replica; the workers of the "
                       "cluster make the steps");
    MR_TRY(mr__servers_open(&servers, workers, st));
    mr_code rc = mr_strategy_one_device(out, device, st);
    if (rc != MR_OK) {
        mr__servers_failed(servers);
        mr__servers_close(servers);
        return rc;
    }
    mr__remote_attach(*out, servers);
    return MR_OK;
}

/* Checked even if the strategy does not use it. */
static mr_code check_partitioner(const mr_workers_opts *w, mr_status *st)
{
    return w && w->variable_partitioner ? mr__partitioner_check(w->variable_partitioner, st)
                                        : MR_OK;
}

mr_code mr_strategy_by_name(mr_strategy **out, const char *name, const mr_strategy_opts *opts,
                            const mr_workers_opts *workers, mr_status *st)
{
    static const mr_strategy_opts none;
    const mr_strategy_opts *o = opts ? opts : &none;
    MR_TRY(check_partitioner(workers, st));
    if (!name)
        return has_workers(workers) ? open_workers(out, o, workers, st)
                                    : mr__strategy_choose(out, o, st);
    if (strcmp(name, "default") == 0)
        return open_default(out, o, st);
    if (strcmp(name, "one_device") == 0)
        return open_one_device(out, o, st);
    if (strcmp(name, "mirrored") == 0)
        return mr_strategy_mirrored(out, o, st);
    if (strcmp(name, "multi_worker_mirrored") == 0)
        return open_workers(out, o, workers, st);
    if (strcmp(name, "central_storage") == 0)
        return mr_strategy_central_storage(out, o, st);
    if (strcmp(name, "tpu") == 0)
        return mr_fail(st, MR_UNIMPLEMENTED, "tpu: not supported (no TPU backend)");
    if (strcmp(name, "parameter_server") == 0)
        return mr_strategy_parameter_server(out, o, workers, st);
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "unknown strategy '%s'; expected default, one_device, mirrored, "
                   "multi_worker_mirrored, central_storage or parameter_server",
                   name);
}
