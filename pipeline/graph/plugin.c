/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/graph/plugin.h"

#include <dlfcn.h>
#include <string.h>

mr_code mr_plugin_load(const char *path, mr_status *st)
{
    mr_code rc;
    mr_plugin_fn entry;
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!so) {
        /* The system looks for a bare name where libraries lie, and nowhere else. */
        rc = mr_fail(st, MR_NOT_FOUND, "the shared object cannot be opened: %s%s%s", dlerror(),
                     strchr(path, '/') ? "" : "; one of this directory is written ./",
                     strchr(path, '/') ? "" : path);
        mr_status_at(st, path, -1, -1);
        return rc;
    }
    void *symbol = dlsym(so, MR_PLUGIN_SYMBOL);
    memcpy(&entry, &symbol, sizeof entry);
    /* It stays open also where it is refused: something of it may be registered. */
    rc = entry ? entry(st)
               : mr_fail(st, MR_FAILED_PRECONDITION,
                         "it brings nothing: it does not define " MR_PLUGIN_SYMBOL
                         "; is it built for this?");
    if (rc != MR_OK)
        mr_status_at(st, path, -1, -1);
    return rc;
}
