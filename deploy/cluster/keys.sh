#!/bin/sh
# keys.sh FOLDER: makes the certificates, tokens and configurations with which the parts of the
# cluster know each other. All are new for each cluster.
set -eu
cd "$1"
umask 077

authority() {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj "/CN=$1" \
        -keyout "$1.key" -out "$1.crt" 2> /dev/null
}

# certificate NAME AUTHORITY SUBJECT EXTENSION
certificate() {
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "$3" -keyout "$1.key" \
        -out "$1.request" 2> /dev/null
    echo "$4" > "$1.extension"
    openssl x509 -req -in "$1.request" -CA "$2.crt" -CAkey "$2.key" -CAcreateserial -days 30 \
        -extfile "$1.extension" -out "$1.crt" 2> /dev/null
}

# user FILE NAME GROUP: a token, and a file with which a client uses it
user() {
    token=$(openssl rand -hex 16)
    echo "$token,$2,$1,\"$3\"" >> tokens.csv
    cat > "$1.kubeconfig" << CONFIG
apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://198.18.0.1:6443", certificate-authority: /run/cluster/keys/cluster.crt}}]
users: [{name: $1, user: {token: $token}}]
contexts: [{name: test, context: {cluster: test, user: $1}}]
current-context: test
CONFIG
}

authority cluster
authority front
certificate server cluster /CN=kube-apiserver "subjectAltName=IP:198.18.0.1,IP:198.19.0.1,DNS:kubernetes.default.svc"
certificate kubelet cluster /CN=node0 "subjectAltName=IP:198.18.0.1,DNS:node0"
certificate to-kubelet cluster /O=system:masters/CN=apiserver "extendedKeyUsage=clientAuth"
certificate front-client front /CN=front-client "extendedKeyUsage=clientAuth"
openssl genrsa -out accounts.key 2048 2> /dev/null
user admin admin system:masters
user manager system:kube-controller-manager ""
user scheduler system:kube-scheduler ""
user proxy system:kube-proxy ""
user kubelet system:node:node0 system:nodes
