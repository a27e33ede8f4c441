#!/bin/sh
# Installs what the tests start: real programs for the sandbox tests, a database for the log's. Only on
# Debian and its kin, only as root; else it says which tests will be left out.
set -eu
need=""
want() { command -v "$1" >/dev/null 2>&1 || need="$need $2"; }
want sh dash
want git git
want gcc gcc
want g++ g++
want make make
want tar tar
want node nodejs
want perl perl
want sqlite3 sqlite3
want python3 python3
want strace strace
want setpriv util-linux
want xz xz-utils
want zstd zstd
want zip zip
# The log's tests run Trillian on it. Debian keeps the server out of PATH.
command -v initdb >/dev/null 2>&1 || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || need="$need postgresql"
[ -n "$need" ] || exit 0
if ! command -v apt-get >/dev/null 2>&1; then
  echo "tests: missing$need, and no apt-get here: tests that start them are left out" >&2
  exit 0
fi
if [ "$(id -u)" != 0 ]; then
  echo "tests: missing$need, and not root: tests that start them are left out" >&2
  exit 0
fi
if ! { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $need; }; then
  echo "tests: could not install$need: tests that start them are left out" >&2
fi
