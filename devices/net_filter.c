/*
 * Which frames a receiver lets through (virtio 1.2, "Packet Receive Filtering", "VLAN Filtering").
 */
#include "devices/net_internal.h"

#include <string.h>

#define TAG_SEEN 2 /* bytes of a VLAN tag behind the type: the half that counts */

uint64_t net_mac_number(const uint8_t mac[ETH_ALEN])
{
	uint64_t n = 0;

	memcpy(&n, mac, ETH_ALEN);
	return n;
}

/*
 * Promiscuous until told otherwise: drivers without the control queue (firmware, boot loaders) have
 * no way to ask for what they need, and one that has will set the mode when its interface comes up.
 */
void net_filter_init(struct net_filter *f, const uint8_t mac[ETH_ALEN], bool check_vlan)
{
	*f = (struct net_filter){
		.own = net_mac_number(mac),
		.check_vlan = check_vlan,
		.mode[VIRTIO_NET_CTRL_RX_PROMISC] = true,
	};
}

static bool vlan_passes(const struct net_filter *f, const uint8_t *eth, size_t len)
{
	unsigned id;

	if (!f->check_vlan || len < ETH_HLEN + TAG_SEEN)
		return true;
	if (eth[12] != (ETH_P_8021Q >> 8) || eth[13] != (ETH_P_8021Q & 0xff))
		return true;
	id = (unsigned)(eth[14] & 0x0f) << 8 | eth[15];
	/* Number 0 is no VLAN, only a priority: a guest without VLANs takes such frames. */
	return id == 0 || (f->vlan[id / 64] >> id % 64 & 1);
}

static bool in_table(const struct net_filter *f, uint64_t mac)
{
	for (unsigned i = 0; i < f->n_macs; i++)
		if (f->mac[i] == mac)
			return true;
	return false;
}

static bool mac_passes(const struct net_filter *f, const uint8_t *eth)
{
	uint64_t to = net_mac_number(eth);
	bool multi = eth[0] & 1;

	if (to == 0xffffffffffff)
		return !f->mode[VIRTIO_NET_CTRL_RX_NOBCAST];
	if (f->mode[multi ? VIRTIO_NET_CTRL_RX_NOMULTI : VIRTIO_NET_CTRL_RX_NOUNI])
		return false;
	if (f->mode[multi ? VIRTIO_NET_CTRL_RX_ALLMULTI : VIRTIO_NET_CTRL_RX_ALLUNI])
		return true;
	return f->too_many[multi] || to == f->own || in_table(f, to);
}

bool net_filter_passes(const struct net_filter *f, const uint8_t *eth, size_t len)
{
	if (f->mode[VIRTIO_NET_CTRL_RX_PROMISC])
		return true;
	return vlan_passes(f, eth, len) && mac_passes(f, eth);
}
