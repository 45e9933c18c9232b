#!/bin/sh
# Runs scripts/NAME.ts on the project's own Node, after making sure that what package-lock.json names is installed.
# A fresh clone has nothing: `npm start` and `npm test` come through here. Without a NAME it only installs.
set -eu
cd "$(dirname "$0")/.."
stamp=node_modules/.picolet-installed
if ! cmp -s package-lock.json "$stamp" 2>/dev/null; then
  echo "installing the packages that package-lock.json names (once)" >&2
  # Not `npm ci`: it refuses a lock file that leaves out other platforms' optional packages, as a registry
  # that mirrors only some platforms makes it. The versions are the lock file's all the same.
  # No install scripts but that of `node`, which fetches the binary for this machine: better-sqlite3 and esbuild bring
  # theirs inside the package, and npm would have better-sqlite3 compiled.
  npm install --no-save --ignore-scripts --no-audit --no-fund --loglevel=error >&2
  npm rebuild node --loglevel=error >&2
  # npm verifies every package against package-lock.json but the one that node's install script fetches: the binary itself.
  case $(uname -s)-$(uname -m) in
    Linux-x86_64) platform=linux-x64 ;;
    Linux-aarch64) platform=linux-arm64 ;;
    *) platform=none ;;
  esac
  version=$(sed -n 's/^    "node": "\(.*\)",$/\1/p' package.json)
  expected=$(sed -n "s/^\([0-9a-f]*\)  node-$version-$platform\$/\1/p" scripts/node-binaries.sha256)
  actual=$(sha256sum node_modules/node/bin/node | cut -d ' ' -f 1)
  if [ "$platform" != none ] && [ "$actual" != "$expected" ]; then
    echo "the Node binary that was installed is not the one that scripts/node-binaries.sha256 names for $version on" \
      "$platform: its SHA-256 is $actual. Nothing of it was run. Remove node_modules, and install again from a" \
      "registry that you trust; after an update of Node, add the new hash." >&2
    rm -f node_modules/node/bin/node
    exit 1
  fi
  cp package-lock.json "$stamp"
fi
[ $# -gt 0 ] || exit 0
name=$1
shift
PATH="$PWD/node_modules/.bin:$PATH"
export PATH
exec node_modules/.bin/node "scripts/$name.ts" "$@"
