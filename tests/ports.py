#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ports for the tests' servers, as a module and as a program: those of the examples, so that neither
gets one that the other was given.

  ports.py [N]      prints N that are free (1)"""
import os
import sys

sys.dont_write_bytecode = True  # in a folder that is installed
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "examples"))
from free_ports import ports  # noqa: E402

if __name__ == "__main__":
    print(*ports(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
