#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# image.sh [JOBS]: runs the steps of examples/deployment/image/Dockerfile in two clean roots of the Debian that
# it names, and then the program as its container would: without rights, all of its root read-only. Exit status
# 77, the reason last, where that cannot be done.
set -eu
tree=$(readlink -f "$(dirname "$0")/../..")
dockerfile=$tree/examples/deployment/image/Dockerfile
command -v debootstrap >/dev/null || { echo "debootstrap is not installed"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "a clean root needs root"; exit 77; }
if [ -z "${MR_TOP:-}" ]; then # what is mounted, and all that is started, ends with the process in a namespace of mounts
    MR_TOP=$(mktemp -d)
    export MR_TOP
    trap 'rmdir "$MR_TOP"' EXIT
    status=0
    unshare --mount --pid --fork --kill-child "$0" "$@" || status=$?
    exit $status
fi
top=$MR_TOP
mount -t tmpfs -o size=6G tmpfs "$top" || { echo "nothing can be mounted here"; exit 77; }
suite=$(sed -n 's/^FROM debian:\([a-z]*\)-slim$/\1/p' "$dockerfile")
mirror=$(apt-get indextargets --format '$(SITE)' "Codename: $suite" | head -n 1)
debootstrap --variant=minbase "$suite" "$top/build" "${mirror:-http://deb.debian.org/debian}" >"$top/log" 2>&1 || {
    tail -n 5 "$top/log"
    echo "debootstrap could not make a clean root"
    exit 77
}
cp -a "$top/build" "$top/image"

# step ROOT N: the Nth RUN of the Dockerfile
step() {
    local command
    command=$(sed -n 's/^RUN \(--mount=[^ ]* \)*//p' "$dockerfile" | sed -n "$2p")
    mount -t proc proc "$1/proc"
    chroot "$1" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin JOBS="${jobs:-}" sh -euc "$command" >"$top/log" 2>&1 ||
        { tail -n 40 "$top/log"; exit 1; }
    umount "$1/proc"
}
jobs=${1:-$(nproc)}
mkdir "$top/build/source"
(cd "$tree" && git ls-files -z --cached --others --exclude-standard | tar --null -T - -cf -) | tar -xf - -C "$top/build/source"
step "$top/build" 1
mkdir "$top/image/packages"
mount --bind "$top/build/packages" "$top/image/packages"
step "$top/image" 2
umount "$top/image/packages"
rmdir "$top/image/packages"
echo "the steps run in clean roots"

user=$(sed -n 's/^USER //p' "$dockerfile")
root=$top/image
mkdir "$root/state"
mount --bind "$root" "$root" && mount -o remount,bind,ro "$root"
mount -t tmpfs -o mode=0700,uid="${user%:*}",gid="${user#*:}" tmpfs "$root/state"
mount -t proc proc "$root/proc"
inside=(chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin setpriv --reuid="${user%:*}" --regid="${user#*:}"
    --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all)
[ "$("${inside[@]}" sh -c 'id -u; touch /tmp/x 2>&1' | xargs)" = "${user%:*} touch: cannot touch /tmp/x: Read-only file system" ]
"${inside[@]}" millrace dispatcher --listen 127.0.0.1:0 --status 127.0.0.1:0 --state /state/account >"$top/dispatcher" 2>"$top/log" &
dispatcher=$!
ready() { # FILE: the address in it
    timeout 60 sh -c "until grep -q ^ready '$1'; do sleep 0.1; done" || { cat "$top/log"; exit 1; }
    sed -n 's/^ready //p' "$1"
}
at=$(ready "$top/dispatcher")
"${inside[@]}" millrace worker --dispatcher "$at" --root /etc >"$top/worker" 2>"$top/log" &
worker=$!
ready "$top/worker" >/dev/null
[ "$("${inside[@]}" millrace show "text_line(\"/etc/debian_version\").map(x => 1).distribute(\"$at\")")" = 1 ]
"${inside[@]}" millrace train --data 'range(64).map(i => (cast(i % 7, "float32"), 2.0 * cast(i % 7, "float32"))).batch(16)' \
    --model 'reshape([1]).dense(1)' --loss mse --optimizer 'sgd(learning_rate=0.01)' --steps 2 --log json 2>&1 | grep -q '"step": 2'
kill "$worker" "$dispatcher"
wait "$worker"
wait "$dispatcher"
echo "the program runs there, without rights and with a read-only root"
