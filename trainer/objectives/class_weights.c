/* SPDX-License-Identifier: Apache-2.0 */
/* Class weights become a map at the end of the pipeline, which looks up the weight of each
 * example; like in Keras, a class without one counts 1. */
#include "trainer/objectives/class_weights.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/apply.h"
#include "pipeline/params/spec.h"
#include "trainer/objectives/loss.h"

enum { NUMBER = 32 };

static mr_code make_text(const double *weights, size_t n_weights, bool weighted, char **out,
                         mr_status *st)
{
    size_t size = n_weights * NUMBER + 256, n;
    char *text = mr_malloc(size);
    if (!text)
        return mr_fail_memory(st, size, "class weights");
    n = (size_t)snprintf(
        text, size, "%s cast(where(cast(y, \"int64\") < %zu, gather([",
        weighted ? "(x, y, w) => (x, y, cast(w, \"float32\") *" : "(x, y) => (x, y,", n_weights);
    for (size_t i = 0; i < n_weights; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%.9e", i ? ", " : "", weights[i]);
    snprintf(text + n, size - n, "], min(max(cast(y, \"int64\"), 0), %zu)), 1.0), \"float32\"))",
             n_weights - 1);
    *out = text;
    return MR_OK;
}

mr_code mr__weigh_classes(mr_dataset *ds, const double *weights, size_t n, mr_dataset **out,
                          mr_status *st)
{
    char *text = NULL;
    if (!weights || n == 0) {
        *out = mr_dataset_ref(ds);
        return MR_OK;
    }
    if (n > MR_MAX_CLASS_WEIGHTS)
        return mr_fail(st, MR_INVALID_ARGUMENT, "at most %d class weights", MR_MAX_CLASS_WEIGHTS);
    for (size_t i = 0; i < n; i++)
        if (!isfinite((float)weights[i]) || weights[i] < 0)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "the weight of class %zu is %g, expected a float32 from 0", i,
                           weights[i]);
    MR_TRY(mr_dataset_check(ds, st));
    const mr_spec *spec = mr_dataset_spec(ds);
    size_t parts = mr_spec_kind_of(spec) == MR_SPEC_TUPLE ? mr_spec_n_children(spec) : 1;
    if (parts < 2 || parts > 3)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "class weights need data that yield (features, labels) or (features, "
                       "labels, sample weights)");
    const mr_spec *labels = mr_spec_child(spec, 1);
    if (mr_spec_n_leaves(labels) != 1 || !mr_dtype_is_integer(mr_spec_leaf(labels, 0)->dtype))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "class weights need labels that are class numbers; use cast(y, \"int64\")");
    MR_TRY(make_text(weights, n, parts == 3, &text, st));
    mr_dataset *weighed = mr_map(mr_dataset_ref(ds), mr_fn_text(text), NULL);
    mr_free(text);
    mr_code rc = mr_dataset_check(weighed, st);
    if (rc == MR_OK)
        *out = weighed;
    else
        mr_dataset_unref(weighed);
    return rc;
}
