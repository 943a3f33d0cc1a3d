#!/bin/sh
# In the guest of netlife.sh, with a ring of 64: the CPU that takes frames does something else for a while.
. tests/guest/net-guest.sh
for irq in $(awk -F: '/input.0/ { print $1 + 0 }' /proc/interrupts); do echo 1 >/proc/irq/$irq/smp_affinity; done
echo -1 >/proc/sys/kernel/sched_rt_runtime_us
for round in $(seq "${1:-1}"); do
	iperf3 -u -R -b 30M -l 100 -t 4 -c 10.9.0.1 >/dev/null 2>&1 &
	flow=$!
	sleep 1
	taskset -c 1 timeout 1.5 taskset -c 0 chrt -f 99 sh -c 'while :; do :; done'
	wait $flow
	check "frames come in after the ring ran empty ($round)" ping -q -c 2 -i 0.1 -W 2 10.9.0.1
done
check "no complaint of the kernel" no_complaint
echo end of script
