#!/usr/bin/env bash
# Run a program in a root that build_roots.sh has made.
#
#   tests/hosts/enter_root.sh [--writable] ROOT PROGRAM [ARGUMENT...]   as in enter_root.sh FOLDER/sid python3 -V
#
# It sees the root's own files, which it cannot change without --writable, and of this machine: /proc, /dev,
# /tmp or what TMPDIR names, the folder it is started in, the network with its loopback, and the environment but
# for PATH. What is mounted for it goes when it ends. No process stands between: the caller's signals reach the
# program, and its exit code comes back.
set -eu
if [ "$1" != --mounted ]; then
    exec unshare --mount --propagation private "$BASH" "${BASH_SOURCE[0]}" --mounted "$@"
fi
shift
access=ro
if [ "$1" = --writable ]; then
    access=rw
    shift
fi
root=$(cd "$1" && pwd -P)
program=$2
shift 2
new=$root/proc # a folder that is in every root and empty
mount -t tmpfs -o mode=755 none "$new"
for entry in "$root"/*; do
    name=${entry##*/}
    if [ -L "$entry" ]; then
        cp -P "$entry" "$new/$name"
    elif [ "$name" != proc ] && [ "$name" != var ]; then
        mkdir "$new/$name"
        mount -o "bind,$access" "$entry" "$new/$name"
    fi
done
for folder in /proc /dev /tmp "${TMPDIR:-/tmp}" "$PWD"; do # the last may lie in one of the others
    [ -e "$new$folder" ] && continue
    mkdir -p "$new$folder"
    mount --rbind "$folder" "$new$folder"
done
mount --bind /etc/resolv.conf "$new/etc/resolv.conf"

PATH=/usr/bin:/usr/sbin
if [ -x "$root/usr/bin/qemu" ]; then
    [ "${program#/}" != "$program" ] || program=/usr/bin/$program
    # The pointer authentication of a newer processor makes the emulation twenty times slower.
    set -- /usr/bin/qemu -cpu cortex-a72 "$program" "$@"
else
    set -- "$program" "$@"
fi
exec unshare --root="$new" --wd="$PWD" "$@"
