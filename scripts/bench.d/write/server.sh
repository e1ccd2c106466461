# The web server of the benchmark: nginx on loopback, its own configuration, port and process.
# shellcheck shell=bash

# start_server DIRECTORY: serves it; sets SERVER (http://127.0.0.1:PORT) and SERVED (the log of body bytes).
start_server() {
    local port conf=$WORK/nginx.conf try
    port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    SERVER=http://127.0.0.1:$port SERVED=$WORK/served
    : >"$SERVED"
    cat >"$conf" <<CONF
# The caller's own files, which www-data may not be able to read.
user $(id -un);
worker_processes 2;
daemon off;
pid $WORK/nginx.pid;
error_log $WORK/nginx.error;
events { worker_connections 256; }
http {
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000;
    default_type application/octet-stream;
    log_format bytes '\$body_bytes_sent';
    access_log $SERVED bytes;
    client_body_temp_path $WORK/nginx.body;
    proxy_temp_path $WORK/nginx.proxy;
    fastcgi_temp_path $WORK/nginx.fastcgi;
    uwsgi_temp_path $WORK/nginx.uwsgi;
    scgi_temp_path $WORK/nginx.scgi;
    server {
        listen 127.0.0.1:$port;
        root $1;
    }
}
CONF
    nginx -e "$WORK/nginx.error" -c "$conf" 9>&- &
    local pid=$!
    undo "end_process $pid"
    for ((try = 0; try < 100; try++)); do
        kill -0 "$pid" 2>/dev/null || die "nginx did not start: $(cat "$WORK/nginx.error")"
        # Any answer will do.
        curl -s -o /dev/null "$SERVER/" && return 0
        sleep 0.1
    done
    die "nginx did not answer within 10 s: $(cat "$WORK/nginx.error")"
}
