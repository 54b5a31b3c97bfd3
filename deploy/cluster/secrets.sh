#!/bin/sh
# secrets.sh FOLDER: makes certificates of an authority in FOLDER, which is made once, and tokens, and
# puts them into Secrets of the namespace llm. A repeated call rotates the certificates.
set -eu
umask 077
mkdir -p "$1"
cd "$1"

key() {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "$@" 2> /dev/null
}

secret() {
    kubectl -n llm create secret generic "$@" --dry-run=client -o yaml | kubectl apply -f - > /dev/null
}

[ -e ca.crt ] || key -x509 -days 30 -subj /CN=test -keyout ca.key -out ca.crt
for name in render gen client; do
    key -subj "/CN=$name" -keyout tls.key -out request
    echo "subjectAltName=DNS:tandem-$name,DNS:tandem-$name-headless" > extension
    openssl x509 -req -in request -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile extension -out tls.crt 2> /dev/null
    openssl x509 -in tls.crt -noout -serial > "$name.serial"
    secret "$name-tls" --from-file=tls.crt --from-file=tls.key --from-file=ca.crt
done
[ -e tokens ] || echo "$(openssl rand -hex 16) name=test" > tokens
[ -e gen-tokens ] || echo "$(openssl rand -hex 16) name=render delegate" > gen-tokens
secret render-tokens --from-file=tokens=tokens
secret gen-tokens --from-file=tokens=gen-tokens
