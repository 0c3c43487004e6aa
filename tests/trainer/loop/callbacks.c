/* SPDX-License-Identifier: Apache-2.0 */
/* The callbacks that text can name, each by what it leaves. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "pipeline/system/system.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/kit/parts.h"
#include "trainer/loop/callback.h"
#include "trainer/loop/callback_desc.h"
#include "trainer/loop/checkpoint.h"

static mr_status st;
static const char ten[] =
    "range(10).map(i => ([cast(i, \"float32\") / 8.0, 1.0], [cast(i, \"float32\")])).batch(2)";

static parts make(const char *optimizer)
{
    return parts_make(1, "dense(1)", "mse", optimizer, mr_test_graph(ten));
}

static char printed[2048];

static void print(void *ctx, const char *text, const char *json)
{
    size_t n = strlen(printed);
    snprintf(printed + n, sizeof printed - n, "%s\n", ctx ? json : text);
}

/* The callback of text before up to two of the test's own, over `epochs` epochs. */
static mr_code fit_with(parts *p, const char *text, const mr_callback *own,
                        const mr_callback *other, int64_t epochs, mr_fit_result *r)
{
    mr_callback list[3] = {{0}};
    const char *const metrics[] = {"mse"};
    MR_TRY(mr_callback_parse(&list[0], text, &st));
    if (own)
        list[1] = *own;
    if (other)
        list[2] = *other;
    printed[0] = '\0';
    const mr_fit_opts opts = {.epochs = epochs,
                              .metrics = metrics,
                              .n_metrics = 1,
                              .callbacks = list,
                              .n_callbacks = other ? 3
                                             : own ? 2
                                                   : 1,
                              .validation = p->ds,
                              .print = print};
    mr_code rc = parts_fit(p, &opts, r, &st);
    mr_callback_reset(&list[0]);
    return rc;
}

static mr_code fit(parts *p, const char *text, const mr_callback *own, int64_t epochs,
                   mr_fit_result *r)
{
    return fit_with(p, text, own, NULL, epochs, r);
}

static const char *content(const char *name)
{
    static char text[8192];
    FILE *f = fopen(mr_test_path(name), "rb");
    mr_check(f != NULL);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static bool there(const char *name)
{
    return access(mr_test_path(name), F_OK) == 0;
}

static const char *call(const char *format, const char *name)
{
    static char text[1024];
    snprintf(text, sizeof text, format, mr_test_path(name));
    return text;
}

static mr_code note_rate(void *ctx, const mr_train_event *e, mr_status *status)
{
    double *rates = ctx;
    (void)status;
    rates[e->epoch - 1] = mr_optimizer_learning_rate(e->optimizer);
    return MR_OK;
}

MR_TEST(arguments_are_checked)
{
    static const struct {
        const char *text, *word;
    } cases[] = {
        {"chekpoint(\"a\")", "there is no callback 'chekpoint'; did you mean 'checkpoint'?"},
        {"ModelCheckpoint(\"a\")", "did you mean 'checkpoint'?"},
        {"EarlyStopping()", "did you mean 'early_stopping'?"},
        {"checkpoint()", "path"},
        {"checkpoint(\"ckpt_{loss}\")", "{epoch} and {step}"},
        {"checkpoint(\"run_{epoch}/ckpt\")", "last part"},
        {"checkpoint(\"dir/\")", "does not name a file"},
        {"checkpoint(\"a\", save_freq=0)", "save_freq"},
        {"checkpoint(\"a\", save_freq=\"hour\")", "save_freq"},
        {"checkpoint(\"a\", keep=0)", "keep"},
        {"checkpoint(\"a\", mode=\"best\")", "mode"},
        {"checkpoint(\"a\", on_error=\"ignore\")", "on_error"},
        {"learning_rate_schedule()", "schedule"},
        {"learning_rate_schedule([])", "pairs"},
        {"learning_rate_schedule([[3, 0.1], [3, 0.2]])", "increase"},
        {"learning_rate_schedule([[0, -0.1]])", "pairs"},
        {"learning_rate_schedule([[0.5, 0.1]])", "pairs"},
        {"early_stopping(patience=-1)", "patience"},
        {"reduce_lr_on_plateau(factor=1.0)", "factor"},
        {"csv_logger()", "file"},
        {"csv_logger(\"a\", separator=\"\")", "separator"},
        {"terminate_on_nan(1)", "argument"},
        {"tensorboard(\"\")", "is empty"},
        {"backup_and_restore(\"\")", "is empty"},
    };
    mr_callback c;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mr_test_context("%s", cases[i].text);
        mr_code_is(mr_callback_parse(&c, cases[i].text, &st), MR_INVALID_ARGUMENT, &st);
        mr_has_str(st.message, cases[i].word);
    }
}

