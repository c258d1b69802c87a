#!/bin/sh
# Build dist/httphases.pyz: the program and the pure-Python packages it can use, in one executable file.
# Beside it: dist/httphases.cdx.json, what it is made of (CycloneDX 1.6), and dist/SHA256SUMS.
#
#   ./build_zipapp.sh                    build; prints the size and the SHA-256
#   ./build_zipapp.sh --download FOLDER  only fetch the pinned wheels, for a build without network:
#                                        PIP_NO_INDEX=1 PIP_FIND_LINKS=FOLDER ./build_zipapp.sh
#
#   PYTHON   the Python (3.9 or newer, with pip) that runs the build; python3 when unset
#   PYTHONS  the Pythons to compile for, separated by colons; when unset, every CPython from 3.9 on found
#            on PATH and among pyenv's versions. On any other Python the archive compiles itself in memory.
#
# shiv gathers the files; its start-up code, which unpacks the archive into a cache folder, is replaced by a
# launcher that imports from inside the file. The same input, the same set of compiled trees and the same
# zlib give the same bytes, whoever builds, where and with which Python.
#
# Nobody else has a say in what comes out. Python runs in a folder of this script's own, without what the current
# folder, PYTHONPATH or the user's site-packages hold; HOME and pip's settings count only where nobody else may
# write to them. What is packed is unpacked here from the pinned wheels, and compared with them at the end.
set -euf
umask 022
here=$(pwd)
usage="usage: build_zipapp.sh [--download FOLDER]"

fail() {
    printf 'build_zipapp.sh: %s\n' "$1" >&2
    exit "${2:-1}"
}

# Print a path that may be meant from the current folder on as one that is not; a URL stays.
absolute() {
    case $1 in
    '' | /* | '~'* | *:/*) printf '%s\n' "$1" ;;
    *) printf '%s/%s\n' "$here" "$1" ;;
    esac
}

# Print where a program is; what has no slash is looked for in PATH.
program() {
    case $1 in
    */*) absolute "$1" ;;
    *) printf '%s\n' "$1" ;;
    esac
}

download=
case $#:${1-} in
0:) ;;
2:--download) download=$(absolute "$2") ;;
*) fail "$usage" 64 ;;
esac

project=$(absolute "$0")
project=$(CDPATH='' cd -- "${project%/*}" && pwd -P)
given=${PYTHON:-python3}
python=$(program "$given")
links=${PIP_FIND_LINKS-}
pythons=
IFS=:
for each in ${PYTHONS-}; do
    pythons=$pythons:$(program "$each")
done
unset IFS
value=
for name in TMPDIR HOME XDG_CONFIG_HOME XDG_CACHE_HOME PYENV_ROOT PIP_CONFIG_FILE PIP_CACHE_DIR PIP_INDEX_URL \
    PIP_EXTRA_INDEX_URL PIP_CERT PIP_CLIENT_CERT REQUESTS_CA_BUNDLE SSL_CERT_FILE SSL_CERT_DIR; do
    eval "value=\${$name-}"
    [ -z "$value" ] || eval "$name=\$(absolute \"\$value\")"
done

cd /
# pip's settings can name a Python to run, and pyenv's Pythons are run too.
: "${HOME:=/nonexistent}" "${XDG_CONFIG_HOME:=$HOME/.config}" "${PYENV_ROOT:=$HOME/.pyenv}"
set -- "${TMPDIR:-/tmp}" "${PIP_CONFIG_FILE:-/}" "$HOME" "$HOME/.pip" "$HOME/.pip/pip.conf" "$XDG_CONFIG_HOME" \
    "$XDG_CONFIG_HOME/pip" "$XDG_CONFIG_HOME/pip/pip.conf" "$PYENV_ROOT" "$PYENV_ROOT/versions"
unsafe=$(find -H "$@" -prune ! -type c \
    \( ! -user 0 ! -user "$(id -u)" -o \( -perm -020 -o -perm -002 \) ! -perm -1000 \) -print 2>/dev/null |
    head -n 1) # most of these are not there
