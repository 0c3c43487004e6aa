#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Plants the faults of tests/mutants/*.tsv one after the other in a copy of the tree, and says which
# of them the tests notice. --help has the options.
exec python3 "$(dirname "$0")/mutants/plant.py" "$@"
