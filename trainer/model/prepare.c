/* SPDX-License-Identifier: Apache-2.0 */
/* Preprocessing layers become a map at the end of the pipeline, which also puts the components of
 * several inputs and outputs into the model's order. */
#include <stdio.h>
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "pipeline/ops/apply.h"
#include "pipeline/params/spec.h"
#include "trainer/model/model_impl.h"

/* Builds the expression of an input's preprocessing layers, starting from x; owned. */
static mr_code compose(const mr_model *m, size_t input, const char *x, char **out, mr_status *st)
{
    char *text = mr_strdup(x);
    size_t at = m->input_layers[input];
    if (!text)
        return mr_fail_memory(st, strlen(x), "a model's preprocessing");
    for (size_t i = at; i < m->n_layers; i++) {
        const mr_layer *l = &m->layers[i];
        char *next = NULL;
        if (!l->desc->prepare || l->source != at)
            continue;
        mr_code rc = l->desc->prepare(l, text, &next, st);
        mr_free(text);
        MR_TRY(rc);
        text = next;
        at = i + 1;
    }
    *out = text;
    return MR_OK;
}

/* Component i of the features x for several inputs: x[0], x["name"]. */
static mr_code component(const mr_model *m, const mr_spec *features, size_t i, char *out,
                         size_t size, mr_status *st)
{
    const char *name = mr_model_input_name(m, i);
    size_t n = mr_spec_n_children(features), k = 0;
    if (mr_spec_kind_of(features) == MR_SPEC_TUPLE) {
        snprintf(out, size, "x[%zu]", i);
        return MR_OK;
    }
    while (k < n && strcmp(mr_spec_child_name(features, k), name) != 0)
        k++;
    if (k == n)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the features have no component \"%s\", which is an input of the model",
                       name);
    if (mr_spec_n_leaves(mr_spec_child(features, k)) != 1)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "component \"%s\" of the features is a structure, not a tensor; each of the "
                       "model's inputs takes one tensor",
                       name);
    snprintf(out, size, "x[\"%s\"]", name);
    return MR_OK;
}

/* All inputs, as a tuple; owned. */
static mr_code features_text(const mr_model *m, const mr_spec *features, char **out, mr_status *st)
{
    char from[96] = "x";
    *out = mr_strdup(m->n_inputs > 1 ? "(" : "");
    for (size_t i = 0; *out && i < m->n_inputs; i++) {
        char *one = NULL;
        mr_code rc = m->n_inputs > 1 ? component(m, features, i, from, sizeof from, st) : MR_OK;
        if (rc == MR_OK)
            rc = compose(m, i, from, &one, st);
        const char *after = m->n_inputs == 1 ? "" : i + 1 < m->n_inputs ? ", " : ")";
        char *both = one ? mr_strf("%s%s%s", *out, one, after) : NULL;
        mr_free(one);
        mr_free(*out);
        *out = both;
        MR_TRY(rc);
    }
    return *out ? MR_OK : mr_fail_memory(st, 0, "a model's preprocessing");
}

mr_code mr__model_find_labels(const mr_model *m, const mr_spec *of, const char *what,
                              bool has[MR_MAX_OUTPUTS], bool *plain, mr_status *st)
{
    mr_spec_kind kind = mr_spec_kind_of(of);
    size_t n = kind == MR_SPEC_LEAF ? 1 : mr_spec_n_children(of), found = 0;
    char names[256];
    *plain = kind == MR_SPEC_LEAF;
    for (size_t i = 0; i < m->n_outputs; i++) {
        int64_t at = kind == MR_SPEC_TUPLE    ? (i < n ? (int64_t)i : -1)
                     : kind == MR_SPEC_RECORD ? mr_spec_find(of, mr_model_output_name(m, i))
                                              : -1;
        has[i] = at >= 0 && mr_spec_kind_of(mr_spec_child(of, (size_t)at)) == MR_SPEC_LEAF;
        found += has[i];
    }
    if (*plain || (found > 0 && (kind == MR_SPEC_RECORD || (n == found && n == m->n_outputs))))
        return MR_OK;
    mr__model_output_names(m, names, sizeof names);
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "the %s must be a record of tensors with the names of the model's outputs (%s), "
                   "or a tuple of %zu of them; they have %zu component%s",
                   what, names, m->n_outputs, n, n == 1 ? "" : "s");
}

/* Whether it is a record with components for several outputs. Anything else is unchanged. */
static bool is_to_order(const mr_model *m, const mr_spec *of)
{
    bool has[MR_MAX_OUTPUTS], plain;
    return m->n_outputs > 1 && mr_spec_kind_of(of) == MR_SPEC_RECORD &&
           mr__model_find_labels(m, of, "labels", has, &plain, NULL) == MR_OK;
}

/* Labels or weights, called y, in the order of the outputs: `(y["a"], y["b"])`; owned. */
static char *labels_text(const mr_model *m, const mr_spec *of, const char *y)
{
    bool has[MR_MAX_OUTPUTS] = {false}, plain;
    size_t size = 8, at = 0, found = 0;
    if (!is_to_order(m, of) || mr__model_find_labels(m, of, "labels", has, &plain, NULL) != MR_OK)
        return mr_strdup(y);
    for (size_t i = 0; i < m->n_outputs; i++)
        size += has[i] ? strlen(mr_model_output_name(m, i)) + 8 : 0;
    char *text = mr_malloc(size);
    for (size_t i = 0; text && i < m->n_outputs; i++)
        if (has[i])
            at += (size_t)snprintf(text + at, size - at, "%s%s[\"%s\"]", found++ ? ", " : "(", y,
                                   mr_model_output_name(m, i));
    if (text)
        snprintf(text + at, size - at, ")");
    return text;
}