if [ -n "$unsafe" ]; then
    printf "build_zipapp.sh: HOME, TMPDIR and pip's settings are left out: others can change %s\n" "$unsafe" >&2
    HOME='' TMPDIR=/tmp
    unset PIP_CONFIG_FILE
fi

work=$(mktemp -d)
cd "$work"
unfinished=
trap 'cd /; rm -rf "$work" ${unfinished:+"$unfinished"}' EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

for name in $(env | sed -n 's/^\(PYTHON[A-Z0-9_]*\)=.*/\1/p') SOURCE_DATE_EPOCH XDG_CONFIG_DIRS \
    PIP_FIND_LINKS PIP_PYTHON PIP_REQUIREMENT PIP_CONSTRAINT; do
    unset "$name"
done
[ "$HOME" ] || HOME=$work XDG_CONFIG_HOME=$work PYENV_ROOT=$work
TMPDIR=$work # pip, when interrupted, leaves its own folders behind
LC_ALL=C
PYTHONHASHSEED=0
PYTHONS=$pythons
PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 PIP_REQUIRE_VIRTUALENV=0
export HOME XDG_CONFIG_HOME PYENV_ROOT TMPDIR LC_ALL PYTHONHASHSEED PYTHONS
export PIP_DISABLE_PIP_VERSION_CHECK PIP_NO_INPUT PIP_REQUIRE_VIRTUALENV

python=$("$python" -I -c 'import sys; sys.version_info < (3, 9) and sys.exit(1); print(sys.executable)') ||
    fail "'$given' is no Python 3.9 or newer: name one with PYTHON=..."
"$python" -I -m pip --version >/dev/null ||
    fail "$python has no pip (Debian, Ubuntu: apt-get install python3-pip); PYTHON=... names another"

# In the archive. These are the newest versions that run on every Python from 3.9 to 3.13. rich names Pygments
# and markdown-it-py too: it needs them for source code and Markdown, which no report of ours holds. Each with
# its licence, by its SPDX identifier.
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
import sys

gc.disable()  # imports make no garbage to speak of
sys.dont_write_bytecode = True


def refuse(reason):
    """Say why this Python cannot run the program, in one line, and exit 70."""
    try:
        sys.stderr.write("httphases: %s\n" % reason)
    except (AttributeError, IOError):  # stderr is closed
        pass
    sys.exit(70)


def sort_path(entries):
    """Put the standard library before what PYTHONPATH and others added."""
    standard = os.path.join(os.path.dirname(getattr(os, "__file__", "")), "")
    return sorted(entries, key=lambda entry: not os.path.join(entry, "").startswith(standard))


class Bundle:
    """Finds the bundled modules: compiled for this Python in one file for each package, else their sources.

    zipimport would take 4 ms longer over the former, and compile each of the latter twice.
    """

    packages = ("h2", "hpack", "httphases", "hyperframe", "idna", "rich", "socks")

    def __init__(self, loader, archive):
        from importlib.util import MAGIC_NUMBER

        compiled = "%s-%d" % (sys.implementation.cache_tag, int.from_bytes(MAGIC_NUMBER[:2], "little"))
        self.get_data = loader.get_data  # of a path in the archive; raises OSError if nothing is there
        self.sources = os.path.join(archive, "site-packages", "")
        self.compiled = os.path.join(archive, compiled, "")
        self.modules = {}  # by package: {module: (whether it is a package, its code)}

    def read_compiled(self, package):
        """Return the modules of a package, none if it was not compiled for this Python."""
        import marshal

        try:
            return marshal.loads(self.get_data(self.compiled + package + ".marshal"))
        except OSError:
            return {}

    def find_code(self, name, package):
        """Return whether a module is a package, and its code; None if there is no such module."""
        import marshal

        if package not in self.modules:
            self.modules[package] = self.read_compiled(package)
        if name in self.modules[package]:
            is_package, code = self.modules[package].pop(name)  # a second time it comes from the source
            return is_package, marshal.loads(code)
        for is_package, ending in (True, "/__init__.py"), (False, ".py"):
            path = self.sources + name.replace(".", "/") + ending
            try:
                return is_package, compile(self.get_data(path), path, "exec", dont_inherit=True)
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
        code, module.__spec__.loader_state = module.__spec__.loader_state, None
        exec(code, module.__dict__)


