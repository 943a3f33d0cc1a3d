#!/bin/sh
# In the guest: netlife-rebind.sh [ROUNDS]
. tests/guest/net-guest.sh
rounds=${1:-6}
dev=$(basename "$(readlink /sys/class/net/eth0/device)")
drv=/sys/bus/virtio/drivers/virtio_net
n=0
while [ "$n" -lt "$rounds" ]; do
	echo "$dev" >$drv/unbind && echo "$dev" >$drv/bind || break
	ip link set eth0 up && ip addr add 10.9.0.2/24 dev eth0
	case $((n % 5)) in 0) ping -q -c 5 -i 0.2 -W 2 10.9.0.1 >/tmp/ping 2>&1 || { bad "ping after $n rounds" /tmp/ping; break; } ;; esac
	n=$((n + 1))
done
check "$rounds times unbound and bound under flood" test "$n" -eq "$rounds"
check "and the network works" ping -q -c 10 -i 0.2 -W 2 10.9.0.1
check "no complaint of the kernel" no_complaint
echo end of script
