/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_WAIT_CANCEL_INTERNAL_H
#define MR_PIPELINE_WAIT_CANCEL_INTERNAL_H
/* What iterators do with cancel objects, those of shard/ too. */
#include "pipeline/wait/cancel.h"

/* Makes c as it was before it was triggered, unless its parent was. Nothing waits on it. */
void mr__cancel_forget(mr_cancel *c);
/* That of mr_cancel_set_thread or, in calls of an op, of the iterator. NULL: none. */
mr_cancel *mr__cancel_of_thread(void);
#endif
