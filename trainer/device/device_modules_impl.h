/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_DEVICE_MODULES_IMPL_H
#define MR_TRAINER_DEVICE_DEVICE_MODULES_IMPL_H
/* For code that looks up a kind of device, a collective engine or another module. */
#include <stdbool.h>
#include <stddef.h>

/* *out = path of the module: the value of the environment variable, else a file of that name in the
 * folders that are searched for modules. false: not found. */
bool mr__module_find(const char *file, const char *variable, char *out, size_t room);

/* Searches for the modules that are part of Millrace and loads those found; once per process. */
void mr__device_modules_load(void);
/* The i-th kind whose module is missing, and why: "module not built". NULL after the last. */
const char *mr__device_module_missing(unsigned i, const char **why);

/* The i-th collective engine of the modules loaded so far; NULL after the last. */
struct mr_collective_backend;
const struct mr_collective_backend *mr__module_engine(size_t i);
#endif
