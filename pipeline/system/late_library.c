/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/system/late_library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "pipeline/system/fork.h"

/* Libraries are opened one at a time, and not during a fork. */
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
MR__AROUND_FORK(opening, NULL)

static mr_code fail(const mr__late_library *l, mr_code code, const char *why, mr_status *st)
{
    mr_fail(st, code, "%s by %s, which cannot be loaded (%s); install %s", l->what, l->soname, why,
            l->package);
    mr_status_of_no_element(st);
    return code;
}

/* A wheel has its own copies, under names that nothing else in the process has. */
#ifdef MR_BUNDLED
static void *open_copy(const char *soname)
{
    char name[128];
    snprintf(name, sizeof name, MR_BUNDLED "%s", soname);
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
}
#else
static void *open_copy(const char *soname)
{
    (void)soname;
    return NULL;
}
#endif

static mr_code open_library(mr__late_library *l, mr_status *st)
{
    void *so = open_copy(l->soname);
    if (!so)
        so = dlopen(l->soname, RTLD_NOW | RTLD_LOCAL);
    char *to = l->table;
    if (!so)
        return fail(l, MR_NOT_FOUND, dlerror(), st);
    for (const char *name = l->names; *name; name += strlen(name) + 1) {
        void *p = dlsym(so, name);
        if (!p) {
            mr_code rc = fail(l, MR_FAILED_PRECONDITION, dlerror(), st);
            dlclose(so);
            return rc;
        }
        memcpy(to, &p, sizeof p);
        to += sizeof p;
    }
    atomic_store_explicit(&l->open, true, memory_order_release);
    return MR_OK;
}

MR_API mr_code mr__late_library_need(mr__late_library *l, mr_status *st)
{
    if (atomic_load_explicit(&l->open, memory_order_acquire))
        return MR_OK;
    pthread_mutex_lock(&opening);
    mr_code rc = atomic_load_explicit(&l->open, memory_order_relaxed) ? MR_OK : open_library(l, st);
    pthread_mutex_unlock(&opening);
    return rc;
}
