/* SPDX-License-Identifier: Apache-2.0 */
/* Training that is interrupted at any step, or killed, and started again: every file that a
 * callback writes is the one of a run that was not. And the backups that are refused. */
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "pipeline/log.h"
#include "pipeline/system/system.h"
#include "tests/fault.h"
#include "tests/harness.h"
#include "tests/trainer/kit/parts.h"
#include "trainer/loop/callback.h"
#include "trainer/loop/checkpoint.h"

enum { MAX_TEXT = 1 << 16, MAX_CALLBACKS = 10 };

static mr_status st;
static const char data[] = "range(10).shuffle(10).map(i => ([cast(i, \"float32\") / 8.0, 1.0], "
                           "[cast(i, \"float32\")])).batch(2)";

/* A training job, and how it ends early. */
typedef struct job {
    const char *model, *optimizer, *loss, *backup;
    const char *text;       /* of the data; NULL: data */
    const char *metrics[2]; /* none: mse */
    double class_weights[2];
    const char *callbacks[MAX_CALLBACKS];
    int64_t epochs, steps, steps_per_epoch, steps_per_execution;
    uint64_t seed;
    bool validates, resume_changed, restart_epoch, seeds_data, mixed;
    /* Interrupted when the batch after this step is fetched; ended by an error before anything is
     * saved, in batch_end of a step or in epoch_end. 0: not. */
    int64_t stop_at, fail_at, fail_epoch;
    /* What happened. */
    int64_t step, epochs_ended, last_epoch;
    double rate;
} job;

static mr_code note_step(void *ctx, const mr_train_event *e, mr_status *status)
{
    job *j = ctx;
    j->step = e->step;
    j->rate = mr_optimizer_learning_rate(e->optimizer);
    return j->fail_at == e->step ? mr_fail(status, MR_ABORTED, "as if it were killed") : MR_OK;
}

static mr_code note_epoch(void *ctx, const mr_train_event *e, mr_status *status)
{
    job *j = ctx;
    j->epochs_ended++;
    mr_check(e->epoch == j->last_epoch + 1); /* each once, over all runs */
    if (j->fail_epoch == e->epoch)
        return mr_fail(status, MR_ABORTED, "as if it were killed");
    j->last_epoch = e->epoch;
    return MR_OK;
}

static bool stops(void *ctx)
{
    const job *j = ctx;
    return j->stop_at > 0 && j->step >= j->stop_at;
}

/* weights may be NULL. */
static mr_code train(job *j, mr_fit_result *r, float *weights)
{
    parts p = parts_make(1, j->model ? j->model : "dense(3).dropout(0.2).dense(1)",
                         j->loss ? j->loss : "mse", j->optimizer ? j->optimizer : "adam(0.01)",
                         mr_test_graph(j->text ? j->text : data));
    const mr_iterator_opts here = {
        .has_threads = true, .has_seed = true, .seed = j->seeds_data ? j->seed : 3};
    const char *const metrics[] = {"mse"};
    mr_callback list[MAX_CALLBACKS + 2] = {{0}};
    size_t n = 0;
    while (j->callbacks[n]) {
        mr_ok(mr_callback_parse(&list[n], j->callbacks[n], &st), &st);
        n++;
    }
    /* Called after those that do not save, before those that do. */
    list[n++] = (mr_callback){.ctx = j, .batch_end = note_step, .epoch_end = note_epoch};
    if (j->backup)
        mr_ok(mr_callback_parse(&list[n++], j->backup, &st), &st);
    const mr_fit_opts o = {.epochs = j->epochs,
                           .steps = j->steps,
                           .steps_per_epoch = j->steps_per_epoch,
                           .steps_per_execution = j->steps_per_execution,
                           .callbacks = list,
                           .n_callbacks = n,
                           .metrics = j->metrics[0] ? j->metrics : metrics,
                           .n_metrics = j->metrics[0] && j->metrics[1] ? 2 : 1,
                           .class_weights = j->class_weights[0] > 0 ? j->class_weights : NULL,
                           .n_class_weights = j->class_weights[0] > 0 ? 2 : 0,
                           .mixed_precision = j->mixed,
                           .validation = j->validates ? p.ds : NULL,
                           .seed = j->seed ? j->seed : 7,
                           .resume_changed = j->resume_changed,
                           .restart_epoch = j->restart_epoch,
                           .iterator = &here,
                           .stopping = stops,
                           .stopping_ctx = j};
    mr_code rc = parts_fit(&p, &o, r, &st);
    for (size_t i = 0; weights && rc == MR_OK && i < mr_model_n_variables(p.m); i++) {
        mr_variable *v = mr_model_variable(p.m, i);
        mr_ok(mr_variable_read(v, weights, &st), &st);
        weights += mr_variable_size(v);
    }
    for (size_t i = 0; i < n; i++)
        mr_callback_reset(&list[i]);
    parts_drop(&p);
    return rc;
}

/* ---- files ---- */

static size_t read_file(const char *path, char text[MAX_TEXT])
{
    FILE *f = fopen(path, "rb");
    if (!f)
        mr_fail_test("there is no %s", path);
    size_t n = fread(text, 1, MAX_TEXT - 1, f);
    text[n] = '\0';
    fclose(f);
    return n;
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "wb");
    mr_check(f && fwrite(text, 1, strlen(text), f) == strlen(text) && fclose(f) == 0);
}

static int is_shown(const struct dirent *e)
{
    return *e->d_name != '.';
}

