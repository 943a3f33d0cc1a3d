#!/bin/sh
# Every kernel with 1, 2 and 4 vCPUs: streams, exit code, CPU count, clock source, a quiet boot.  Generic
# kernels with 2 only, unless FULL=1.
. tests/guest/lib.sh

for k in $KERNELS; do
	kernel=$(kernel "$k") || { skip "basic-$k" "no kernel (guest-images/kernels.sh $k)"; continue; }
	case $k${FULL-} in *-generic) counts=2 ;; *) counts='1 2 4' ;; esac
	for cpus in $counts; do
		run "basic-$k-$cpus" 120 -k "$kernel" -c $cpus -m 1G --console "$WORK/console" -- sh -c '
			echo out; echo err >&2
			nproc; uname -r
			cat /sys/devices/system/clocksource/clocksource0/current_clocksource
			dmesg -l emerg,alert,crit,err,warn | grep -v -e "Speculative" -e "mitigations" >&2
			exit 7'
		err=$WORK/basic-$k-$cpus.err
		expect "$k, $cpus vCPUs: exit code of the command" 7
		printf 'out\n%s\n%s\nkvm-clock\n' "$cpus" "${kernel##*/vmlinuz-}" >"$WORK/want"
		if cmp -s "$WORK/want" "$WORK/basic-$k-$cpus.out"; then
			pass "$k, $cpus vCPUs: standard output, CPU count, release, clock"
		else
			fail "$k, $cpus vCPUs: standard output" "unexpected" "$WORK/basic-$k-$cpus.out"
		fi
		if [ "$(head -n 1 "$err")" = err ] && ! grep -qiE 'acpi|apic|pci|virtio|tsc' "$err"; then
			pass "$k, $cpus vCPUs: standard error, and a boot without complaints about the machine"
		else
			fail "$k, $cpus vCPUs: standard error" "unexpected" "$err"
		fi
	done
done
finish guest-basic
