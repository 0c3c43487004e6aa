/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_NET_LOOKUP_H
#define MR_TRANSPORT_NET_LOOKUP_H
/* mr__address_resolve for a loop: names are resolved in a thread.
 *
 * thread   the loop's */
#include "transport/net/errand.h"

typedef struct mr__lookup mr__lookup;
typedef void (*mr__lookup_done)(void *ctx, const mr__address *to, const mr_status *why);

/* Later calls done with the address of text, or with NULL and the error; that ends the lookup.
 * errors MR_RESOURCE_EXHAUSTED: done is not called */
mr_code mr__lookup_start(mr__lookup **out, mr__loop *l, const char *text, mr__lookup_done done,
                         void *ctx, mr_status *st) MR_NODISCARD;
/* As mr__errand_abandon. */
void mr__lookup_abandon(mr__lookup *k);
#endif
