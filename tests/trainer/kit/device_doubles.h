/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TESTS_TRAINER_DEVICE_DOUBLES_H
#define MR_TESTS_TRAINER_DEVICE_DOUBLES_H
/* The processor's device with a watch on its users.
 *
 *     counting   counts calls that make the host wait for a device
 *     strict     returns addresses of device memory that the processor cannot use: code that
 *                dereferences one crashes. Operations and copies translate them.
 *     apart      devices that cannot reach each other's memory */
#include "trainer/device/device.h"

/* Registers these kinds; once in a process. */
void test_register_doubles(void);
/* Host waits of the counting device so far; memory it has allocated outside the pools of streams.
 * */
unsigned test_host_waits(void);
unsigned test_allocations(void);
/* Blocks of its memory that are not freed. */
unsigned test_blocks(void);
#endif
