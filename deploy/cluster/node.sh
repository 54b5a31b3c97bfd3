#!/bin/sh
# The first process of the node's namespaces; keeper.sh starts it. At its end, the kernel ends all
# others. The network has no uplink: its addresses are of the range for benchmarks, 198.18.0.0/15.
set -eu
conf=$(cd "$(dirname "$0")/node" && pwd)

# The machine's /run, /var/lib and /var/log are hidden. A new /sys shows the new network; the control
# groups are moved into it.
mkdir "$RUN/parked"
mount --rbind /sys/fs/cgroup "$RUN/parked"
mount -t sysfs sysfs /sys
mount --rbind "$RUN/parked" /sys/fs/cgroup
umount -l "$RUN/parked"
mount --make-rshared /
mount -t tmpfs tmpfs /run
mkdir -p /run/cluster /run/bin /run/node /run/sysctl /run/lock /run/netns
mount --bind "$RUN" /run/cluster
mount --bind "$BIN" /run/bin
mount --bind "$conf" /run/node
mkdir /run/models
mount --bind "$MODELS" /run/models
mkdir -p "$RUN/lib/kubelet" "$RUN/lib/cni" "$RUN/lib/etcd" "$RUN/lib/plugins"
mount --bind "$RUN/lib" /var/lib
mount --bind "$RUN/log" /var/log
mount --bind /run/node/resolv.conf "$(readlink -f /etc/resolv.conf)"
export PATH=/run/bin:/usr/sbin:/usr/bin:/sbin:/bin

# The kubelet sets these for the whole machine. It finds its values here, so the machine keeps its own.
setting() {
    echo "$2" > "/run/sysctl/$(basename "$1")"
    mount --bind "/run/sysctl/$(basename "$1")" "/proc/sys/$1"
}
setting vm/overcommit_memory 1
setting vm/panic_on_oom 0
setting kernel/panic 10
setting kernel/panic_on_oops 1
setting kernel/keys/root_maxkeys 1000000
setting kernel/keys/root_maxbytes 25000000

hostname node0
ip link set lo up
ip link add node0 type veth peer name node0peer
ip link set node0peer up
ip link set node0 up
ip address add 198.18.0.1/24 dev node0
ip route add 198.19.0.0/16 dev node0
echo 1 > /proc/sys/net/ipv4/ip_forward
[ ! -e /proc/sys/net/bridge ] || echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables

# The kubelet reads the use of its own group.
for tree in cpuacct memory; do
    [ ! -d /sys/fs/cgroup/$tree ] || { mkdir -p /sys/fs/cgroup/$tree/$GROUP/node; echo $$ > /sys/fs/cgroup/$tree/$GROUP/node/cgroup.procs; }
done

start() {
    "$@" > "/var/log/$1.log" 2>&1 &
}

cd /run/cluster/keys
start etcd --data-dir /var/lib/etcd --unsafe-no-fsync
start containerd --config /run/node/containerd.toml
start kube-apiserver --advertise-address=198.18.0.1 --bind-address=198.18.0.1 --etcd-servers=http://127.0.0.1:2379 \
    --service-cluster-ip-range=198.19.0.0/16 --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --token-auth-file=tokens.csv --client-ca-file=cluster.crt --tls-cert-file=server.crt --tls-private-key-file=server.key \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file=accounts.key \
    --service-account-signing-key-file=accounts.key --kubelet-client-certificate=to-kubelet.crt \
    --kubelet-client-key=to-kubelet.key --kubelet-certificate-authority=cluster.crt \
    --kubelet-preferred-address-types=InternalIP --requestheader-client-ca-file=front.crt \
    --requestheader-allowed-names=front-client --requestheader-username-headers=X-Remote-User \
    --requestheader-group-headers=X-Remote-Group --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --proxy-client-cert-file=front-client.crt --proxy-client-key-file=front-client.key --enable-aggregator-routing=true
until kubectl --kubeconfig admin.kubeconfig get --raw /readyz > /dev/null 2>&1; do
    sleep 0.2
done
# The autoscaler looks more often than by default, so that the tests take a minute.
start kube-controller-manager --kubeconfig=manager.kubeconfig --leader-elect=false --bind-address=127.0.0.1 \
    --use-service-account-credentials=true --service-account-private-key-file=accounts.key --root-ca-file=cluster.crt \
    --flex-volume-plugin-dir=/var/lib/plugins --horizontal-pod-autoscaler-sync-period=5s \
    --horizontal-pod-autoscaler-downscale-stabilization=15s --horizontal-pod-autoscaler-initial-readiness-delay=5s \
    --horizontal-pod-autoscaler-cpu-initialization-period=20s
start kube-scheduler --kubeconfig=scheduler.kubeconfig --leader-elect=false --bind-address=127.0.0.1
start kubelet --config=/run/node/kubelet.yaml --kubeconfig=kubelet.kubeconfig --hostname-override=node0 \
    --node-ip=198.18.0.1 --cert-dir=/run/cluster/keys
start kube-proxy --config=/run/node/proxy.yaml
start coredns -conf /run/node/Corefile
start metrics-server --kubeconfig=admin.kubeconfig --authentication-kubeconfig=admin.kubeconfig \
    --authorization-kubeconfig=admin.kubeconfig --bind-address=198.18.0.1 --secure-port=4443 --cert-dir=/run/metrics-server \
    --kubelet-certificate-authority=cluster.crt --kubelet-preferred-address-types=InternalIP \
    --kubelet-request-timeout=5s --metric-resolution=10s
while :; do
    wait
    sleep 1
done
