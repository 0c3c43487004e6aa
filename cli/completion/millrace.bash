# SPDX-License-Identifier: Apache-2.0
# Completion of millrace for bash: commands, options and their words are what the program says.
_millrace() {
    local program=$1 current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words
    if [ "$COMP_CWORD" -le 1 ]; then
        words=$("$program" --help=options 2>/dev/null | cut -f 1)
    else
        words=$("$program" "${COMP_WORDS[1]}" --help=options 2>/dev/null |
            if [[ $current == -* ]]; then cut -f 1; else awk -F '\t' -v o="$previous" '$1 == o { print $4 }'; fi)
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o bashdefault -o default -F _millrace millrace
