#!/bin/sh
# Certificates of etcd's members, and who may come in as a client.
#
#   certificates.sh DIRECTORY BROKER_KEYS HOST_OR_ADDRESS...
#
# makes in DIRECTORY, unless they are there:
#   etcd-ca.crt, etcd-ca.key   the CA of the members; keep the key off the machines
#   server.crt, server.key     of one member (or of all, with all their names): server and peer
#   clients-ca.crt             whom etcd lets in: the federation's CA, taken from BROKER_KEYS/ca.pem
# The broker then needs `etcd_ca_file: DIRECTORY/etcd-ca.crt`; its own client certificate it has.
set -eu

[ $# -ge 3 ] || { sed -n '2,12p' "$0" >&2; exit 2; }
directory=$1 keys=$2
shift 2
days=3650
umask 077
mkdir -p "$directory"
cd "$directory"
[ -r "$keys/ca.pem" ] || {
    echo "$keys/ca.pem is not there: start the broker once, it makes its keys before it needs etcd" >&2
    exit 1
}

if [ ! -e etcd-ca.key ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days $days \
        -subj "/CN=tradewind etcd" -addext basicConstraints=critical,CA:TRUE \
        -addext keyUsage=critical,keyCertSign,cRLSign -keyout etcd-ca.key -out etcd-ca.crt
fi

if [ ! -e server.key ]; then
    names=
    for name; do
        case $name in
            *[!0-9.]*:*|*:*) names="$names,IP:$name" ;;
            *[!0-9.]*) names="$names,DNS:$name" ;;
            *) names="$names,IP:$name" ;;
        esac
    done
    printf '%s\n' "subjectAltName=${names#,},DNS:localhost,IP:127.0.0.1" \
        extendedKeyUsage=serverAuth,clientAuth keyUsage=critical,digitalSignature > server.ext
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=etcd-member" \
        -keyout server.key -out server.csr
    openssl x509 -req -in server.csr -CA etcd-ca.crt -CAkey etcd-ca.key -CAcreateserial \
        -days $days -extfile server.ext -out server.crt
    rm -f server.csr server.ext
fi

openssl x509 -in "$keys/ca.pem" -out clients-ca.crt
# Certificates are no secret: the broker, another user than etcd, reads the one of the CA.
chmod 755 .
chmod 644 ./*.crt
echo "etcd_ca_file: $(pwd)/etcd-ca.crt"
