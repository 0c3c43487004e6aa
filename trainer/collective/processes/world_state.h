/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_CLUSTER_WORLD_STATE_H
#define MR_TRAINER_CLUSTER_WORLD_STATE_H
/* Inside of a world: its peers, and what is on its way to them. Private to world.c (all but claims)
 * and claims.c. The thread's own is what is not said to be under the lock. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>
#include "trainer/collective/processes/world.h"
#include "transport/net/loop.h"

enum { MR__MAX_WORDS = 4096 };

/* A peer that has all values of one exchange may begin the next, so there are two at a time. */
enum { MR__ROUNDS = 2 };

/* Claims that others may still ask about; of a peer, those that came last. It waits where it is not
 * sure, so that one or two of them are still wanted. */
enum { MR__CLAIMS = 1024, MR__CLAIMS_CAME = 16 };

typedef struct mr__values {
    bool there;
    uint32_t n;
    double v[MR__MAX_VALUES];
} mr__values;

typedef struct mr__claim {
    uint64_t number; /* plus 1; 0: there is none */
    bool said;
    int64_t step;
    char what[MR__MAX_CLAIM];
} mr__claim;

/* This process's part of an exchange, or a claim, until it is sent to all. */
typedef struct mr__round {
    mr__posted post;
    struct mr__round *next; /* of claims */
    mr__world *w;
    mr__saying out;
    struct iovec v;
    mr__send *sends; /* one a peer */
    uint32_t unsent;
    bool posted;
} mr__round;

typedef struct mr__peer {
    mr__world *w;
    uint32_t rank;
    mr__socket socket;
    bool open, left; /* left: it said good-bye */
    int64_t heard_ns;
    unsigned char head[MR__HEAD_BYTES], payload[MR__MAX_WORDS];
    bool has_head;
    size_t got, bytes;
    mr__word word;
    mr__send alive, last; /* last: good-bye, or what ended us */
    bool alive_queued;
    struct iovec alive_v, last_v;
    mr__values came[MR__CHANNELS][MR__ROUNDS]; /* under the lock */
    bool gone;                                 /* under the lock: it gives no more */
    mr__claim claims[MR__CLAIMS_CAME];         /* under the lock */
    uint64_t n_claims;                         /* under the lock: that came */
    uint64_t numbers[MR__CHANNELS];            /* exchanges that came */
} mr__peer;

struct mr__world {
    mr__met met;
    mr__peer *peers;   /* by rank; this process's is unused */
    mr_cancel *cancel; /* looked at with each beat; NULL: none */
    double timeout_s;
    int64_t beat_ns, last_beat_ns;
    mr__loop *loop;
    mr__timer timer;
    mr__saying alive, last;
    uint32_t n_open;
    bool ending; /* the last words were said */
    bool loop_failed;
    pthread_t thread;
    bool has_thread;
    mr__posted wake;
    _Atomic int64_t step;
    _Atomic bool failed;
    _Atomic bool is_short; /* a peer is gone */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    mr__round rounds[MR__CHANNELS][MR__ROUNDS];
    uint64_t numbers[MR__CHANNELS]; /* exchanges begun here */
    bool posted, closing;           /* under the lock, as all that follows */
    uint64_t n_claims;
    mr__claim claims[MR__CLAIMS];
    mr__round *said;        /* claims on their way, and those that were */
    mr_status failure;      /* for this process */
    mr_status for_the_rest; /* the same as the others shall read it */
    struct {
        void (*fn)(void *ctx); /* NULL: nobody */
        void *ctx;
    } on_end[MR__PARTS];
};

/* ---- world.c, for claims.c ---- */

/* Under the lock: only the first failure counts, the others follow from it. */
void mr__world_fail(mr__world *w, const mr_status *mine, const mr_status *theirs);
/* Under the lock: a rank that said good-bye is still needed, at the step under way. */
void mr__world_ended(mr__world *w, uint32_t rank);
/* "rank 2 (c:5000)" */
void mr__world_name(const mr__world *w, uint32_t rank, char *out, size_t size);
/* A round that is empty; the world frees what it has. */
mr_code mr__round_init(mr__world *w, mr__round *r, mr_status *st) MR_NODISCARD;
void mr__round_reset(mr__round *r);

/* ---- claims.c, for world.c ---- */

/* In the thread: answers a claim that this process has made too; else keeps it until then. False:
 * it cannot be read, or be compared any more. */
bool mr__claim_take(mr__peer *p) MR_NODISCARD;
void mr__claims_reset(mr__world *w);
#endif
