# SPDX-License-Identifier: Apache-2.0
"""Writes the C source of millrace._trainer_ffi: training (libmillrace-trainer), which millrace.trainer
loads.

    python3 build_trainer_ffi.py OUTPUT.c
"""
import sys

import cffi
from build_ffi import ffi as base

CDEF = """
/* ---- strategies ---- */
typedef struct mr_strategy mr_strategy;
typedef struct mr_job_fact { const char *name, *value; ...; } mr_job_fact;
typedef struct mr_workers_opts { const mr_cluster *cluster; const mr_job_fact *facts; size_t n_facts; mr_cancel *cancel; ...; }
    mr_workers_opts;
typedef struct mr_strategy_opts { size_t num_replicas; const char *const *devices; size_t n_devices; ...; } mr_strategy_opts;
mr_code mr_strategy_by_name(mr_strategy **out, const char *name, const mr_strategy_opts *opts, const mr_workers_opts *workers,
    mr_status *st);
void mr_strategy_free(mr_strategy *s);
size_t mr_strategy_num_replicas_in_sync(const mr_strategy *s);
size_t mr_strategy_worker(const mr_strategy *s);
const char *mr_strategy_name(const mr_strategy *s);

/* ---- models ---- */
typedef struct mr_model mr_model;
typedef struct mr_variable mr_variable;
typedef struct mr_model_opts { uint64_t seed; ...; } mr_model_opts;
mr_code mr_model_parse(mr_model **out, const char *text, mr_status *st);
void mr_model_free(mr_model *m);
const char *mr_model_text(const mr_model *m);
mr_code mr_model_build(mr_model *m, mr_strategy *s, int rank, const int64_t *shape, const mr_model_opts *opts, mr_status *st);
bool mr_model_is_built(const mr_model *m);
void mr_model_input_shape(const mr_model *m, int *rank, const int64_t **shape);
size_t mr_model_n_outputs(const mr_model *m);
const char *mr_model_output_name(const mr_model *m, size_t i);
void mr_model_output_shape_of(const mr_model *m, size_t i, int *rank, const int64_t **shape);
size_t mr_model_n_variables(const mr_model *m);
mr_variable *mr_model_variable(const mr_model *m, size_t i);
const char *mr_variable_name(const mr_variable *v);
int mr_variable_rank(const mr_variable *v);
const int64_t *mr_variable_shape(const mr_variable *v);
size_t mr_variable_size(const mr_variable *v);
mr_code mr_variable_assign(mr_variable *v, const float *values, mr_status *st);
mr_code mr_variable_read(const mr_variable *v, float *out, mr_status *st);

typedef struct mrpy_model { mr_model *model; mr_strategy *strategy; int process; } mrpy_model;
static void mrpy_model_free(mrpy_model *m);

/* ---- objectives ---- */
typedef struct mr_loss mr_loss;
typedef struct mr_metric mr_metric;
typedef struct mr_optimizer mr_optimizer;
mr_code mr_loss_parse(mr_loss **out, const char *text, mr_status *st);
void mr_loss_free(mr_loss *l);
mr_code mr_metric_parse(mr_metric **out, const char *text, mr_status *st);
void mr_metric_free(mr_metric *m);
void mr_metric_value_name(const char *const *metrics, size_t i, char *out, size_t size);
mr_code mr_optimizer_parse(mr_optimizer **out, const char *text, mr_status *st);
void mr_optimizer_free(mr_optimizer *o);
double mr_optimizer_learning_rate(const mr_optimizer *o);
void mr_optimizer_set_learning_rate(mr_optimizer *o, double learning_rate);
int64_t mr_optimizer_iterations(const mr_optimizer *o);

/* ---- fit ---- */
#define MR_MAX_METRICS ...
#define MR_MAX_CLASS_WEIGHTS ...
typedef struct mr_output_losses { size_t n; const char *names[...]; float values[...]; ...; } mr_output_losses;
typedef struct mr_fit_result { int64_t steps, epochs, rows; float loss; mr_output_losses outputs; double metrics[...];
    double seconds, waited_seconds; bool stopped; ...; } mr_fit_result;
typedef struct mr_train_event { int64_t step, epoch, rows; float loss; int64_t epoch_step; double seconds; ...; } mr_train_event;
bool mr_train_value(const mr_train_event *e, const char *name, double *value);
bool mr_train_value_name(const mr_train_event *e, size_t i, char *name, size_t size);
typedef struct mr_callback {
    void *ctx;
    mr_code (*train_begin)(void *ctx, const mr_train_event *e, mr_status *st);
    mr_code (*epoch_begin)(void *ctx, const mr_train_event *e, mr_status *st);
    mr_code (*batch_begin)(void *ctx, const mr_train_event *e, mr_status *st);
    mr_code (*batch_end)(void *ctx, const mr_train_event *e, mr_status *st);
    mr_code (*epoch_end)(void *ctx, const mr_train_event *e, mr_status *st);
    mr_code (*train_end)(void *ctx, const mr_train_event *e, mr_status *st);
    bool wants_loss; ...; } mr_callback;
mr_code mr_callback_parse(mr_callback *out, const char *text, mr_status *st);
void mr_callback_reset(mr_callback *c);
typedef struct mr_history mr_history;
mr_code mr_history_new(mr_history **out, mr_status *st);
void mr_history_free(mr_history *h);
size_t mr_history_epochs(const mr_history *h);
const int64_t *mr_history_epoch_numbers(const mr_history *h);
size_t mr_history_n_names(const mr_history *h);
const char *mr_history_name(const mr_history *h, size_t i);
const double *mr_history_values(const mr_history *h, const char *name);
typedef struct mr_fit_opts { int64_t epochs, steps, steps_per_epoch; const mr_iterator_opts *iterator;
    const double *class_weights; size_t n_class_weights; const char *const *metrics; size_t n_metrics; mr_dataset *validation;
    const mr_callback *callbacks; size_t n_callbacks; mr_history *history;
    void (*print)(void *ctx, const char *text, const char *json); void *print_ctx; uint64_t seed;
    int64_t elastic_streams; int64_t validation_steps; bool resume_changed, restart_epoch; ...; } mr_fit_opts;
mr_code mr_check_data(mr_strategy *s, mr_dataset *ds, const mr_fit_opts *opts, mr_status *st);
void mr_status_prefix(mr_status *st, const char *format, ...);
mr_code mr_fit(mr_strategy *s, mr_model *m, mr_dataset *ds, mr_loss *loss, mr_optimizer *o, const mr_fit_opts *opts,
    mr_fit_result *result, mr_status *st);
mr_code mr_evaluate(mr_strategy *s, mr_model *m, mr_dataset *ds, mr_loss *loss, const mr_fit_opts *opts, mr_fit_result *result,
    mr_status *st);
mr_code mr_predict(mr_strategy *s, mr_model *m, mr_dataset *ds,
    mr_code (*fn)(void *ctx, const mr_array *predictions, mr_status *st), void *ctx, const mr_fit_opts *opts, mr_status *st);

/* ---- saved models ---- */
typedef struct mr_save_opts { const mr_loss *loss; const mr_optimizer *optimizer; const char *const *metrics; size_t n_metrics;
    ...; } mr_save_opts;
mr_code mr_model_save(const mr_model *m, const char *path, const mr_save_opts *opts, mr_status *st);
typedef struct mr_saved mr_saved;
mr_code mr_saved_open(mr_saved **out, const char *path, mr_status *st);
void mr_saved_close(mr_saved *s);
const char *mr_saved_model_text(const mr_saved *s);
const char *mr_saved_loss(const mr_saved *s);
const char *mr_saved_optimizer(const mr_saved *s);
size_t mr_saved_n_metrics(const mr_saved *s);
const char *mr_saved_metric(const mr_saved *s, size_t i);
mr_code mr_saved_build(const mr_saved *saved, mr_model *m, mr_strategy *s, const mr_model_opts *opts, mr_status *st);

/* ---- called by the library ---- */
extern "Python" mr_code mrpy_train_begin(void *ctx, const mr_train_event *e, mr_status *st);
extern "Python" mr_code mrpy_epoch_begin(void *ctx, const mr_train_event *e, mr_status *st);
extern "Python" mr_code mrpy_batch_begin(void *ctx, const mr_train_event *e, mr_status *st);
extern "Python" mr_code mrpy_batch_end(void *ctx, const mr_train_event *e, mr_status *st);
extern "Python" mr_code mrpy_epoch_end(void *ctx, const mr_train_event *e, mr_status *st);
extern "Python" mr_code mrpy_train_end(void *ctx, const mr_train_event *e, mr_status *st);
extern "Python" mr_code mrpy_predicted(void *ctx, const mr_array *predictions, mr_status *st);
extern "Python" void mrpy_print(void *ctx, const char *text, const char *json);
"""

SOURCE = """
#include "binding.h"
#include <unistd.h>
#include <millrace/millrace-trainer.h>

/* What a Model owns. Python has it, with its destructor, before anything is made, so that the handler
 * of a signal, which can raise between any two instructions, leaves nothing without an owner. */
typedef struct mrpy_model {
    mr_model *model;
    mr_strategy *strategy;
    int process; /* that made them: their threads are in no other */
} mrpy_model;

static void mrpy_model_free(mrpy_model *m)
{
    if (m->process != getpid())
        return;
    mr_model_free(m->model);
    mr_strategy_free(m->strategy);
}
"""

ffi = cffi.FFI()
ffi.include(base)
ffi.set_source("millrace._trainer_ffi", SOURCE)
ffi.cdef(CDEF)

if __name__ == "__main__":
    ffi.emit_c_code(sys.argv[1])
