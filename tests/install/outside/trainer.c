/* SPDX-License-Identifier: Apache-2.0 */
#include <millrace/millrace-trainer.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    mr_device *device = NULL;
    mr_status st;
    if (mr_device_open(&device, "cpu:0", &st) != MR_OK) {
        fprintf(stderr, "%s\n", st.message);
        return 1;
    }
    int ok = strcmp(mr_device_name(device), "cpu:0") == 0;
    mr_device_close(device);
    return ok ? 0 : 1;
}
