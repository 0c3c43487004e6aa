/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_TRANSFER_INTERNAL_H
#define MR_PIPELINE_REMOTE_TRANSFER_INTERNAL_H
/* A transfer as its files see it. It is made of tries, each a request of libcurl's:
 *
 *     transfer.c            the thread, and the reader's side
 *     transfer_try.c        begins a request, and sends
 *     transfer_receive.c    what libcurl calls with the answer: its head is compared with what is
 *                           known of the object, its body goes to slots
 *     transfer_outcome.c    the end of a request: done, another try later, or an error
 *
 * thread   that of all transfers, except for what says otherwise */
#define CURL_DISABLE_TYPECHECK /* its macros do not work with a table of functions */
#include <curl/curl.h>
#include <string.h>

#include "pipeline/remote/host_counters.h"
#include "pipeline/remote/transfer.h"
#include "pipeline/system/late_library.h"
#include "pipeline/system/system.h"

#define MR__CURL(X)                                                                                \
    X(curl_global_init)                                                                            \
    X(curl_multi_init)                                                                             \
    X(curl_multi_setopt)                                                                           \
    X(curl_multi_add_handle)                                                                       \
    X(curl_multi_remove_handle)                                                                    \
    X(curl_multi_perform)                                                                          \
    X(curl_multi_poll)                                                                             \
    X(curl_multi_wakeup)                                                                           \
    X(curl_multi_info_read)                                                                        \
    X(curl_multi_strerror)                                                                         \
    X(curl_multi_cleanup)                                                                          \
    X(curl_easy_init)                                                                              \
    X(curl_easy_setopt)                                                                            \
    X(curl_easy_getinfo)                                                                           \
    X(curl_easy_cleanup)                                                                           \
    X(curl_easy_pause)                                                                             \
    X(curl_easy_strerror)                                                                          \
    X(curl_slist_append)                                                                           \
    X(curl_slist_free_all)
typedef struct mr__curl_functions {
    MR__CURL(MR__LATE_MEMBER)
} mr__curl_functions;
extern mr__curl_functions mr__curl;

enum {
    MR__RING = 32, /* slots of a transfer that have not been taken; a range of 8 MiB has 16 */
    MR__FEW = 4,   /* the same, if there is little memory */
    MR__MOST_ANSWER = 8192, /* of the document of an error */
    MR__MOST_REDIRECTS = 10
};
#define MR__SECOND INT64_C(1000000000)

/* What is wrong with an answer although HTTP is satisfied. */
typedef enum verdict {
    GOOD,
    CHANGED,
    OTHER_RANGE,
    OTHER_LENGTH, /* than that of its range */
    NO_TOTAL,     /* a range of an object whose size is not known */
    TOO_LONG,
    NO_MEMORY
} verdict;

struct mr__transfer {
    atomic_uint refs; /* the reader's and the thread's */
    atomic_uint word; /* changes with what the reader waits for; see mr__wait_while */
    mr__object *object;
    int64_t from, to; /* to -1: the end */
    size_t headroom, room;
    /* slots [taken, filled) modulo MR__RING can be taken */
    mr_buffer *slots[MR__RING];
    size_t sizes[MR__RING];
    atomic_uint filled, taken;
    atomic_bool dropped, paused, done;
    mr_status why; /* once done; code MR_OK: all has arrived */

    /* the thread's */
    mr__transfer *next, *prev; /* of the list of all, or of the arriving ones */
    CURLM *multi;              /* of the thread */
    CURL *easy;                /* NULL: not running */
    mr__host *host;            /* of the target */
    struct curl_slist *headers;
    mr_buffer *slot; /* being filled */
    size_t used;
    int64_t received; /* bytes that arrived, in all tries */
    int64_t last_byte_at, begin_at;
    int64_t begun_at; /* of the try; 0: it had a connection */
    int most_tries;   /* without a new byte */
    bool limited;     /* the reader has a memory limit */
    int tries, moves; /* tries since the last new byte */
    bool renewed;     /* other credentials were asked for since then */
    bool waits;       /* for them */
    bool whole;       /* no range is asked for */

    /* of the answer */
    bool judged, is_range;
    verdict verdict;
    int64_t skip;               /* bytes of a whole body before the first wanted one */
    int64_t first, last, total; /* Content-Range, or -1 */
    int64_t length;             /* Content-Length, or -1 */
    mr__object_info info;
    char region[64], id[128];
    char code[48], said[160];       /* the hub's error */
    char document[MR__MOST_ANSWER]; /* of an error */
    size_t n_document;

    mr__request request; /* method NULL: bytes are read */
    char mark[MR__MARK_SIZE];
    size_t sent;   /* of its body */
    bool shut_out; /* the server's address is not one that a worker connects to */
    int no_socket; /* errno of a socket that was not made, where none was; or 0 */
    bool had_socket;
    mr__answer answer;
};

static inline bool mr__try_is_head(const mr__transfer *t)
{
    return t->request.method && strcmp(t->request.method, "HEAD") == 0;
}

static inline bool mr__try_is_good(const mr__transfer *t, long status)
{
    return status == 200 || status == 206 || (t->request.method && status == 204);
}

static inline long mr__try_status(const mr__transfer *t)
{
    long v = 0;
    mr__curl.curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &v);
    return v;
}

static inline bool mr__is_generation(const char *etag)
{
    return strncmp(etag, MR__GENERATION, sizeof MR__GENERATION - 1) == 0;
}

/* Sequentially consistent with `paused`: either the thread sees that a slot was taken, or the
 * reader that the transfer waits. */
static inline size_t mr__try_free_slots(const mr__transfer *t)
{
    return MR__RING -
           (atomic_load_explicit(&t->filled, memory_order_relaxed) - atomic_load(&t->taken));
}

extern atomic_int_fast64_t mr__transfer_held; /* bytes in slots of all transfers */

/* ---- transfer_receive.c ---- */

/* Wakes the reader. */
void mr__try_notify(mr__transfer *t);
/* Hands the slot to the reader. */
void mr__try_emit(mr__transfer *t);
/* The next chunk may be received. */
bool mr__try_has_room(const mr__transfer *t);
void mr__try_forget_answer(mr__transfer *t);
/* Checks the head of a good answer, before its first byte or, without a body, at its end. */
bool mr__try_judge(mr__transfer *t);
/* Compares the answer with what is known of the object, or makes that known. */
bool mr__try_judge_object(mr__transfer *t);
/* For libcurl; ctx: the transfer. */
size_t mr__try_on_body(char *p, size_t size, size_t count, void *ctx);
size_t mr__try_on_header(char *line, size_t size, size_t count, void *ctx);

/* ---- transfer_try.c ---- */

/* If that fails, the transfer is finished. */
void mr__try_begin(mr__transfer *t);
void mr__try_stop(mr__transfer *t); /* none runs: no-op */
/* Counts a try that has ended. */
void mr__try_count(const mr__transfer *t);
/* Ends the transfer: MR_OK, or the code of t->why. */
void mr__try_finish(mr__transfer *t, mr_code rc);

/* ---- transfer_outcome.c ---- */

/* libcurl has ended the try. */
void mr__try_end(mr__transfer *t, CURLcode rc);
/* Another try follows later, or t->why, which is set, becomes the transfer's error. */
void mr__try_retry(mr__transfer *t);
/* Begins again once the credentials have been renewed. */
void mr__try_look_at_renewal(mr__transfer *t);
#endif