MR_TEST(schedules_set_the_rate_of_each_epoch)
{
    double rates[6];
    mr_callback own = {.ctx = rates, .epoch_end = note_rate};
    parts p = make("sgd(0.5)");
    mr_ok(fit(&p, "learning_rate_schedule([[1, 0.1], [3, 0.01]])", &own, 5, NULL), &st);
    const double want[] = {0.5, 0.1, 0.1, 0.01, 0.01};
    for (int i = 0; i < 5; i++)
        mr_eq_f64(rates[i], want[i], 0);
    parts_drop(&p);
}

static double halve(void *ctx, int64_t epoch, double rate)
{
    (*(int *)ctx)++;
    return epoch == 0 ? rate : rate / 2;
}

static double negative(void *ctx, int64_t epoch, double rate)
{
    (void)ctx;
    (void)rate;
    return epoch < 1 ? 0.1 : -1;
}

MR_TEST(a_schedule_may_be_a_function)
{
    double rates[4];
    int calls = 0;
    parts p = make("sgd(0.08)");
    mr_callback list[2] = {{0}, {.ctx = rates, .epoch_end = note_rate}};
    mr_fit_opts o = {.epochs = 3, .callbacks = list, .n_callbacks = 2};
    mr_ok(mr_callback_learning_rate(&list[0], halve, &calls, &st), &st);
    mr_ok(parts_fit(&p, &o, NULL, &st), &st);
    mr_eq_i64(calls, 3);
    mr_eq_f64(rates[0], 0.08, 0);
    mr_eq_f64(rates[2], 0.02, 0);
    mr_callback_reset(&list[0]);
    mr_ok(mr_callback_learning_rate(&list[0], negative, NULL, &st), &st);
    mr_code_is(parts_fit(&p, &o, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "epoch 2");
    mr_callback_reset(&list[0]);
    parts_drop(&p);
}

MR_TEST(the_learning_rate_is_printed)
{
    parts p = make("adam(learning_rate=0.001)");
    mr_ok(fit(&p, "print_learning_rate()", NULL, 2, NULL), &st);
    mr_eq_str(printed, "Learning rate for epoch 1 is 0.001\nLearning rate for epoch 2 is 0.001\n");
    parts_drop(&p);
}

MR_TEST(training_stops_when_nothing_gets_better)
{
    mr_fit_result r;
    parts p = make("sgd(0.0)");
    mr_ok(fit(&p, "early_stopping(patience=3)", NULL, 20, &r), &st);
    mr_eq_i64(r.epochs, 4); /* the first is the best, three more pass */
    mr_ok(fit(&p, "early_stopping()", NULL, 20, &r), &st);
    mr_eq_i64(r.epochs, 2);
    mr_ok(fit(&p, "early_stopping(start_from_epoch=5)", NULL, 20, &r), &st);
    mr_eq_i64(r.epochs, 7);
    mr_ok(fit(&p, "early_stopping(monitor=\"val_auc\")", NULL, 3, &r), &st);
    mr_eq_i64(r.epochs, 3); /* a warning an epoch */
    parts_drop(&p);
    p = make("sgd(0.01)");
    mr_ok(fit(&p, "early_stopping(patience=2)", NULL, 6, &r), &st);
    mr_eq_i64(r.epochs, 6); /* it gets better all the time */
    mr_ok(fit(&p, "early_stopping(patience=2, min_delta=1000)", NULL, 6, &r), &st);
    mr_eq_i64(r.epochs, 3);
    mr_ok(fit(&p, "early_stopping(patience=2, mode=\"max\")", NULL, 6, &r), &st);
    mr_eq_i64(r.epochs, 3);
    mr_ok(fit(&p, "early_stopping(patience=2, baseline=-1.0)", NULL, 6, &r), &st);
    mr_eq_i64(r.epochs, 6); /* better than before counts, but not for the wait */
    parts_drop(&p);
}

/* Spoils the weights after the second epoch. */
static mr_code spoil(void *ctx, const mr_train_event *e, mr_status *status)
{
    const float bad[2] = {100, 100};
    float *kept = ctx;
    if (e->epoch == 2)
        MR_TRY(mr_variable_read(mr_model_variable(e->model, 0), kept, status));
    return e->epoch < 2 ? MR_OK : mr_variable_assign(mr_model_variable(e->model, 0), bad, status);
}

MR_TEST(the_best_weights_are_restored)
{
    float best[2], now[2];
    mr_callback own = {.ctx = best, .epoch_end = spoil};
    mr_fit_result r;
    parts p = make("sgd(0.01)");
    mr_ok(fit(&p, "early_stopping(patience=2, restore_best_weights=true)", &own, 9, &r), &st);
    mr_eq_i64(r.epochs, 4);
    mr_ok(mr_variable_read(mr_model_variable(p.m, 0), now, &st), &st);
    mr_eq_mem(now, best, sizeof now);
    parts_drop(&p);
}

MR_TEST(the_rate_is_lowered_on_a_plateau)
{
    double rates[8];
    mr_callback own = {.ctx = rates, .epoch_end = note_rate};
    parts p = make("sgd(0.08)");
    mr_ok(fit(&p,
              "reduce_lr_on_plateau(monitor=\"loss\", mode=\"max\", factor=0.5, patience=2, "
              "cooldown=1, min_lr=0.03)",
              &own, 8, NULL),
          &st);
    /* The loss falls, so the first is the best: two pass, one cools, two pass. */
    const double want[] = {0.08, 0.08, 0.04, 0.04, 0.03, 0.03, 0.03, 0.03};
    for (int i = 0; i < 8; i++)
        mr_eq_f64(rates[i], want[i], 0);
    mr_has_str(printed, "epoch 3: the learning rate is lowered to 0.04");
    parts_drop(&p);
}

MR_TEST(what_grows_by_less_than_min_delta_is_on_a_plateau)
{
    double rates[4];
    mr_callback own = {.ctx = rates, .epoch_end = note_rate};
    parts p = make("sgd(1e-9)");
    mr_ok(fit(&p, "reduce_lr_on_plateau(monitor=\"mse\", mode=\"max\", factor=0.5, patience=2)",
              &own, 4, NULL),
          &st);
    const double want[] = {1e-9, 1e-9, 0.5e-9, 0.5e-9};
    for (int i = 0; i < 4; i++)
        mr_eq_f64(rates[i], want[i], 0);
    parts_drop(&p);
}

MR_TEST(a_line_of_values_for_each_epoch)
{
    parts p = make("sgd(0.01)");
    mr_ok(fit(&p, call("csv_logger(\"%s\")", "log.csv"), NULL, 2, NULL), &st);
    mr_check(strncmp(content("log.csv"), "epoch,loss,mse,val_loss,val_mse\n0,", 34) == 0);
    mr_has_str(content("log.csv"), "\n1,");
    mr_ok(fit(&p, call("csv_logger(\"%s\", append=true)", "log.csv"), NULL, 1, NULL), &st);
    size_t lines = 0;
    for (const char *at = content("log.csv"); *at; at++)
        lines += *at == '\n';
    mr_eq_u64(lines, 4);
    mr_ok(fit(&p, call("csv_logger(\"%s\", separator=\";\")", "log.csv"), NULL, 1, NULL), &st);
    mr_check(strncmp(content("log.csv"), "epoch;loss;mse;val_loss;val_mse\n0;", 34) == 0);
    mr_code_is(fit(&p, call("csv_logger(\"%s\")", "no/such/log.csv"), NULL, 1, NULL), MR_NOT_FOUND,
               &st);
    parts_drop(&p);
}

/* The learning rates of the file's lines, 9 where there is no such column. */
static void logged_rates(double *rates, size_t n)
{
    char text[2048];
    snprintf(text, sizeof text, "%s", content("log.csv"));
    bool has = strncmp(text, "epoch,learning_rate,loss,", 25) == 0;
    mr_check(has == (strstr(text, "learning_rate") != NULL));
    char *line = text;
    for (size_t i = 0; i < n; i++) {
        line = strchr(line, '\n') + 1;
        rates[i] = has ? strtod(strchr(line, ',') + 1, NULL) : 9;
    }
}

MR_TEST(the_learning_rate_is_logged_where_it_may_change)
{
    double rates[3];
    mr_callback log;
    parts p = make("sgd(1e-9)");
    mr_ok(mr_callback_parse(&log, call("csv_logger(\"%s\")", "log.csv"), &st), &st);
    mr_ok(fit(&p, "learning_rate_schedule([[0, 4e-9], [2, 2e-9]])", &log, 3, NULL), &st);
    logged_rates(rates, 3);
    mr_check(rates[0] == 4e-9 && rates[1] == 4e-9 && rates[2] == 2e-9);
    /* That of the epoch, not what was made of it at its end. */
    mr_ok(fit(&p, "reduce_lr_on_plateau(factor=0.5, patience=1, mode=\"max\")", &log, 3, NULL),
          &st);
    logged_rates(rates, 3);
    mr_check(rates[0] == 2e-9 && rates[1] == 2e-9 && rates[2] == 1e-9);
    mr_ok(fit(&p, "print_learning_rate()", &log, 1, NULL), &st);
    logged_rates(rates, 1);
    mr_check(rates[0] == 9);
    mr_callback_reset(&log);
    /* One that comes after it sets a rate that it does not see. */
    mr_ok(mr_callback_parse(&log, "learning_rate_schedule([[0, 4e-9]])", &st), &st);
    mr_ok(fit(&p, call("csv_logger(\"%s\")", "log.csv"), &log, 1, NULL), &st);
    logged_rates(rates, 1);
    mr_check(rates[0] == 9);
    mr_callback_reset(&log);
    parts_drop(&p);
}

/* Interrupted before each byte. */
static ssize_t write_a_byte(int fd, const void *p, size_t n)
{
    static bool again;
    again = !again;
    if (!again)
        return mr__system_real()->write(fd, p, n ? 1 : 0);
    errno = EINTR;
    return -1;
}

MR_TEST(a_line_that_is_written_in_parts_is_whole)
{
    parts p = make("sgd(0.01)");
    mr__system table = *mr__system_real();
    table.write = write_a_byte;
    mr__system_set(&table);
    mr_ok(fit(&p, call("csv_logger(\"%s\")", "log.csv"), NULL, 1, NULL), &st);
    mr__system_set(NULL);
    const char *text = content("log.csv");
    mr_check(strncmp(text, "epoch,loss,mse,val_loss,val_mse\n0,", 34) == 0);
    mr_check(strchr(text + 34, '\n') == text + strlen(text) - 1);
    parts_drop(&p);
}

MR_TEST(training_ends_at_a_loss_that_is_no_number)
{
    parts p = make("sgd(1e30)");
    mr_code_is(fit(&p, "terminate_on_nan()", NULL, 9, NULL), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "at step 2 of epoch 1");
    parts_drop(&p);
    p = make("sgd(0.01)");
    mr_ok(fit(&p, "terminate_on_nan()", NULL, 2, NULL), &st);
    parts_drop(&p);
}

MR_TEST(events_are_records_in_two_directories)
{
    parts p = make("sgd(0.01)");
    struct stat is;
    mr_ok(fit(&p, call("tensorboard(\"%s\", update_freq=2)", "logs"), NULL, 2, NULL), &st);
    mr_check(stat(mr_test_path("logs/train"), &is) == 0 && S_ISDIR(is.st_mode));
    mr_check(stat(mr_test_path("logs/validation"), &is) == 0 && S_ISDIR(is.st_mode));
    fclose(fopen(mr_test_path("file"), "w"));
    mr_check(fit(&p, call("tensorboard(\"%s\")", "file/logs"), NULL, 1, NULL) != MR_OK);
    parts_drop(&p);
}

typedef struct names {
    char text[512];
} names;

static mr_code add_name(void *ctx, const mr_checkpoint_info *c, mr_status *status)
{
    names *n = ctx;
    size_t at = strlen(n->text);
    (void)status;
    snprintf(n->text + at, sizeof n->text - at, "%s:%d%s%s ", c->name, (int)c->step,
             c->whole ? "" : "!", c->latest ? "*" : "");
    return MR_OK;
}

static const char *list(const char *name)
{
    static names n;
    n.text[0] = '\0';
    mr_ok(mr_checkpoint_list(mr_test_path(name), add_name, &n, &st), &st);
    return n.text;
}

MR_TEST(checkpoints_of_epochs_and_steps)
{
    parts p = make("sgd(0.01)");
    mr_ok(fit(&p, call("checkpoint(\"%s\")", "a/ckpt_{epoch}"), NULL, 3, NULL), &st);
    mr_eq_str(list("a"), "ckpt_1:5 ckpt_2:10 ckpt_3:15* ");
    mr_eq_str(content("a/checkpoint"), "ckpt_3\n");
    mr_check(there("a/finished"));
    mr_ok(fit(&p, call("checkpoint(\"%s\", save_freq=4)", "b/s_{epoch}_{step}"), NULL, 2, NULL),
          &st);
    mr_eq_str(list("b"), "s_1_4:4 s_2_8:8* ");
    mr_ok(fit(&p, call("checkpoint(\"%s\", keep=2)", "c/ckpt_{epoch}"), NULL, 5, NULL), &st);
    mr_eq_str(list("c"), "ckpt_4:20 ckpt_5:25* ");
    mr_ok(fit(&p, call("checkpoint(\"%s\")", "d/ckpt"), NULL, 3, NULL), &st);
    mr_eq_str(list("d"), "ckpt:15* ");
    parts_drop(&p);
}

MR_TEST(only_the_best_is_saved)
{
    parts p = make("sgd(0.0)");
    mr_ok(fit(&p, call("checkpoint(\"%s\", save_best_only=true)", "a/ckpt_{epoch}"), NULL, 4, NULL),
          &st);
    mr_eq_str(list("a"), "ckpt_1:5* ");
    parts_drop(&p);
    p = make("sgd(1e30)"); /* NaN is not the best of anything */
    mr_ok(fit(&p, call("checkpoint(\"%s\", save_best_only=true)", "a/nan_{epoch}"), NULL, 2, NULL),
          &st);
    mr_eq_str(list("a"), "ckpt_1:5* ");
    parts_drop(&p);
    p = make("sgd(0.01)");
    mr_ok(fit(&p,
              call("checkpoint(\"%s\", save_best_only=true, monitor=\"mse\", mode=\"max\")",
                   "b/ckpt_{epoch}"),
              NULL, 4, NULL),
          &st);
    mr_eq_str(list("b"), "ckpt_1:5* ");
    mr_ok(fit(&p, call("checkpoint(\"%s\", save_best_only=true)", "c/ckpt_{epoch}"), NULL, 3, NULL),
          &st);
    mr_eq_str(list("c"), "ckpt_1:5 ckpt_2:10 ckpt_3:15* ");
    parts_drop(&p);
}

/* ---- going on ---- */

static mr_code go_on(void *ctx, const mr_train_event *e, mr_status *status)
{
    return mr_checkpoint_restore(e, ctx, status);
}

static mr_code save_here(void *ctx, const mr_train_event *e, mr_status *status)
{
    return mr_checkpoint_save(e, ctx, status);
}

MR_TEST(the_best_so_far_is_known_where_training_goes_on)
{
    char path[500];
    parts p = make("sgd(0.01)");
    const char *best = call("checkpoint(\"%s\", save_best_only=true)", "a/ckpt_{epoch}");
    snprintf(path, sizeof path, "%s", mr_test_path("a/ckpt_2"));
    mr_ok(fit(&p, best, NULL, 2, NULL), &st);
    mr_ok(fit(&p, best, &(mr_callback){.ctx = path, .train_begin = go_on}, 3, NULL), &st);
    mr_eq_str(list("a"), "ckpt_1:5 ckpt_2:10 ckpt_3:15* ");
    parts_drop(&p);
}

/* Spoils the weights after they were looked at. */
static mr_code spoil_first(void *ctx, const mr_train_event *e, mr_status *status)
{
    const float bad[2] = {100, 100};
    MR_TRY(mr_variable_read(mr_model_variable(e->model, 0), ctx, status));
    return mr_variable_assign(mr_model_variable(e->model, 0), bad, status);
}

MR_TEST(the_best_weights_are_those_before_training_went_on)
{
    static const char stop[] = "early_stopping(patience=2, restore_best_weights=true)";
    char path[500];
    float best[2], now[2];
    mr_fit_result r;
    parts p = make("sgd(0.001)");
    snprintf(path, sizeof path, "%s", mr_test_path("one"));
    mr_ok(fit_with(&p, stop, &(mr_callback){.ctx = best, .epoch_end = spoil_first},
                   &(mr_callback){.ctx = path, .epoch_end = save_here, .saves = parts_never}, 1,
                   NULL),
          &st);
    parts_drop(&p);
    p = make("sgd(0.001)");
    mr_ok(fit(&p, stop, &(mr_callback){.ctx = path, .train_begin = go_on}, 9, &r), &st);
    mr_eq_i64(r.epochs, 2);
    mr_ok(mr_variable_read(mr_model_variable(p.m, 0), now, &st), &st);
    mr_eq_mem(now, best, sizeof now);
    parts_drop(&p);
}

MR_TEST(momentum_and_schedule_go_on_where_training_does)
{
    static const char rule[] = "sgd(exponential_decay(0.01, 5, 0.5), momentum=0.9)";
    static const char nothing[] = "terminate_on_nan()";
    char path[500];
    float want[2], got[2];
    snprintf(path, sizeof path, "%s", mr_test_path("one"));
    parts p = make(rule);
    mr_ok(fit(&p, nothing, NULL, 3, NULL), &st);
    mr_ok(mr_variable_read(mr_model_variable(p.m, 0), want, &st), &st);
    parts_drop(&p);
    p = make(rule);
    mr_ok(fit(&p, nothing,
              &(mr_callback){.ctx = path, .epoch_end = save_here, .saves = parts_never}, 1, NULL),
          &st);
    parts_drop(&p);
    p = make(rule);
    mr_ok(fit(&p, nothing, &(mr_callback){.ctx = path, .train_begin = go_on}, 3, NULL), &st);
    mr_ok(mr_variable_read(mr_model_variable(p.m, 0), got, &st), &st);
    mr_eq_mem(got, want, sizeof got);
    parts_drop(&p);
}

MR_TEST(a_cooldown_goes_on_where_training_does)
{
    static const char plateau[] = "reduce_lr_on_plateau(monitor=\"mse\", mode=\"max\", factor=0.5, "
                                  "patience=1, cooldown=3)";
    char path[500];
    double rates[6] = {0};
    parts p = make("sgd(1e-9)");
    snprintf(path, sizeof path, "%s", mr_test_path("one"));
    mr_ok(fit(&p, plateau,
              &(mr_callback){.ctx = path, .epoch_end = save_here, .saves = parts_never}, 2, NULL),
          &st);
    parts_drop(&p);
    p = make("sgd(1e-9)");
    mr_ok(fit_with(&p, plateau, &(mr_callback){.ctx = path, .train_begin = go_on},
                   &(mr_callback){.ctx = rates, .epoch_end = note_rate}, 5, NULL),
          &st);
    /* Lowered after the second epoch; three cool. */
    const double want[] = {0, 0, 0.5e-9, 0.5e-9, 0.25e-9};
    for (int i = 0; i < 5; i++)
        mr_eq_f64(rates[i], want[i], 0);
    parts_drop(&p);
}

/* ---- the mark that there will be no more ---- */

static mr_code expect_no_mark(void *ctx, const mr_train_event *e, mr_status *status)
{
    (void)ctx;
    (void)e;
    (void)status;
    mr_check(!there("a/finished"));
    return MR_OK;
}

static bool stop_now(void *ctx)
{
    (void)ctx;
    return true;
}

MR_TEST(the_mark_of_the_end_is_of_a_whole_run)
{
    parts p = make("sgd(0.01)");
    const char *each = call("checkpoint(\"%s\", save_freq=1)", "a/s_{step}");
    mr_callback c;
    mr_ok(fit(&p, each, NULL, 1, NULL), &st);
    mr_check(there("a/finished"));
    mr_ok(fit(&p, each, &(mr_callback){.epoch_end = expect_no_mark}, 1, NULL), &st);
    mr_check(there("a/finished"));
    mr_ok(mr_callback_parse(&c, each, &st), &st);
    mr_ok(parts_fit(
              &p,
              &(mr_fit_opts){.epochs = 2, .callbacks = &c, .n_callbacks = 1, .stopping = stop_now},
              NULL, &st),
          &st);
    mr_check(!there("a/finished"));
    mr_callback_reset(&c);
    parts_drop(&p);
}

MR_TEST(a_backup_is_there_until_training_has_ended_well)
{
    mr_fit_result first, second;
    for (int stops = 1; stops >= 0; stops--) {
        parts p = make("sgd(0.01)");
        mr_callback c;
        mr_ok(mr_callback_parse(&c, call("backup_and_restore(\"%s\")", "kept"), &st), &st);
        mr_ok(parts_fit(&p,
                        &(mr_fit_opts){.epochs = 2,
                                       .callbacks = &c,
                                       .n_callbacks = 1,
                                       .stopping = stops ? stop_now : NULL},
                        stops ? &first : &second, &st),
              &st);
        mr_check(there("kept/backup") == (stops == 1));
        mr_callback_reset(&c);
        parts_drop(&p);
    }
    mr_check(first.stopped && !second.stopped);
    mr_eq_i64(first.steps + second.steps, 10);
    mr_eq_i64(first.rows + second.rows, 20);
}

MR_TEST(only_names_that_the_pattern_gives_are_removed)
{
    parts p = make("sgd(0.01)");
    mr_ok(fit(&p, call("checkpoint(\"%s\")", "a/ckpt_{epoch}_kept"), NULL, 2, NULL), &st);
    mr_ok(fit(&p, call("checkpoint(\"%s\", keep=1)", "a/ckpt_{epoch}"), NULL, 3, NULL), &st);
    mr_eq_str(list("a"), "ckpt_1_kept:5 ckpt_2_kept:10 ckpt_3:15* ");
    parts_drop(&p);
}

MR_TEST(a_save_that_fails_ends_training_or_is_warned_of)
{
    mr_fit_result r;
    parts p = make("sgd(0.01)");
    fclose(fopen(mr_test_path("file"), "w"));
    mr_check(mkdir(mr_test_path("dir"), 0777) == 0);
    fclose(fopen(mr_test_path("dir/ckpt_2"), "w"));
    mr_code_is(fit(&p, call("checkpoint(\"%s\")", "dir/ckpt_{epoch}"), NULL, 3, NULL),
               MR_ALREADY_EXISTS, &st);
    mr_has_str(st.message, "checkpoint of step 10");
    for (int i = 0; i < 2; i++) {
        const char *fails = i ? "backup_and_restore(\"%s\")" : "checkpoint(\"%s\")",
                   *warns = i ? "backup_and_restore(\"%s\", on_error=\"warn\")"
                              : "checkpoint(\"%s\", on_error=\"warn\")";
        mr_check(fit(&p, call(fails, "file"), NULL, 3, NULL) != MR_OK);
        mr_check(!strstr(st.message, "of step")); /* it was found before the first one */
        mr_ok(fit(&p, call(warns, "file"), NULL, 3, &r), &st);
        mr_eq_i64(r.epochs, 3);
    }
    mr_ok(fit(&p, "checkpoint(\"/proc/not/there\", on_error=\"warn\")", NULL, 1, &r), &st);
    mr_eq_i64(r.epochs, 1);
    parts_drop(&p);
}

MR_TEST(a_damaged_checkpoint_is_not_whole)
{
    parts p = make("sgd(0.01, momentum=0.9)");
    mr_ok(fit(&p, call("checkpoint(\"%s\")", "a/ckpt_{epoch}"), NULL, 3, NULL), &st);
    mr_check(truncate(mr_test_path("a/ckpt_2/optimizer.safetensors"), 20) == 0);
    mr_check(mkdir(mr_test_path("a/.ckpt_4.partial"), 0777) == 0);
    mr_check(mkdir(mr_test_path("a/other"), 0777) == 0);
    mr_eq_str(list("a"), ".ckpt_4.partial:0! ckpt_2:0! ckpt_1:5 ckpt_3:15* ");
    mr_code_is(mr_checkpoint_list(mr_test_path("nowhere"), add_name, NULL, &st), MR_NOT_FOUND, &st);
    parts_drop(&p);
}

MR_TEST(a_checkpoint_without_a_name_is_an_error)
{
    bool finished = false;
    mr_code_is(mr_checkpoint_finished(NULL, &finished, &st), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "the directory is NULL");
    mr_code_is(mr_checkpoint_list(NULL, add_name, NULL, &st), MR_INVALID_ARGUMENT, &st);
    mr_code_is(mr_checkpoint_save(NULL, "a", &st), MR_FAILED_PRECONDITION, &st);
    mr_code_is(mr_checkpoint_restore(NULL, "a", &st), MR_FAILED_PRECONDITION, &st);
    mr_check(mr_checkpoint_callback_path(NULL) == NULL);
}

static size_t read_text(FILE *f, char text[4096])
{
    size_t n = fread(text, 1, 4095, f);
    mr_check(n > 5 && n < 4095);
    text[n] = '\0';
    return n;
}

/* Each byte of the file. */
static void change_bytes(const char *name)
{
    FILE *f = fopen(mr_test_path(name), "r+");
    char text[4096];
    size_t n = read_text(f, text);
    for (size_t i = 0; i < n; i++) {
        char changed = (char)(text[i] ^ 1);
        mr_test_context("byte %zu of %s", i, name);
        mr_check(pwrite(fileno(f), &changed, 1, (off_t)i) == 1);
        mr_eq_str(list("a"), "ckpt_1:0!* ");
        mr_check(pwrite(fileno(f), &text[i], 1, (off_t)i) == 1);
    }
    mr_eq_str(list("a"), "ckpt_1:5* ");
    fclose(f);
}

/* Of format 1 files are read without their checksum. */
static void drop_checksum(const char *name)
{
    static const char end[] = "\n}\n";
    FILE *f = fopen(mr_test_path(name), "r+");
    char text[4096];
    read_text(f, text);
    char *format = strstr(text, "\"format\": 2"), *sum = strstr(text, ",\n  \"crc32c\"");
    mr_check(format && sum);
    mr_check(pwrite(fileno(f), end, sizeof end - 1, sum - text) == (ssize_t)sizeof end - 1);
    mr_check(ftruncate(fileno(f), sum - text + (off_t)sizeof end - 1) == 0);
    mr_eq_str(list("a"), "ckpt_1:0!* ");
    mr_check(pwrite(fileno(f), "\"format\": 1", 11, format - text) == 11);
    mr_eq_str(list("a"), "ckpt_1:5* ");
    fclose(f);
}

MR_TEST(a_changed_byte_of_a_checkpoint_is_found)
{
    parts p = make("sgd(0.01, momentum=0.9)");
    mr_ok(fit(&p, call("checkpoint(\"%s\")", "a/ckpt_{epoch}"), NULL, 1, NULL), &st);
    change_bytes("a/ckpt_1/state.json");
    change_bytes("a/ckpt_1/training.json");
    change_bytes("a/ckpt_1/model.txt");
    change_bytes("a/ckpt_1/position-0");
    drop_checksum("a/ckpt_1/state.json");
    drop_checksum("a/ckpt_1/training.json");
    parts_drop(&p);
}

/* ---- of a program's own ---- */

struct own_params {
    int64_t times;
};

struct own_state {
    const struct own_params *params;
};

static int64_t own_calls, own_freed;

static mr_code own_epoch_end(void *ctx, const mr_train_event *e, mr_status *status)
{
    const struct own_state *s = ctx;
    double v;
    (void)status;
    own_calls += s->params->times;
    mr_check(mr_train_value(e, "val_mse", &v) && !mr_train_value(e, "val_auc", &v));
    return MR_OK;
}

static void own_free(void *ctx)
{
    (void)ctx;
    own_freed++;
}

static const mr_param own_table[] = {
    MR_ARG(struct own_params, times, .max.i = 9, .doc = "How often it counts."), {0}};

static const mr_callback_desc own = {
    .is = {.abi = MR_ABI_VERSION,
           .name = "count_epochs",
           .doc = "Counts epochs.",
           .example = "count_epochs(2)",
           .params = own_table,
           .params_size = sizeof(struct own_params)},
    .calls = {.epoch_end = own_epoch_end, .free = own_free},
    .state_size = sizeof(struct own_state),
};

MR_TEST(programs_add_callbacks_that_text_names)
{
    parts p = make("sgd(0.01)");
    mr_ok(mr_callback_register(&own, &st), &st);
    mr_code_is(mr_callback_register(&own, &st), MR_ALREADY_EXISTS, &st);
    mr_ok(fit(&p, "count_epochs(2)", NULL, 3, NULL), &st);
    mr_eq_i64(own_calls, 6);
    mr_eq_i64(own_freed, 1);
    parts_drop(&p);
}

MR_TEST(memory_may_run_out)
{
    mr_fault_each_allocation(n)
    {
        mr_callback c = {0};
        if (mr_fault_expect(
                mr_callback_parse(&c, "learning_rate_schedule([[0, 0.1], [1, 0.2]])", &st), &st) ==
            MR_OK)
            mr_callback_reset(&c);
    }
}
