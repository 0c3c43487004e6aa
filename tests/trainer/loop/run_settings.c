/* SPDX-License-Identifier: Apache-2.0 */
/* Each argument of each layer, loss, optimizer, schedule and metric, taken from the descriptors:
 * two runs that differ in it differ in that setting. */
#include "trainer/loop/run_settings.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "pipeline/memory/alloc.h"
#include "tests/harness.h"
#include "trainer/builtins.h"
#include "trainer/device/activations.h"
#include "trainer/loop/callback_impl.h"
#include "trainer/model/layer_state.h"
#include "trainer/model/model_impl.h"
#include "trainer/objectives/loss_impl.h"
#include "trainer/objectives/metric_impl.h"
#include "trainer/objectives/optimizer_impl.h"
#include "trainer/objectives/schedule.h"
#include "trainer/strategy/initializer.h"

MR_ONE_THREAD;

enum { TEXT = 400 };

static mr_status st;

typedef struct pair {
    const char *a, *b;
} pair;

/* Two values of a parameter as text. */
static pair values_of(const char *component, const mr_param *p)
{
    static char a[64], b[64];
    static const struct {
        const mr_param_kind *kind;
        pair values;
    } kinds[] = {{&mr_param_activation, {"relu", "tanh"}},
                 {&mr_param_initializer, {"zeros", "random_normal(0.0, 0.5)"}},
                 {&mr_param_regularizer, {"l1_l2(0.5, 0.25)", "l1_l2(0.5, 0.125)"}},
                 {&mr__param_vocabulary, {"[\"a\"]", "[\"b\"]"}},
                 {&mr__param_boundaries, {"[1.0]", "[2.0]"}},
                 {&mr__param_moments, {"\"one\"", "\"two\""}},
                 {&mr__param_schedule, {"0.5", "cosine_decay(0.5, 9)"}},
                 {&mr__param_pairs, {"[[0, 0.5]]", "[[0, 0.25]]"}}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && p->type == MR_PT_OWN; i++)
        if (p->kind == kinds[i].kind)
            return kinds[i].values;
    if (strcmp(component, "residual") == 0 && strcmp(p->name, "layers") == 0)
        return (pair){"dense(4)", "dense(5)"};
    if (strcmp(component, "piecewise_constant_decay") == 0 && strcmp(p->name, "values") == 0)
        return (pair){"[0.5, 0.25]", "[0.5, 0.125]"};
    if (p->type == MR_PT_STR) {
        mr_check(p->names && p->names[0] && p->names[1]);
        snprintf(a, sizeof a, "\"%s\"", p->names[0]);
        snprintf(b, sizeof b, "\"%s\"", p->names[1]);
        return (pair){a, b};
    }
    switch (p->type) {
    case MR_PT_I64:
        return p->def.i == 2 ? (pair){"3", "4"} : (pair){"2", "3"};
    case MR_PT_F64:
        return (pair){"0.5", "0.25"};
    case MR_PT_BOOL:
    case MR_PT_TRI:
        return (pair){"true", "false"};
    case MR_PT_INTS:
        return (pair){"[2]", "[3]"};
    case MR_PT_FLOATS:
        return (pair){"[0.5]", "[0.25]"};
    default:
        mr_fail_test("%s/%s has a type that this test does not know", component, p->name);
    }
    return (pair){0};
}

/* NAME(its required arguments, p=value). */
static void write_call(char out[TEXT], const mr_component *c, const mr_param *of, const char *value)
{
    size_t at = (size_t)snprintf(out, TEXT, "%s(", c->name);
    bool first = true;
    for (const mr_param *p = c->params; p && p->name; p++) {
        bool is_it = p == of;
        if (!is_it && !(p->flags & MR_P_POSITIONAL))
            continue;
        char own[64];
        snprintf(own, sizeof own, "%s", is_it ? value : values_of(c->name, p).a);
        at += (size_t)snprintf(out + at, TEXT - at, "%s%s=%s", first ? "" : ", ", p->name, own);
        first = false;
    }
    snprintf(out + at, TEXT - at, ")");
}

