/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints when something fails: readers always find a complete one. */
#include "trainer/loop/checkpoint.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/kit/killed_at.h"
#include "tests/trainer/kit/parts.h"
#include "trainer/loop/callback.h"
#include "trainer/exchange/saved_model.h"

static mr_status st;
static const char data[] =
    "range(6).map(i => ([cast(i, \"float32\") / 8.0, 1.0], [cast(i, \"float32\")])).batch(2)";

/* Without a test's assertions: it also runs in child processes. */
static mr_code make(parts *p, mr_status *status)
{
    *p = (parts){0};
    MR_TRY(mr_dataset_from_text(data, sizeof data - 1, NULL, &p->ds, status));
    MR_TRY(mr_strategy_mirrored(&p->s, &(mr_strategy_opts){.num_replicas = 1}, status));
    MR_TRY(mr_model_parse(&p->m, "dense(2).dense(1)", status));
    MR_TRY(mr_loss_parse(&p->loss, "mse", status));
    return mr_optimizer_parse(&p->o, "sgd(0.01, momentum=0.9)", status);
}

static mr_code fit(parts *p, const mr_callback *c, mr_status *status)
{
    const mr_iterator_opts here = {.has_threads = true};
    return parts_fit(
        p, &(mr_fit_opts){.epochs = 2, .callbacks = c, .n_callbacks = 1, .iterator = &here}, NULL,
        status);
}

static mr_code train_with(const char *callback, mr_status *status)
{
    parts p;
    mr_callback c = {0};
    mr_code rc = make(&p, status);
    if (rc == MR_OK)
        rc = mr_callback_parse(&c, callback, status);
    if (rc == MR_OK)
        rc = fit(&p, &c, status);
    mr_callback_reset(&c);
    parts_drop(&p);
    return rc;
}

static const char *saving_in(const char *name)
{
    static char text[700];
    snprintf(text, sizeof text, "checkpoint(\"%s\", save_freq=2, keep=1)", mr_test_path(name));
    return text;
}

static void train_counted(void *ctx)
{
    mr_status status;
    killed_at_count();
    if (train_with(ctx, &status) != MR_OK)
        _exit(1);
}

typedef struct tally {
    int whole, broken, hidden;
} tally;

static mr_code count(void *ctx, const mr_checkpoint_info *c, mr_status *status)
{
    tally *t = ctx;
    (void)status;
    if (*c->name == '.')
        t->hidden++;
    else if (c->whole)
        t->whole++;
    else
        t->broken++;
    return MR_OK;
}

MR_TEST_SLOW(a_process_killed_at_any_system_call_leaves_the_last_whole_one)
{
    char text[700];
    uint64_t random = mr_test_seed();
    int64_t n = 1, found = 0;
    snprintf(text, sizeof text, "%s", saving_in("k/ckpt_{step}"));
    for (; killed_at(n, train_counted, text);
         n += mr_test_long() ? 1 : 1 + (int64_t)(mr_test_random(&random) % 20)) {
        tally t = {0};
        mr_saved *saved;
        mr_test_context("killed at call %d", (int)n);
        if (access(mr_test_path("k"), F_OK) != 0)
            continue;
        mr_ok(mr_checkpoint_list(mr_test_path("k"), count, &t, &st), &st);
        mr_eq_i64(t.broken, 0);
        mr_check(t.whole >= found); /* what was there once stays, or what follows it is there */
        if (access(mr_test_path("k/checkpoint"), F_OK) == 0) {
            mr_ok(mr_saved_open(&saved, mr_test_path("k"), &st), &st);
            mr_saved_close(saved);
            found = 1;
        }
    }
    mr_check(found == 1 && n > 60);
}

/* Saved once, then with every kind of failure: the first is still there, or one after it. */
static void expect_whole(const char *name)
{
    mr_saved *saved;
    mr_fault_off();
    mr_ok(mr_saved_open(&saved, mr_test_path(name), &st), &st);
    mr_saved_close(saved);
}

MR_TEST_SLOW(a_full_disk_ends_training_with_the_last_good_one_there)
{
    char text[700];
    snprintf(text, sizeof text, "%s", saving_in("f/ckpt_{step}"));
    mr_ok(train_with(text, &st), &st);
    mr_fault_exact(200);
    mr_fault_each(n, MR_FAULT_SYSTEM_CALL, ENOSPC, true)
    {
        mr_code rc = train_with(text, &st);
        mr_fault_expect(rc, &st);
        expect_whole("f");
    }
}

MR_TEST(memory_may_run_out)
{
    char text[700];
    snprintf(text, sizeof text, "%s", saving_in("m/ckpt_{step}"));
    mr_ok(train_with(text, &st), &st);
    mr_fault_exact(100);
    mr_fault_each_allocation(n)
    {
        mr_code rc = train_with(text, &st);
        mr_fault_expect(rc, &st);
        expect_whole("m");
    }
}