def wants_store(words):
    """Tell whether a command line is for https, trusted as this system or SSL_CERT_FILE says."""
    other = ("-k", "--insecure", "--ignore-ssl", "--cacert", "--ca-bundle")
    named = os.environ.get("SSL_CERT_FILE")
    return (any(word[:8].lower() == "https://" for word in words)
            and not any(word.startswith(other) for word in words)
            and (not named or os.path.isfile(named)))  # with a pipe the program has patience, OpenSSL none


def read_store_ahead():
    """Have OpenSSL read the CA store while Python imports the program, which takes either of them 30 ms.

    Return what waits for the context that has it, and gives it once; None if that failed.
    """
    import _thread
    import ssl

    made = []
    busy = _thread.allocate_lock()

    def read():
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.load_default_certs()
            made.append(context)
        except Exception:
            pass  # the program tries it again, and says what is wrong
        busy.release()

    def take():
        with busy:
            return made.pop() if made else None

    busy.acquire()
    try:
        _thread.start_new_thread(read, ())
    except RuntimeError:
        busy.release()
    return take


def start():
    """Import the program; from there on everything, signals included, is its own business."""
    python = "Python %d.%d.%d (%s)" % (sys.version_info[:3] + (sys.executable,))
    if sys.version_info < (3, 9):
        refuse("needs Python 3.9 or newer and this is %s: install a newer python3, or name one you have, "
               "as in `python3.11 httphases.pyz`" % python)
    archive = sys.path[0]
    sys.path[:] = sort_path(sys.path[1:])
    import signal

    # While modules load, an exception could be printed or swallowed half-way: leave at once instead.
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: os._exit(128 + number))
    ahead = []
    try:
        sys.meta_path.insert(0, Bundle(__spec__.loader, archive))
        if wants_store(sys.argv[1:]):
            ahead.append(read_store_ahead())
        import httphases
    except MemoryError:
        refuse("this process can have no more memory (ulimit -v, or the limit of its container or service)")
    except ImportError as error:
        refuse("cannot run on this %s: %s. Install the whole standard library of a Python 3.9 or newer, ssl "
               "included (Debian, Ubuntu: apt-get install python3)" % (python, error))
    except Exception as error:
        refuse("this file is damaged (%s: %s): copy it again, and compare its SHA-256 with that of the original"
               % (type(error).__name__, error))
    httphases.cli(*ahead)


try:
    start()
except KeyboardInterrupt:
    os._exit(130)
EOF

# Run by each Python found: import, from the folder argv[1], all that the program can come to need, and print
# the names of those files. A test holds that against what the archive's own runs import.
cat >used.py <<'EOF'
import io
import os
import sys

site = sys.argv[1]
sys.path.insert(0, site)
sys.dont_write_bytecode = True
os.environ.update(FORCE_COLOR="1", TERM="xterm-256color", COLORTERM="truecolor")
import httphases as tool

if not tool.has_rich():
    sys.exit("rich cannot be imported")
tool.choose_painter(io.StringIO(), os.environ, rich=True).paint([(tool.Span("in colour", "dns on tls"),)])
tool.Http2Connection()
if tool.optional("socks") is None:
    sys.exit("PySocks cannot be imported")
tool.parse_host("\u00fc.test")  # with idna
files = {getattr(module, "__file__", None) or "" for module in sys.modules.values()}
print("\n".join(sorted(os.path.relpath(file, site) for file in files if file.startswith(site + os.sep))))
EOF

# Run by each Python found: compile the sources below argv[1] into argv[2] for this Python, a file for each
# package, which the launcher reads. Docstrings and the annotations of functions are left out, nobody asks for
# them; the sources, which stay, have them. An expression gets the line of its statement: the table of HTTP/2's
# Huffman code has 4,700 lines, which would nearly double hpack.
cat >compile.py <<'EOF'
import ast
import marshal
import sys
from pathlib import Path