/* Event files lose their wall clock: the number of records' bytes that remain. */
static size_t without_time(char *text, size_t n)
{
    size_t to = 0;
    for (size_t at = 0; at + 12 < n;) {
        uint64_t size = 0;
        for (int i = 0; i < 8; i++)
            size |= (uint64_t)(unsigned char)text[at + (size_t)i] << 8 * i;
        mr_check(at + 16 + size <= n && text[at + 12] == 0x09); /* wall_time */
        memmove(text + to, text + at + 21, size - 9);
        to += size - 9;
        at += 16 + size;
    }
    return to;
}

/* A state without its checksum and without the names of event files, which have the time. */
static size_t without_names(char *text, size_t n)
{
    size_t i;
    json_t *state = json_loads(text, 0, NULL), *callback;
    mr_check(n > 0 && state);
    json_object_del(state, "crc32c");
    json_array_foreach(json_object_get(state, "callbacks"), i, callback)
        json_object_del(callback, "text");
    char *out = json_dumps(state, JSON_SORT_KEYS);
    snprintf(text, MAX_TEXT, "%s", out);
    free(out);
    json_decref(state);
    return strlen(text);
}

/* Everything below a directory must be the same below another. */
static void same_tree(const char *a, const char *b)
{
    static char x[MAX_TEXT], y[MAX_TEXT];
    struct dirent **in_a, **in_b;
    int n = scandir(a, &in_a, is_shown, alphasort), m = scandir(b, &in_b, is_shown, alphasort);
    mr_test_context("%s: %d files, not %d", b, m, n);
    mr_check(n >= 0 && n == m);
    for (int i = 0; i < n; i++) {
        char pa[512], pb[512];
        struct stat is;
        bool event = strncmp(in_a[i]->d_name, "events.", 7) == 0;
        snprintf(pa, sizeof pa, "%s/%s", a, in_a[i]->d_name);
        snprintf(pb, sizeof pb, "%s/%s", b, in_b[i]->d_name);
        mr_check(event || strcmp(in_a[i]->d_name, in_b[i]->d_name) == 0);
        mr_check(stat(pa, &is) == 0);
        if (S_ISDIR(is.st_mode))
            same_tree(pa, pb);
        else {
            size_t k = read_file(pa, x), l = read_file(pb, y);
            if (event) {
                k = without_time(x, k);
                l = without_time(y, l);
            } else if (strcmp(in_a[i]->d_name, "state.json") == 0) {
                k = without_names(x, k);
                l = without_names(y, l);
            }
            if (k != l || memcmp(x, y, k) != 0)
                mr_fail_test("%s differs: %s\ninstead of %s", pb, y, x);
        }
        free(in_a[i]);
        free(in_b[i]);
    }
    free(in_a);
    free(in_b);
}

/* Hundreds of checkpoints are saved, of which none must survive a power failure. */
static int sync_nothing(int fd)
{
    (void)fd;
    return 0;
}

static void enter(const char *name)
{
    static mr__system table;
    table = *mr__system_real();
    table.fsync = sync_nothing;
    mr__system_set(&table);
    mr_check(mkdir(mr_test_path(name), 0777) == 0 && chdir(mr_test_path(name)) == 0);
    write_file("all.csv", "epoch,loss,mse,val_loss,val_mse\n7,1,1,1,1");
}

static void leave(const char *name)
{
    char command[600];
    mr_check(chdir("/") == 0);
    snprintf(command, sizeof command, "rm -rf %s", mr_test_path(name));
    mr_check(system(command) == 0);
}

/* ---- interrupted at every step ---- */

static const job all_callbacks = {
    .callbacks = {"early_stopping(monitor=\"loss\", patience=9, restore_best_weights=true)",
                  "csv_logger(\"log.csv\")", "csv_logger(\"all.csv\", append=true)",
                  "tensorboard(\"logs\", update_freq=1)", "checkpoint(\"ck/c_{epoch}\", keep=2)",
                  "checkpoint(\"best/c_{epoch}\", save_best_only=true, keep=1)",
                  "checkpoint(\"steps/s_{step}\", save_freq=3, keep=2)", "terminate_on_nan()"},
    .backup = "backup_and_restore(\"bk\")",
    .epochs = 3,
    .validates = true};

/* The same with a rate that falls, of which a log with the column learning_rate is kept. */
static const job with_rates = {
    .callbacks = {"reduce_lr_on_plateau(monitor=\"loss\", mode=\"max\", factor=0.5, patience=1)",
                  "csv_logger(\"log.csv\")", "checkpoint(\"ck/c\")", "tensorboard(\"logs\")"},
    .optimizer = "sgd(exponential_decay(0.02, decay_steps=5, decay_rate=0.5), momentum=0.9)",
    .backup = "backup_and_restore(\"bk\")",
    .epochs = 4};

static float whole_weights[64], weights[64];

static void train_whole(const job *of)
{
    job j = *of;
    enter("whole");
    mr_ok(train(&j, NULL, whole_weights), &st);
    mr_check(access("bk", F_OK) != 0);
}

