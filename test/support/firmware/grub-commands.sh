# GRUB's commands on environment blocks for sh: the files are those of the working folder. A block that is damaged gives
# and takes nothing, as in GRUB.
set -u
prefix=prefix

load_env() {
  text=$(grub-editenv "${2##*/}" list 2>/dev/null) || return 0
  shift 2
  while IFS='=' read -r name value; do
    case " $* " in *" $name "*) eval "$name=\$value" ;; esac
  done <<END
$text
END
}

save_env() {
  file=${2##*/}
  shift 2
  count=$#
  for name; do eval "set -- \"\$@\" \"$name=\$$name\""; done
  shift "$count"
  grub-editenv "$file" set "$@" 2>/dev/null || true
}
