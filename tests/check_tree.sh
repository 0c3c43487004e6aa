#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The laws of the tree that a compiler does not know. Prints each violation as "file:line: law" and
# exits 1 if there was one. --format checks the layout with clang-format too (77 without it).
cd "$(dirname "$0")/.." || exit 2
export LC_ALL=C
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT

if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files -co --exclude-standard | sort -u
else
    find . -type f -not -path './.git/*' -not -path './build*' | sed 's|^\./||'
fi | while read -r f; do [ -f "$f" ] && echo "$f"; done >"$tmp/all"
grep -E '\.([ch]|[ch]pp)$' "$tmp/all" >"$tmp/c"
grep -Ev '^tests/' "$tmp/c" >"$tmp/product"
grep -E '^(pipeline|shard|transport|trainer)/.*\.([ch]|[ch]pp)$' "$tmp/c" >"$tmp/library"
# Public headers are the ones that the umbrella headers include.
sed -n 's|^#include <millrace/\(.*/.*\)>$|\1|p' cmake/millrace*.h.in cmake/millrace.hpp.in | sort >"$tmp/public"

if [ "$1" = --format ]; then
    command -v clang-format >/dev/null || { echo "clang-format is not installed"; exit 77; }
    case $(clang-format --version) in
    *"version 14."*) ;;
    *) echo "clang-format 14 decides the layout; this is $(clang-format --version)"; exit 77 ;;
    esac
    xargs clang-format --dry-run -Werror <"$tmp/c" 2>&1 | grep 'clang-format-violations' | cut -d: -f1 | sort |
        uniq -c | sed 's/^ *\([0-9]*\) \(.*\)/\2: \1 places differ from .clang-format/' >"$tmp/bad"
    cat "$tmp/bad"
    [ ! -s "$tmp/bad" ]
    exit
fi

