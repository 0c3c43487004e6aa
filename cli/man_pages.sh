#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# man_pages.sh FOLDER MILLRACE...: writes millrace.1.gz and a page for each command to FOLDER, from what
# the program (the words after FOLDER, so that an emulator may run it) says of itself.
set -e
folder=$1
shift
mkdir -p "$folder"
rm -f "$folder"/*.1.gz
page() { # NAME, then the words that print it
    name=$1
    shift
    text=$("$@" --help=man) || return
    printf '%s\n' "$text" | gzip -9n >"$folder/$name.1.gz"
}
page millrace "$@"
for program; do :; done
trainer=${program%/*}/millrace-train
"$@" --help=options | cut -f 1 | grep -v '^-' | while read -r command; do
    # Without the trainer there is no program for some commands.
    "$@" "$command" --help >/dev/null 2>&1 || [ -e "$trainer" ] || continue
    page "millrace-$command" "$@" "$command"
done