def essence(source):
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
        kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None:
            node.body[:1] = [] if node.body[1:] else [ast.copy_location(ast.Pass(), node.body[0])]
        if isinstance(node, ast.stmt):
            for part in (each for each in ast.iter_child_nodes(node) if isinstance(each, ast.expr)):
                for inner in ast.walk(part):
                    ast.copy_location(inner, node)
    return tree


source, target = map(Path, sys.argv[1:])
packages = {}
for path in sorted(source.rglob("*.py")):
    name = path.relative_to(source)
    if name.parts[0] == "idna":
        continue  # it would take 50 KB of each tree, and save 30 ms for the few hosts that are not ASCII
    shown = "httphases.pyz/site-packages/" + name.as_posix()
    code = compile(essence(path.read_bytes()), shown, "exec", dont_inherit=True, optimize=0)
    is_package = name.stem == "__init__"
    parts = name.parent.parts if is_package else name.with_suffix("").parts
    packages.setdefault(parts[0], {})[".".join(parts)] = is_package, marshal.dumps(code)
target.mkdir(parents=True)
for package, modules in packages.items():
    # Version 2 of the format has no references, which depend on who else holds an object.
    (target / (package + ".marshal")).write_bytes(marshal.dumps(modules, 2))
EOF

# finish.py unpack: fill the folders `site` and `builder` with what the pinned wheels hold. finish.py trim: leave
# of `site` what the program can import. finish.py pack: turn shiv's archive into ours, with our launcher for its
# start-up code, the compiled trees, and dates, modes and order that no build can change; compare it with the
# wheels, and say what it is made of.
cat >finish.py <<'EOF'
import base64
import csv
import glob
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path

WORK = Path(__file__).parent
DATE = (1980, 1, 1, 0, 0, 0)
PROBE = """
import importlib.util, sys
if sys.implementation.name != "cpython" or sys.version_info < (3, 9):
    sys.exit("no")
magic = int.from_bytes(importlib.util.MAGIC_NUMBER[:2], "little")
print(*sys.version_info[:3], "%s-%d" % (sys.implementation.cache_tag, magic), sys.executable)
"""


def run(python, *arguments, errors=None):
    # Without site, whose imports would change which constants are shared, and with that the compiled bytes;
    # and without the columns of each instruction, which nothing of ours prints: a third of a compiled tree.
    command = [python, "-s", "-S", "-X", "no_debug_ranges", "-W", "ignore", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=errors, timeout=300).stdout


def installed_pythons():
    yield sys.executable
    for folder in os.get_exec_path():
        paths = sorted(glob.glob(os.path.join(glob.escape(folder), "python3*")))
        yield from (path for path in paths if re.search(r"python3(\.\d+)?$", path))
    pyenv = os.environ.get("PYENV_ROOT") or os.path.expanduser("~/.pyenv")
    yield from sorted(glob.glob(os.path.join(glob.escape(pyenv), "versions", "*", "bin", "python3")))


def pythons_to_compile_for():
    """Map each compiled tree's name to the newest Python that is to fill it."""
    named = [name for name in os.environ.get("PYTHONS", "").split(":") if name]
    newest = {}
    for python in named or dict.fromkeys(map(os.path.realpath, installed_pythons())):
        try:
            answer = run(shutil.which(python) or python, "-c", PROBE, errors=subprocess.DEVNULL)
            *version, tree, path = os.fsdecode(answer).strip().split(" ", 4)
            path = shutil.which(python) if named else path  # it may be a script that starts one elsewhere
        except (OSError, subprocess.SubprocessError):
            if named:
                sys.exit("build_zipapp.sh: %s is no CPython 3.9 or newer" % python)
        else:
            newest[tree] = max(newest.get(tree, ([], "")), ([int(number) for number in version], path))
    return {tree: newest[tree][1] for tree in sorted(newest, key=newest.get)}


def pinned(listed):
    """Yield each package of a list: its name, version, hash, licence, and its wheel, which has that hash."""
    wheels = {sha256(path): path for path in (WORK / "wheels").iterdir()}
    pin = r"^(\S+)==(\S+) --hash=sha256:(\S+)(?: # (\S+))?$"
    for name, version, digest, licence in re.findall(pin, (WORK / listed).read_text(), re.MULTILINE):
        if digest not in wheels:
            sys.exit("build_zipapp.sh: there is no wheel of %s with the pinned hash" % name)
        yield name, version, digest, licence, wheels[digest]


