#!/bin/sh
# keeper.sh RUN BIN: starts a node of Kubernetes in its own namespaces, ends it at the end of standard
# input, and removes all that it leaves: processes, namespaces, mounts, control groups, files. It thus
# also ends if its parent is killed. RUN is the folder of the node's files, BIN that of its programs.
set -u
RUN=$1 BIN=$2 GROUP=tandem-cluster
export RUN BIN GROUP
here=$(cd "$(dirname "$0")" && pwd)

remove() {
    # A removed group may still have processes that are about to end.
    for _ in $(seq 100); do
        find /sys/fs/cgroup -depth -type d -path "*/$GROUP*" -exec rmdir {} + 2> /dev/null
        [ -z "$(find /sys/fs/cgroup -maxdepth 2 -name "$GROUP")" ] && break
        sleep 0.1
    done
    rm -rf "$RUN"
}

# With version 1 of control groups each controller has a tree; with version 2 there is one.
make_groups() {
    if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
        mkdir -p /sys/fs/cgroup/$GROUP
        echo "+cpu +cpuset +memory +pids" > /sys/fs/cgroup/$GROUP/cgroup.subtree_control
        return
    fi
    for tree in /sys/fs/cgroup/*/; do
        mkdir -p "$tree$GROUP"
    done
    for file in cpus mems; do
        cat /sys/fs/cgroup/cpuset/cpuset.$file > /sys/fs/cgroup/cpuset/$GROUP/cpuset.$file
    done
}

# A keeper that still removes has the same folder and groups.
exec 9> "$RUN.lock"
flock --wait 60 9 || exit 1
remove
mkdir -p "$RUN/log" "$RUN/lib" "$RUN/keys" || exit 1
"$here/keys.sh" "$RUN/keys" || exit 1
make_groups || exit 1
unshare --mount --net --pid --ipc --uts --fork --kill-child --mount-proc "$here/node.sh" \
    < /dev/null > "$RUN/log/node.log" 2>&1 9>&- &
node=$!
trap 'kill -KILL $node; wait $node 2> /dev/null; remove' EXIT
trap '' INT TERM HUP
for _ in $(seq 100); do
    first=$(tr -d ' ' < "/proc/$node/task/$node/children")
    [ -n "$first" ] && break
    sleep 0.05
done
echo "$first"
cat > /dev/null
