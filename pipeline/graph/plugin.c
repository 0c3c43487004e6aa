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
        /* dlopen searches for a bare name in the library directories only. */
        rc = mr_fail(st, MR_NOT_FOUND, "cannot open the shared object: %s%s%s", dlerror(),
                     strchr(path, '/') ? "" : "; to load it from this directory, write ./",
                     strchr(path, '/') ? "" : path);
        mr_status_at(st, path, -1, -1);
        return rc;
    }
    void *symbol = dlsym(so, MR_PLUGIN_SYMBOL);
    memcpy(&entry, &symbol, sizeof entry);
    /* It stays loaded even after an error: some of its descriptors may be registered. */
    rc = entry ? entry(st)
               : mr_fail(st, MR_FAILED_PRECONDITION,
                         "it does not define " MR_PLUGIN_SYMBOL "; is it a plugin of Millrace?");
    if (rc != MR_OK)
        mr_status_at(st, path, -1, -1);
    return rc;
}