def unpack(listed, folder):
    """Unpack the wheels of a list. Of their papers the licences are enough."""
    for *_, wheel in pinned(listed):
        with zipfile.ZipFile(wheel) as opened:
            for name in opened.namelist():
                if ".dist-info/" not in name or name.rpartition("/")[2].startswith("LICENSE"):
                    opened.extract(name, folder)


def recorded(wheel):
    """Map the name of each file of a wheel to its hash, as its RECORD has it."""
    with zipfile.ZipFile(wheel) as opened:
        [record] = [name for name in opened.namelist() if name.endswith(".dist-info/RECORD")]
        return {name: digest for name, digest, _ in csv.reader(opened.read(record).decode().splitlines())}


def record_hash(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def entries(assembled, pythons):
    """Map every name in the archive to its bytes."""
    found = {"__main__.py": (WORK / "launcher.py").read_bytes()}
    with zipfile.ZipFile(assembled) as archive:
        for name in archive.namelist():
            if name.startswith("site-packages/"):
                found[name] = archive.read(name)
    for tree, python in pythons.items():
        run(python, str(WORK / "compile.py"), str(WORK / "site"), str(WORK / "trees" / tree))
    for path in (WORK / "trees").rglob("*.marshal"):
        found[path.relative_to(WORK / "trees").as_posix()] = path.read_bytes()
    return found


def trim(pythons):
    """Delete from `site` the modules that none of these Pythons imports."""
    site = WORK / "site"
    used = set()
    for python in pythons.values():
        used.update(os.fsdecode(run(python, str(WORK / "used.py"), str(site))).split("\n"))
    for path in sorted(site.rglob("*.py")):
        if path.relative_to(site).as_posix() not in used:
            path.unlink()


def size_of(archive, *folders):
    """Return how many bytes of the archive its files below these folders take."""
    return sum(info.compress_size for info in archive.infolist() if info.filename.startswith(folders))


def tell(target, pythons):
    """Print what is in the archive and what it costs."""
    with zipfile.ZipFile(target) as archive:
        print("%8d bytes  sources and licences" % size_of(archive, "site-packages/"))
        for tree, python in pythons.items():
            release = re.sub(r"^cpython-3(\d+)-.*", r"3.\1", tree)
            print("%8d bytes  compiled for Python %s (%s)" % (size_of(archive, tree + "/"), release, python))
    print("%8d bytes  in all" % os.path.getsize(target))
    print("SHA-256 " + hashlib.sha256(target.read_bytes()).hexdigest())


def write(target, contents):
    with open(target, "wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w") as archive:
            for name in sorted(contents):
                info = zipfile.ZipInfo(name, DATE)
                info.create_system = 3
                info.external_attr = 0o100644 << 16
                # The launcher stays readable for a Python without zlib, which it is there to explain.
                method = zipfile.ZIP_STORED if name == "__main__.py" else zipfile.ZIP_DEFLATED
                archive.writestr(info, contents[name], method, 9)


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def component(kind, url, name, digest, licence, **more):
    return {
        "type": kind,
        "bom-ref": url,
        "name": name,
        "version": url.rpartition("@")[2],
        "hashes": [{"alg": "SHA-256", "content": digest}],
        "licenses": [{"license": {"id": licence}}],
        "purl": url,
        **more,
    }


def libraries(contents):
    """Describe the packages of which these files are; leave if one of them is not as its wheel has it."""
    for name, version, digest, licence, wheel in pinned("bundle.txt"):
        files = recorded(wheel)
        held = [path for path in contents if path in files]
        for path in held:
            if record_hash(contents.pop(path)) != files[path]:
                sys.exit("build_zipapp.sh: %s is not what the wheel of %s has" % (path, name))
        if held:
            url = "pkg:pypi/%s@%s" % (name.lower(), version)
            note = "The modules that httphases imports; the hash is that of the wheel they are from."
            yield component("library", url, name, digest, licence, description=note)
    if contents:
        sys.exit("build_zipapp.sh: %s is in no pinned wheel" % min(contents))


def write_bom(target, archive, source):
    """Write what an archive is made of; its serial number is made of that too, so it is always the same."""
    with zipfile.ZipFile(archive) as opened:
        names = [name for name in opened.namelist() if name.startswith("site-packages/")]
        contents = {name.partition("/")[2]: opened.read(name) for name in names}
    for name, path in ("httphases.py", source), ("httphases.dist-info/LICENSE", source.with_name("LICENSE")):
        if contents.pop(name) != path.read_bytes():
            sys.exit("build_zipapp.sh: %s is not %s" % (name, path))
    version = re.search(r'^__version__ = "(.*)"', source.read_text("utf-8"), re.MULTILINE)[1]
    whole, program = (
        component("application", "pkg:generic/%s@%s" % (name, version), name, sha256(path), "MIT")
        for name, path in ((archive.name, archive), ("httphases", source))
    )
    parts = [program, *libraries(contents)]
    refs = [each["bom-ref"] for each in parts]
    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"lifecycles": [{"phase": "build"}], "component": whole},
        "components": parts,
        "dependencies": [{"ref": whole["bom-ref"], "dependsOn": refs}],
        "compositions": [{"aggregate": "complete", "assemblies": [whole["bom-ref"]]}],
    }
    bom["serialNumber"] = "urn:uuid:%s" % uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(bom))
    target.write_text(json.dumps(bom, indent=2) + "\n")


