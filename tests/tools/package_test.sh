#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Debian packages of what Bazel has built: checked, installed, used and purged in a scratch root.
#
#   package_test.sh PACKAGE LIBOCCL PROGRAM...
set -euo pipefail
built=$(mktemp -d /tmp/occl-built.XXXXXX)
trap 'rm -rf "$built"' EXIT
mkdir "$built/bin" "$built/lib"
cp -L "$2" "$built/lib/liboccl.so.0"
cp -L "${@:3}" "$built/bin"
"$1" --check --built "$built"
