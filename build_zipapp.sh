#!/bin/sh
# Build dist/httphases.pyz: the program and the pure-Python packages it can use, in one executable file.
# Beside it: dist/httphases.cdx.json, what it is made of (CycloneDX 1.6), and dist/SHA256SUMS.
#
#   ./build_zipapp.sh                    build; prints the size and the SHA-256
#   ./build_zipapp.sh --download FOLDER  only fetch the pinned wheels, for a build without network:
#                                        PIP_NO_INDEX=1 PIP_FIND_LINKS=/path/to/FOLDER ./build_zipapp.sh
#
#   PYTHON   the Python (3.9 or newer, with pip) that runs the build; python3 when unset
#   PYTHONS  the Pythons to compile for, as whole paths, separated by colons; when unset, every CPython from 3.9 on
#            found on PATH and among pyenv's versions. On any other Python the archive compiles itself in memory.
#
# pip unpacks the wheels that have the hashes below, and nothing that they ask for. shiv gathers the files; its
# start-up code, which unpacks the archive into a cache folder, is replaced by a launcher that imports from inside
# the file. The same input, the same Pythons to compile for and the same zlib give the same bytes.
set -eu
umask 022
CDPATH=''

fail() {
    printf 'build_zipapp.sh: %s\n' "$1" >&2
    exit "${2:-1}"
}

download=
case $#:${1-} in
0:) ;;
2:--download) mkdir -p "$2" && download=$(cd "$2" && pwd) ;;
*) fail 'usage: build_zipapp.sh [--download FOLDER]' 64 ;;
esac
project=$(cd "$(dirname "$0")" && pwd -P)
given=${PYTHON:-python3}
pythons=${PYTHONS-}
for name in $(env | sed -n 's/^\(PYTHON[A-Z0-9_]*\)=.*/\1/p') SOURCE_DATE_EPOCH; do
    unset "$name"
done
python=$("$given" -I -c 'import sys; sys.version_info < (3, 9) and sys.exit(1); print(sys.executable)') ||
    fail "'$given' is no Python 3.9 or newer: name one with PYTHON=..."
"$python" -I -m pip --version >/dev/null ||
    fail "$python has no pip (Debian, Ubuntu: apt-get install python3-pip); PYTHON=... names another"

