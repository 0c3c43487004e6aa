/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline/formats/base64.h"

#include <string.h>

#include "tests/harness.h"

MR_ONE_THREAD;

MR_TEST(the_examples_of_rfc_4648_hold)
{
    static const char *const texts[] = {"",         "Zg==",     "Zm8=",    "Zm9v",
                                        "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char bytes[8], text[8];
        size_t size, n = strlen(texts[i]);
        mr_check(mr_base64_room(n) <= sizeof bytes);
        mr_check(mr_base64_decode(texts[i], n, bytes, &size));
        mr_eq_u64(size, i);
        mr_eq_mem(bytes, "foobar", size);
        mr_eq_u64(mr_base64_encode("foobar", i, text), n);
        mr_eq_mem(text, texts[i], n);
    }
}

MR_TEST(what_is_not_base64_is_refused)
{
    static const char *const texts[] = {"Z", "Zg=", "Z===", "====", "Zg==Zg==", "Zm9-", "Zm 9"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char bytes[8];
        size_t size;
        mr_test_context("%s", texts[i]);
        mr_check(!mr_base64_decode(texts[i], strlen(texts[i]), bytes, &size));
    }
    char bytes[4];
    size_t size;
    mr_check(!mr_base64_decode("Zm\0v", 4, bytes, &size));
}
