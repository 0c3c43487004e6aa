/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_STREAMS_ELEMENTS_GRAPH_URLS_H
#define MR_PIPELINE_STREAMS_ELEMENTS_GRAPH_URLS_H
/* The http and https URLs of a graph by what is stored of them (mr_text_drop_secrets), so that an
 * object that was read with one signature can be looked at with another one.
 *
 * thread   one at a time per object */
#include "pipeline/graph/dataset.h"

typedef struct mr__graph_url {
    char *stored, *url;
} mr__graph_url;

/* Zeroed memory has none. */
typedef struct mr__graph_urls {
    mr__graph_url *v; /* by `stored` */
    size_t n, room;
} mr__graph_urls;

/* A graph without a text form has none; ds may be NULL. *out is zeroed before.
 * errors   MR_RESOURCE_EXHAUSTED */
mr_code mr__graph_urls_of(const mr_dataset *ds, mr__graph_urls *out, mr_status *st) MR_NODISCARD;
void mr__graph_urls_reset(mr__graph_urls *u);
/* The URL of a stored name, or else the name; borrowed. */
const char *mr__graph_urls_find(const mr__graph_urls *u, const char *stored);
#endif
