# SPDX-License-Identifier: Apache-2.0
# What CFFI makes of build_service_ffi.py: C types and functions, which Python's types do not describe.
from typing import Any

ffi: Any
lib: Any