# From here on in a folder of this build's own: what lies in the current one has no part in it.
work=$(mktemp -d "$project/.build.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' HUP TERM
cd "$work"
export TMPDIR="$work" # pip, when interrupted, leaves its own folders behind
export PYTHONHASHSEED=0 # the order of a set that is compiled

# In the archive. These are the newest versions that run on every Python from 3.9 to 3.13. rich names Pygments and
# markdown-it-py too: it needs them for source code and Markdown, which no report of ours holds. Each with its
# licence, by its SPDX identifier.
cat >bundle.txt <<'EOF'
h2==4.3.0 --hash=sha256:c438f029a25f7945c69e0ccf0fb951dc3f73a5f6412981daee861431b70e2bdd # MIT
hpack==4.1.0 --hash=sha256:157ac792668d995c657d93111f46b4535ed114f0c9c8d672271bbec7eae1b496 # MIT
hyperframe==6.1.0 --hash=sha256:b03380493a519fce58ea5af42e4a42317bf9bd425596f7a0835ffce80f1a42e5 # MIT
idna==3.20 --hash=sha256:ab7ae7122974553370f0bdb919e1a960b2cd1bc1ef0276416d896db81c14582c # BSD-3-Clause
rich==15.0.0 --hash=sha256:33bd4ef74232fb73fe9279a257718407f169c09b78a87ad3d296f548e27de0bb # MIT
PySocks==1.7.1 --hash=sha256:2725bd0a9925919b9b51739eea5f9e2bae91e83288108a9ad338b2e3a4435ee5 # BSD-3-Clause
EOF

# For the build alone.
cat >builder.txt <<'EOF'
shiv==1.0.8 --hash=sha256:a60e4b05a2d2f8b820d567b1d89ee59af731759771c32c282d03c4ceae6aba24
click==8.1.8 --hash=sha256:63c132bbbed01578a06712a2d1f497bb62d9c1c0d329b7903a866228027263b2
EOF

# The archive's __main__.py.
cat >launcher.py <<'EOF'
"""Start httphases from inside this archive: nothing is unpacked, nothing is written.

Written so that every Python since 2.6 can parse it: an old one gets a sentence, not a traceback.
"""
import gc
import os
import signal
import sys

gc.disable()  # imports make no garbage to speak of
sys.dont_write_bytecode = True


def refuse(reason):
    """Say why this Python cannot run the program, in one line, and exit 70."""
    if sys.stderr:
        sys.stderr.write("httphases: %s\n" % reason)
    sys.exit(70)


class Bundle:
    """Finds the bundled modules: compiled for this Python in one file for each package, else their sources.

    zipimport would take 4 ms longer over the former, and compile each of the latter twice.
    """

    packages = ("h2", "hpack", "httphases", "hyperframe", "idna", "rich", "socks")

    def __init__(self, read, archive):
        from importlib.util import MAGIC_NUMBER

        self.read = read  # a path in the archive; raises OSError if nothing is there
        self.sources = os.path.join(archive, "site-packages", "")
        tree = "%s-%d" % (sys.implementation.cache_tag, int.from_bytes(MAGIC_NUMBER[:2], "little"))
        self.compiled = os.path.join(self.sources, tree, "")
        self.modules = {}  # by package: {module: (whether it is a package, its code)}

    def find_code(self, name, package):
        """Return whether a module is a package, and its code; None if there is no such module."""
        import marshal

        if package not in self.modules:
            try:
                self.modules[package] = marshal.loads(self.read(self.compiled + package + ".marshal"))
            except OSError:
                self.modules[package] = {}
        if name in self.modules[package]:
            is_package, code = self.modules[package].pop(name)
            return is_package, marshal.loads(code)
        for is_package, ending in (True, "/__init__.py"), (False, ".py"):
            path = self.sources + name.replace(".", "/") + ending
            try:
                return is_package, compile(self.read(path), path, "exec", dont_inherit=True)
            except OSError:
                pass

    def find_spec(self, name, path=None, target=None):
        package = name.partition(".")[0]
        found = self.find_code(name, package) if package in self.packages else None
        if found:
            from importlib.machinery import ModuleSpec

            return ModuleSpec(name, self, is_package=found[0], loader_state=found[1])

    def create_module(self, spec):
        """Leave it to Python."""

    def exec_module(self, module):
        exec(module.__spec__.loader_state, module.__dict__)


def wants_store(words):
    """Tell whether a command line is for https, trusted as this system says."""
    return (any(word[:8].lower() == "https://" for word in words)
            and not any(word.startswith(("-k", "--insecure", "--ignore-ssl", "--ca")) for word in words)
            and not os.environ.get("SSL_CERT_FILE"))  # whose faults OpenSSL would not name


def read_store_ahead():
    """Have OpenSSL read the CA store while Python imports the program: either takes 30 ms.

    Return what waits for the context that has it, and gives it once; None if that failed.
    """
    import ssl
    import threading

    made = []

    def read():
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_default_certs()
            made.append(context)
        except Exception:
            pass  # the program tries it again, and says what is wrong

    def take():
        thread.join()
        return made.pop() if made else None

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return take


def start():
    """Import the program; from there on everything, signals included, is its own business."""
    python = "Python %d.%d.%d (%s)" % (sys.version_info[:3] + (sys.executable,))
    if sys.version_info < (3, 9):
        refuse("needs Python 3.9 or newer and this is %s: install a newer python3, or name one you have, "
               "as in `python3.11 httphases.pyz`" % python)
    # While modules load, an exception could be printed or swallowed half-way: leave at once instead.
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: os._exit(128 + number))
    sys.meta_path.insert(0, Bundle(__spec__.loader.get_data, sys.path.pop(0)))
    try:
        ahead = [read_store_ahead()] if wants_store(sys.argv[1:]) else []
        import httphases
        run = httphases.cli
    except MemoryError:
        refuse("this process can have no more memory (ulimit -v, or the limit of its container or service)")
    except ImportError as error:
        refuse("cannot run on this %s: %s. Install the whole standard library of a Python 3.9 or newer, ssl "
               "included (Debian, Ubuntu: apt-get install python3)" % (python, error))
    except Exception as error:
        refuse("this file is damaged (%s: %s): copy it again, and compare its SHA-256 with that of the original"
               % (type(error).__name__, error))
    run(*ahead)


start()
EOF

# Run by each Python to compile for: compile the sources in `site` into a folder there of its own, a file for each
# package, which the launcher reads. Docstrings are left out: the sources, which stay, have them.
cat >compile.py <<'EOF'
import importlib.util
import marshal
import sys
from pathlib import Path

if sys.implementation.name != "cpython" or sys.version_info < (3, 9):
    sys.exit(1)
magic = int.from_bytes(importlib.util.MAGIC_NUMBER[:2], "little")
tree = Path("site", "%s-%d" % (sys.implementation.cache_tag, magic))
if tree.exists():
    sys.exit()  # for another Python of this version
packages = {}
for path in sorted(Path("site").rglob("*.py")):
    name = path.relative_to("site")
    is_package = name.stem == "__init__"
    parts = name.parent.parts if is_package else name.with_suffix("").parts
    shown = "httphases.pyz/site-packages/" + name.as_posix()
    code = compile(path.read_bytes(), shown, "exec", dont_inherit=True, optimize=2)
    packages.setdefault(parts[0], {})[".".join(parts)] = is_package, marshal.dumps(code)
tree.mkdir()
for package, modules in packages.items():
    # Version 2 of the format has no references, which depend on who else holds an object.
    (tree / (package + ".marshal")).write_bytes(marshal.dumps(modules, 2))
print("compiled for Python %d.%d.%d" % sys.version_info[:3], "(%s)" % sys.executable)
EOF

