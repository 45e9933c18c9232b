#!/bin/sh
# Runs scripts/NAME.ts on the project's own Node, after making sure that what package-lock.json names is installed.
# A fresh clone has nothing: `npm start` and `npm test` come through here.
set -eu
cd "$(dirname "$0")/.."
name=$1
shift
stamp=node_modules/.picolet-installed
if ! cmp -s package-lock.json "$stamp" 2>/dev/null; then
  echo "installing the packages that package-lock.json names (once)" >&2
  # Not `npm ci`: it refuses a lock file that leaves out other platforms' optional packages, as a registry
  # that mirrors only some platforms makes it. The versions are the lock file's all the same.
  # No install scripts but that of `node`, which fetches the binary for this machine: better-sqlite3 and esbuild bring
  # theirs inside the package, and npm would have better-sqlite3 compiled.
  npm install --no-save --ignore-scripts --no-audit --no-fund --loglevel=error >&2
  npm rebuild node --loglevel=error >&2
  cp package-lock.json "$stamp"
fi
PATH="$PWD/node_modules/.bin:$PATH"
export PATH
exec node_modules/.bin/node "scripts/$name.ts" "$@"
