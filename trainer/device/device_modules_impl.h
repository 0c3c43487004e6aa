/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_TRAINER_DEVICE_MODULES_IMPL_H
#define MR_TRAINER_DEVICE_MODULES_IMPL_H
/* For code that looks for a kind of device, a collective engine or another module. */
#include <stdbool.h>
#include <stddef.h>

/* *out = where the module is: what the environment's variable names, else a file of that name where
 * modules are looked for. false: there is none. */
bool mr__module_find(const char *file, const char *variable, char *out, size_t room);

/* Looks for the modules that Millrace comes with and loads those that are there; once a process. */
void mr__device_modules_load(void);
/* The i-th kind whose module is missing, and why: "module not built". NULL: there are no more. */
const char *mr__device_module_missing(unsigned i, const char **why);

/* The i-th collective engine of the modules loaded so far; NULL after the last. */
struct mr_collective_backend;
const struct mr_collective_backend *mr__module_engine(size_t i);
#endif
