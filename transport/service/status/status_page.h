/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_STATUS_STATUS_PAGE_H
#define MR_TRANSPORT_SERVICE_STATUS_STATUS_PAGE_H
/* The daemons' HTTP status endpoints: /healthz, /metrics (Prometheus), /status.json, and / for
 * people. libmicrohttpd serves them in a separate thread; the daemon makes a report on request, at
 * most twice a second.
 *
 *     browser, Prometheus --> | HTTP thread | --posts "report wanted"--> | the daemon's loop |
 *                             |             | <----- JSON text --------- |                   |
 *
 * HTTP clients cannot slow the daemon down: making the report is all the work it does for them. If
 * the report takes longer than 2 s, the answer is 503.
 *
 * Limits: 64 connections (a new one beyond them replaces the oldest), 10 s for a connection (its
 * request, and reading the answer), one request per connection; GET and HEAD only.
 *
 * The report is a JSON object of tables: an object is one row, an array several. A view selects the
 * fields from which HTML and metrics are made; JSON is the unchanged report.
 *
 * thread   the loop's */
#include <stdbool.h>
#include <stddef.h>
#include "transport/net/loop.h"
#include "transport/wire/handshake.h"

/* How a value is shown to people. */
typedef enum mr__status_kind {
    MR__STATUS_TEXT,
    MR__STATUS_NUMBER,
    MR__STATUS_RATE,     /* per second */
    MR__STATUS_RATIO,    /* in per cent */
    MR__STATUS_BYTES,    /* in units of 1,024 */
    MR__STATUS_DURATION, /* in seconds */
    MR__STATUS_AGO,      /* a point in time, as seconds ago */
    MR__STATUS_YES,      /* a condition */
    MR__STATUS_PROGRESS, /* a part of `of` */
    MR__STATUS_HISTOGRAM /* {"sum": x, "bounds": [...], "counts": [...]}; for metrics alone. The
                          * last count has no bound */
} mr__status_kind;

typedef struct mr__status_field {
    const char *key;   /* NULL ends the list */
    const char *title; /* NULL: not shown to people */
    mr__status_kind kind;
    const char *of; /* PROGRESS: the key of the whole. TEXT with a metric: the metric is 1 if the
                     * value is this text, else 0. */
    const char *metric, *help; /* NULL: none. A metric whose name ends with _total is a counter. */
    bool is_label;             /* a label of the metrics of its table's rows */
} mr__status_field;

typedef struct mr__status_table {
    const char *key;   /* in the report; NULL ends the list */
    const char *title; /* NULL: the figures at the top */
    const char *none;  /* the text shown for an empty table */
    const mr__status_field *fields;
} mr__status_table;

typedef struct mr__status_page mr__status_page;

typedef struct mr__status_page_opts {
    const char *listen; /* HOST:PORT; port 0: a free one */
    /* The daemon itself listens beyond loopback. If it does not, neither may the page, because it
     * may need no token. */
    bool is_public;
    const char *title;              /* "Millrace dispatcher 127.0.0.1:5050" */
    const mr__status_table *tables; /* static */
    mr__loop *loop;
    const mr__tls *tls;     /* serves HTTPS with its certificate; NULL: HTTP */
    const mr__token *token; /* borrowed; required except for /healthz; NULL: none */
    /* Makes the report, in the loop's thread; owned, mr_free. NULL: out of memory. */
    char *(*report)(void *ctx);
    void *ctx;
} mr__status_page_opts;

/* Listens and serves until it is closed; the strings of opts are copied.
 * errors   MR_INVALID_ARGUMENT: an invalid address, or one beyond loopback while !is_public
 *          MR_ALREADY_EXISTS: in use; those of mr__address_resolve; MR_RESOURCE_EXHAUSTED */
mr_code mr__status_page_open(mr__status_page **out, const mr__status_page_opts *opts,
                             mr_status *st) MR_NODISCARD;
const char *mr__status_page_address(const mr__status_page *p); /* as bound */
/* Serves with the new certificate if the files were read again. Call it in the loop's thread. */
void mr__status_page_look(mr__status_page *p);
/* Ends the thread and closes its connections; turns the loop while a request is pending. NULL:
 * nothing. */
void mr__status_page_close(mr__status_page *p);
#endif