/* how: "stop", "fail" or "epoch": what ends the first run, at `at`. */
static void train_twice(const job *of, const char *how, int64_t at)
{
    job j = *of;
    enter("twice");
    mr_test_context("%s at %d, %s", how, (int)at, j.backup);
    j.stop_at = *how == 's' ? at : 0;
    j.fail_at = *how == 'f' ? at : 0;
    j.fail_epoch = *how == 'e' ? at : 0;
    mr_fit_result r;
    mr_code rc = train(&j, &r, NULL);
    if (rc != MR_OK)
        mr_check(*how != 's' && rc == MR_ABORTED);
    else if (r.stopped)
        mr_check(access("bk/backup/state.json", F_OK) == 0);
    if (rc != MR_OK || r.stopped) {
        mr_check(access("bk/lock", F_OK) != 0);
        j.stop_at = j.fail_at = j.fail_epoch = 0;
        if (*how != 's')
            j.last_epoch = -1; /* epochs may be trained again */
        else
            mr_eq_i64(j.epochs_ended, j.last_epoch);
        if (j.last_epoch < 0) { /* count from where it continues */
            char text[MAX_TEXT];
            j.last_epoch = 0;
            if (access("bk/backup/state.json", F_OK) == 0) {
                read_file("bk/backup/state.json", text);
                json_t *state = json_loads(text, 0, NULL);
                j.last_epoch = json_integer_value(json_object_get(state, "epoch")) -
                               !json_is_true(json_object_get(state, "epoch_over"));
                json_decref(state);
            }
        }
        mr_ok(train(&j, NULL, weights), &st);
        mr_eq_mem(weights, whole_weights, sizeof weights);
    }
    same_tree(mr_test_path("whole"), mr_test_path("twice"));
    leave("twice");
}

static void at_every_step(const job *of, int64_t steps, int64_t every)
{
    static const char *const backups[] = {
        "backup_and_restore(\"bk\")", "backup_and_restore(\"bk\", save_freq=1)",
        "backup_and_restore(\"bk\", save_freq=4)", "backup_and_restore(\"bk\", save_freq=100)"};
    train_whole(of);
    for (size_t i = 0; i < sizeof backups / sizeof *backups; i++)
        for (int64_t at = 1 + (int64_t)i % every; at <= steps; at += every) {
            job j = *of;
            j.backup = backups[i];
            train_twice(&j, "stop", at);
            train_twice(&j, "fail", at);
        }
    for (size_t i = 0; i < sizeof backups / sizeof *backups; i++) {
        job j = *of;
        j.backup = backups[i];
        train_twice(&j, "epoch", 1);
        train_twice(&j, "epoch", 2);
    }
}

MR_TEST(files_of_an_interrupted_run_are_those_of_a_whole_one)
{
    job j = all_callbacks;
    j.backup = "backup_and_restore(\"bk\", save_freq=4)";
    train_whole(&j);
    train_twice(&j, "stop", 6);
    train_twice(&j, "fail", 3);
    train_twice(&j, "epoch", 2);
}

/* A run that was killed while it wrote or removed a file. */
MR_TEST(what_a_killed_run_left_is_removed_by_the_one_that_resumes_it)
{
    static const char *const left[] = {"ck/.checkpoint.7-1.partial", "ck/.finished.7-33.partial",
                                       "ck/.c_1.partial/model.txt",  "ck/.c_9.old/model.txt",
                                       "..log.csv.run.7-2.partial",  "bk/.checkpoint.7-1.partial",
                                       "bk/.begun.json.7-2.partial"};
    static const char *const others[] = {"ck/.d_1.partial/model.txt",
                                         "ck/.checkpoint.7-1.partials",
                                         "ck/.checkpoints.7-1.partial",
                                         "ck/.c_1",
                                         "ck/c_x.partial",
                                         "..log.csv.run.x.partial",
                                         "..log.csv.run.7-.partial"};
    enum { LEFT = sizeof left / sizeof *left, ALL = LEFT + sizeof others / sizeof *others };
    char directory[64];
    for (int killed = 0; killed < 2; killed++) { /* after its first backup, or before */
        job j = {.callbacks = {"checkpoint(\"ck/c_{epoch}\", keep=1)", "csv_logger(\"log.csv\")"},
                 .backup = "backup_and_restore(\"bk\")",
                 .stop_at = killed ? 0 : 6,
                 .fail_at = killed ? 3 : 0,
                 .epochs = 2};
        enter("one");
        mr_code_is(train(&j, NULL, NULL), killed ? MR_ABORTED : MR_OK, &st);
        mr_check(access(killed ? "bk/begun.json" : "bk/backup/state.json", F_OK) == 0);
        for (size_t i = 0; i < ALL; i++) {
            const char *path = i < LEFT ? left[i] : others[i - LEFT];
            const char *file = strstr(path, "/model.txt");
            snprintf(directory, sizeof directory, "%.*s", file ? (int)(file - path) : 0, path);
            mr_check(!file || mkdir(directory, 0777) == 0);
            write_file(path, "c_1");
        }
        j.stop_at = j.fail_at = 0;
        j.last_epoch = killed ? 0 : 1;
        mr_check(mkdir("ck/.c_8.old", 0777) == 0 && mkdir("ck/c_8", 0777) == 0);
        mr_ok(train(&j, NULL, NULL), &st);
        mr_check(access("ck/c_9/model.txt", F_OK) == 0); /* which was not replaced yet */
        mr_check(access("ck/.c_8.old", F_OK) != 0 && access("ck/c_8", F_OK) == 0);
        for (size_t i = 0; i < ALL; i++) {
            mr_test_context("%s", i < LEFT ? left[i] : others[i - LEFT]);
            mr_check((access(i < LEFT ? left[i] : others[i - LEFT], F_OK) == 0) == (i >= LEFT));
        }
        leave("one");
    }
}

