/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MR_PIPELINE_GRAPH_PLUGIN_H
#define MR_PIPELINE_GRAPH_PLUGIN_H
/* Plugins: shared objects that add ops, functions and callbacks. A plugin defines
 *
 *     mr_code mr_plugin_register(mr_status *st)
 *     {
 *         MR_TRY(mr_op_register(&my_op, st));
 *         return mr_function_register(&my_function, st);
 *     }
 *
 * and is built against the public headers of the same release: each descriptor has an ABI version,
 * and registration fails if it differs. examples/own_op is a complete plugin,
 * examples/cpp one in C++, where the function is extern "C".
 *
 * thread   one at a time; before other threads use the registered names
 * since    0.1 */
#include "../status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define MR_PLUGIN_SYMBOL "mr_plugin_register"
typedef mr_code (*mr_plugin_fn)(mr_status *st);

/* Loads the shared object at path (a bare name is searched for in the system's library directories)
 * and calls its mr_plugin_register. It stays loaded until the process ends.
 * errors   MR_NOT_FOUND: it cannot be opened; the message has the reason
 *          MR_FAILED_PRECONDITION: it does not define mr_plugin_register
 *          those of mr_plugin_register */
MR_API mr_code mr_plugin_load(const char *path, mr_status *st) MR_NODISCARD;

#ifdef __cplusplus
}
#endif
#endif
