#!/bin/sh
# In the far guest of netoff.sh: serves until told to end, then says what it found.
. tests/guest/net-guest.sh
ip -6 addr add fd09::3/64 dev eth0 nodad
iperf3 -s -D >/dev/null
trap 'echo "bad sums $(bad_sums)"; exit 0' TERM
echo ready
while :; do sleep 1; done
