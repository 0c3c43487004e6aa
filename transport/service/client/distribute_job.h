/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_DISTRIBUTE_JOB_H
#define MR_TRANSPORT_SERVICE_DISTRIBUTE_JOB_H
/* The parameters of distribute, and the job that they ask for. */
#include "pipeline/graph/op.h"
#include "transport/service/service.h"
#include "transport/wire/messages.h"

/* Of timeouts that are not given, in seconds. */
#define MR__CONNECT_TIMEOUT 60.0
#define MR__CLIENT_TIMEOUT  30.0

typedef struct mr__distribute_params {
    char *service;
    mr_service_opts o;
    char *dataset_id; /* of distributed_dataset, which has no input */
} mr__distribute_params;

extern const mr_param mr__distribute_table[];
extern const mr_op mr_op_distribute, mr_op_distributed_dataset;

/* *out = what the streams of the op ds are made of; borrowed. errors where it is asked for */
mr_code mr__distribute_below(const mr_dataset *ds, mr_dataset **out, mr_status *st) MR_NODISCARD;
/* What the table cannot say. */
mr_code mr__distribute_check(const void *params, mr_status *st) MR_NODISCARD;
/* *out = the job that p asks for of ds, the op's input; not final yet. seed, function_seed: where p
 * has none.
 * errors   as mr__job_new; MR_UNIMPLEMENTED: what this version has not */
mr_code mr__distribute_job(const mr__distribute_params *p, mr_dataset *ds, uint64_t seed,
                           uint64_t function_seed, uint64_t repetition, Mr__Wire__Job **out,
                           mr_status *st) MR_NODISCARD;
/* Makes *job final in this process. */
mr_code mr__distribute_finish(Mr__Wire__Job **job, mr_status *st) MR_NODISCARD;
/* The streams run in this process. */
bool mr__distribute_is_local(const mr__distribute_params *p);
/* Whether this consumer reads stream s. */
bool mr__distribute_reads(const mr__distribute_params *p, uint32_t s);
/* Number of elements over the streams that this consumer reads. in: of the input. */
int64_t mr__distribute_cardinality(const mr_dataset *self, const void *params, const int64_t *in);
/* Where the streams run in this process, as many copies of the input; else two blocks of each, one
 * that comes and one that is read. */
void mr__distribute_needs(const mr_dataset *self, const void *params, int64_t *copies,
                          int64_t *blocks);
#endif
