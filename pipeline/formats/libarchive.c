/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/libarchive.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

static const char soname[] = "libarchive.so.13";

static const struct {
    const char *name;
    size_t at;
} entries[] = {
#define ENTRY(name) {#name, offsetof(mr__libarchive, name)},
    MR__LIBARCHIVE(ENTRY)
#undef ENTRY
};

static struct {
    pthread_mutex_t lock; /* guards the rest until it is open */
    bool open;
    mr__libarchive table;
} library = {.lock = PTHREAD_MUTEX_INITIALIZER};

static mr_code open_library(mr_status *st)
{
    void *so = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
    if (!so)
        return mr_fail(st, MR_NOT_FOUND,
                       "tar archives are read by %s, which is not there; install libarchive13",
                       soname);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *p = dlsym(so, entries[i].name);
        if (!p) {
            mr_fail(st, MR_FAILED_PRECONDITION, "%s has no function %s", soname, entries[i].name);
            dlclose(so);
            return MR_FAILED_PRECONDITION;
        }
        memcpy((char *)&library.table + entries[i].at, &p, sizeof p);
    }
    library.open = true;
    return MR_OK;
}

mr_code mr__libarchive_need(const mr__libarchive **out, mr_status *st)
{
    pthread_mutex_lock(&library.lock);
    mr_code rc = library.open ? MR_OK : open_library(st);
    pthread_mutex_unlock(&library.lock);
    *out = &library.table;
    return rc;
}
