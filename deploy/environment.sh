#!/bin/sh
# Makes .venv match requirements.lock exactly. Uses uv where it is installed, else a copy of its own under .tidings.
# Usage: deploy/environment.sh PYTHON
set -eu

python=$1
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "Tidings needs Python 3.11 or newer; name one: make PYTHON=python3.12 ..." >&2
    exit 1
fi

uv=uv
if ! uv --version >/dev/null 2>&1; then
    uv=.tidings/uv/bin/uv
    if ! [ -x "$uv" ]; then
        if ! "$python" -m venv .tidings/uv; then
            echo "Install Python's venv module (Debian, Ubuntu: sudo apt-get install -y python3-venv), or uv" >&2
            exit 1
        fi
        .tidings/uv/bin/python -m pip install --quiet uv
    fi
fi

# A copied or half-made environment has an interpreter that does not run; it is made anew.
.venv/bin/python -c '' >/dev/null 2>&1 || "$uv" venv --quiet --clear --python "$python" .venv
"$uv" pip sync --quiet --compile-bytecode --python .venv/bin/python requirements.lock
"$uv" pip install --quiet --python .venv/bin/python --no-deps --editable .
