/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_SERVICE_NOTE_H
#define MR_TRANSPORT_SERVICE_NOTE_H
/* What a state machine says for people: it does no I/O, so its driver gets the line. */
#include "pipeline/log.h"

typedef void (*mr__note_fn)(void *ctx, mr_log_level level, const char *line);

/* Gives `to` the line, of 511 bytes at most. */
void mr__note(mr__note_fn to, void *ctx, mr_log_level level, const char *fmt, ...) MR_PRINTF(4, 5);
#endif
