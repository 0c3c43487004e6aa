/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_STATUS_PAGE_H
#define MR_TRANSPORT_SERVICE_STATUS_PAGE_H
/* What a daemon shows of itself over HTTP: /healthz, /metrics (Prometheus), /status.json, and / for
 * people. libmicrohttpd serves it in a thread of its own; the daemon gives a report when one is
 * wanted, at most twice a second.
 *
 *     browser, Prometheus --> | HTTP thread | --posts "report wanted"--> | the daemon's loop |
 *                             |             | <----- JSON text --------- |                   |
 *
 * Nobody there can slow the daemon: the report is all that it does for them. A report that does not
 * come within 2 s is an answer too: 503.
 *
 * Limits: 64 connections (a newcomer beyond them takes the place of the oldest), 10 s for a
 * request, 30 s for an answer, one request a connection; GET and HEAD only.
 *
 * The report is a JSON object of tables: an object is one row, an array several. A view names what
 * is shown of them: HTML and metrics are made from it, JSON is the report as it is.
 *
 * thread   the loop's */
#include <stdbool.h>
#include <stddef.h>
#include "transport/net/loop.h"

/* How people read a value. */
typedef enum mr__status_kind {
    MR__STATUS_TEXT,
    MR__STATUS_NUMBER,
    MR__STATUS_RATE,     /* a second */
    MR__STATUS_BYTES,    /* in units of 1,024 */
    MR__STATUS_DURATION, /* in seconds */
    MR__STATUS_AGO,      /* a time so many seconds ago */
    MR__STATUS_YES,      /* a condition */
    MR__STATUS_PROGRESS  /* so many of `of` */
} mr__status_kind;

typedef struct mr__status_field {
    const char *key;   /* NULL ends the list */
    const char *title; /* NULL: not shown to people */
    mr__status_kind kind;
    const char *of; /* PROGRESS: the key of the whole. TEXT with a metric: the text for which it is
                     * 1, else it is 0. */
    const char *metric, *help; /* NULL: none. One whose name ends with _total is a counter. */
    bool is_label;             /* of the metrics of its table's rows */
} mr__status_field;

typedef struct mr__status_table {
    const char *key;   /* in the report; NULL ends the list */
    const char *title; /* NULL: the figures at the top */
    const char *none;  /* what is said of an empty one */
    const mr__status_field *fields;
} mr__status_table;

typedef struct mr__status_page mr__status_page;

typedef struct mr__status_page_opts {
    const char *listen; /* HOST:PORT; port 0: a free one */
    /* The daemon itself listens beyond loopback. The page needs no token, so without this it does
     * not either. */
    bool is_public;
    const char *title;              /* "Millrace dispatcher 127.0.0.1:5050" */
    const mr__status_table *tables; /* static */
    mr__loop *loop;
    /* The report; in the loop's thread; owned, mr_free. NULL: no memory. */
    char *(*report)(void *ctx);
    void *ctx;
} mr__status_page_opts;

/* Listens and serves until it is closed; the texts of opts are copied.
 * errors   MR_INVALID_ARGUMENT: an address that is none, or beyond loopback while !is_public
 *          MR_ALREADY_EXISTS: in use; those of mr__address_resolve; MR_RESOURCE_EXHAUSTED */
mr_code mr__status_page_open(mr__status_page **out, const mr__status_page_opts *opts,
                             mr_status *st) MR_NODISCARD;
const char *mr__status_page_address(const mr__status_page *p); /* as bound */
/* Ends the thread and closes its connections; turns the loop where a request is on its way. NULL:
 * nothing. */
void mr__status_page_close(mr__status_page *p);
#endif
