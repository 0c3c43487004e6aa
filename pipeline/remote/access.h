/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_REMOTE_ACCESS_H
#define MR_PIPELINE_REMOTE_ACCESS_H
/* Credentials that end and are renewed, one entry a source in the whole process.
 *
 *     readers    get: waits until the source has answered once ...... renew, after 401 or 403
 *     its thread fetch ........................ fetch, five minutes before they end
 *     transfers                take              take        take
 *
 * Each entry has a separate thread while its source is asked, or is to be asked again: one that
 * stalls delays no other. Entries live as long as the process.
 *
 * thread   any; waits with mr__cancel_of_thread */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pipeline/memory/alloc.h"

enum { MR__ACCESS_ARGUMENTS = 6 };

/* What a source has. The parts are owned; see mr__credentials_reset. */
typedef struct mr__credentials {
    char *id, *secret;  /* of a signature; NULL: none */
    char *token;        /* of the session, or the bearer's; NULL: none */
    int64_t ends_at;    /* in nanoseconds since 1970; 0: they do not end */
    const char *origin; /* the source, for messages; static */
} mr__credentials;

void mr__credentials_reset(mr__credentials *c);
mr_code mr__credentials_copy(mr__credentials *out, const mr__credentials *from,
                             mr_status *st) MR_NODISCARD;

/* Asks a source. The arguments are those of mr__access_get. It stops when mr__access_stops.
 * errors   MR_NOT_FOUND: there is no such source here, and why; others: the source has failed */
typedef mr_code (*mr__access_fetch)(char *const *arguments, mr__credentials *out, mr_status *st);
bool mr__access_stops(void *ctx);

typedef struct mr__access mr__access;

/* The entry of fetch with these arguments (NULL: none), once it has credentials. A source that is
 * not there is asked again after a minute, and one that failed after two seconds.
 * errors   those of fetch; MR_CANCELLED; MR_RESOURCE_EXHAUSTED */
mr_code mr__access_get(mr__access **out, mr__access_fetch fetch, const char *const *arguments,
                       mr_status *st) MR_NODISCARD;
/* The same for credentials that the caller has fetched, *now, which are copied. */
mr_code mr__access_put(mr__access **out, mr__access_fetch fetch, const char *const *arguments,
                       const mr__credentials *now, mr_status *st) MR_NODISCARD;
void mr__access_unref(mr__access *a); /* NULL: no-op */

/* Copies the credentials, unless *generation says that the caller has them (MR_END). */
mr_code mr__access_take(mr__access *a, unsigned *generation, mr__credentials *out,
                        mr_status *st) MR_NODISCARD;
/* Asks for other credentials than those of that generation, which a server did not accept. */
void mr__access_renew(mr__access *a, unsigned generation);
/* MR_OK: there are other credentials than those of that generation. MR_END: not yet. Else the
 * source has failed; MR_NOT_FOUND: it has the same ones. */
mr_code mr__access_renewal(mr__access *a, unsigned generation, mr_status *st) MR_NODISCARD;

/* From now on, `changed` is called after each request for credentials, in the thread that made it.
 * It is always the same function. */
void mr__access_watch(void (*changed)(void));

/* Time of a text like 2024-01-31T12:00:00Z in nanoseconds since 1970. false: it is not one. */
bool mr__time_of_text(const char *text, int64_t *out);
#endif
