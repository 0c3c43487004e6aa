# SPDX-License-Identifier: Apache-2.0
"""Writes the C source of millrace._ffi: CFFI in API mode over the public headers.

    python3 build_ffi.py OUTPUT.c

Structs that end in "...;" have the layout that the compiler sees, so none is copied here. A C
function of the library that Python needs is added to CDEF.
"""
import sys

import cffi

CDEF = """
typedef enum mr_dtype { MR_BOOL, MR_INT8, MR_INT16, MR_INT32, MR_INT64, MR_UINT8, MR_UINT16, MR_UINT32,
    MR_UINT64, MR_FLOAT16, MR_BFLOAT16, MR_FLOAT32, MR_FLOAT64, MR_STRING, MR_DATASET, MR_N_DTYPES, ... } mr_dtype;
typedef enum mr_storage { MR_DENSE, MR_BYTES, MR_RAGGED, MR_DATASETS, MR_PLACED, ... } mr_storage;
typedef enum mr_code { MR_OK, MR_END, MR_CANCELLED, MR_UNKNOWN, MR_INVALID_ARGUMENT, MR_DEADLINE_EXCEEDED,
    MR_NOT_FOUND, MR_ALREADY_EXISTS, MR_PERMISSION_DENIED, MR_RESOURCE_EXHAUSTED, MR_FAILED_PRECONDITION,
    MR_ABORTED, MR_OUT_OF_RANGE, MR_UNIMPLEMENTED, MR_INTERNAL, MR_UNAVAILABLE, MR_DATA_LOSS, ... } mr_code;
typedef enum mr_log_level { MR_LOG_DEBUG, MR_LOG_INFO, MR_LOG_WARNING, MR_LOG_ERROR, ... } mr_log_level;

/* ---- results ---- */
typedef struct mr_status { mr_code code; int sys_errno; char message[...]; char op[...]; char file[...];
    int64_t offset, record, element; ...; } mr_status;
size_t mr_status_format(const mr_status *st, char *buf, size_t size);
const char *mr_status_place(const mr_status *st);
const char *mr_code_text(mr_code code);
const char *mr_version(void);
typedef void (*mr_log_fn)(void *ctx, mr_log_level level, const char *message);
void mr_log_set(mr_log_fn fn, void *ctx, mr_log_level level);
void mr_free(void *p);

/* ---- memory ---- */
typedef struct mr_buffer mr_buffer;
mr_code mr_buffer_wrap(mr_buffer **out, void *data, size_t bytes, bool read_only,
    void (*release)(void *ctx, void *data), void *ctx, mr_status *st);
void mr_buffer_unref(mr_buffer *b);
void mr_buffer_pool_usage(size_t *live_bytes, size_t *free_bytes);
typedef struct mr_bytes { const char *data; size_t size; ...; } mr_bytes;
typedef struct mr_array { mr_dtype dtype; mr_storage storage; int8_t rank; bool resident; size_t rows; int64_t shape[...];
    void *data; mr_buffer *owner; ...; } mr_array;
typedef struct mr_block mr_block;
void mr_array_reset(mr_array *a);
mr_code mr_array_alloc(mr_array *a, mr_dtype t, int rank, const int64_t *shape, size_t rows, mr_status *st);
mr_code mr_buffer_hold(mr_buffer *b, mr_buffer *other, mr_status *st);

/* ---- specs ---- */
typedef struct mr_spec mr_spec;
typedef enum mr_spec_kind { MR_SPEC_LEAF, MR_SPEC_TUPLE, MR_SPEC_RECORD, ... } mr_spec_kind;
typedef struct mr_leaf { mr_dtype dtype; int8_t rank; bool ragged; int64_t shape[...]; const mr_spec *element; ...; } mr_leaf;
mr_spec_kind mr_spec_kind_of(const mr_spec *s);
size_t mr_spec_n_children(const mr_spec *s);
const mr_spec *mr_spec_child(const mr_spec *s, size_t i);
const char *mr_spec_child_name(const mr_spec *s, size_t i);
const mr_leaf *mr_spec_leaf(const mr_spec *s, size_t i);
size_t mr_spec_n_leaves(const mr_spec *s);
mr_spec *mr_spec_of_leaf(const mr_leaf *leaf);
mr_spec *mr_spec_dataset(mr_spec *element);
mr_spec *mr_spec_tuple(mr_spec *const *children, size_t n);
mr_spec *mr_spec_record(const char *const *names, mr_spec *const *children, size_t n);
void mr_spec_unref(const mr_spec *s);

/* ---- datasets ---- */
typedef struct mr_dataset mr_dataset;
typedef struct mr_fn mr_fn;
typedef enum mr_value_kind { MR_V_UNSET, MR_V_NONE, MR_V_AUTO, MR_V_BOOL, MR_V_INT, MR_V_FLOAT, MR_V_STRING,
    MR_V_TENSOR, MR_V_LIST, MR_V_TUPLE, MR_V_RECORD, MR_V_FN, MR_V_DATASET, MR_V_UNKNOWN, ... } mr_value_kind;
typedef struct mr_value { mr_value_kind kind; int64_t i; double f; char *s; size_t size; mr_array tensor;
    mr_dataset *dataset; ...; } mr_value;
typedef struct mr_env { const char *const *names; const mr_value *values; size_t n; ...; } mr_env;
mr_dataset *mr_dataset_ref(mr_dataset *ds);
void mr_dataset_unref(mr_dataset *ds);
mr_code mr_dataset_check(const mr_dataset *ds, mr_status *st);
const mr_spec *mr_dataset_spec(const mr_dataset *ds);
int64_t mr_dataset_cardinality(const mr_dataset *ds);
mr_code mr_dataset_from_text(const char *text, size_t size, const mr_env *env, mr_dataset **out, mr_status *st);
mr_code mr_dataset_to_text(const mr_dataset *ds, char **out, mr_status *st);
void mr_text_drop_secrets(char *text);
mr_code mr_dataset_to_proto(const mr_dataset *ds, void **bytes, size_t *size, mr_status *st);
mr_code mr_dataset_from_proto(const void *bytes, size_t size, mr_dataset **out, mr_status *st);
#define MR_INFINITE ...
#define MR_UNKNOWN_COUNT ...

/* ---- iterators ---- */
typedef struct mr_iterator mr_iterator;
typedef struct mr_cancel mr_cancel;
typedef struct mr_ledger mr_ledger;
typedef enum mr_on_mismatch { MR_REFUSE_MISMATCH, MR_RESTORE_BY_NAME, ... } mr_on_mismatch;
typedef struct mr_iterator_opts { int64_t threads; bool has_threads; int64_t block_rows; uint64_t seed; bool has_seed;
    bool positions, identities; mr_ledger *ledger; bool no_uring; mr_cancel *cancel; int64_t memory_limit;
    size_t trace_spans; bool watch; mr_on_mismatch on_mismatch; ...; } mr_iterator_opts;
mr_code mr_iterator_open(mr_iterator **out, mr_dataset *ds, const mr_iterator_opts *opts, mr_status *st);
mr_code mr_iterator_rewind(mr_iterator *it, mr_status *st);
mr_code mr_iterator_save(mr_iterator *it, void **bytes, size_t *size, mr_status *st);
mr_code mr_iterator_save_at(mr_iterator *it, const mr_block *b, size_t rows, void **bytes, size_t *size, mr_status *st);
mr_code mr_iterator_resume(mr_iterator *it, mr_status *st);
mr_code mr_iterator_restore(mr_iterator *it, const void *bytes, size_t size, mr_status *st);
mr_code mr_iterator_rest(mr_iterator *it, mr_status *st);
void mr_iterator_cancel(mr_iterator *it);
void mr_iterator_close(mr_iterator *it);
int mr_usable_cpus(void);
typedef struct mr_random_access mr_random_access;
mr_code mr_dataset_indexed(const mr_dataset *ds, mr_status *st);
mr_code mr_random_access_open(mr_random_access **out, mr_dataset *ds, const mr_iterator_opts *opts, mr_status *st);
mr_code mr_random_access_count(mr_random_access *ra, int64_t *n, mr_status *st);
mr_code mr_random_access_at(mr_random_access *ra, const int64_t *index, size_t n, mr_block *b, mr_status *st);
void mr_random_access_cancel(mr_random_access *ra);
void mr_random_access_close(mr_random_access *ra);
mr_code mr_memory_needed(const mr_dataset *ds, const mr_iterator_opts *opts, int64_t *bytes, const char **unknown, mr_status *st);
mr_code mr_cancel_new(mr_cancel *parent, mr_cancel **out, mr_status *st);
void mr_cancel_unref(mr_cancel *c);
void mr_cancel_trigger(mr_cancel *c);
bool mr_cancel_is_cancelled(const mr_cancel *c);
mr_cancel *mr_cancel_set_thread(mr_cancel *c);
mr_code mr_ledger_create(const char *path, bool steps, mr_ledger **out, mr_status *st);
mr_code mr_ledger_close(mr_ledger *l, mr_status *st);
typedef struct mr_op_stats { const char *op, *path; int64_t elements, bytes; double busy_seconds, wait_seconds; int64_t blocks;
    int64_t queued_elements, queued_blocks, queued_bytes, room_elements, room_blocks, dropped; ...; } mr_op_stats;
size_t mr_iterator_stats(mr_iterator *it, mr_op_stats *out, size_t capacity);
typedef struct mr_op_tuning { const char *op, *path, *parameter; int64_t chosen; double service_seconds, interval_seconds; ...; } mr_op_tuning;
size_t mr_iterator_tuning(mr_iterator *it, mr_op_tuning *out, size_t capacity);
typedef struct mr_op_span { const char *op, *path; int thread; bool waiting; double begin_seconds, seconds; ...; } mr_op_span;
size_t mr_iterator_trace(mr_iterator *it, mr_op_span *out, size_t capacity, double *left_out);
double mr_iterator_trace_begin(const mr_iterator *it);

/* ---- distributed datasets ---- */
typedef enum mr_shard_policy { MR_SHARD_AUTO, MR_SHARD_FILE, MR_SHARD_DATA, MR_SHARD_OFF, MR_SHARD_HINT, MR_SHARD_RANGE, ... } mr_shard_policy;
mr_code mr_shard_policy_parse(const char *name, mr_shard_policy *out, mr_status *st);
const char *mr_shard_policy_name(mr_shard_policy policy);
typedef struct mr_auto_shard_opts { int64_t num_workers, index, num_replicas; mr_shard_policy policy; ...; } mr_auto_shard_opts;
typedef struct mr_cluster { ...; } mr_cluster;
mr_code mr_cluster_from_tf_config(mr_cluster *c, const char *json, size_t size, mr_status *st);
mr_code mr_cluster_from_launcher(mr_cluster *c, mr_status *st);
int64_t mr_cluster_num_workers(const mr_cluster *c);
mr_code mr_cluster_worker(const mr_cluster *c, int64_t *rank, mr_status *st);
void mr_cluster_reset(mr_cluster *c);
typedef struct mr_input_context { int64_t num_input_pipelines, input_pipeline_id, num_replicas_in_sync; ...; } mr_input_context;
mr_code mr_input_context_check(const mr_input_context *c, mr_status *st);
mr_code mr_input_context_get_per_replica_batch_size(const mr_input_context *c, int64_t global_batch_size, int64_t *out,
    mr_status *st);
typedef struct mr_distribute_opts { int64_t num_workers, worker, num_local_workers, replicas; const mr_cluster *cluster;
    mr_shard_policy policy; bool has_policy; uint64_t seed; bool has_seed; int64_t elastic_streams; ...; } mr_distribute_opts;
typedef struct mr_dist_dataset mr_dist_dataset;
typedef struct mr_dist_iterator mr_dist_iterator;
typedef mr_code (*mr_input_fn)(void *ctx, const mr_input_context *c, mr_dataset **out, mr_status *st);
mr_code mr_distribute_dataset(mr_dataset *ds, const mr_distribute_opts *opts, mr_dist_dataset **out, mr_status *st);
mr_code mr_distribute_from_function(mr_input_fn fn, void *ctx, const mr_distribute_opts *opts, mr_dist_dataset **out,
    mr_status *st);
void mr_dist_dataset_free(mr_dist_dataset *dd);
mr_dataset *mr_dist_dataset_graph(const mr_dist_dataset *dd, size_t local);
mr_shard_policy mr_dist_dataset_policy(const mr_dist_dataset *dd);
const mr_spec *mr_dist_dataset_spec(const mr_dist_dataset *dd);
int64_t mr_dist_dataset_cardinality(const mr_dist_dataset *dd);
int64_t mr_dist_dataset_elastic_streams(const mr_dist_dataset *dd);
int64_t mr_dist_dataset_num_workers(const mr_dist_dataset *dd);
int64_t mr_dist_dataset_num_replicas_in_sync(const mr_dist_dataset *dd);
int64_t mr_dist_dataset_worker(const mr_dist_dataset *dd);
typedef struct mr_decision { char *what, *detail, *op; ...; } mr_decision;
typedef struct mr_explanation { mr_decision *v; size_t n; ...; } mr_explanation;
void mr_explanation_reset(mr_explanation *e);
const mr_explanation *mr_dist_dataset_explanation(const mr_dist_dataset *dd);
typedef struct mr_block mr_block;
typedef struct mr_step { int64_t step; size_t n_replicas; mr_block *replicas; const bool *has_data; ...; } mr_step;
typedef struct mr_destination mr_destination;
typedef struct mr_dist_iterator_opts { mr_iterator_opts run; ...; } mr_dist_iterator_opts;
mr_code mr_dist_iterator_open(mr_dist_iterator **out, const mr_dist_dataset *dd, const mr_dist_iterator_opts *opts,
    mr_status *st);
mr_code mr_dist_iterator_next(mr_dist_iterator *it, const mr_destination *destination, mr_step *out, mr_status *st);
mr_code mr_dist_iterator_rewind(mr_dist_iterator *it, mr_status *st);
mr_code mr_dist_iterator_rest(mr_dist_iterator *it, mr_status *st);
mr_code mr_dist_iterator_resume(mr_dist_iterator *it, mr_status *st);
mr_code mr_dist_iterator_save(mr_dist_iterator *it, void **bytes, size_t *size, mr_status *st);
mr_code mr_dist_iterator_restore(mr_dist_iterator *it, const void *bytes, size_t size, mr_status *st);
typedef struct mr_position_part { const void *bytes; size_t size; ...; } mr_position_part;
mr_code mr_dist_position_join(const mr_position_part *parts, size_t n, void **bytes, size_t *size, mr_status *st);
mr_iterator *mr_dist_iterator_worker(mr_dist_iterator *it, size_t local);
void mr_dist_iterator_cancel(mr_dist_iterator *it);
void mr_dist_iterator_close(mr_dist_iterator *it);

/* ---- shards ---- */
typedef enum mr_shard_format { MR_SHARDS_TFRECORD, MR_SHARDS_JSONL, MR_SHARDS_NPY, MR_SHARDS_ARROW, MR_SHARDS_PARQUET, ... }
    mr_shard_format;
typedef enum mr_compression { MR_COMPRESSION_ZSTD, ... } mr_compression;
bool mr_compression_find(const char *name, mr_compression *out);
typedef struct mr_shard_writer mr_shard_writer;
typedef struct mr_shard_writer_opts { mr_compression compression; bool overwrite; mr_shard_format format; bool zstd_records;
    mr_cancel *cancel;
    ...; } mr_shard_writer_opts;
const char *mr_shard_ending(mr_shard_format format);
mr_code mr_shard_writer_open(mr_shard_writer **out, const char *prefix, int64_t n_shards, const mr_shard_writer_opts *opts,
    mr_status *st);
int64_t mr_shard_writer_records(const mr_shard_writer *w);
mr_code mr_shard_writer_close(mr_shard_writer *w, mr_status *st);
void mr_shard_writer_abort(mr_shard_writer *w);
mr_code mr_write_elements_check(const mr_dataset *ds, mr_shard_format format, mr_status *st);
mr_code mr_write_iterator(mr_iterator *it, mr_shard_writer *w, const mr_iterator_opts *opts, mr_status *st);
char *mr_glob_quote(const char *path);

/* ---- sharding ---- */
mr_code mr_shard_policy_of(mr_dataset *ds, mr_shard_policy *out, mr_status *st);
mr_code mr_auto_shard(mr_dataset *ds, const mr_auto_shard_opts *opts, mr_dataset **out, mr_shard_policy *chosen, mr_explanation *e, mr_status *st);

/* ---- Arrow ---- */
struct ArrowArrayStream { void (*release)(struct ArrowArrayStream *); ...; };
struct ArrowArray { void (*release)(struct ArrowArray *); ...; };
struct ArrowSchema { void (*release)(struct ArrowSchema *); ...; };
mr_dataset *mr_from_arrow(struct ArrowArrayStream *stream);

/* ---- called by the library ---- */
extern "Python" void mrpy_log(void *ctx, mr_log_level level, const char *message);
extern "Python" void mrpy_release(void *ctx, void *data);

extern "Python" mr_code mrpy_input(void *ctx, const mr_input_context *c, mr_dataset **out, mr_status *st);

/* ---- binding.h ---- */
mr_code mrpy_plugin_load(const char *path, mr_status *st);
mr_dataset *mrpy_given(const mr_spec *element);
typedef struct mrpy_run { int64_t elements, bytes; double seconds, cpu_seconds, first_element_seconds; ...; } mrpy_run;
mr_code mrpy_drain(mr_iterator *it, int64_t limit, double seconds, mrpy_run *run, mr_status *st);
mr_code mrpy_export_row(struct ArrowArray *array, struct ArrowSchema *schema, const mr_array *a, const mr_leaf *leaf,
    mr_status *st);
mr_code mrpy_arrow_stream(struct ArrowArrayStream *out, mr_dataset *ds, mr_status *st);

/* ---- Python functions (_python.py) ---- */
mr_code mr_buffer_alloc(mr_buffer **out, size_t bytes, mr_status *st);
void *mr_buffer_data(const mr_buffer *b);
void *mr_malloc(size_t bytes);
typedef struct mr_row { const void *data; const int64_t *shape; const int64_t *splits; ...; } mr_row;
mr_code mr_array_alloc_ragged(mr_array *a, mr_dtype t, int rank, size_t rows, mr_status *st);
int64_t *mr_array_shape_slot(const mr_array *a, size_t i);
typedef struct mr_block { size_t rows, n_columns; mr_array *columns; ...; } mr_block;
mr_code mr_block_prepare(mr_block *b, size_t n_columns, mr_status *st);
void mr_block_reset(mr_block *b);
typedef struct mr_row_errors mr_row_errors;
mr_code mr_row_errors_add(mr_row_errors *e, size_t row, const mr_status *status, mr_status *st);
typedef struct mr_rows_call { const mr_spec *in; void *run; mr_cancel *cancel; ...; } mr_rows_call;
typedef struct mr_rows_fn { void *ctx;
    mr_code (*call)(void *ctx, const mr_rows_call *c, const mr_block *in, mr_block *out, mr_row_errors *errors, mr_status *st);
    mr_code (*begin)(void *ctx, void **run, mr_status *st);
    void (*end)(void *ctx, void *run);
    void (*release)(void *ctx);
    mr_spec *out; const char *name; bool may_block, draws; double seconds; const char *alias, *label; ...; } mr_rows_fn;
mr_fn *mr_fn_rows(const mr_rows_fn *f);
uint64_t mr_rows_key(const mr_rows_call *c, size_t row, int64_t seed);
void mr_fn_unref(mr_fn *fn);
mr_code mr_fn_register(const char *name, mr_fn *fn, mr_status *st);
typedef enum mr_tri { MR_DEFAULT, MR_YES, MR_NO, ... } mr_tri;
typedef struct mr_map_opts { int64_t num_parallel_calls; mr_tri deterministic; ...; } mr_map_opts;
mr_dataset *mr_map(mr_dataset *input, mr_fn *fn, const mr_map_opts *opts);
mr_dataset *mr_filter(mr_dataset *input, mr_fn *fn, const mr_map_opts *opts);
#define MR_AUTO ...
typedef struct mr_generator { void *ctx;
    mr_code (*open)(void *ctx, void **pass, mr_status *st);
    mr_code (*next)(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st);
    void (*close)(void *ctx, void *pass);
    mr_code (*save)(void *ctx, void *pass, void **bytes, size_t *size, mr_status *st);
    mr_code (*restore)(void *ctx, void *pass, const void *bytes, size_t size, mr_status *st);
    void (*release)(void *ctx);
    bool may_block; const char *no_position, *label; ...; } mr_generator;
mr_dataset *mr_from_generator(const mr_generator *g, const mr_spec *element);
extern "Python" mr_code mrpy_call(void *ctx, const mr_rows_call *c, const mr_block *in, mr_block *out,
    mr_row_errors *errors, mr_status *st);
extern "Python" mr_code mrpy_begin(void *ctx, void **run, mr_status *st);
extern "Python" void mrpy_end(void *ctx, void *run);
extern "Python" void mrpy_forget(void *ctx);
extern "Python" mr_code mrpy_open_pass(void *ctx, void **pass, mr_status *st);
extern "Python" mr_code mrpy_next(void *ctx, void *pass, size_t want, mr_block *out, mr_status *st);
extern "Python" void mrpy_close_pass(void *ctx, void *pass);
extern "Python" mr_code mrpy_save(void *ctx, void *pass, void **bytes, size_t *size, mr_status *st);
extern "Python" mr_code mrpy_restore(void *ctx, void *pass, const void *bytes, size_t size, mr_status *st);
void mrpy_fail(mr_status *st, mr_code code, const char *message);
int mrpy_wait(int fd, mr_cancel *cancel);

/* ---- ops, for load_plugin and explain ---- */
size_t mr_dataset_n_inputs(const mr_dataset *ds);
mr_dataset *mr_dataset_input(const mr_dataset *ds, size_t i);
void mr_dataset_held(const mr_dataset *ds, int64_t *elements, int64_t *bytes);
size_t mr_spec_format(const mr_spec *s, char *buf, size_t size);
typedef struct mr_param { const char *name; ...; } mr_param;
typedef struct mr_op { const char *name; const mr_param *params; uint32_t props; ...; } mr_op;
const mr_op *mr_dataset_op(const mr_dataset *ds);
const mr_op *mr_op_at(size_t i);
#define MR_OP_INTERNAL ...
"""

ffi = cffi.FFI()
ffi.set_source("millrace._ffi", '#include "binding.h"\n')
ffi.cdef(CDEF)

if __name__ == "__main__":
    ffi.emit_c_code(sys.argv[1])
