# SPDX-License-Identifier: Apache-2.0
# Completion of millrace for bash: commands, options and their words are what the program says.
_millrace() {
    local program=$1 current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} words
    local command=${COMP_WORDS[1]} options
    if [ "$COMP_CWORD" -le 1 ]; then
        words="help $("$program" --help=options 2>/dev/null | cut -f 1)"
    else
        options=$("$program" "$command" --help=options 2>/dev/null)
        if [[ $current == -* ]]; then
            words=$(cut -f 1 <<<"$options")
        else
            words=$(awk -F '\t' -v o="$previous" '$1 == o { print $4 }' <<<"$options")
        fi
        if [ -z "$words" ] && [[ $previous != -* ]]; then # what is no option
            case $command in
            ops | components) words=$("$program" "$command" --names 2>/dev/null) ;;
            *) [ "$COMP_CWORD" -gt 2 ] || words=$(cut -f 1 <<<"$options" | grep -v '^-') ;;
            esac
        fi
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}
complete -o bashdefault -o default -F _millrace millrace
