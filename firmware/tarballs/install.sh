#!/bin/sh
# Installs picolet or picolet-hub, whichever lies beside this script, on a Linux with glibc and any init system.
set -eu

prefix=/usr/local
action=install
purge=no
start=yes

usage() {
  cat <<EOF
Usage: ./install.sh [--prefix DIR] [--no-start]
       ./install.sh --uninstall [--purge] [--prefix DIR]

  --prefix DIR   where the program goes (default /usr/local)
  --no-start     install the service, and do not start it
  --uninstall    end the pods of a board, and remove the program and its service
  --purge        remove its configuration and state too
EOF
}

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

while [ $# -gt 0 ]; do
  case "$1" in
    --prefix) [ $# -gt 1 ] || { usage >&2; exit 64; }; prefix=$2; shift ;;
    --prefix=*) prefix=${1#--prefix=} ;;
    --uninstall) action=uninstall ;;
    --purge) purge=yes ;;
    --no-start) start=no ;;
    --help|-h) usage; exit 0 ;;
    *) echo "install.sh: unknown argument $1" >&2; usage >&2; exit 64 ;;
  esac
  shift
done
case "$prefix" in
  /*) ;;
  *) fail "--prefix must be an absolute path, not $prefix" ;;
esac
if [ "$purge" = yes ] && [ "$action" != uninstall ]; then
  fail "--purge goes with --uninstall"
fi
prefix=${prefix%/}

here=$(cd "$(dirname "$0")" && pwd)
# NAME, PLATFORM, VERSION, GLIBC, GLIBCXX, and PROGRAMS.
. "$here/package"
library=$prefix/lib/$NAME

# Is version $1 at least $2? Both are NUMBER.NUMBER.
at_least() {
  [ "${1%%.*}" -gt "${2%%.*}" ] && return 0
  [ "${1%%.*}" -eq "${2%%.*}" ] && [ "${1#*.}" -ge "${2#*.}" ]
}

check_architecture() {
  machine=$(uname -m)
  userland=
  if command -v dpkg >/dev/null 2>&1; then
    userland=$(dpkg --print-architecture 2>/dev/null || true)
  fi
  case "$machine:$userland" in
    aarch64:armhf|aarch64:armel|armv8l:*)
      fail "this is a 64-bit kernel with a 32-bit system ($userland): install the 64-bit Raspberry Pi OS, or another 64-bit system. Your board can run it." ;;
    arm*:*)
      fail "this is 32-bit ARM ($machine), which cannot be supported: V8's WebAssembly and Node's releases have left it. A Raspberry Pi 3, 4, 5 or Zero 2 W runs a 64-bit system; a Raspberry Pi 1, 2 or Zero does not." ;;
    x86_64:i386)
      fail "this is a 64-bit kernel with a 32-bit system ($userland): install a 64-bit system" ;;
    x86_64:*) found=linux-x64 ;;
    aarch64:*) found=linux-arm64 ;;
    *) fail "this machine is a $machine; picolet is built for x86_64 and aarch64" ;;
  esac
  [ "$found" = "$PLATFORM" ] || fail "this archive is for $PLATFORM, and this machine is $found: get $NAME-$VERSION-$found.tar.gz"
}

check_libraries() {
  reported=$(ldd --version 2>&1 || true)
  case "$reported" in
    *musl*) fail "this system has musl (Alpine, OpenWrt): Node's releases and the native parts of picolet are linked with glibc. Use a system with glibc $GLIBC or newer." ;;
  esac
  glibc=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc \([0-9]*\.[0-9]*\).*/\1/p')
  [ -n "$glibc" ] || glibc=$(echo "$reported" | sed -n '1s/.* \([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p')
  [ -n "$glibc" ] || fail "cannot find the version of glibc: neither getconf nor ldd names it"
  at_least "$glibc" "$GLIBC" || fail "this system has glibc $glibc; picolet needs $GLIBC or newer: Debian 12, Ubuntu 22.04 or later"
  cxx=
  for folder in /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/lib64 /lib64 /usr/lib /lib; do
    if [ -e "$folder/libstdc++.so.6" ]; then cxx=$folder/libstdc++.so.6; break; fi
  done
  [ -n "$cxx" ] || fail "libstdc++.so.6 is missing: install libstdc++6 (Debian, Ubuntu) or libstdc++ (Fedora, openSUSE)"
  grep -q "$GLIBCXX" "$cxx" || fail "$cxx is too old: picolet needs that of GCC 11 or newer, which has $GLIBCXX"
  "$here/lib/node" --version >/dev/null || fail "$here/lib/node does not run on this system"
}

# systemd also where it does not run now, as in a root file system that is prepared for a board.
detect_init() {
  if [ -d /run/systemd/system ] || command -v systemctl >/dev/null 2>&1; then init=systemd
  elif command -v rc-update >/dev/null 2>&1; then init=openrc
  elif [ -d /etc/init.d ] && command -v start-stop-daemon >/dev/null 2>&1; then init=sysvinit
  else init=none
  fi
}

# The service's files have the paths of the Debian package.
place_service() {
  mkdir -p "$(dirname "$2")"
  sed -e "s#/usr/bin/#$prefix/bin/#g" "$here/init/$1" > "$2.new"
  chmod "$3" "$2.new"
  mv "$2.new" "$2"
}

stop_service() {
  case "$init" in
    systemd) [ ! -d /run/systemd/system ] || systemctl stop "$NAME.service" 2>/dev/null || true ;;
    openrc) rc-service "$NAME" stop 2>/dev/null || true ;;
    sysvinit) [ ! -x "/etc/init.d/$NAME" ] || "/etc/init.d/$NAME" stop || true ;;
  esac
}