MR_TEST(a_run_interrupted_at_its_last_step_ends_its_epoch_when_resumed)
{
    job j = with_rates;
    j.steps = 8;
    train_whole(&j);
    train_twice(&j, "stop", 5);
    train_twice(&j, "stop", 6); /* the next batch but one is the last */
}

MR_TEST_SLOW(files_are_those_of_a_whole_run_wherever_it_is_interrupted)
{
    at_every_step(&all_callbacks, 15, 1);
}

MR_TEST_SLOW(rates_go_on_wherever_a_run_is_interrupted)
{
    at_every_step(&with_rates, 20, 1);
}

MR_TEST_SLOW(epochs_of_steps_are_interrupted_anywhere)
{
    job j = with_rates;
    j.steps_per_epoch = 5; /* a whole pass */
    at_every_step(&j, 20, 3);
    leave("whole");
    j.steps = 18; /* within the last epoch */
    at_every_step(&j, 18, 2);
    leave("whole");
    j.steps_per_execution = 2;
    at_every_step(&j, 18, 5);
}

MR_TEST(an_interrupted_epoch_is_not_ended)
{
    job j = all_callbacks;
    mr_fit_result r;
    char text[MAX_TEXT];
    enter("one");
    j.stop_at = 7;
    mr_ok(train(&j, &r, NULL), &st);
    mr_check(r.stopped);
    mr_eq_i64(r.epochs, 1);
    mr_eq_i64(j.epochs_ended, 1);
    read_file("log.csv", text);
    mr_has_str(text, "\n0,");
    mr_check(!strstr(text, "\n1,"));
    mr_check(access("ck/c_1", F_OK) == 0 && access("ck/c_2", F_OK) != 0);
    mr_check(access("best/c_1", F_OK) == 0 && access("best/c_2", F_OK) != 0);
    mr_check(access("ck/finished", F_OK) != 0);
}

/* Halves the rate in every epoch; a resumed epoch is not a new one. */
static double halve(void *ctx, int64_t epoch, double rate)
{
    (void)ctx;
    return epoch == 0 ? rate : rate / 2;
}

MR_TEST(a_function_of_the_rate_is_called_once_an_epoch)
{
    job j = {.epochs = 3, .optimizer = "sgd(0.08)", .stop_at = 7};
    mr_callback list[3] = {{0}};
    enter("one");
    for (int i = 0; i < 2; i++) {
        parts p = parts_make(1, "dense(1)", "mse", j.optimizer, mr_test_graph(data));
        mr_ok(mr_callback_learning_rate(&list[0], halve, NULL, &st), &st);
        list[1] = (mr_callback){.ctx = &j, .batch_end = note_step};
        mr_ok(mr_callback_parse(&list[2], "backup_and_restore(\"bk\")", &st), &st);
        mr_ok(parts_fit(&p,
                        &(mr_fit_opts){.epochs = 3,
                                       .callbacks = list,
                                       .n_callbacks = 3,
                                       .stopping = stops,
                                       .stopping_ctx = &j},
                        NULL, &st),
              &st);
        mr_callback_reset(&list[0]);
        mr_callback_reset(&list[2]);
        parts_drop(&p);
        mr_eq_f64(j.rate, i ? 0.02 : 0.04, 0);
        j.stop_at = 0;
    }
}

/* ---- logs that others wrote ---- */

static const job logs_one = {.callbacks = {"csv_logger(\"l.csv\", append=true)"}, .epochs = 1};

static bool begins_with(const char *text, const char *part)
{
    return strncmp(text, part, strlen(part)) == 0;
}

static mr_code append_to(const char *text, char after[MAX_TEXT])
{
    job j = logs_one;
    write_file("l.csv", text);
    mr_code rc = train(&j, NULL, NULL);
    read_file("l.csv", after);
    return rc;
}

MR_TEST(a_log_with_other_columns_is_refused)
{
    char after[MAX_TEXT];
    enter("one");
    mr_code_is(append_to("epoch,loss\n0,3\n", after), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "the columns of the file are epoch,loss, those of this run "
                           "epoch,loss,mse");
    mr_has_str(st.file, "l.csv");
    mr_eq_str(after, "epoch,loss\n0,3\n");
    mr_code_is(append_to("epoch,loss\n0,3", after), MR_FAILED_PRECONDITION, &st);
    mr_eq_str(after, "epoch,loss\n0,3"); /* nothing is written to it */
    mr_code_is(append_to("epoch;loss;mse\n0;3;3\n", after), MR_FAILED_PRECONDITION, &st);
    mr_code_is(append_to("some text", after), MR_FAILED_PRECONDITION, &st);
    mr_eq_str(after, "some text");
    mr_code_is(append_to("\n", after), MR_FAILED_PRECONDITION, &st);
}

MR_TEST(a_log_whose_last_line_has_no_end_gets_one)
{
    char after[MAX_TEXT];
    enter("one");
    mr_ok(append_to("epoch,loss,mse\n0,3", after), &st);
    mr_check(begins_with(after, "epoch,loss,mse\n0,3\n0,"));
    mr_ok(append_to("epoch,loss,mse", after), &st);
    mr_check(begins_with(after, "epoch,loss,mse\n0,"));
    mr_ok(append_to("epoch,lo", after), &st); /* a header that was cut short */
    mr_check(begins_with(after, "epoch,loss,mse\n0,"));
    mr_ok(append_to("", after), &st);
    mr_check(begins_with(after, "epoch,loss,mse\n0,"));
    mr_ok(append_to("epoch,loss,mse\r\n0,3,3\r\n", after), &st);
    mr_check(begins_with(after, "epoch,loss,mse\r\n0,3,3\r\n0,"));
}

