/* SPDX-License-Identifier: Apache-2.0 */
/* millrace: what it does not know, millrace-service may. */
#include "cli.h"

const cli_program cli_this = {.next = "-service"};