def write_sums(target, *files):
    target.write_text("".join("%s  %s\n" % (sha256(path), name) for name, path in files))


PYZ, BOM = WORK / "made" / "httphases.pyz", WORK / "made" / "httphases.cdx.json"
pythons = pythons_to_compile_for()
if sys.argv[1] == "unpack":
    unpack("bundle.txt", WORK / "site")
    unpack("builder.txt", WORK / "builder")
elif sys.argv[1] == "trim":
    trim(pythons)
else:
    PYZ.parent.mkdir()
    write(PYZ, entries(WORK / "assembled.pyz", pythons))
    PYZ.chmod(0o755)
    for python in pythons.values():
        run(python, "-I", str(PYZ), "--version")
    tell(PYZ, pythons)
    source = Path(sys.argv[2], "tool.py")
    write_bom(BOM, PYZ, source)
    write_sums(PYZ.with_name("SHA256SUMS"), (PYZ.name, PYZ), (BOM.name, BOM), ("tool.py", source))
EOF

# Fetch the pinned wheels, each with the hash that is written here, and nothing they ask for, into a folder.
fetch() {
    for each in $links; do
        set -- "$@" --find-links "$(absolute "$each")"
    done
    "$python" -I -m pip download --quiet --no-deps --only-binary :all: --require-hashes \
        -r bundle.txt -r builder.txt --dest "$@" >&2 ||
        fail "the pinned wheels could not be had; PIP_FIND_LINKS may name a folder that holds them"
}

if [ -n "$download" ]; then
    fetch "$download"
    exit
fi

fetch wheels
"$python" -I finish.py unpack || fail "the pinned wheels could not be unpacked"
mkdir site/httphases.dist-info
cp "$project/LICENSE" site/httphases.dist-info/LICENSE
cp "$project/tool.py" site/httphases.py
"$python" -I finish.py trim || fail "what the program imports could not be found out"

shiv='import runpy, sys; sys.path.insert(0, "builder"); runpy.run_module("shiv", run_name="__main__")'
"$python" -I -W ignore -c "$shiv" --reproducible --site-packages site --entry-point httphases:cli \
    --output-file assembled.pyz || fail "shiv could not put the archive together"
"$python" -I finish.py pack "$project" || fail "the archive could not be finished"

mkdir -p "$project/dist"
unfinished=$(mktemp -d "$project/dist/.httphases.XXXXXX")
cp -pR made/. "$unfinished"
for name in httphases.pyz httphases.cdx.json SHA256SUMS; do
    mv -f "$unfinished/$name" "$project/dist/$name"
    printf 'wrote %s\n' "$project/dist/$name"
done