static int warnings;

static void count_warning(void *ctx, mr_log_level level, const char *message)
{
    (void)level;
    warnings += strstr(message, ctx) != NULL;
}

#define LONG_LOG                                                                                   \
    "another log\nwith a line that is longer than all that this run wrote before it ended\n"

MR_TEST(files_that_changed_since_the_backup_are_not_cut)
{
    static const struct {
        const char *left, *want; /* NULL: the file is removed; the beginning at the end */
    } cases[] = {{LONG_LOG, LONG_LOG}, {"short", "short"}, {NULL, "epoch,loss,mse\n1,"}};
    char after[MAX_TEXT];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job j = {.callbacks = {"csv_logger(\"l.csv\")", "tensorboard(\"logs\")"},
                 .backup = "backup_and_restore(\"bk\")",
                 .epochs = 2,
                 .stop_at = 7};
        enter("one");
        mr_test_context("case %zu", i);
        mr_ok(train(&j, NULL, NULL), &st);
        mr_check(unlink("l.csv") == 0 && system("rm -r logs") == 0);
        if (cases[i].left)
            write_file("l.csv", cases[i].left);
        warnings = 0;
        mr_log_set(count_warning, "", MR_LOG_WARNING);
        j.stop_at = 0;
        mr_code rc = train(&j, NULL, NULL);
        mr_log_set(NULL, NULL, MR_LOG_WARNING);
        mr_code_is(rc, cases[i].left ? MR_FAILED_PRECONDITION : MR_OK, &st);
        mr_check(warnings >= 2); /* of both files */
        read_file("l.csv", after);
        mr_check(begins_with(after, cases[i].want));
        leave("one");
    }
}

/* What others appended to the log of a run that was killed stays, with what is before it. */
MR_TEST(lines_of_other_runs_are_not_cut)
{
    static const char *const backups[] = {"backup_and_restore(\"bk\", save_freq=100)",
                                          "backup_and_restore(\"bk\")"};
    enum { NOTHING, A_RUN, A_RUN_WITH_BACKUPS, BY_HAND, KINDS };
    char before[MAX_TEXT], after[MAX_TEXT];
    for (size_t i = 0; i < 2 * KINDS; i++) {
        job j = {.callbacks = {"csv_logger(\"l.csv\", append=true)"},
                 .backup = backups[i % 2],
                 .epochs = 3,
                 .fail_epoch = 2};
        job other = logs_one;
        enter("one");
        mr_test_context("case %zu", i);
        write_file("l.csv", "epoch,loss,mse\n7,1,1\n");
        mr_code_is(train(&j, NULL, NULL), MR_ABORTED, &st);
        other.backup = i / 2 == A_RUN_WITH_BACKUPS ? "backup_and_restore(\"bk2\")" : NULL;
        if (i / 2 == A_RUN || i / 2 == A_RUN_WITH_BACKUPS)
            mr_ok(train(&other, NULL, NULL), &st);
        if (i / 2 == BY_HAND) {
            FILE *f = fopen("l.csv", "ab");
            mr_check(f && fputs("2,0.5,0.5\n", f) >= 0 && fclose(f) == 0);
        }
        read_file("l.csv", before);
        j.fail_epoch = 0;
        j.last_epoch = i % 2;
        mr_ok(train(&j, NULL, NULL), &st);
        read_file("l.csv", after);
        mr_check(begins_with(after, before));
        size_t lines = 0;
        for (const char *at = after; *at; at++)
            lines += *at == '\n';
        if (i / 2 == NOTHING) /* three epochs, once each */
            mr_eq_u64(lines, 5);
        else
            mr_check(strlen(after) > strlen(before));
        leave("one");
    }
}

/* ---- of another run ---- */

/* Leaves a backup after step 7. */
static void leave_backup(job *j)
{
    enter("one");
    j->step = 0;
    j->stop_at = 7;
    mr_ok(train(j, NULL, NULL), &st);
    j->stop_at = j->last_epoch = 0;
}

static const job plain = {
    .model = "dense(3, activation=\"relu\").dropout(0.2).dense(1, kernel_regularizer=l2(0.01))",
    .optimizer = "adam(0.01)",
    .callbacks = {"learning_rate_schedule([[0, 0.01], [9, 0.001]])"},
    .backup = "backup_and_restore(\"bk\")",
    .epochs = 3};

