/* SPDX-License-Identifier: Apache-2.0 */
#include "trainer/registry.h"
#include "trainer/builtins.h"
#include <string.h>
#include "pipeline/memory/alloc.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "trainer/model/layer.h"
#include "trainer/objectives/loss.h"
#include "trainer/objectives/loss_desc.h"
#include "trainer/objectives/metric_desc.h"
#include "trainer/model/model.h"
#include "trainer/objectives/optimizer_desc.h"

MR_ONE_THREAD;

static mr_status st;

static mr_code pass(const mr_layer_pass *p, mr_status *status)
{
    (void)p;
    (void)status;
    return MR_OK;
}

static const mr_layer_desc good = {
    .is = {.abi = MR_ABI_VERSION, .name = "idle", .doc = "D.", .example = "input(1).idle()"},
    .forward = pass,
    .backward = pass};

static void refused(mr_layer_desc d, mr_code code, const char *why)
{
    mr_test_context("%s", why);
    mr_code_is(mr_layer_register(&d, &st), code, &st);
    mr_has_str(st.message, why);
}

MR_TEST(bad_descriptors_are_refused_with_the_reason)
{
    static const mr_param outside[] = {
        {.name = "n", .doc = "N.", .type = MR_PT_I64, .flags = MR_P_OPTIONAL}, {0}};
    static const mr_param no_kind[] = {
        {.name = "k", .doc = "K.", .type = MR_PT_OWN, .flags = MR_P_OPTIONAL}, {0}};
    mr_layer_desc d = good;
    d.is.abi = 77;
    refused(d, MR_INVALID_ARGUMENT, "ABI version 77");
    d = good;
    d.is.name = "Idle";
    refused(d, MR_INVALID_ARGUMENT, "[a-z]");
    d = good;
    d.is.doc = "";
    refused(d, MR_INVALID_ARGUMENT, "layer idle lacks its doc");
    d = good;
    d.backward = NULL;
    refused(d, MR_INVALID_ARGUMENT, "a function that its descriptor needs");
    d = good;
    d.view = true; /* but it has passes */
    refused(d, MR_INVALID_ARGUMENT, "a function that its descriptor needs");
    d = good;
    d.is.params = outside;
    d.is.params_size = 4;
    refused(d, MR_INVALID_ARGUMENT, "parameter n of idle has a field outside the params struct");
    d.is.params = no_kind;
    d.is.params_size = 64;
    refused(d, MR_INVALID_ARGUMENT, "parameter k of idle has a field outside the params struct");
    d = good;
    d.is.name = "dense";
    refused(d, MR_ALREADY_EXISTS, "layer dense is registered already");
    d.is.name = "input";
    refused(d, MR_ALREADY_EXISTS, "input begins a model");
    mr_loss_desc loss = {.is = {.abi = MR_ABI_VERSION, .name = "bce", .doc = "D.", .example = "e"}};
    mr_code_is(mr_loss_register(&loss, &st), MR_INVALID_ARGUMENT, &st);
    mr_optimizer_desc o = {.is = {.abi = MR_ABI_VERSION, .name = "o", .doc = "D.", .example = "e"}};
    mr_code_is(mr_optimizer_register(&o, &st), MR_INVALID_ARGUMENT, &st);
    mr_metric_desc m = {.is = {.abi = MR_ABI_VERSION, .name = "m", .doc = "D.", .example = "e"}};
    mr_code_is(mr_metric_register(&m, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_layer_register(NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_loss_register(NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_optimizer_register(NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_metric_register(NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "the metric is NULL");
}

static void find_idle(void *ctx, const char *group, const char *name, const char *doc,
                      const char *arguments, const char *example)
{
    (void)doc;
    (void)arguments;
    (void)example;
    *(int *)ctx += strcmp(group, "layer") == 0 && strcmp(name, "idle") == 0;
}

MR_TEST(what_is_registered_is_found_and_listed)
{
    mr_model *m = NULL;
    int found = 0;
    mr_code_is(mr_model_parse(&m, "input(1).idle()", &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "there is no layer 'idle'; there are dense, conv2d");
    mr_ok(mr_layer_register(&good, &st), &st);
    mr_code_is(mr_layer_register(&good, &st), MR_ALREADY_EXISTS, &st);
    mr_ok(mr_model_parse(&m, "input(1).idle()", &st), &st);
    mr_model_free(m);
    mr_code_is(mr_model_parse(&m, "input(1).idel()", &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, ", idle");
    mr_code_is(mr_model_parse(&m, "Conv2D(8, 3)", &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "did you mean 'conv2d'?");
    mr_code_is(mr_model_parse(&m, "MaxPooling2D(2)", &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "did you mean 'max_pool'?");
    mr_model_reference(find_idle, &found);
    mr_eq_i64(found, 1);
}

MR_TEST(every_descriptor_of_the_library_is_one_that_could_be_registered)
{
    mr__registry *const all[] = {&mr__layers, &mr__losses, &mr__optimizers, &mr__metrics};
    for (size_t g = 0; g < 4; g++) {
        const mr_component *c;
        for (size_t i = 0; (c = mr__registry_at(all[g], i)); i++) {
            mr_test_context("%s %s", all[g]->group, c->name);
            /* Everything about it is in order but that its name is taken. */
            mr_code_is(mr__registry_add(all[g], c, true, &st), MR_ALREADY_EXISTS, &st);
        }
    }
}

MR_TEST(registering_without_memory_changes_nothing)
{
    static const mr_component *const none[] = {NULL};
    mr_fault_each_allocation(n)
    {
        mr__registry r = {"layer", none, .lock = PTHREAD_MUTEX_INITIALIZER};
        mr_code rc = mr__registry_add(&r, &good.is, true, &st);
        mr_fault_expect(rc, &st);
        mr_check(mr__registry_at(&r, 0) == (rc == MR_OK ? &good.is : NULL));
        mr_free(r.registered);
    }
}