typedef mr_code (*list_fn)(const char *text, mr__settings *out);

static mr_code list_model(const char *text, mr__settings *out)
{
    mr_model *m;
    MR_TRY(mr_model_parse(&m, text, &st));
    mr_code rc = mr__model_settings(m, out, &st);
    mr_model_free(m);
    return rc;
}

static mr_code list_layer(const char *text, mr__settings *out)
{
    char model[2 * TEXT];
    bool merges = strncmp(text, "concat(", 7) == 0; /* of two inputs */
    snprintf(model, sizeof model,
             merges ? "p = input(4, 4); q = input(4, 4); concat(p, q, %s" : "%s",
             merges ? text + 7 : text);
    return list_model(model, out);
}

static mr_code list_loss(const char *text, mr__settings *out)
{
    mr_loss *l;
    MR_TRY(mr_loss_parse(&l, text, &st));
    mr_code rc = mr__loss_settings(l, out, &st);
    mr_loss_free(l);
    return rc;
}

static mr_code list_optimizer(const char *text, mr__settings *out)
{
    mr_optimizer *o;
    MR_TRY(mr_optimizer_parse(&o, text, &st));
    mr_code rc = mr__optimizer_settings(o, out, &st);
    mr_optimizer_free(o);
    return rc;
}

static mr_code list_schedule(const char *text, mr__settings *out)
{
    char whole[2 * TEXT];
    snprintf(whole, sizeof whole, "sgd(%s)", text);
    return list_optimizer(whole, out);
}

static mr_code list_metric(const char *text, mr__settings *out)
{
    mr_metric *m;
    MR_TRY(mr_metric_parse(&m, text, &st));
    mr_code rc = mr__metric_settings(m, out, &st);
    mr_metric_free(m);
    return rc;
}

static mr_code list_callback(const char *text, mr__settings *out)
{
    mr_callback c;
    MR_TRY(mr_callback_parse(&c, text, &st));
    mr_code rc = c.sets_learning_rate && !c.remember ? mr__callback_settings(&c, out, &st) : MR_OK;
    mr_callback_reset(&c);
    return rc;
}

typedef struct found {
    size_t n;
    char names[TEXT];
} found;

static void note(void *ctx, const char *name, const char *now, const char *before)
{
    found *f = ctx;
    size_t at = strlen(f->names);
    mr_check(!now || !before || strcmp(now, before) != 0);
    f->n++;
    snprintf(f->names + at, sizeof f->names - at, "%s, ", name);
}

/* The settings in which b differs from a. */
static found compare(list_fn list, const char *a, const char *b)
{
    mr__settings x = {0}, y = {0};
    found f = {0};
    mr_test_context("%s, %s", a, b);
    mr_ok(list(a, &x), &st);
    mr_ok(list(b, &y), &st);
    mr_ok(mr__settings_compare(&y, &x, note, &f, &st), &st);
    mr__settings_drop(&x);
    mr__settings_drop(&y);
    return f;
}

/* named: what the setting is called; NULL: COMPONENT/PARAMETER. */
static size_t check_group(mr__registry *group, list_fn list, const char *named)
{
    const mr_component *c;
    size_t n = 0;
    for (size_t i = 0; (c = mr__registry_at(group, i)); i++)
        for (const mr_param *p = c->params; p && p->name; p++) {
            char a[TEXT], b[TEXT], name[128], first[64], second[64];
            pair v = values_of(c->name, p);
            snprintf(first, sizeof first, "%s", v.a);
            snprintf(second, sizeof second, "%s", v.b);
            write_call(a, c, p, first);
            write_call(b, c, p, second);
            found f = compare(list, a, b);
            mr_eq_u64(compare(list, a, a).n, 0);
            if (named && strchr(named, '/'))
                snprintf(name, sizeof name, "%s, ", named);
            else
                snprintf(name, sizeof name, "%s/%s, ", named ? named : c->name, p->name);
            if (strcmp(c->name, "residual") == 0) /* it becomes the layers that it stands for */
                snprintf(name, sizeof name, "%s, ",
                         strcmp(p->name, "layers") == 0 ? "dense/units" : "residual/reads");
            mr_test_context("%s, %s", a, b);
            mr_has_str(f.names, name);
            n++;
        }
    return n;
}

