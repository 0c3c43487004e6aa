#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# Parquet files exchanged with pyarrow, which is PyPI's, in the virtual environment that exchange.sh uses too.
[ -x "$MR_BUILD/millrace" ] || exit 77
. "$MR_SOURCE/tests/pypi.sh"
exec "$venv/bin/python" "$MR_SOURCE/tests/cli/parquet.py" "$MR_BUILD"
