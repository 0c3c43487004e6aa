#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# install.sh PACKAGES: the second stage of the Dockerfile, on a plain Debian: installs the package of the
# programs, and makes their user.
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends ca-certificates "$1"/millrace_*.deb
groupadd --gid 10001 millrace
useradd --uid 10001 --gid 10001 --no-create-home --home-dir / --shell /usr/sbin/nologin millrace
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/apt /var/log/dpkg.log
