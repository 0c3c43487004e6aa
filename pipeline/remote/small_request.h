/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_SMALL_REQUEST_H
#define MR_PIPELINE_REMOTE_SMALL_REQUEST_H
/* A request with a small answer, such as one for credentials, made in the calling thread.
 *
 * thread   any */
#include <stdint.h>

#include "pipeline/memory/alloc.h"

enum { MR__MOST_HEADERS = 4 };

typedef struct mr__small_request {
    const char *url;
    const char *method;                    /* NULL: GET, or POST if there is a body */
    const char *body;                      /* of a form; NULL: none */
    const char *headers[MR__MOST_HEADERS]; /* "Name: value"; the first NULL ends them */
    const char *user, *signature; /* "ID:SECRET" and "aws:amz:REGION:SERVICE"; NULL: not signed */
    const char *authorities;      /* file of certificates; NULL: those of the system */
    int64_t limit_ms;             /* for the whole try */
    int tries;   /* more than 1: repeated after failures of the network and answers 429 and 5xx */
    bool direct; /* through no proxy */
    bool redirects;           /* are followed; other hosts get no Authorization */
    bool (*stops)(void *ctx); /* true: give up; called every 50 ms */
    void *ctx;
} mr__small_request;

typedef struct mr__small_answer {
    long status;
    char *text; /* NUL-terminated, for mr__small_answer_reset */
    size_t size;
    bool of_google;                   /* it has the header Metadata-Flavor: Google */
    char code[48], said[160], id[64]; /* X-Error-Code, X-Error-Message, X-Request-Id; "": none */
} mr__small_answer;

/* Any status is an answer.
 * errors   MR_UNAVAILABLE: none came; MR_FAILED_PRECONDITION: the server's certificate;
 *          MR_CANCELLED: stops; MR_OUT_OF_RANGE: more than 1 MiB; MR_RESOURCE_EXHAUSTED;
 *          MR_NOT_FOUND, MR_UNIMPLEMENTED: no libcurl. Messages have no part of the request */
mr_code mr__small_request_send(const mr__small_request *r, mr__small_answer *out,
                               mr_status *st) MR_NODISCARD;
void mr__small_answer_reset(mr__small_answer *a);
#endif
