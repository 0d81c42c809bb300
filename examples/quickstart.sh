#!/usr/bin/env bash
# Starts a demo upstream and the proxy in front of it; both end with Ctrl-C. Called by `make run` with the binary's path.
set -euo pipefail
cd "$(dirname "$0")/.."
postrider=$1

"$postrider" demo-upstream --listen 127.0.0.1:9000 &
upstream=$!
"$postrider" run -c examples/quickstart.yaml &
proxy=$!
stop() {
    trap - EXIT INT TERM
    kill "$proxy" "$upstream" 2> /dev/null || true
    wait "$proxy" "$upstream" 2> /dev/null || true
}
trap stop EXIT
trap 'stop; exit 0' INT TERM

# Ready is what the admin says it is; give up when the proxy has ended or 10 s have passed.
deadline=$((SECONDS + 10))
until curl -fs -o /dev/null http://127.0.0.1:9901/ready; do
    if ! kill -0 "$proxy" 2> /dev/null || ! kill -0 "$upstream" 2> /dev/null; then
        echo "the proxy or the demo upstream ended: is port 10000, 9901 or 9000 in use?" >&2
        exit 1
    fi
    if [ "$SECONDS" -ge "$deadline" ]; then
        echo "the proxy did not become ready within 10 s" >&2
        exit 1
    fi
    sleep 0.1
done

cat << 'TEXT'

  proxy     http://127.0.0.1:10000
  admin     http://127.0.0.1:9901
  upstream  http://127.0.0.1:9000   (demo, served by the same binary)

  try:      curl -i http://127.0.0.1:10000/hello
  why:      postrider explain examples/quickstart.yaml GET http://127.0.0.1:10000/hello
  change:   edit examples/quickstart.yaml and save: it is reloaded without losing a request
  stop:     Ctrl-C

TEXT
wait -n "$proxy" "$upstream" || true
