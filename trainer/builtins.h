/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_BUILTINS_H
#define MR_TRAINER_BUILTINS_H
/* Components and kinds of devices built into the library, by group; programs add their own. Every
 * room may include this for its own group. */
#include "trainer/registry.h"

extern mr__registry mr__layers, mr__losses, mr__optimizers, mr__schedules, mr__metrics,
    mr__callbacks;

struct mr_device_backend;
extern const struct mr_device_backend *const mr__builtin_devices[]; /* NULL-ended */
#endif