MR_TEST(a_backup_of_another_run_is_refused_with_each_difference)
{
    static const struct {
        const char *model, *optimizer, *callback;
        uint64_t seed;
        const char *words[3];
    } cases[] = {
        {"dense(3, activation=\"tanh\").dropout(0.2).dense(1, kernel_regularizer=l2(0.01))",
         0,
         0,
         0,
         {"dense/activation is tanh, was relu"}},
        {"dense(3, activation=\"relu\").dropout(0.3).dense(1, kernel_regularizer=l2(0.01))",
         0,
         0,
         0,
         {"dropout/rate is 0.3, was 0.2"}},
        {"dense(3, activation=\"relu\").dropout(0.2).dense(1, kernel_regularizer=l1(0.01))",
         0,
         0,
         0,
         {"dense_1/kernel_regularizer is l1(0.01), was l2(0.01)"}},
        {"dense(3, activation=\"relu\").dense(1, kernel_regularizer=l2(0.01))",
         0,
         0,
         0,
         {"dropout is gone, was dropout", "dense_1/reads is dense, was dropout"}},
        {"dense(4, activation=\"relu\").dropout(0.2).dense(1)",
         0,
         0,
         0,
         {"dense/units is 4, was 3", "dense_1/kernel_regularizer is ", ", was l2(0.01)"}},
        {0, "adam(0.02)", 0, 0, {"optimizer/learning_rate is 0.02, was 0.01"}},
        {0,
         "adam(0.01, beta_1=0.8, clipnorm=1.0)",
         0,
         0,
         {"optimizer/beta_1 is 0.8, was 0.9", "optimizer/clipnorm is 1, was 0"}},
        {0, "adam(0.01, weight_decay=0.1)", 0, 0, {"optimizer/weight_decay is 0.1, was 0"}},
        {0,
         "adam(cosine_decay(0.01, 100))",
         0,
         0,
         {"optimizer/learning_rate is cosine_decay(initial_learning_rate=0.01, decay_steps=100"}},
        {0, "sgd(0.01)", 0, 0, {"optimizer is sgd, was adam"}},
        {0,
         0,
         "learning_rate_schedule([[0, 0.01], [9, 0.002]])",
         0,
         {"learning_rate_schedule/schedule is [[0, 0.01], [9, 0.002]], was [[0, 0.01], [9, "
          "0.001]]"}},
        {0, 0, 0, 8, {"seed is 8, was 7"}},
        {"dense(3).dropout(0.2).dense(1, kernel_regularizer=l2(0.01))",
         "adam(0.5)",
         0,
         9,
         {"dense/activation is linear, was relu", "optimizer/learning_rate is 0.5", "seed is 9"}},
    };
    job j = plain;
    leave_backup(&j);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job k = j;
        mr_test_context("case %zu", i);
        k.model = cases[i].model ? cases[i].model : k.model;
        k.optimizer = cases[i].optimizer ? cases[i].optimizer : k.optimizer;
        k.callbacks[0] = cases[i].callback ? cases[i].callback : k.callbacks[0];
        k.seed = cases[i].seed;
        mr_code_is(train(&k, NULL, NULL), MR_FAILED_PRECONDITION, &st);
        for (size_t w = 0; w < 3 && cases[i].words[w]; w++)
            mr_has_str(st.message, cases[i].words[w]);
        mr_check(!strstr(st.message, "dropout/rate is gone")); /* the layer is */
        mr_has_str(st.message, "--resume-changed");
        mr_has_str(st.file, "bk/backup");
    }
    /* The same in other words. */
    j.last_epoch = 1;
    j.model = "dense(units=3, activation=relu, use_bias=true).dropout(2e-1).dense(1, "
              "kernel_regularizer=l1_l2(l2=0.01))";
    j.optimizer = "adam(learning_rate=0.010, beta_1=0.9)";
    mr_ok(train(&j, NULL, NULL), &st);
}

static char logged[8 * 1024];

static void keep_warning(void *ctx, mr_log_level level, const char *message)
{
    size_t n = strlen(logged);
    (void)ctx;
    (void)level;
    snprintf(logged + n, sizeof logged - n, "%s\n", message);
}

static mr_code train_logged(job *j)
{
    logged[0] = '\0';
    mr_log_set(keep_warning, NULL, MR_LOG_WARNING);
    mr_code rc = train(j, NULL, NULL);
    mr_log_set(NULL, NULL, MR_LOG_WARNING);
    return rc;
}