add_account() {
  case "$NAME" in
    picolet)
      grep -q '^picolet:' /etc/group || groupadd --system picolet 2>/dev/null || addgroup --system picolet >/dev/null 2>&1 ||
        addgroup -S picolet ;;
    picolet-hub)
      grep -q '^picolet-hub:' /etc/passwd ||
        useradd --system --user-group --home-dir /var/lib/picolet-hub --no-create-home picolet-hub 2>/dev/null ||
        adduser --quiet --system --group --home /var/lib/picolet-hub --no-create-home picolet-hub 2>/dev/null ||
        adduser -S -D -H -h /var/lib/picolet-hub picolet-hub ;;
  esac
}

install_service() {
  case "$init" in
    systemd)
      place_service "$NAME.service" "/etc/systemd/system/$NAME.service" 644
      [ ! -e "$here/init/$NAME.tmpfiles" ] || place_service "$NAME.tmpfiles" "/etc/tmpfiles.d/$NAME.conf" 644
      [ ! -d /run/systemd/system ] || systemctl daemon-reload
      if [ -d /run/systemd/system ] && [ -e "/etc/tmpfiles.d/$NAME.conf" ]; then
        systemd-tmpfiles --create "/etc/tmpfiles.d/$NAME.conf"
      fi
      # The hub is enabled by its administrator: it must know first whether it has a cluster.
      [ "$NAME" = picolet-hub ] || systemctl enable "$NAME.service" >/dev/null 2>&1 || true ;;
    openrc)
      place_service "$NAME.openrc" "/etc/init.d/$NAME" 755
      [ "$NAME" = picolet-hub ] || rc-update add "$NAME" default >/dev/null ;;
    sysvinit)
      place_service "$NAME.init" "/etc/init.d/$NAME" 755
      if [ "$NAME" = picolet ] && command -v update-rc.d >/dev/null 2>&1; then update-rc.d "$NAME" defaults >/dev/null 2>&1 || true; fi ;;
    none)
      echo "no init system was found that this script knows: $prefix/share/doc/$NAME/inittab has lines for busybox's init" ;;
  esac
}

start_service() {
  case "$init" in
    systemd) [ ! -d /run/systemd/system ] || systemctl start "$NAME.service" ;;
    openrc) rc-service "$NAME" start ;;
    sysvinit) "/etc/init.d/$NAME" start ;;
  esac
}

install_all() {
  check_architecture
  check_libraries
  [ "$(id -u)" -eq 0 ] || fail "run it as root"
  detect_init
  add_account
  rm -rf "$library.new"
  mkdir -p "$library.new" "$prefix/bin" "$prefix/share/doc/$NAME"
  cp -R "$here/." "$library.new"
  # The files of an agent that runs must not be replaced: it reads parts of its program when it needs them. Its pods run on.
  was_there=no
  if [ -e "$library" ]; then was_there=yes; stop_service; fi
  rm -rf "$library.old"
  [ ! -e "$library" ] || mv "$library" "$library.old"
  mv "$library.new" "$library"
  rm -rf "$library.old"
  for program in $PROGRAMS; do ln -sf "../lib/$NAME/bin/$program" "$prefix/bin/$program"; done
  (cd "$library/share" && find . -type f) > "$library/installed"
  while read -r file; do
    target=$prefix/share/${file#./}
    mkdir -p "$(dirname "$target")"
    ln -sf "$library/share/${file#./}" "$target"
  done < "$library/installed"
  install_service
  if [ "$NAME" = picolet ]; then mkdir -p /etc/picolet/manifests; else mkdir -p /etc/picolet-hub; fi
  if [ "$start" = yes ] && { [ "$NAME" = picolet ] || [ "$was_there" = yes ]; }; then start_service; fi
  echo "installed $NAME $VERSION in $library (init system: $init)"
}

uninstall_all() {
  [ "$(id -u)" -eq 0 ] || fail "run it as root"
  detect_init
  # Without the agent nothing would ever end its pods.
  if [ "$NAME" = picolet ] && [ -S /run/picolet/picolet.sock ]; then
    "$prefix/bin/edgectl" node shutdown --grace-period 60s || true
  fi
  stop_service
  case "$init" in
    systemd)
      systemctl disable "$NAME.service" >/dev/null 2>&1 || true
      rm -f "/etc/systemd/system/$NAME.service" "/etc/tmpfiles.d/$NAME.conf"
      [ ! -d /run/systemd/system ] || systemctl daemon-reload ;;
    openrc) rc-update del "$NAME" >/dev/null 2>&1 || true; rm -f "/etc/init.d/$NAME" ;;
    sysvinit)
      rm -f "/etc/init.d/$NAME"
      if command -v update-rc.d >/dev/null 2>&1; then update-rc.d "$NAME" remove >/dev/null 2>&1 || true; fi ;;
  esac
  if [ -e "$library/installed" ]; then
    while read -r file; do rm -f "$prefix/share/${file#./}"; done < "$library/installed"
  fi
  for program in $PROGRAMS; do rm -f "$prefix/bin/$program"; done
  rm -rf "$library"
  rmdir "$prefix/share/doc/$NAME" 2>/dev/null || true
  if [ "$purge" = yes ]; then
    # Volumes in memory are mounts below it, and nothing may be deleted through a mount that was left.
    awk -v at="/var/lib/$NAME" '$2 == at || index($2, at "/") == 1 { print $2 }' /proc/self/mounts | sort -r |
      while read -r each; do umount "$(printf '%b' "$each")" || true; done
    find "/var/lib/$NAME" "/etc/$NAME" "/run/$NAME" -xdev -depth -delete 2>/dev/null || true
  fi
  echo "removed $NAME"
}

"${action}_all"
