/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a safetensors file: what is accepted can be read to its last value. */
#include "trainer/files/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    mr_safetensors *f;
    unsigned sum = 0;
    if (mr_safetensors_parse(&f, data, size, NULL) != MR_OK)
        return 0;
    for (size_t i = 0; i < mr_safetensors_count(f); i++) {
        const mr_named_tensor *t = mr_safetensors_at(f, i);
        const unsigned char *bytes = t->data;
        for (uint64_t k = 0; k < mr_named_tensor_bytes(t); k++)
            sum += bytes[k];
        if (mr_safetensors_find(f, t->name) != t)
            __builtin_trap();
    }
    mr_safetensors_close(f);
    return sum == 1;
}