static mr_code save_at_any_time(void *ctx, const mr_train_event *e, mr_status *status)
{
    return mr_checkpoint_save(e, ctx, status);
}

static mr_code restore_late(void *ctx, const mr_train_event *e, mr_status *status)
{
    return mr_checkpoint_restore(e, ctx, status);
}

MR_TEST(checkpoints_have_their_places)
{
    parts p;
    char path[500];
    snprintf(path, sizeof path, "%s", mr_test_path("one"));
    mr_ok(make(&p, &st), &st);
    mr_code_is(fit(&p,
                   &(mr_callback){.ctx = path, .batch_end = save_at_any_time, .saves = parts_never},
                   &st),
               MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "saves");
    mr_ok(fit(&p, &(mr_callback){.ctx = path, .epoch_end = save_at_any_time, .saves = parts_never},
              &st),
          &st);
    mr_code_is(fit(&p, &(mr_callback){.ctx = path, .epoch_end = restore_late}, &st),
               MR_FAILED_PRECONDITION, &st);
    parts_drop(&p);
}

MR_TEST(damaged_states_are_refused)
{
    static const struct {
        const char *name, *content;
        mr_code rc;
        const char *word;
    } cases[] = {
        {"one/position-0", "something", MR_DATA_LOSS, "position-0 has the CRC-32C"},
        {"one/state.json", "{\"format\": 1}", MR_DATA_LOSS, "epoch is missing"},
        {"one/state.json", "{\"format\": 9}", MR_FAILED_PRECONDITION, "format 9"},
        {"one/state.json", "{", MR_DATA_LOSS, "not JSON"},
        {"one/optimizer.safetensors", "abc", MR_DATA_LOSS, "truncated"},
        {"one/weights.safetensors", "abc", MR_DATA_LOSS, "truncated"},
    };
    char path[500];
    snprintf(path, sizeof path, "%s", mr_test_path("one"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        parts p;
        float kernel[4];
        mr_test_context("%s: %s", cases[i].name, cases[i].content);
        mr_ok(make(&p, &st), &st);
        mr_ok(fit(&p,
                  &(mr_callback){.ctx = path, .epoch_end = save_at_any_time, .saves = parts_never},
                  &st),
              &st);
        mr_test_file(cases[i].name, cases[i].content);
        float before[4];
        mr_ok(mr_variable_read(mr_model_variable(p.m, 0), before, &st), &st);
        mr_code_is(fit(&p, &(mr_callback){.ctx = path, .train_begin = restore_late}, &st),
                   cases[i].rc, &st);
        char all[1200];
        mr_status_format(&st, all, sizeof all);
        mr_has_str(all, cases[i].word);
        mr_ok(mr_variable_read(mr_model_variable(p.m, 0), kernel, &st), &st);
        mr_eq_mem(kernel, before, sizeof kernel);
        parts_drop(&p);
    }
}

/* The list of callbacks in state.json, changed. */
static void change_callbacks(const char *json)
{
    json_error_t e;
    const char *path = mr_test_path("one/state.json");
    json_t *root = json_load_file(path, 0, &e), *list = json_loads(json, JSON_DECODE_ANY, &e);
    mr_check(root && list);
    mr_check(json_object_set_new(root, "callbacks", list) == 0);
    mr_check(json_object_del(root, "crc32c") == 0);
    mr_check(json_object_set_new(root, "format", json_integer(1)) == 0);
    mr_check(json_dump_file(root, path, 0) == 0);
    json_decref(root);
}

static const char stopping[] =
    "early_stopping(monitor=\"loss\", mode=\"max\", patience=9, restore_best_weights=true)";

static mr_code fit_two(parts *p, const char *text, const mr_callback *own, int64_t epochs,
                       mr_fit_result *r)
{
    mr_callback list[2] = {*own};
    MR_TRY(mr_callback_parse(&list[1], text, &st));
    mr_code rc =
        parts_fit(p, &(mr_fit_opts){.epochs = epochs, .callbacks = list, .n_callbacks = 2}, r, &st);
    mr_callback_reset(&list[1]);
    return rc;
}

MR_TEST(damaged_memories_of_callbacks_are_refused)
{
    static const struct {
        const char *list, *word;
        mr_code rc;
    } cases[] = {
        {"3", "callbacks", MR_DATA_LOSS},
        {"[3]", "callbacks", MR_DATA_LOSS},
        {"[{\"name\": \"early_stopping\", \"of\": \"loss\", \"numbers\": [\"x\"], \"weights\": "
         "false}]",
         "callbacks", MR_DATA_LOSS},
        {"[{\"name\": \"early_stopping\", \"of\": \"loss\", \"numbers\": "
         "[1,2,3,4,5,6,7,8,9], \"weights\": false}]",
         "callbacks", MR_DATA_LOSS},
        {"[{\"name\": \"x\", \"of\": \"\", \"numbers\": [], \"weights\": false}, "
         "{\"name\": \"early_stopping\", \"of\": \"loss\", \"numbers\": [], \"weights\": true}]",
         "the file has no 1", MR_INVALID_ARGUMENT},
        {"[]", NULL, MR_OK}, /* a warning */
        {"[{\"name\": \"early_stopping\", \"of\": \"val_loss\", \"numbers\": [1, 1, 8, 1], "
         "\"weights\": false}]",
         NULL, MR_OK}, /* of another that watches something else */
        {"[{\"name\": \"early_stopping\", \"of\": \"loss\", \"numbers\": [1, \"inf\", 1e300, 0], "
         "\"weights\": false}]",
         NULL, MR_OK},
    };
    char path[500];
    mr_fit_result r;
    snprintf(path, sizeof path, "%s", mr_test_path("one"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        parts p;
        mr_test_context("%s", cases[i].list);
        mr_ok(make(&p, &st), &st);
        const mr_callback saves = {
            .ctx = path, .epoch_end = save_at_any_time, .saves = parts_never};
        mr_ok(fit_two(&p, stopping, &saves, 2, &r), &st);
        change_callbacks(cases[i].list);
        mr_code rc =
            fit_two(&p, stopping, &(mr_callback){.ctx = path, .train_begin = restore_late}, 4, &r);
        mr_code_is(rc, cases[i].rc, &st);
        if (rc == MR_OK)
            mr_eq_i64(r.epochs, 2);
        else
            mr_has_str(st.message, cases[i].word);
        parts_drop(&p);
    }
}

/* Two of a kind keep apart by what they watch and by their order; one that had ended training ends
 * it again. */
MR_TEST(each_callback_gets_its_own_memory_back)
{
    parts p;
    char path[500];
    mr_fit_result r;
    snprintf(path, sizeof path, "%s", mr_test_path("one"));
    mr_ok(make(&p, &st), &st);
    const mr_callback saves = {.ctx = path, .epoch_end = save_at_any_time, .saves = parts_never};
    const mr_callback restores = {.ctx = path, .train_begin = restore_late};
    mr_ok(fit_two(&p, stopping, &saves, 2, &r), &st);
    change_callbacks(
        "[{\"name\": \"early_stopping\", \"of\": \"loss\", \"numbers\": [1, 1e30, 7, 0], "
        "\"weights\": "
        "false}, {\"name\": \"early_stopping\", \"of\": \"loss\", \"numbers\": [1, 1e30, 9, 1], "
        "\"weights\": false}]");
    mr_ok(fit_two(&p, stopping, &restores, 9, &r), &st);
    mr_eq_i64(r.epochs, 2); /* seven had passed, two more make nine */
    mr_callback list[3] = {restores};
    mr_ok(mr_callback_parse(&list[1], stopping, &st), &st);
    mr_ok(mr_callback_parse(&list[2], stopping, &st), &st);
    mr_ok(mr_fit(p.s, p.m, p.ds, p.loss, p.o,
                 &(mr_fit_opts){.epochs = 9, .callbacks = list, .n_callbacks = 3}, &r, &st),
          &st);
    mr_eq_i64(r.epochs, 0); /* the second had ended training */
    mr_callback_reset(&list[1]);
    mr_callback_reset(&list[2]);
    parts_drop(&p);
}

static mr_code train_and_go_on(char *path, mr_status *status)
{
    const mr_iterator_opts here = {.has_threads = true};
    char ledger[500];
    snprintf(ledger, sizeof ledger, "%s", mr_test_path("steps.ledger"));
    for (int second = 0; second < 2; second++) {
        parts p;
        mr_callback list[2] = {{.ctx = path,
                                .train_begin = second ? restore_late : NULL,
                                .epoch_end = save_at_any_time,
                                .saves = parts_never}};
        mr_code rc = make(&p, status);
        if (rc == MR_OK)
            rc = mr_callback_parse(&list[1], stopping, status);
        if (rc == MR_OK)
            rc = mr_fit(p.s, p.m, p.ds, p.loss, p.o,
                        &(mr_fit_opts){.epochs = 1 + second,
                                       .callbacks = list,
                                       .n_callbacks = 2,
                                       .iterator = &here,
                                       .ledger = ledger},
                        NULL, status);
        mr_callback_reset(&list[1]);
        parts_drop(&p);
        MR_TRY(rc);
    }
    return MR_OK;
}

MR_TEST(memory_may_run_out_over_what_callbacks_remember)
{
    char path[500];
    snprintf(path, sizeof path, "%s", mr_test_path("one"));
    mr_ok(train_and_go_on(path, &st), &st);
    mr_fault_exact(100);
    mr_fault_each_allocation(n)
    {
        mr_code rc = train_and_go_on(path, &st);
        mr_fault_expect(rc, &st);
    }
}
