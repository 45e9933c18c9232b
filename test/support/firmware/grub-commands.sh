# GRUB's commands on environment blocks for sh: the files are those of the working folder. A block that is damaged gives
# and takes nothing, as in GRUB.
set -u
prefix=prefix

load_env() {
  file=${2##*/}
  shift 2
  text=$(grub-editenv "$file" list 2>/dev/null) || return 0
  for name; do
    value=$(echo "$text" | sed -n "s/^$name=//p")
    [ -z "$value" ] || eval "$name=\$value"
  done
}

save_env() {
  file=${2##*/}
  shift 2
  for name; do
    eval "grub-editenv \"$file\" set \"$name=\$$name\"" 2>/dev/null || return 0
  done
}
