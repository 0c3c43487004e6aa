/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/engine/fingerprint_internal.h"

#include <errno.h>
#include <string.h>

#include "pipeline/engine/position.h"
#include "pipeline/fnv.h"
#include "pipeline/graph/named_inputs.h"
#include "pipeline/graph/origin_internal.h"
#include "pipeline/memory/alloc.h"

mr_code mr__graph_proto_fingerprint(const mr_dataset *ds, uint64_t *h, mr_status *st)
{
    void *bytes;
    size_t n;
    MR_TRY(mr__dataset_to_bare_proto(ds, &bytes, &n, st));
    *h = mr__fnv1a(MR__FNV_BASIS, bytes, n);
    mr_free(bytes);
    return MR_OK;
}

mr_code mr__graph_fingerprint(const mr_dataset *ds, uint64_t *h, char **text, mr_status *st)
{
    char *signature = NULL;
    mr_status why;
    if (text)
        *text = NULL;
    mr_code rc = mr__graph_signature(ds, &signature, &why);
    if (rc == MR_RESOURCE_EXHAUSTED && why.sys_errno != ENOMEM) /* it is too long */
        return mr__graph_proto_fingerprint(ds, h, st);
    if (rc != MR_OK) {
        if (st)
            *st = why;
        return rc;
    }
    *h = mr__fnv1a(MR__FNV_BASIS, signature, strlen(signature));
    if (text)
        *text = signature;
    else
        mr_free(signature);
    return MR_OK;
}

mr_code mr__graph_outline_fingerprint(const mr_dataset *ds, uint64_t *h, mr_status *st)
{
    char *outline = NULL;
    MR_TRY(mr__dataset_outline(ds, &outline, st));
    *h = mr__fnv1a(MR__FNV_BASIS, outline, strlen(outline));
    mr_free(outline);
    return MR_OK;
}
