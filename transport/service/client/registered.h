/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_CLIENT_REGISTERED_H
#define MR_TRANSPORT_SERVICE_CLIENT_REGISTERED_H
/* Datasets that a service knows by an id ('millrace service register'). The graph of an id never
 * changes, so it is fetched once per process.
 *
 * thread   any */
#include "pipeline/graph/dataset.h"
#include "transport/wire/tls.h"

/* *out = dataset `id` of the service at HOST:PORT, and *directory = that of its relative file names
 * (NULL: unknown), both borrowed: they are kept until the process ends.
 * Waits up to `timeout` seconds for the dispatcher.
 * errors   those of mr__request; MR_NOT_FOUND: no dataset has that id; what the graph carries */
mr_code mr__registered_dataset(const char *service, const char *id, double timeout,
                               const mr_tls_opts *tls, mr_dataset **out, const char **directory,
                               mr_status *st) MR_NODISCARD;
#endif
