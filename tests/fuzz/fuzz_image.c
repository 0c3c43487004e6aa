/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a JPEG or PNG image. Byte 0 of the input chooses the channels, the ratio, the depth
 * and whether the image is turned. */
#include <stdint.h>
#include <stdlib.h>

#include "pipeline/formats/images/image_codec.h"
#include "tests/fuzz/small_memory.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A mutated header asks for more pixels than there is time for. */
enum { MOST = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    small_memory();
    mr__image_decoder d = {.orient = data[0] & 32, .wide = data[0] & 64};
    mr__image_info info;
    mr_status st;
    uint64_t sum = 0;
    mr_code rc = mr__image_header(&d, MR__IMAGE_ANY, data + 1, size - 1, 0, &info, &st);
    if (rc == MR_OK) {
        bool png = info.format == MR__IMAGE_PNG;
        if (data[0] & 4)
            info.channels = png ? 1 + (data[0] & 3) : data[0] & 1 ? 3 : 1;
        mr__image_shrink(&info, 1 << (data[0] >> 3 & 3));
        size_t bytes = mr__image_bytes(&info);
        unsigned char *pixels = bytes <= MOST ? malloc(bytes ? bytes : 1) : NULL;
        if (pixels) {
            rc = mr__image_decode(&d, &info, data + 1, size - 1, pixels, &st);
            for (size_t i = 0; rc == MR_OK && i < bytes; i++)
                sum += pixels[i];
        }
        free(pixels);
    }
    if (rc != MR_OK && st.message[0] == '\0')
        abort();
    mr__image_decoder_reset(&d);
    return sum == 42;
}
