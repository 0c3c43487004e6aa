/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/net/lookup.h"

#include <string.h>

#include "pipeline/memory/alloc.h"

struct mr__lookup {
    mr__errand errand; /* first */
    mr__lookup_done done;
    void *ctx;
    mr__address address;
    mr_status why;
    char text[];
};

static void run(mr__errand *e)
{
    mr__lookup *k = (mr__lookup *)e;
    mr_status_init(&k->why);
    if (mr__address_resolve(k->text, &k->address, &k->why) == MR_OK)
        k->why.code = MR_OK;
}

static void done(mr__errand *e)
{
    mr__lookup *k = (mr__lookup *)e;
    k->done(k->ctx, k->why.code == MR_OK ? &k->address : NULL, &k->why);
}

static void free_lookup(mr__errand *e)
{
    mr_free(e);
}

mr_code mr__lookup_start(mr__lookup **out, mr__loop *l, const char *text, mr__lookup_done to,
                         void *ctx, mr_status *st)
{
    size_t n = strlen(text) + 1;
    mr__lookup *k = mr_calloc(1, sizeof *k + n);
    if (!k)
        return mr_fail_memory(st, sizeof *k + n, "an address");
    k->errand.run = run;
    k->errand.done = done;
    k->errand.free = free_lookup;
    k->done = to;
    k->ctx = ctx;
    memcpy(k->text, text, n);
    mr_code rc = mr__errand_start(&k->errand, l, st);
    if (rc == MR_OK)
        *out = k;
    else
        mr_free(k);
    return rc;
}

void mr__lookup_abandon(mr__lookup *k)
{
    mr__errand_abandon(&k->errand);
}