# Turn shiv's archive into ours, with our launcher for its start-up code; write what it is made of, and the sums.
cat >pack.py <<'EOF'
import hashlib
import json
import re
import sys
import uuid
import zipfile
from pathlib import Path

project, made = Path(sys.argv[1]), Path("made")
source, archive, bom = project / "tool.py", made / "httphases.pyz", made / "httphases.cdx.json"


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def component(kind, url, digest, licence):
    name, version = re.fullmatch(r"pkg:\w+/(.*)@(.*)", url).groups()
    return {
        **{"type": kind, "bom-ref": url, "name": name, "version": version, "purl": url},
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "licenses": [{"license": {"id": licence}}],
    }


with zipfile.ZipFile("assembled.pyz") as assembled, archive.open("wb") as file:
    file.write(b"#!/usr/bin/env python3\n")
    with zipfile.ZipFile(file, "w") as target:
        # The launcher is not compressed: a Python without zlib, which it is there to explain, can read it.
        target.writestr(zipfile.ZipInfo("__main__.py"), Path("launcher.py").read_bytes())
        for entry in assembled.infolist():
            if entry.filename.startswith("site-packages/"):
                target.writestr(entry, assembled.read(entry), compresslevel=9)
archive.chmod(0o755)

version = re.search(r'^__version__ = "(.*)"', source.read_text("utf-8"), re.MULTILINE)[1]
whole = component("application", "pkg:generic/httphases.pyz@" + version, sha256(archive), "MIT")
parts = [component("application", "pkg:generic/httphases@" + version, sha256(source), "MIT")]
for pin in re.findall(r"(\S+)==(\S+) --hash=sha256:(\S+) # (\S+)", Path("bundle.txt").read_text()):
    parts.append(component("library", "pkg:pypi/%s@%s" % pin[:2], *pin[2:]))  # the hash is that of the wheel
document = {
    "bomFormat": "CycloneDX",
    "specVersion": "1.6",
    "serialNumber": "urn:uuid:%s" % uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([whole, parts])),
    "metadata": {"component": whole},
    "components": parts,
    "dependencies": [{"ref": whole["bom-ref"], "dependsOn": [part["bom-ref"] for part in parts]}],
}
bom.write_text(json.dumps(document, indent=2) + "\n")
sums = ["%s  %s\n" % (sha256(path), path.name) for path in (archive, bom, source)]
(made / "SHA256SUMS").write_text("".join(sums))
print("%d bytes, SHA-256 %s" % (archive.stat().st_size, sha256(archive)))
EOF

# Each wheel has the hash that is written here; nothing that they ask for is fetched.
pinned() {
    command=$1
    shift
    "$python" -I -m pip "$command" --quiet --disable-pip-version-check --no-input --no-deps --require-hashes \
        --only-binary :all: "$@" >&2 ||
        fail "the pinned wheels could not be had; PIP_FIND_LINKS may name a folder, by its whole path, that holds them"
}

compile() {
    "$1" -s -S -X no_debug_ranges -W ignore compile.py
}

if [ -n "$download" ]; then
    pinned download -r bundle.txt -r builder.txt --dest "$download"
    exit
fi

pinned install -r bundle.txt --no-compile --target site
pinned install -r builder.txt --no-compile --target builder
(
    cd site/rich # leave out what no report needs
    rm __main__.py _emoji_codes.py _inspect.py _spinners.py _stack.py _timer.py _unicode_data/unicode[4-9]* \
        _unicode_data/unicode1[0-6]* _win* abc.py ansi.py bar.py columns.py diagnose.py file_proxy.py filesize.py \
        json.py layout.py live* logging.py markdown.py pretty.py progress* prompt.py rule.py scope.py spinner.py \
        status.py syntax.py traceback.py tree.py
)
rm -r site/bin site/sockshandler.py
find site -path '*.dist-info/*' -type f ! -name 'LICENSE*' -exec rm {} +
mkdir site/httphases.dist-info made
install -m 644 "$project/LICENSE" site/httphases.dist-info/LICENSE
install -m 644 "$project/tool.py" site/httphases.py

IFS=:
for each in $pythons; do
    compile "$each" || fail "$each is no CPython 3.9 or newer"
done
[ -n "$pythons" ] || for folder in $PATH "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/*/bin; do
    for each in "$folder"/python3 "$folder"/python3.[0-9] "$folder"/python3.[0-9][0-9]; do
        [ ! -x "$each" ] || compile "$each" 2>/dev/null || true
    done
done
unset IFS

shiv='import sys; sys.path.insert(0, "builder"); from shiv.cli import main; main()'
"$python" -I -W ignore -c "$shiv" --reproducible --site-packages site --entry-point httphases:cli \
    --output-file assembled.pyz || fail "shiv could not put the archive together"
"$python" -I pack.py "$project" || fail "the archive could not be finished"
"$python" -I made/httphases.pyz --version || fail "the archive does not start"

mkdir -p "$project/dist"
mv -f made/* "$project/dist/"
