/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRANSPORT_WIRE_MESSAGES_H
#define MR_TRANSPORT_WIRE_MESSAGES_H
/* Converts messages to frames and back, with checks. messages.proto defines the structs.
 *
 * thread   any */
#include <stdbool.h>
#include "pipeline/status.h"
#include "transport/wire/frame.h"
#include "transport/wire/messages.pb-c.h"

/* The protocol's version: both ends of a connection must have the same. */
enum { MR__WIRE_VERSION = 2 };
/* The bytes of a stream's credit that an error uses. */
enum { MR__ERROR_CREDIT = 1024 };
/* The bytes of Job.key. */
enum { MR__JOB_KEY_BYTES = 32 };
/* The most bytes of a name or an address. */
enum { MR__MOST_TEXT = 4096 };

typedef Mr__Wire__Message mr__message;

/* *out (a pointer to the kind's struct) = the message in bytes[0..n); owned, mr__wire_free.
 * errors MR_DATA_LOSS: not a message of this kind; MR_RESOURCE_EXHAUSTED */
mr_code mr__wire_unpack(const ProtobufCMessageDescriptor *kind, const void *bytes, size_t n,
                        void *out, mr_status *st) MR_NODISCARD;
void mr__wire_free(void *m); /* NULL: nothing */
/* *out (a pointer to the same struct) = a copy of m; mr__wire_free. errors MR_RESOURCE_EXHAUSTED */
mr_code mr__wire_copy(const ProtobufCMessage *m, void *out, mr_status *st) MR_NODISCARD;

/* *frame = m as a whole frame; owned, mr_free. errors MR_RESOURCE_EXHAUSTED: memory, or more than
 * MR__FRAME_MOST_HEAD bytes */
mr_code mr__message_pack(const mr__message *m, void **frame, size_t *bytes,
                         mr_status *st) MR_NODISCARD;
/* *out = the message in a frame's head; mr__message_free. Its fields are within their ranges.
 * errors   MR_DATA_LOSS: not a message, or not valid in this version
 *          MR_RESOURCE_EXHAUSTED */
mr_code mr__message_unpack(const void *head, size_t bytes, mr__message **out,
                           mr_status *st) MR_NODISCARD;
void mr__message_free(mr__message *m); /* NULL: nothing */

/* Converts a status to its wire form (`out` borrows from st) and back; an unknown code becomes
 * MR_UNKNOWN. */
void mr__status_to_wire(const mr_status *st, Mr__Wire__Status *out);
void mr__status_from_wire(const Mr__Wire__Status *in, mr_status *st);
#endif
