/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_REGISTERED_H
#define MR_TRANSPORT_SERVICE_REGISTERED_H
/* Datasets that a service knows by an id ('millrace service register'). An id stands for one graph
 * for ever, so that it is asked for once a process.
 *
 * thread   any */
#include "transport/service/client/distribute_job.h"

/* *out = the dataset p->dataset_id of the service, borrowed: it is kept until the process ends.
 * Waits for the dispatcher.
 * errors   those of mr__ask; MR_NOT_FOUND: there is none of that id; what the graph carries */
mr_code mr__registered_dataset(const mr__distribute_params *p, mr_dataset **out,
                               mr_status *st) MR_NODISCARD;
#endif
