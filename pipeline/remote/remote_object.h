/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_REMOTE_OBJECT_H
#define MR_PIPELINE_REMOTE_REMOTE_OBJECT_H
/* A remote object: its URL, how its store is asked for it, and what is known of it.
 *
 * An object is read as it was when it was listed or first answered for. Listings remember size and
 * ETag of each object for the whole process, so that a listed object is opened without a request.
 *
 * thread   any; `info` is written once, before `known` is set */
#include <stdatomic.h>
#include <stdint.h>

#include "pipeline/remote/access.h"
#include "pipeline/remote/url.h"
#include "pipeline/wait/cancel_internal.h"

/* Begins what identifies an object of Google's without an ETag, in its place: its generation. */
#define MR__GENERATION "generation "

/* What identifies the contents of an object. */
typedef struct mr__object_info {
    int64_t size;      /* -1: unknown */
    char etag[136];    /* with its quotes; "": none */
    char modified[40]; /* as the server writes it; "": none */
    bool ranges;       /* the server sends parts */
} mr__object_info;

/* A request as the store wants it. */
typedef struct mr__object_target {
    char *url;
    char *user;          /* "ID:SECRET", for signing; NULL: none */
    char *token;         /* session token; NULL: none. Without signs: the bearer's */
    char *region;        /* of the signature; "" for none */
    char *origin;        /* the source of the credentials, for messages; NULL: none */
    const char *tried;   /* sources that have none, for messages; static; NULL: not known */
    bool signs;          /* with AWS's signature, version 4 */
    bool redirects;      /* are followed */
    mr__access *access;  /* that renews user and token; NULL: nothing does */
    unsigned generation; /* of user and token */
} mr__object_target;

typedef struct mr__object {
    atomic_uint refs;
    char *url;
    mr__url_kind kind;
    bool whole;   /* a document: read from its beginning, without ranges and conditions */
    bool of_key;  /* a request for the object with `query`, instead of reading it */
    char *query;  /* NULL: none */
    bool guarded; /* only from addresses that the roots allow (url_roots_internal.h) */
    char *link;   /* of a document: the header Link; NULL: none */
    mr__object_target target;
    atomic_bool known;
    mr__object_info info;
    uint64_t mark; /* mr__object_mark */
} mr__object;

/* The store is not asked, but credentials and, with a hub, the revision may be. Returns owned.
 * errors   MR_INVALID_ARGUMENT: not a URL of an object; MR_PERMISSION_DENIED: no credentials;
 *          MR_CANCELLED; MR_RESOURCE_EXHAUSTED; with the URL */
mr_code mr__object_open(mr__object **out, const char *url, mr_status *st) MR_NODISCARD;
/* A listing of the bucket of an s3 or gs URL. query: sorted and encoded. */
mr_code mr__object_open_listing(mr__object **out, const char *url, const char *query,
                                mr_status *st) MR_NODISCARD;
/* A document of the hub of an hf URL, at an address. */
mr_code mr__object_open_document(mr__object **out, const char *url, const char *address,
                                 mr_status *st) MR_NODISCARD;
/* Requests for an object that do not read it. query: sorted and encoded, or NULL; copied. */
mr_code mr__object_open_request(mr__object **out, const char *url, const char *query,
                                mr_status *st) MR_NODISCARD;
/* Appends the query to the URL of the target. */
mr_code mr__object_add_query(mr__object *o, mr_status *st) MR_NODISCARD;
mr__object *mr__object_ref(mr__object *o);
void mr__object_unref(mr__object *o); /* NULL: no-op */

/* Remembers a listed object, instead of what is known of that URL. */
mr_code mr__object_remember(const char *url, int64_t size, const char *etag,
                            mr_status *st) MR_NODISCARD;
/* Forgets it: the object is another one now, or gone. */
void mr__object_forget(const char *url);
/* For an object that no listing had: its info, which was set, is known from now on. */
void mr__object_set_known(mr__object *o);
/* A hash of its ETag, or else time, and size. 0: not known, or a listed object, whose listing is
 * compared instead. */
uint64_t mr__object_mark(const mr__object *o);
/* The message for an object that has another mark than before. */
#define MR__REPLACED_WHILE_OPEN                                                                    \
    "the object has been replaced since it was listed or opened; start over to read the new one"
/* What a listing said of the object. */
bool mr__object_recall(const char *url, mr__object_info *out);
#endif
