/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_LIBPROTOBUF_H
#define MR_PIPELINE_GRAPH_LIBPROTOBUF_H
/* protobuf-c, loaded when the first message is read or written. These macros redirect the calls in
 * generated code to functions that load it: include this before a generated header. */
#define protobuf_c_empty_string            mr__protobuf_empty_string
#define protobuf_c_message_free_unpacked   mr__protobuf_free_unpacked
#define protobuf_c_message_get_packed_size mr__protobuf_get_packed_size
#define protobuf_c_message_pack            mr__protobuf_pack
#define protobuf_c_message_pack_to_buffer  mr__protobuf_pack_to_buffer
#define protobuf_c_message_unpack          mr__protobuf_unpack
#include <protobuf-c/protobuf-c.h>

#include "pipeline/status.h"

/* Loads the library; to be called before any of its functions.
 * errors   MR_NOT_FOUND: not installed; MR_FAILED_PRECONDITION: it lacks a function
 * thread   any */
mr_code mr__protobuf_need(mr_status *st) MR_NODISCARD;
#endif