static void write_moments(const char *name, const char *mean)
{
    char path[600];
    snprintf(path, sizeof path, "%s", mr_test_path(name));
    FILE *f = fopen(path, "w");
    mr_check(f && fprintf(f, "{\"mean\": [%s], \"variance\": [1.0]}", mean) > 0 && fclose(f) == 0);
}

MR_TEST(every_argument_of_every_component_is_a_setting)
{
    write_moments("one", "1.0");
    write_moments("two", "2.0");
    mr_check(chdir(mr_test_dir()) == 0);
    mr_check(check_group(&mr__layers, list_layer, NULL) > 60);
    mr_check(check_group(&mr__losses, list_loss, "loss") > 4);
    mr_check(check_group(&mr__optimizers, list_optimizer, "optimizer") > 18);
    mr_check(check_group(&mr__schedules, list_schedule, "optimizer/learning_rate") > 9);
    mr_check(check_group(&mr__metrics, list_metric, "metric") > 5);
}

MR_TEST(what_no_descriptor_has_is_a_setting_too)
{
    static const struct {
        list_fn list;
        const char *a, *b, *name;
    } cases[] = {
        {list_optimizer, "sgd(weight_decay=0.5)", "sgd(weight_decay=0.25)",
         "optimizer/weight_decay"},
        {list_optimizer, "adamw()", "adamw(weight_decay=0.25)", "optimizer/weight_decay"},
        {list_optimizer, "sgd(clipnorm=0.5)", "sgd(clipnorm=0.25)", "optimizer/clipnorm"},
        {list_optimizer, "sgd()", "sgd(global_clipnorm=0.25)", "optimizer/global_clipnorm"},
        {list_optimizer, "sgd(clipvalue=0.5)", "sgd(clipvalue=0.25)", "optimizer/clipvalue"},
        {list_loss, "{\"p\": mse, \"q\": mae}", "{\"p\": mse, \"q\": mse}", "loss of q"},
        {list_loss, "{\"p\": mse, \"q\": mae}", "{\"p\": mse, \"q\": 0.5 * mae}",
         "loss of q/weight"},
        {list_loss, "[mse, huber(delta=0.5)]", "[mse, huber(delta=0.25)]",
         "loss of output 1/delta"},
        {list_metric, "accuracy", "weighted(accuracy)", "weighted"},
        {list_metric, "p.accuracy", "q.accuracy", "output"},
        {list_metric, "huber(delta=0.5)", "huber(delta=0.25)", "loss/delta"},
        {list_metric, "mse", "mae", "loss"},
        {list_model, "dense(3).dropout(0.5)", "dropout(0.5).dense(3)", "dropout/reads"},
        {list_model, "dense(3).activation(relu)", "dense(3)", "activation"},
        {list_model, "p = input(2); q = p.dense(2); subtract(p, q)",
         "p = input(2); q = p.dense(2); subtract(q, p)", "subtract/reads"},
        {list_model, "p = input(2); q = p.dense(2); add(p, q)",
         "p = input(2); q = p.dense(2); multiply(p, q)", "add"},
        {list_model, "residual(dense(2, activation=relu))", "residual(dense(2, activation=tanh))",
         "dense/activation"},
        {list_callback, "learning_rate_schedule([[0, 0.5]])", "learning_rate_schedule([[1, 0.5]])",
         "learning_rate_schedule/schedule"},
        {list_callback, "print_learning_rate()", "learning_rate_schedule([[1, 0.5]])",
         "learning_rate_schedule"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        found f = compare(cases[i].list, cases[i].a, cases[i].b);
        mr_has_str(f.names, cases[i].name);
        mr_check(compare(cases[i].list, cases[i].b, cases[i].a).n > 0);
        mr_eq_u64(compare(cases[i].list, cases[i].b, cases[i].b).n, 0);
    }
}
