#!/bin/sh
# Guest memory sizes around the hole below 4 GiB, each with small and large initrds: the initrd arrives
# intact, or is refused before the guest starts with a line that says why.  FULL=1: all with all.
. tests/guest/lib.sh
k=${MEMORY_KERNEL:-backports-cloud}
kernel=$(kernel "$k") || { skip memory "no kernel (guest-images/kernels.sh $k)"; finish guest-memory; exit; }

for mib in 1 60 400; do
	"$TOOL" initrd "$mib" >"$WORK/initrd" || exit 1
	case $mib${FULL-} in
	1 | 400) sizes='128 3072 8192' ;;
	*) sizes='128 512 2048 3071 3072 3584 4096 8192' ;;
	esac
	for ram in $sizes; do
		name="mem-$ram-$mib"
		timeout -s KILL 180 "$H" -k "$kernel" -c 1 -m "$ram" --initrd "$WORK/initrd" \
			--append "quiet retain_initrd" >"$WORK/$name.out" 2>"$WORK/$name.err" </dev/null
		code=$?
		total=$(sed -n 's/.*memory \([0-9]*\) MiB.*/\1/p' "$WORK/$name.out")
		if [ $code -eq 0 ] && grep -q "initrd intact: $mib MiB" "$WORK/$name.out" &&
			[ "${total:-0}" -ge $((ram * 8 / 10 - 60 - mib)) ] && [ "$total" -le "$ram" ]; then
			pass "$ram MiB of memory with an initrd of $mib MiB"
		elif [ $code -eq 125 ] && [ "$ram" -lt $((mib + 128)) ] && grep -q initrd "$WORK/$name.err"; then
			pass "$ram MiB of memory refuse an initrd of $mib MiB: $(cat "$WORK/$name.err")"
		else
			cat "$WORK/$name.err" >>"$WORK/$name.out"
			fail "$ram MiB of memory with an initrd of $mib MiB" "exit code $code" "$WORK/$name.out"
		fi
	done
done
finish guest-memory
