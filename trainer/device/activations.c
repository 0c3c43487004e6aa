/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/device/activations.h"
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"

static const mr_activation activations[] = {
    {"linear", MR_ACT_LINEAR},
    {"relu", MR_ACT_RELU},
    {"sigmoid", MR_ACT_SIGMOID},
    {"tanh", MR_ACT_TANH},
    {"softmax", MR_ACT_SOFTMAX},
    {"elu", MR_ACT_ELU},
    {"selu", MR_ACT_SELU},
    {"relu6", MR_ACT_RELU6},
    {"leaky_relu", MR_ACT_LEAKY_RELU},
    {"softplus", MR_ACT_SOFTPLUS},
    {"softsign", MR_ACT_SOFTSIGN},
    {"exponential", MR_ACT_EXPONENTIAL},
};
enum { N_ACTIVATIONS = sizeof activations / sizeof *activations };

static const mr_activation *find(const char *name, size_t n)
{
    for (size_t i = 0; i < N_ACTIVATIONS; i++)
        if (strlen(activations[i].name) == n && memcmp(activations[i].name, name, n) == 0)
            return &activations[i];
    return NULL;
}

static mr_code parse(const mr_param *p, const mr_expr *e, void *field, mr_status *st)
{
    const mr_activation *f = NULL;
    if (e->kind == MR_EX_NONE)
        f = &activations[0];
    else if (e->kind == MR_EX_STRING || e->kind == MR_EX_NAME)
        f = find(e->text, e->text_size);
    if (!f) {
        char known[256] = "";
        for (size_t i = 0; i < N_ACTIVATIONS; i++)
            snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                     activations[i].name);
        return mr_expr_fail_at(st, e, "%s must be one of %s", p->name, known);
    }
    *(const mr_activation **)field = f;
    return MR_OK;
}

static char *print(const void *field)
{
    const mr_activation *f = *(const mr_activation *const *)field;
    return mr_strdup(f ? f->name : "none");
}

const mr_param_kind mr_param_activation = {
    .size = sizeof(mr_activation *), .parse = parse, .print = print};
