#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# packages.sh FOLDER: installs the Debian packages of FOLDER into a new, minimal Debian and uses them
# there: the program, its manual pages, the trainer, and the development files with gcc and pkg-config.
# Exit status 77, the reason last, where that cannot be done.
set -eu
packages=$(readlink -f "$1") outside=$(readlink -f "$(dirname "$0")/outside")
command -v debootstrap >/dev/null || { echo "debootstrap is not installed"; exit 77; }
[ "$(id -u)" = 0 ] || { echo "a clean root needs root"; exit 77; }
root=$(mktemp -d)
clean() {
    ! mountpoint -q "$root/proc" || umount "$root/proc"
    rm -rf --one-file-system "$root"
}
trap clean EXIT
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(SITE)' "Codename: $suite" | head -n 1)
debootstrap --variant=minbase "$suite" "$root" "${mirror:-http://deb.debian.org/debian}" >"$root.log" 2>&1 || {
    tail -n 5 "$root.log"
    echo "debootstrap could not make a clean root"
    exit 77
}
rm -f "$root.log"
# Without /proc millrace does not find millrace-train in its own directory.
mount -t proc proc "$root/proc" || { echo "/proc cannot be mounted in a clean root"; exit 77; }
mkdir "$root/packages"
cp "$packages"/*.deb "$root/packages"
cp "$outside"/main.c "$outside"/service.c "$outside"/trainer.c "$root/packages"
inside() { chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive sh -euc "$1"; }

inside 'echo "path-include /usr/share/man/*" >/etc/dpkg/dpkg.cfg.d/manuals; apt-get update -q
    apt-get install -q -y --no-install-recommends /packages/millrace_*.deb' >/dev/null
[ "$(inside "millrace show 'range(3).map(x => x / 2)'")" = $'0.0\n0.5\n1.0' ]
inside 'for page in millrace millrace-show millrace-dispatcher millrace-service millrace-train; do gzip -t /usr/share/man/man1/$page.1.gz; done
    test -s /usr/share/doc/millrace/copyright; test -s /usr/share/doc/millrace/docs/cli.md'
inside 'millrace train --data "range(64).map(i => (cast(i % 7, \"float32\"), 2.0 * cast(i % 7, \"float32\"))).batch(16)" \
    --model "reshape([1]).dense(1)" --loss mse --optimizer "sgd(learning_rate=0.01)" --steps 2 --log json' | grep -q '"step": 2'
echo "the program runs in a clean root"

inside 'apt-get install -q -y --no-install-recommends gcc libc6-dev pkg-config \
    /packages/libmillrace0*.deb /packages/libmillrace-dev_*.deb /packages/libmillrace-transport_*.deb /packages/libmillrace-trainer_*.deb' >/dev/null
inside 'cd /root; ldconfig -p | grep -q "libmillrace.so.0"
    build() { # PACKAGE PROGRAM: sh ends where pkg-config fails in an assignment alone
        cflags=$(pkg-config --cflags "$1")
        libs=$(pkg-config --libs "$1")
        gcc -std=c11 -Wall -Werror $cflags /packages/$2.c -o $2 $libs
        ./$2
    }
    build millrace main; build millrace-transport service; build millrace-trainer trainer'
echo "programs build on the development packages there"
