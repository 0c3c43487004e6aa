/* SPDX-License-Identifier: Apache-2.0 */
/* millrace: commands and ops that it does not know are left to millrace-service. */
#include "cli.h"

const cli_program cli_this = {.next = "-service"};
