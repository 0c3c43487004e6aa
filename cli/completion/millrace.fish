# SPDX-License-Identifier: Apache-2.0
# Completion of millrace for fish: commands, options and their words are what the program says.
function __millrace_choices
    set -l words (commandline -opc)
    if test (count $words) -lt 2
        printf 'help\tprints how a command is used\n'
        $words[1] --help=options 2>/dev/null | awk -F '\t' '{ print $1 "\t" $3 }'
        return
    end
    set -l options ($words[1] $words[2] --help=options 2>/dev/null)
    set -l values (printf '%s\n' $options | awk -F '\t' -v o="$words[-1]" '$1 == o { gsub(" ", "\n", $4); print $4 }')
    set -l requests (printf '%s\n' $options | awk -F '\t' '!/^-/ { print $1 "\t" $3 }')
    if string match -q -- '-*' (commandline -ct)
        printf '%s\n' $options | awk -F '\t' '{ print $1 "\t" $3 }'
    else if test -n "$values"
        printf '%s\n' $values
    else if string match -q -- '-*' $words[-1]
        __fish_complete_path (commandline -ct)
    else if contains -- $words[2] ops components
        $words[1] $words[2] --names 2>/dev/null
    else if test (count $words) -eq 2 -a -n "$requests"
        printf '%s\n' $requests
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c millrace -f -a '(__millrace_choices)'
