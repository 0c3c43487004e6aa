# SPDX-License-Identifier: Apache-2.0
"""What the tests in Python share: each gets a temporary folder, and its result is written as TAP to $TAP_FILE."""
import os
import sys
import tempfile


class Failure(Exception):
    pass


def equal(got, want, what="values"):
    if got != want:
        raise Failure(f"{what}: got {str(got)[:500]}, expected {str(want)[:500]}")


def main(suite, tests):
    """Ends the program: 1 if a test failed."""
    failed = 0
    with open(os.environ.get("TAP_FILE", os.devnull), "w", encoding="utf-8") as tap:
        for test in tests:
            with tempfile.TemporaryDirectory(prefix=f"millrace-{suite}-") as folder:
                try:
                    test(folder)
                    print(f"ok - {suite}::{test.__name__}", file=tap)
                except Exception as why:  # any of the libraries' own
                    failed += 1
                    print(f"not ok - {suite}::{test.__name__}", file=tap)
                    print(f"FAILED {test.__name__}: {type(why).__name__}: {str(why)[:2000]}")
        print(f"1..{len(tests)}", file=tap)
    sys.exit(1 if failed else 0)
