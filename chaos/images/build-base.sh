#!/bin/sh
# Builds a base image from Debian packages, for hosts that reach a Debian mirror but no image registry.
#
#   sudo chaos/images/build-base.sh [IMAGE] [SUITE] [MIRROR] [PACKAGES]
#
# It holds redis-server, nodejs and python3, or PACKAGES (separated by commas). The Dockerfiles in this folder use it with --build-arg BASE=IMAGE.
set -eu

image=${1:-bullmq-conformance/base:debian}
suite=${2:-bookworm}
mirror=${3:-http://deb.debian.org/debian}
packages=${4:-redis-server,nodejs,python3,python3-venv,ca-certificates}

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
trap 'exit 130' INT TERM HUP
chmod 755 "$root" # it becomes / of the image, where users other than root must be able to look
debootstrap --variant=minbase --include="$packages" \
    "$suite" "$root" "$mirror" >&2
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/doc "$root"/usr/share/man \
    "$root"/usr/share/locale "$root"/usr/share/info "$root"/usr/share/lintian
tar -C "$root" -c . | docker import - "$image"
