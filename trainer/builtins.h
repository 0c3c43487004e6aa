/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_BUILTINS_H
#define MR_TRAINER_BUILTINS_H
/* What the library brings: its components by group, to which programs add their own, and its kinds
 * of devices. Every room may look here for its own group. */
#include "trainer/registry.h"

extern mr__registry mr__layers, mr__losses, mr__optimizers, mr__schedules, mr__metrics,
    mr__callbacks;

struct mr_device_backend;
extern const struct mr_device_backend *const mr__builtin_devices[]; /* NULL-ended */
#endif