/* parts: the components of an element, the first of which are features. */
static mr_code function_text(const mr_model *m, const mr_spec *features,
                             const mr_spec *const *parts, size_t n, char **out, mr_status *st)
{
    char *x = NULL;
    MR_TRY(features_text(m, features, &x, st));
    char *y = n > 1 ? labels_text(m, parts[1], "y") : mr_strdup("");
    char *w = n > 2 ? labels_text(m, parts[2], "w") : mr_strdup("");
    *out = !y || !w ? NULL
           : n < 2  ? mr_strf("x => %s", x)
           : n == 2 ? mr_strf("(x, y) => (%s, %s)", x, y)
                    : mr_strf("(x, y, w) => (%s, %s, %s)", x, y, w);
    mr_free(x);
    mr_free(y);
    mr_free(w);
    return *out ? MR_OK : mr_fail_memory(st, 0, "a model's preprocessing");
}

/* For several inputs: checks the number of components. Labels and other parts follow the features
 * in the element's tuple. */
static mr_code check_components(const mr_model *m, const mr_spec *features, mr_status *st)
{
    mr_spec_kind kind = mr_spec_kind_of(features);
    size_t n = kind == MR_SPEC_TUPLE || kind == MR_SPEC_RECORD ? mr_spec_n_children(features) : 1;
    if (m->n_inputs == 1 || (kind == MR_SPEC_RECORD && n >= m->n_inputs) ||
        (kind == MR_SPEC_TUPLE && n == m->n_inputs && mr_spec_n_leaves(features) == n))
        return MR_OK;
    if (kind == MR_SPEC_TUPLE && n == m->n_inputs)
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the features have a component that is a structure, not a tensor; each of "
                       "the model's inputs takes one tensor");
    return mr_fail(st, MR_INVALID_ARGUMENT,
                   "the model has %zu inputs, but the features have %zu component%s: the data must "
                   "yield ((a, b), y), or a record in place of (a, b)",
                   m->n_inputs, n, n == 1 ? "" : "s");
}

/* Labels may have extra components; a weight without an output is an error. */
static mr_code check_weights(const mr_model *m, const mr_spec *of, mr_status *st)
{
    char names[256];
    size_t n = mr_spec_kind_of(of) == MR_SPEC_RECORD ? mr_spec_n_children(of) : 0;
    mr__model_output_names(m, names, sizeof names);
    for (size_t i = 0; m->n_outputs > 1 && i < n; i++)
        if (mr__model_find_output(m, mr_spec_child_name(of, i)) == m->n_outputs)
            return mr_fail(st, MR_INVALID_ARGUMENT,
                           "the sample weights have a component \"%.100s\", but the model's "
                           "outputs are called %s",
                           mr_spec_child_name(of, i), names);
    return MR_OK;
}

static const char *first_preparing(const mr_model *m)
{
    size_t i = 0;
    while (!m->layers[i].desc->prepare)
        i++;
    return m->layers[i].name;
}

mr_code mr_model_prepare(const mr_model *m, mr_dataset *ds, mr_dataset **out, mr_status *st)
{
    char *text = NULL;
    bool prepares = false;
    for (size_t i = 0; i < m->n_layers; i++)
        prepares = prepares || m->layers[i].desc->prepare;
    if (!prepares && m->n_inputs == 1 && m->n_outputs == 1) {
        *out = mr_dataset_ref(ds);
        return MR_OK;
    }
    MR_TRY(mr_dataset_check(ds, st));
    const mr_spec *spec = mr_dataset_spec(ds);
    size_t n = mr_spec_kind_of(spec) == MR_SPEC_TUPLE ? mr_spec_n_children(spec) : 1;
    const mr_spec *features = spec, *parts[3] = {spec};
    bool orders = false;
    if (mr_spec_kind_of(spec) == MR_SPEC_TUPLE && n > 0) {
        mr_spec_kind first = mr_spec_kind_of(mr_spec_child(spec, 0));
        /* Predictions may be made from features alone: (a, b). */
        if (m->n_inputs == 1 || first == MR_SPEC_TUPLE || first == MR_SPEC_RECORD)
            features = mr_spec_child(spec, 0);
        else
            n = 1;
    }
    MR_TRY(check_components(m, features, st));
    for (size_t i = 0; n > 1 && n < 4 && i < n; i++) {
        parts[i] = mr_spec_child(spec, i);
        orders = orders || (i > 0 && is_to_order(m, parts[i]));
    }
    if (n == 3)
        MR_TRY(check_weights(m, parts[2], st));
    if (!prepares && !orders && (m->n_inputs == 1 || mr_spec_kind_of(features) == MR_SPEC_TUPLE)) {
        *out = mr_dataset_ref(ds);
        return MR_OK;
    }
    if (n < 1 || n > 3 || (m->n_inputs == 1 && mr_spec_kind_of(spec) == MR_SPEC_RECORD))
        return mr_fail(st, MR_INVALID_ARGUMENT,
                       "the model prepares its features: the data must yield features, (features, "
                       "labels) or (features, labels, sample weights)");
    MR_TRY(function_text(m, features, parts, n, &text, st));
    mr_dataset *made = mr_map(mr_dataset_ref(ds), mr_fn_text(text), NULL);
    mr_free(text);
    mr_code rc = mr_dataset_check(made, st);
    if (rc == MR_OK)
        *out = made;
    else {
        mr_dataset_unref(made);
        mr_status_prefix(st, "the model's %s", prepares ? first_preparing(m) : "inputs");
    }
    return rc;
}