MR_TEST(differences_that_do_not_fit_the_message_are_logged)
{
    job j = plain;
    leave_backup(&j);
    j.model = "dense(3, activation=\"tanh\", kernel_initializer=zeros, bias_initializer=ones, "
              "kernel_regularizer=l1(0.5), bias_regularizer=l1(0.25)).dropout(0.3).dense(1, "
              "kernel_initializer=ones, bias_initializer=zeros, bias_regularizer=l2(0.5))";
    j.optimizer = "adam(0.5, beta_1=0.5, beta_2=0.75, epsilon=0.1, weight_decay=0.1, clipnorm=2.0)";
    j.loss = "mae";
    j.seed = 9;
    mr_code_is(train_logged(&j), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "dense/activation is tanh, was relu");
    mr_has_str(st.message, "more, all of which are logged");
    mr_has_str(st.message, "--resume-changed");
    static const char *const all[] = {"dense/activation",
                                      "dense/kernel_initializer",
                                      "dense/bias_initializer",
                                      "dense/kernel_regularizer",
                                      "dense/bias_regularizer",
                                      "dropout/rate",
                                      "dense_1/kernel_initializer",
                                      "dense_1/kernel_regularizer",
                                      "dense_1/bias_regularizer",
                                      "loss is mae, was mse",
                                      "optimizer/learning_rate",
                                      "optimizer/beta_1",
                                      "optimizer/beta_2",
                                      "optimizer/epsilon",
                                      "optimizer/weight_decay",
                                      "optimizer/clipnorm",
                                      "seed is 9, was 7"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        mr_has_str(logged, all[i]);
}

MR_TEST(the_part_of_a_long_value_that_differs_is_shown)
{
    char before[512] = "learning_rate_schedule([[0, 0.5]", now[512];
    job j = plain;
    for (int i = 1; i < 30; i++)
        snprintf(before + strlen(before), sizeof before - strlen(before), ", [%d, 0.25]", i);
    snprintf(now, sizeof now, "%s, [30, 0.0625]])", before);
    snprintf(before + strlen(before), sizeof before - strlen(before), ", [30, 0.125]])");
    j.callbacks[0] = before;
    leave_backup(&j);
    j.callbacks[0] = now;
    mr_code_is(train(&j, NULL, NULL), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "[30, 0.0625]]");
    mr_has_str(st.message, "[30, 0.125]]");
}

MR_TEST(class_weights_and_precision_are_settings)
{
    job j = {.model = "dense(2)",
             .optimizer = "sgd(0.01)",
             .loss = "sparse_categorical_crossentropy",
             .text = "range(10).map(i => ([cast(i, \"float32\") / 8.0], i % 2)).batch(2)",
             .metrics = {"accuracy"},
             .class_weights = {1, 2},
             .backup = plain.backup,
             .epochs = 3};
    leave_backup(&j);
    job k = j;
    k.class_weights[1] = 3;
    mr_code_is(train(&k, NULL, NULL), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "class_weights is [1, 3], was [1, 2]");
    k.class_weights[0] = 0;
    k.mixed = true;
    mr_code_is(train(&k, NULL, NULL), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, ", was [1, 2]");
    mr_has_str(st.message, "mixed_precision is true, was false");
    k.resume_changed = true;
    k.last_epoch = 1;
    mr_code_is(train(&k, NULL, NULL), MR_INVALID_ARGUMENT, &st); /* weights are part of the data */
    mr_has_str(st.message, "--restart-epoch");
    k.restart_epoch = true;
    mr_ok(train_logged(&k), &st);
    mr_has_str(logged, "another setting: class_weights is");
    mr_has_str(logged, "another setting: mixed_precision is true");
}

/* Of totals of the same number: they must not continue those of another metric. */
MR_TEST(metrics_continue_their_own_totals)
{
    job j = {.model = "dense(4)",
             .optimizer = "sgd(0.01)",
             .loss = "sparse_categorical_crossentropy",
             .text = "range(10).map(i => ([cast(i, \"float32\") / 8.0], i % 4)).batch(2)",
             .metrics = {"top_k(k=2)", "accuracy"},
             .callbacks = {"csv_logger(\"log.csv\")"},
             .backup = plain.backup,
             .epochs = 3};
    static char whole[MAX_TEXT], text[MAX_TEXT];
    train_whole(&j);
    read_file("log.csv", whole);
    leave("whole");
    job k = j;
    leave_backup(&j);
    k.last_epoch = 1;
    k.metrics[0] = "top_k(k=3)";
    mr_code_is(train(&k, NULL, NULL), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "without the metric top_k(k=3)");
    mr_has_str(st.message, "--resume-changed");
    k.metrics[0] = "weighted(accuracy)";
    mr_code_is(train(&k, NULL, NULL), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "weighted(accuracy)");
    k.metrics[0] = "top_k(3)";
    k.resume_changed = true;
    k.last_epoch = 1;
    mr_ok(train_logged(&k), &st);
    mr_has_str(logged, "the metric top_k(3) is new");
    leave("one");
    /* In another order, and written otherwise. */
    leave_backup(&j);
    j.metrics[0] = "accuracy";
    j.metrics[1] = "top_k(2)";
    j.last_epoch = 1;
    mr_ok(train_logged(&j), &st);
    mr_check(!strstr(logged, "is new"));
    read_file("log.csv", text);
    mr_eq_str(text, whole);
}

/* Steps 1 to 5 are the first epoch. */
MR_TEST(another_order_of_the_data_is_refused_or_begins_the_epoch_again)
{
    job j = {.optimizer = "sgd(0.01)", .backup = plain.backup, .epochs = 3, .seed = 7};
    leave_backup(&j);
    int64_t done = j.step - 5; /* of the second epoch */
    mr_check(done > 0 && done < 5);
    j.seed = 8;
    j.seeds_data = j.resume_changed = true;
    mr_code_is(train(&j, NULL, NULL), MR_INVALID_ARGUMENT, &st);
    mr_has_str(st.message, "the seed 3");
    mr_has_str(st.message, "--restart-epoch");
    j.last_epoch = 1;
    j.restart_epoch = true;
    mr_ok(train(&j, NULL, NULL), &st);
    mr_eq_i64(j.step, 15 + done);
    mr_eq_i64(j.last_epoch, 3);
    leave("one");
}

MR_TEST(a_changed_run_goes_on_with_the_new_values_if_asked_to)
{
    static const struct {
        const char *model, *optimizer;
        uint64_t seed;
        double rate;
        const char *logged;
        mr_code rc;
    } cases[] = {
        {"dense(3).dropout(0.5).dense(1)", "sgd(0.01)", 7, 0.01, "dropout/rate is 0.5, was 0.2",
         MR_OK},
        {NULL, "sgd(0.5e-3)", 7, 0.0005, "learning_rate is 0.0005, was 0.01", MR_OK},
        {NULL, "sgd(piecewise_constant_decay([1], [0.1, 0.02]))", 7, 0.02, "piecewise", MR_OK},
        {NULL, "sgd(0.01, momentum=0.9)", 7, 0.01, "momentum is 0.9, was 0", MR_OK},
        {NULL, "adam(0.03)", 7, 0.03, "optimizer is adam, was sgd", MR_OK},
        {NULL, "sgd(0.01)", 8, 0.01, "seed is 8, was 7", MR_OK},
        {"dense(4).dropout(0.2).dense(1)", "sgd(0.01)", 7, 0.01, "units", MR_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        job j = {.optimizer = "sgd(0.01)", .backup = plain.backup, .epochs = 3};
        leave_backup(&j);
        mr_test_context("case %zu", i);
        j.last_epoch = 1;
        j.model = cases[i].model;
        j.optimizer = cases[i].optimizer;
        j.seed = cases[i].seed;
        j.resume_changed = true;
        warnings = 0;
        mr_log_set(count_warning, (void *)(uintptr_t)cases[i].logged, MR_LOG_WARNING);
        mr_code rc = train(&j, NULL, NULL);
        mr_log_set(NULL, NULL, MR_LOG_WARNING);
        mr_code_is(rc, cases[i].rc, &st);
        mr_check(warnings == 1);
        if (rc == MR_OK) {
            mr_eq_i64(j.step, 15);
            mr_eq_f64(j.rate, cases[i].rate, 0);
        }
        leave("one");
    }
}

/* ---- two runs in one directory ---- */

static mr_code train_inside(void *ctx, const mr_train_event *e, mr_status *status)
{
    job j = plain;
    (void)e;
    (void)status;
    *(mr_code *)ctx = train(&j, NULL, NULL);
    return MR_OK;
}

MR_TEST(a_second_run_in_the_directory_is_refused)
{
    mr_code second = MR_OK;
    mr_callback list[2] = {{0}, {.ctx = &second, .epoch_end = train_inside}};
    enter("one");
    parts p = parts_make(1, "dense(1)", "mse", "sgd(0.01)", mr_test_graph(data));
    mr_ok(mr_callback_parse(&list[0], plain.backup, &st), &st);
    mr_ok(parts_fit(&p, &(mr_fit_opts){.callbacks = list, .n_callbacks = 2}, NULL, NULL), NULL);
    mr_code_is(second, MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "another run");
    mr_has_str(st.file, "bk");
    mr_check(access("bk", F_OK) != 0); /* the first took everything away */
    mr_callback_reset(&list[0]);
    parts_drop(&p);
    job j = plain;
    mr_ok(train(&j, NULL, NULL), &st);
}

MR_TEST(the_lock_ends_with_the_process_that_has_it)
{
    job j = plain;
    int status, ends[2];
    char byte;
    enter("one");
    mr_check(mkdir("bk", 0777) == 0 && pipe(ends) == 0);
    write_file("bk/.checkpoint.123-1.partial", "bac"); /* of a run that was killed too */
    write_file("bk/.begun.json.123-4.partial", "{");
    pid_t child = fork();
    if (child == 0) {
        alarm(60); /* if the test fails */
        int fd = open("bk/lock", O_RDWR | O_CREAT, 0666);
        if (fd < 0 || flock(fd, LOCK_EX) != 0 || write(ends[1], "x", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    mr_check(child > 0 && read(ends[0], &byte, 1) == 1);
    mr_code_is(train(&j, NULL, NULL), MR_FAILED_PRECONDITION, &st);
    mr_has_str(st.message, "another run");
    mr_check(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    mr_check(access("bk/lock", F_OK) == 0);
    mr_ok(train(&j, NULL, NULL), &st);
    mr_check(access("bk", F_OK) != 0);
}

/* ---- memory ---- */

/* Without assertions; stops after the second step, or goes on to the end. */
static mr_code train_quietly(bool stops_early, mr_status *status)
{
    static const char *const texts[] = {"csv_logger(\"l.csv\")", "tensorboard(\"logs\")",
                                        "learning_rate_schedule([[0, 0.1], [1, 0.2]])",
                                        "backup_and_restore(\"bk\")"};
    enum { N = sizeof texts / sizeof *texts };
    const mr_iterator_opts here = {.has_threads = true};
    job j = {.stop_at = stops_early ? 1 : 0};
    parts p = {0};
    mr_callback list[N + 1] = {{.ctx = &j, .batch_end = note_step}};
    mr_code rc = mr_dataset_from_text(data, sizeof data - 1, NULL, &p.ds, status);
    if (rc == MR_OK)
        rc = mr_strategy_mirrored(&p.s, &(mr_strategy_opts){.num_replicas = 1}, status);
    if (rc == MR_OK)
        rc = mr_model_parse(&p.m, "dense(2, activation=\"relu\").dense(1)", status);
    if (rc == MR_OK)
        rc = mr_loss_parse(&p.loss, "huber(delta=2.0)", status);
    if (rc == MR_OK)
        rc = mr_optimizer_parse(&p.o, "sgd(piecewise_constant_decay([5], [0.1, 0.2]))", status);
    for (size_t i = 0; i < N && rc == MR_OK; i++)
        rc = mr_callback_parse(&list[i + 1], texts[i], status);
    if (rc == MR_OK)
        rc = parts_fit(&p,
                       &(mr_fit_opts){.epochs = 2,
                                      .steps_per_epoch = 2,
                                      .callbacks = list,
                                      .n_callbacks = N + 1,
                                      .stopping = stops,
                                      .stopping_ctx = &j,
                                      .iterator = &here},
                       NULL, status);
    for (size_t i = 1; i <= N; i++)
        mr_callback_reset(&list[i]);
    parts_drop(&p);
    return rc;
}

MR_TEST_SLOW(memory_may_run_out)
{
    enter("one");
    mr_fault_exact(100);
    mr_fault_each_allocation(n)
    {
        mr_code rc = train_quietly(true, &st);
        if (rc == MR_OK)
            rc = train_quietly(false, &st);
        mr_fault_expect(rc, &st);
    }
}
