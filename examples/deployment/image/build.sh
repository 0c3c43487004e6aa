#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# build.sh SOURCE PACKAGES: the first stage of the Dockerfile, on a plain Debian: builds the package of
# the programs into the folder PACKAGES, with the script that installs it. $JOBS: at once (all processors).
set -eu
source=$1 packages=$2
export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -q -y --no-install-recommends gcc libc6-dev cmake ninja-build pkg-config dpkg-dev file \
    protobuf-c-compiler liburing-dev libzstd-dev zlib1g-dev libprotobuf-c-dev libcurl4-openssl-dev libjansson-dev \
    libturbojpeg0-dev libjpeg62-turbo-dev libspng-dev libarchive-dev libpcre2-dev libxxhash-dev libssl-dev \
    libsqlite3-dev libmicrohttpd-dev liblz4-dev libsnappy-dev libbrotli-dev libdnnl-dev
cmake -S "$source" --preset deb -B /build -G Ninja -DMR_WITH_PYTHON=OFF -DMR_WITH_MPI=OFF -DMR_WITH_CUDA=OFF
cmake --build /build --parallel "${JOBS:-$(nproc)}"
cpack --config /build/CPackConfig.cmake -B "$packages" -D CPACK_COMPONENTS_ALL=programs
cp "$(dirname "$0")/install.sh" "$packages"
