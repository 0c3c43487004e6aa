/* SPDX-License-Identifier: Apache-2.0 */
#include <protobuf-c/protobuf-c.h>

#include "pipeline/system/late_library.h"

#define PROTOBUF(X)                                                                                \
    X(protobuf_c_message_free_unpacked)                                                            \
    X(protobuf_c_message_get_packed_size)                                                          \
    X(protobuf_c_message_pack)                                                                     \
    X(protobuf_c_message_pack_to_buffer)                                                           \
    X(protobuf_c_message_unpack)
static struct {
    PROTOBUF(MR__LATE_MEMBER)
} protobuf;
static mr__late_library library =
    MR__LATE_LIBRARY("the protobuf form of graphs is read and written", "libprotobuf-c.so.1",
                     "libprotobuf-c1", PROTOBUF, protobuf);

/* libprotobuf.h redirects generated code to these; it is not included here, where the library's
 * names are needed. */
mr_code mr__protobuf_need(mr_status *st) MR_NODISCARD;
void mr__protobuf_free_unpacked(ProtobufCMessage *message, ProtobufCAllocator *allocator);
size_t mr__protobuf_get_packed_size(const ProtobufCMessage *message);
size_t mr__protobuf_pack(const ProtobufCMessage *message, uint8_t *out);
size_t mr__protobuf_pack_to_buffer(const ProtobufCMessage *message, ProtobufCBuffer *buffer);
ProtobufCMessage *mr__protobuf_unpack(const ProtobufCMessageDescriptor *descriptor,
                                      ProtobufCAllocator *allocator, size_t size,
                                      const uint8_t *data);
extern const char mr__protobuf_empty_string[1];

const char mr__protobuf_empty_string[1] = "";

mr_code mr__protobuf_need(mr_status *st)
{
    return mr__late_library_need(&library, st);
}

void mr__protobuf_free_unpacked(ProtobufCMessage *message, ProtobufCAllocator *allocator)
{
    protobuf.protobuf_c_message_free_unpacked(message, allocator);
}

size_t mr__protobuf_get_packed_size(const ProtobufCMessage *message)
{
    return protobuf.protobuf_c_message_get_packed_size(message);
}

size_t mr__protobuf_pack(const ProtobufCMessage *message, uint8_t *out)
{
    return protobuf.protobuf_c_message_pack(message, out);
}

size_t mr__protobuf_pack_to_buffer(const ProtobufCMessage *message, ProtobufCBuffer *buffer)
{
    return protobuf.protobuf_c_message_pack_to_buffer(message, buffer);
}

ProtobufCMessage *mr__protobuf_unpack(const ProtobufCMessageDescriptor *descriptor,
                                      ProtobufCAllocator *allocator, size_t size,
                                      const uint8_t *data)
{
    return protobuf.protobuf_c_message_unpack(descriptor, allocator, size, data);
}