{
    # Top level: what the layout names, and dot files.
    cut -d/ -f1 "$tmp/all" | sort -u | grep -vxE \
        'pipeline|shard|transport|trainer|tests|examples|cli|bench|cmake|docs|python|CMakeLists\.txt|README\.md|LICENSE|CMakePresets\.json|\..*' |
        sed 's/$/: not an entry of the top level/'

    # Includes follow the arrows: may[x] lists what x may know.
    xargs grep -n '^ *# *include *"' <"$tmp/c" /dev/null | awk -v publics="$tmp/public" '
        BEGIN {
            # Bottom to top; a room may know those above its line that it names, and itself.
            may["system"] = "root system"
            may["root"] = "root system"
            may["memory"] = "root system memory"
            may["params"] = may["memory"] " params"
            may["wait"] = may["memory"] " wait"
            may["remote"] = may["wait"] " remote"
            may["files"] = may["remote"] " files"
            may["formats"] = may["files"] " params formats"
            text = may["formats"] " formats/text"
            may["formats/text"] = text
            may["formats/images"] = may["formats"] " formats/images"
            may["formats/ledger"] = may["formats"] " formats/ledger"
            may["formats/arrow_ipc"] = may["formats"] " formats/arrow_ipc"
            may["formats/parquet"] = may["formats"] " formats/parquet"
            may["formats/tfrecord"] = text " formats/tfrecord"
            formats = text " formats/images formats/ledger formats/arrow_ipc formats/parquet formats/tfrecord"
            may["formats/shards"] = formats " formats/shards"
            may["graph"] = may["params"] " wait graph"
            may["functions"] = may["graph"] " remote files " formats " formats/shards functions"
            may["functions/compiler"] = may["functions"] " functions/compiler"
            may["functions/library"] = may["functions/compiler"] " functions/library"
            may["engine"] = may["functions/library"] " engine"
            may["columns"] = may["engine"] " columns"
            may["streams"] = may["columns"] " streams"
            may["streams/sources"] = may["streams"] " streams/sources"
            may["streams/elements"] = may["streams"] " streams/elements"
            may["ops"] = may["streams/sources"] " streams/elements ops"
            may["cpp"] = may["engine"] " cpp"
            may["shard/cluster"] = may["ops"] " shard/cluster"
            may["shard/passes"] = may["shard/cluster"] " shard/passes"
            may["shard/streams"] = may["shard/passes"] " shard/streams"
            may["shard/distribute"] = may["shard/streams"] " shard/distribute"
            may["transport/net"] = may["shard/distribute"] " transport/net"
            may["transport/wire"] = may["transport/net"] " transport/wire"
            may["transport/service"] = may["transport/wire"] " transport/service"
            may["transport/service/status"] = may["transport/service"] " transport/service/status"
            may["transport/service/dispatcher"] = may["transport/service/status"] " transport/service/dispatcher"
            may["transport/service/worker"] = may["transport/service/status"] " transport/service/worker"
            may["transport/service/client"] = may["transport/service"] " transport/service/client"
            service = may["transport/service/dispatcher"] " transport/service/worker transport/service/client"
            # trainer/: a room inside another knows only what it names.
            ops = may["ops"]; job = " shard/cluster shard/distribute"
            may["trainer"] = ops " trainer"
            may["trainer/files"] = may["formats"] " trainer/files"
            may["trainer/device"] = may["trainer"] " trainer/device"
            may["trainer/device/cpu"] = ops " trainer/device trainer/device/cpu"
            may["trainer/device/cuda/kernels"] = "root trainer/device trainer/device/cuda/kernels"
            may["trainer/collective/processes"] = ops " shard/cluster transport/net transport/wire" \
                " trainer/collective/processes"
            may["trainer/collective/mpi"] = "trainer/collective/mpi"
            may["trainer/collective/ring"] = ops " trainer/device trainer/collective/processes" \
                " trainer/collective/mpi transport/wire trainer/collective/ring"
            may["trainer/collective"] = may["trainer/device"] " trainer/collective/ring trainer/collective"
            may["trainer/device/cuda"] = ops " trainer/device trainer/device/cuda/kernels trainer/collective" \
                " trainer/device/cuda"
            may["trainer/strategy"] = may["trainer/collective"] job " transport/wire trainer/strategy"
            may["trainer/objectives"] = may["trainer/strategy"] " trainer/objectives"
            n = split("losses metrics optimizers", rooms, " ")
            for (i = 1; i <= n; i++)
                may["trainer/objectives/" rooms[i]] = ops " trainer/objectives trainer/objectives/" rooms[i]
            may["trainer/model"] = may["trainer/objectives"] " trainer/files trainer/model"
            may["trainer/model/layers"] = ops " trainer/device trainer/collective trainer/strategy" \
                " trainer/model trainer/model/layers"
            may["trainer/exchange"] = may["trainer/model"] " trainer/exchange"
            may["trainer/loop"] = may["trainer/exchange"] " shard/passes trainer/loop"
            may["trainer/loop/callbacks"] = ops " trainer/files trainer/strategy trainer/exchange trainer/loop" \
                " trainer/loop/callbacks"
            may["trainer/servers"] = may["trainer/loop"] " transport/net transport/wire trainer/servers"
            # The tables of what the library brings.
            may["trainer/builtins"] = may["trainer/loop"] " trainer/device/cpu"
            trainer = service " " may["trainer/servers"]
            may["cli"] = "cli"
            may["bench"] = "bench"
            may["examples"] = "examples"
            may["python"] = "python"
            while ((getline line < publics) > 0) public[line] = 1
        }
        function room(path,    p) { # the folder, without the name of its library in pipeline/
            if (path == "trainer/builtins.c") return "trainer/builtins" # its tables name every room
            sub(/\/[^\/]*$/, "", path)
            if (path == "pipeline") return "root"
            sub(/^pipeline\//, "", path)
            split(path, p, "/")
            return p[1] == "tests" || p[1] == "cli" || p[1] == "examples" || p[1] == "bench" || p[1] == "python" ? p[1] : path
        }
        {
            split($0, at, ":")
            file = at[1]; place = at[1] ":" at[2] ": "
            match($0, /"[^"]*"/)
            want = substr($0, RSTART + 1, RLENGTH - 2)
            dir = file; sub(/\/[^\/]*$/, "", dir)
            if (want !~ /\// || want ~ /^\.\.?\//) want = dir "/" want
            while (want ~ /\/\.\.\//) sub(/[^\/]+\/\.\.\//, "", want)
            from = room(file); to = room(want)
            if (from == "tests" || want == "pipeline/ops/ops.def" || want == "pipeline/functions/library/functions.def") next # a table, not a header
            if (index(" " may[from] " ", " " to " ") == 0)
                print place "\"" want "\": " from " must not know " to
            split(file, f, "/"); split(want, w, "/")
            # A private header is for its own library, and these are for the libraries above it too:
            #   pipeline/ itself and system/   system calls, waits, small inline functions
            #   memory/hash_index.h, id_map.h  containers, all inline
            #   *_internal.h                   options that only our own layers set, functions that only they call
            #   transport/net/ and wire/       objects that the trainer is linked with as well
            if (f[1] != w[1] && !(want in public) && to != "root" && to != "system" && want !~ /_internal\.h$|^pipeline\/memory\/(hash_index|id_map)\.h$/ &&
                !(f[1] == "trainer" && (to == "transport/net" || to == "transport/wire")))
                print place "\"" want "\" is private to " w[1] "/"
        }'
    # Programs include public headers, as users do.
    grep -E '^(cli|bench|examples|python)/' "$tmp/c" | xargs grep -n '^ *# *include *<millrace/' /dev/null |
        awk -v publics="$tmp/public" '
        BEGIN { while ((getline line < publics) > 0) public[line] = 1 }
        {
            want = $0
            sub(/^[^<]*<millrace\//, "", want); sub(/>.*/, "", want)
            split($0, at, ":")
            if (!(want in public) && want !~ /^millrace((-[a-z]+)?\.h|\.hpp)$/)
                print at[1] ":" at[2] ": <millrace/" want "> is not public"
        }'
    grep -E '^examples/' "$tmp/c" | xargs grep -nE '^ *# *include *"' /dev/null |
        sed 's/$/: examples include <millrace\/...>/'

    # A header with exported functions is public, so it must be listed.
    grep '\.h$' "$tmp/library" | xargs grep -lE '^MR_API' /dev/null | grep -vxFf "$tmp/public" |
        sed 's|$|: has MR_API but no umbrella header (cmake/millrace*.h.in) includes it|'
    # A public header includes public headers only (relative to itself).
    while read -r h; do
        [ -f "$h" ] || { echo "$h: listed as public but not there"; continue; }
        grep -n '^ *# *include *"' "$h" | while IFS=: read -r line rest; do
            want=$(echo "$rest" | sed 's/[^"]*"\([^"]*\)".*/\1/')
            path=$(realpath -m --relative-to=. "$(dirname "$h")/$want")
            grep -qxF "$path" "$tmp/public" ||
                echo "$h:$line: a public header includes \"$want\", which is not one"
        done
    done <"$tmp/public"
    # Each exported function has a comment, or shares that of the lines above it.
    xargs awk '
        FNR == 1 { said = 0 }
        /^[ \t]*$/ { said = 0 }
        /\*\// { said = 1 }
        /^MR_API/ && !said && !/\/\*/ { print FILENAME ":" FNR ": an exported function without a comment" }
        ' <"$tmp/public"

    grep -E '\.(c|h|cpp|hpp|sh|py|proto|def|cu|cmake)$|(^|/)CMakeLists\.txt$|^\.ci/' "$tmp/all" |
        while read -r f; do
            head -n 2 "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' ||
                echo "$f:1: no SPDX line at the top"
        done
    # The pattern is split so that this file passes its own check.
    grep -vE '^(LICENSE|tests/fuzz/corpus/.*)$' "$tmp/all" |
        xargs grep -nIE '\b(TO''DO|FIX''ME|XX''X)\b' /dev/null | cut -c1-120 | sed 's/$/: unfinished/'
    # Lengths of lines and of paragraphs in comments: clang-format does not touch comments.
    xargs awk '
        function bad(line, law) { print FILENAME ":" line ": " law }
        FNR == 1 { inside = 0; held = ""; item = -1 }
        { plain = $0; gsub(/[\200-\277]/, "", plain) } # columns, not bytes
        length(plain) > 100 { bad(FNR, "longer than 100 columns") }
        !inside && !/^ *\/\*/ { inside = /\/\*/ && !/\/\*.*\*\//; held = ""; item = -1; next }
        {
            text = plain
            sub(/\*\/.*$/, "", text); sub(/^ *\/?\*?/, "", text)
            match(text, /^ */); indent = RLENGTH
            sub(/^ */, "", text); sub(/ +$/, "", text)
            if (text ~ /[^ ] (returns|errors|order|shape|units|memory|thread|source|since)   ?[^ ]/)
                bad(FNR, "a section of a comment that begins within a line")
            first = text; sub(/ .*/, "", first)
            if (held != "" && indent == 1 && text ~ /^[A-Za-z0-9]/ && text !~ /  / &&
                columns + 1 + length(first) <= 80)
                bad(FNR - 1, "a line of a comment that ends in the middle of a sentence")
            if (text == "" || text ~ /^[a-z]+   ?/) item = -1
            if (item >= 0 && indent < item && text !~ /^- /)
                bad(FNR, "a line of a list that lost its indentation")
            if (text ~ /^- /) item = indent
            held = indent == 1 && length(plain) < 50 && text ~ /[A-Za-z0-9_]$/ && text !~ /  /
            held = held ? text : ""
            columns = length(plain)
            inside = !/\*\//
            if (!inside) { held = ""; item = -1 }
        }' <"$tmp/c"
    grep -E '\.([ch]|[ch]pp|md)$' "$tmp/all" | xargs grep -nwiE \
        'behind|told|hands? on|handed on|pass(es|ed)? by|one by one|answers? (for|of)|lets? go|hand(s|ed)? over' /dev/null |
        sed 's/\(:[0-9]*\):.*/\1: words that plain English has a better one for/'
    # Nor does what users read have the grammar of translated English.
    grep -E '\.(c|h|cpp|hpp|cu|def|proto|md|sh|py|in)$' "$tmp/all" | grep -v '^tests/' | xargs python3 tests/check_words.py
    # A benchmark or an example bears the name of its subject.
    grep -vE '^(bench|examples)/' "$tmp/product" | sed 's|.*/||' | sort | uniq -d | while read -r name; do
        echo "$name: two files of that name: $(grep -E "(^|/)$name\$" "$tmp/product" | tr '\n' ' ')"
    done

    # pipeline/ops/ has a source for each op of ops.def and no other.
    sed -n 's/^MR_OP(\([a-z0-9_]*\)).*/pipeline\/ops\/\1.c/p' pipeline/ops/ops.def | sort >"$tmp/op_sources"
    grep -E '^pipeline/ops/.*\.c$' "$tmp/c" | sort | comm -3 - "$tmp/op_sources" | sed \
        -e 's/^\t\(.*\)/\1: ops.def names this op, and the file is missing/' \
        -e 't' -e 's/$/: a source that is no op of ops.def/'

    # Only its own file looks for an op by name. (The words themselves are also names of
    # parameters and of rewrites.)
    if [ -f pipeline/ops/ops.def ]; then
        names=$(sed -n 's/^MR_OP(\([a-z0-9_][a-z0-9_]*\)).*/\1/p' pipeline/ops/ops.def | paste -sd'|')
        [ -z "$names" ] || grep -E '^(pipeline|shard|transport|trainer|cli)/.*\.c$' "$tmp/c" |
            xargs grep -nE "\"($names)\"" /dev/null | grep -E 'cmp\(|find|lookup|op->name|_is\(' |
            grep -vE 'param' | grep -vE '^[^:]*:[0-9]*: *(/\*|\*)' | sed 's/$/: an op known by its name/'
    fi

    # One file calls the allocator; the library neither prints nor ends the program.
    grep -v '^pipeline/memory/alloc\.c$' "$tmp/library" | xargs grep -nE \
        '(^|[^A-Za-z0-9_.>])(malloc|calloc|realloc|free|strdup|strndup|aligned_alloc|posix_memalign|asprintf)\(' /dev/null |
        grep -vE '^[^:]*:[0-9]*: *(/\*|\*)|\(\*[a-z_]*\)\(' | sed 's/$/: memory goes through mr_malloc and its kin/'
    xargs grep -nE '(^|[^A-Za-z0-9_.>])(exit|_exit|abort|printf|puts|perror|vprintf|fprintf|alloca)\(' <"$tmp/library" /dev/null |
        grep -vE '^[^:]*:[0-9]*: *(/\*|\*)' | sed 's/$/: a library does not print or end the program/'
} >"$tmp/bad"
cat "$tmp/bad"
[ ! -s "$tmp/bad" ]
